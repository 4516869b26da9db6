//! Control sockets of switches and user plane functions in labs: each lab has its own.

use std::fs;

use crate::common::{self, Started, Traces, alone, dray, eventually, listens, success};
use crate::standing::Up;

const UPF: &str = "dray upf --n3 null: --n6 null: --config upf.toml";
/// Addresses and one session; the number of sessions tells the functions apart.
const CONFIG: &str = "[n3]\nmac = '02:00:00:00:03:01'\naddresses = ['10.0.3.1']\n\
                      [n6]\nmac = '02:00:00:00:06:01'\naddresses = ['10.0.6.1']\n\
                      [generate]\ngnbs = ['10.0.3.2']\nue = '10.45.0.1'\nqfi = 9\n";

/// Returns the number of sessions of the user plane function that the options select.
fn sessions(options: &[&str]) -> String {
    let status = success(&[&["upf", "status"], options].concat());
    let words: Vec<_> = status.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("session")).expect("sessions");
    words[at - 1].to_owned()
}

fn failure(arguments: &[&str]) -> (Option<i32>, String) {
    let output = dray(arguments);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn two_labs_and_the_host_have_upfs_of_their_own() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let config =
        |count: usize| CONFIG.replace("[generate]", &format!("[generate]\ncount = {count}"));
    let topology = |containers: &[&str]| -> String {
        let of = |name: &&str| format!("[[containers]]\nname = '{name}'\nrun = '{UPF}'\n");
        containers.iter().map(of).collect()
    };
    let host_socket = folder.path().join("upf.sock");
    let mut host = common::command();
    host.args([
        "upf",
        "--n3",
        "null:",
        "--n6",
        "null:",
        "--config",
        &write("host.toml", &config(1)),
    ]);
    // The usual directory of a host may be in use; that of the test stands for it.
    let host = Started(host.env("DRAY_CONTROL_DIR", folder.path()).spawn().unwrap());
    assert!(eventually(|| listens(&host_socket)));
    write("upf.toml", &config(2));
    let first = Up::file(&write("one.toml", &topology(&["a"])), "first");
    write("upf.toml", &config(3));
    let second = Up::file(&write("two.toml", &topology(&["a", "b"])), "second");

    assert_eq!(sessions(&["--control", host_socket.to_str().unwrap()]), "1");
    assert_eq!(sessions(&["--lab", "first"]), "2");
    assert_eq!(sessions(&["--lab", "second/b"]), "3");
    // In its container, no option is needed.
    assert!(first.exec_well("a", &["dray", "upf", "status"]).contains("; 2 sessions"));
    let cases = [
        (&["--lab", "second"][..], 2, "lab second: `dray upf` runs in a, b; name the container"),
        (&["--lab", "third"], 2, "no such lab: \"third\""),
        (&["--lab", "first/c"], 2, "lab first: no such container: \"c\"; give one of host, a"),
        (&["--lab", "first/host"], 1, "lab first/host: no `dray upf` runs in this container"),
        (&["--lab", "first", "--control", "x"], 2, "cannot be used with"),
    ];
    for (options, code, what) in cases {
        let (status, said) = failure(&[&["upf", "stats"], options].concat());
        assert!(status == Some(code) && said.contains(what), "{options:?}: {status:?} {said}");
    }
    let (status, said) = failure(&["switch", "ports", "--lab", "first"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("lab first: no `dray switch` runs in its containers"), "{said}");
    first.down();
    second.down();
    drop(host);
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
}

#[test]
fn lab_option_finds_the_switch_of_links() {
    let _alone = alone();
    require_root!();
    let text = "[[containers]]\nname = 'a'\n[[containers]]\nname = 'b'\n\
                [[links]]\nkind = 'switch/learning'\nends = ['a', 'b']\n";
    let up = Up::text(text, "plugged");
    let ports = success(&["switch", "ports", "--lab", "plugged"]);
    assert!(ports.contains("p0") && ports.contains("p1"), "{ports}");
    assert_eq!(success(&["switch", "ports", "--lab", "plugged/host"]), ports);
    assert_eq!(up.exec_well("host", &["dray", "switch", "ports"]), ports);
    up.down();
}
