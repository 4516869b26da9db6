//! Colour and progress appear on a terminal, and not in a pipe.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::common::{DRAY, alone, dray};

/// The machine's limit: prints a table on any output.
const BENCH: &str = "bench limit --quick --duration 0.2 --size 64";
const COLOUR: &str = "\x1b[1m";

/// Returns what a shell's `command` writes to a terminal, which script(1) provides.
fn on_a_terminal(command: &str) -> String {
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", command, "/dev/null"]);
    script.env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null());
    let Output { status, stdout, .. } = script.output().expect("script, of package bsdutils");
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{command}: {text}");
    text
}

#[test]
fn colour_only_on_a_terminal() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table");
    let shown = on_a_terminal(&format!("{DRAY} {BENCH} 2>/dev/null"));
    let heads: Vec<&str> = shown.lines().filter(|line| line.starts_with(COLOUR)).collect();
    assert_eq!(heads.len(), 2, "{shown:?}");
    assert!(heads[0].contains("limit of the machine") && heads[1].contains("Mpps"), "{shown:?}");
    assert!(shown.contains("one copy, two CPUs"), "{shown:?}");
    // `NO_COLOR` disables colour.
    let plain = on_a_terminal(&format!("NO_COLOR=1 {DRAY} {BENCH} 2>/dev/null"));
    assert!(plain.contains("one copy, two CPUs") && !plain.contains('\x1b'), "{plain:?}");
    // A redirected table has no colour, even if the shell has a terminal.
    let seen = on_a_terminal(&format!("{DRAY} {BENCH} >{} 2>/dev/null", file.display()));
    let table = fs::read_to_string(&file).unwrap();
    assert!(table.contains("one copy, two CPUs") && !table.contains('\x1b'), "{table:?}");
    assert_eq!(seen, "");
}

#[test]
fn progress_only_on_a_terminal() {
    let _alone = alone();
    let shown = on_a_terminal(&format!("{DRAY} {BENCH} >/dev/null"));
    assert!(shown.contains("limit 64 B") && shown.contains(" left"), "{shown:?}");
    let output = dray(&BENCH.split(' ').collect::<Vec<_>>());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said:?}");
    assert!(!output.stdout.contains(&0x1b));
}
