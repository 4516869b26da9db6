//! Colour and progress appear on a terminal, and not in a pipe.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use crate::common::{self, DRAY, Started, alone, dray, success};

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
fn long_run_is_announced_with_its_length() {
    let _alone = alone();
    let words = "bench limit --trials 100 --duration 0.2 --size 64";
    let mut run = common::command();
    let run = run.args(words.split(' ')).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = Started(run.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(run.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "about 20 s\n");
}

#[test]
fn list_shows_the_time_of_each_experiment() {
    let _alone = alone();
    for (words, limit) in
        [(&["bench", "--list"][..], "15 s"), (&["bench", "--list", "--quick"], "6 s")]
    {
        let list = success(words);
        let lines = list.lines().skip(1).take_while(|line| !line.is_empty());
        let experiments: Vec<Vec<&str>> = lines.map(|it| it.split_whitespace().collect()).collect();
        assert!(experiments.len() > 25, "{list}");
        for line in &experiments {
            assert!(line[1].parse::<u32>().is_ok(), "{line:?}");
            assert!(["s", "min", "h"].contains(&line[2]), "{line:?}");
        }
        let time = experiments.iter().find(|line| line[0] == "limit").unwrap()[1..3].join(" ");
        assert_eq!(time, limit, "{list}");
    }
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
