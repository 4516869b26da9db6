//! Labs show the logs of their commands, how they ended, and why they failed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{self, Started, Traces, alone, dray, eventually, success};
use crate::standing::{PAIR, Up, write};

/// A command that writes a line, and one more at SIGTERM.
const POLITE: &str = "echo begins; trap \"echo is done; exit 3\" TERM; sleep 1000 & wait";

fn container(name: &str, run: &str) -> String {
    format!("[[containers]]\nname = '{name}'\nrun = '''{run}'''\n")
}

fn failure(arguments: &[&str]) -> (Option<i32>, String) {
    let output = dray(arguments);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn down_prints_results_and_removes_sockets() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("port.sock");
    let switch = format!("dray switch --port a=vhost:{}", socket.display());
    let text = PAIR.replace("name = 'b'\n", "name = 'b'\nrun = 'dray receive --port raw:eth0'\n")
        + &container("polite", POLITE)
        + &container("short", "echo all said")
        + &container("switch", &switch);
    let up = Up::text(&text, "results");
    let shown = success(&["lab", "ls", "results"]);
    assert!(shown.contains("dray lab logs --lab results polite"), "{shown}");
    let sent = up.exec_well(
        "a",
        &["dray", "send", "--port", "raw:eth0", "--duration", "0.2", "--rate", "20k"],
    );
    let sent = sent.split_whitespace().nth(1).unwrap();
    sleep(Duration::from_millis(100));
    assert!(socket.exists());
    let dir = up.container("host").control;
    let dir = dir.parent().unwrap();
    assert!(dir.exists());
    let said = success(&["lab", "down", "results"]);
    let receiver = "b: dray receive --port raw:eth0 (exit status 0)\n";
    let after = said.strip_prefix(receiver).unwrap_or_else(|| panic!("{said}"));
    let ends_at = after.find("polite: ").unwrap();
    assert!(after[..ends_at].contains(&format!("  received {sent} frames")), "{said}");
    let polite = format!("polite: {POLITE} (exit status 3)\n  is done\n");
    assert!(said.contains(&polite), "{said}");
    assert!(said.contains("short: echo all said (exit status 0)\n  all said\n"), "{said}");
    assert!(said.ends_with("lab results is down; nothing of it is left\n"), "{said}");
    assert!(!socket.exists() && !dir.exists());
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
}

#[test]
fn stubborn_command_is_killed_after_grace() {
    let _alone = alone();
    require_root!();
    let stubborn = "trap \"\" TERM; while :; do sleep 0.1; done";
    let up = Up::text(&container("stubborn", stubborn), "stubborn");
    let since = Instant::now();
    let said = success(&["lab", "down", &up.0]);
    let what = "(killed: still running 3 s after SIGTERM)\nlab stubborn is down\n";
    assert!(said.ends_with(what), "{said}");
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[test]
fn logs_show_and_follow_what_commands_write() {
    let _alone = alone();
    require_root!();
    let text = container("polite", POLITE)
        + &container("b", "echo one; echo two >&2")
        + "[[containers]]\nname = 'silent'\n";
    let up = Up::text(&text, "logged");
    assert_eq!(success(&["lab", "logs", "b"]), "one\ntwo\n");
    let all = success(&["lab", "logs", "--lab", "logged"]);
    assert_eq!(all, "polite | begins\nb      | one\nb      | two\n");
    // The command has ended, so there is nothing to follow.
    assert_eq!(success(&["lab", "logs", "b", "--follow"]), "one\ntwo\n");
    let cases = [
        ("silent", "container silent has no `run` command; give one of polite, b"),
        ("c", "no such container: \"c\"; give one of host, polite, b, silent"),
    ];
    for (name, what) in cases {
        let (status, said) = failure(&["lab", "logs", name]);
        assert!(status == Some(2) && said.contains(what), "{status:?} {said}");
    }
    let mut follower = common::command();
    follower.args(["lab", "logs", "polite", "-f"]).stdout(Stdio::piped());
    let mut follower = Started(follower.spawn().unwrap());
    let mut lines = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begins");
    up.down();
    assert_eq!(lines.next().unwrap().unwrap(), "is done");
    assert!(lines.next().is_none());
    assert!(follower.0.wait().unwrap().success());
}

#[test]
fn lab_up_fails_if_command_fails_at_once() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("port.sock");
    let switch = container("switch", &format!("dray switch --port a=vhost:{}", socket.display()));
    let cases = [
        ("no-such-program -x", "no-such-program -x: exit status 127: ", "not found"),
        ("echo first; echo last words; exit 7", ": exit status 7: last words", ""),
        ("exit 4", "exit 4: exit status 4: no output", ""),
        (
            "dray switch --config nosuch.toml",
            ": exit status 2: dray: nosuch.toml: ",
            "No such file",
        ),
    ];
    for (run, what, words) in cases {
        let file = write(folder.path(), &(switch.clone() + &container("c", run)));
        let (status, said) = failure(&["lab", "up", &file]);
        assert!(status == Some(1) && said.starts_with("dray: container c: "), "{status:?} {said}");
        assert!(said.contains(what) && said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!socket.exists(), "{run}");
        assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
    }
    assert_eq!(success(&["lab", "ls"]), "no lab is up\n");
}

#[test]
fn only_root_can_clean() {
    let _alone = alone();
    require_root!();
    // The program may lie in a directory that others cannot enter.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let program = folder.path().join("dray");
    fs::copy(common::DRAY, &program).unwrap();
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), readable).unwrap();
    let mut clean = std::process::Command::new(&program);
    std::os::unix::process::CommandExt::uid(&mut clean, 65534);
    let output = clean.args(["lab", "clean"]).current_dir("/").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("run this with sudo") && output.stdout.is_empty(), "{said}");
}
