//! The programs by hand: start, sessions, errors, end.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dray_lab::placement;
use rustix::process::Signal;

use crate::common::{self, Started, eventually, serves};
use crate::fixture::{CONFIG, Upf, V4, finished, interrupted, number};

#[test]
fn load_without_replies_says_what_it_waits_for_and_fails() {
    let files = Upf::with_config(&format!("{CONFIG}{V4}"));
    let load = files.command("upf-load", "null:", "null:", &["--duration", "0.1"]).spawn();
    let load = Started(load.unwrap());
    let waiting = "waiting for the user plane function, at most 10 s: no reply on N3 from \
                   10.0.3.1, and no reply on N6 from 10.0.6.1, fd00:6::1\n";
    assert!(eventually(|| files.said().contains(waiting)), "{}", files.said());
    let (text, status) = finished(load);
    let said = files.said();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("uplink: no packet came back; downlink: no packet came back"), "{said}");
    assert!(text.contains("no reply came from 10.0.3.1,"), "{text}");
}

/// Sessions that are added, changed and removed by command.
#[test]
fn sessions_change_at_run_time() {
    let files = Upf::with_config(&format!("{CONFIG}{V4}"));
    let upf = files.start("upf", "null:", "null:", &[]).unwrap();
    assert!(eventually(|| serves(files.at("upf.sock"))));
    let more = "[generate]\ncount = 3\nteid = 900\ngnb_teid = 900\ngnbs = [\"10.0.3.2\"]\nue = \"10.46.0.1\"";
    std::fs::write(files.at("more.toml"), more).unwrap();
    let count = || number(&files.ask(&["status", "--json"]), "/sessions");
    assert_eq!(count(), 100);
    // These SEIDs are in use already.
    let message = files.refused(&["sessions", "add", &files.at("more.toml")]);
    assert!(message.contains("more.toml: session 1: seid: already in use"), "{message}");
    let wrong = "[generate]\ncount = 0\ngnbs = []\nue = \"10.46.0.1\"";
    std::fs::write(files.at("wrong.toml"), wrong).unwrap();
    let message = files.refused(&["sessions", "add", &files.at("wrong.toml")]);
    assert!(message.contains("wrong.toml") && message.contains("generate.count"), "{message}");
    let session = |teid: u32, more: &str| {
        format!(
            "[[sessions]]\nseid = 200\nue = [\"10.99.0.1\"]\nfars = [ {{ id = 1, action = \"forward\" }} ]\n\
             pdrs = [ {{ id = 1, precedence = 1, from = \"access\", teid = {teid}, far = 1{more} }} ]\n"
        )
    };
    for (text, part) in [
        (session(500, ", qers = [7]"), "wrong.toml: session 200: pdrs[0].qers: QER 7"),
        (
            session(50, ""),
            "wrong.toml: session 200: pdrs[0].teid: 0x32: already in use by session 50",
        ),
        (session(500, "").replace("99", "45"), "wrong.toml: session 200: ue[0]: 10.45.0.1"),
        (
            session(500, ", filters = [\"permit in ip\"]"),
            "wrong.toml: line 5: session 200: pdrs[0].filters[0]: ",
        ),
    ] {
        std::fs::write(files.at("wrong.toml"), text).unwrap();
        let message = files.refused(&["sessions", "add", &files.at("wrong.toml")]);
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(count(), 100);
    files.ask(&["sessions", "modify", &files.at("more.toml"), "--end-marker"]);
    let sessions = files.ask(&["sessions", "ls", "--json"]);
    assert_eq!(sessions[0]["ue"][0], "10.46.0.1");
    assert_eq!(sessions[2]["teids"][0], "0x386");
    files.ask(&["sessions", "remove", "5", "6", "--file", &files.at("more.toml")]);
    assert_eq!(count(), 95);
    files.ask(&["sessions", "add", &files.at("more.toml")]);
    let message = files.refused(&["sessions", "remove", "7", "500"]);
    assert!(message.contains("session 500: seid: no such session"), "{message}");
    assert_eq!(count(), 98);
    let shown = String::from_utf8(files.talk(&["sessions", "show", "7"]).stdout).unwrap();
    assert!(shown.starts_with("session 7: forwarding, 0 packets waiting\n"), "{shown}");
    assert!(shown.contains("\ntunnels to gNBs: 10.0.3.2 0x7\n"), "{shown}");
    let message = files.refused(&["sessions", "show", "500"]);
    assert!(message.contains("no such session: \"500\""), "{message}");
    assert_eq!(number(&files.ask(&["stats", "--json"]), "/uplink/rx_packets"), 0);
    interrupted(upf);
    assert!(!Path::new(&files.at("upf.sock")).exists());
    let message = files.refused(&["stats"]);
    assert!(message.contains("dray upf") && message.contains("--control"), "{message}");
}

/// Frames of N3 with what becomes of them; an unknown interface is refused.
#[test]
fn capture_shows_frames_and_drops_of_n3() {
    let files = Upf::with_config(&format!("{CONFIG}{V4}"));
    let n3 = format!("unix:{}", files.at("n3"));
    let upf = files.start("upf", &n3, "null:", &[]).unwrap();
    assert!(eventually(|| serves(files.at("upf.sock")) && Path::new(&files.at("n3")).exists()));
    let capture = |words: &[&str]| {
        let mut command = common::command();
        command.args(["capture", "--control", &files.at("upf.sock"), "-w"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let refused = capture(&["/dev/null", "n9"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(said, "dray: no such port: \"n9\"; there are n3, n6\n");
    let mut frame = vec![7; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 3, 9, 2, 0, 0, 0, 3, 2, 8, 0]);
    let socket = UnixDatagram::unbound().unwrap();
    for (words, expected) in [(&["n3"][..], "n3,\n"), (&["--all", "--drops"], "n3,other_host\n")] {
        let file = files.at("some.pcapng");
        let mut process = capture(&[&[file.as_str(), "--count", "1"], words].concat());
        let mut process = Started(process.spawn().unwrap());
        assert!(eventually(|| {
            socket.send_to(&frame, files.at("n3")).unwrap();
            process.0.try_wait().unwrap().is_some()
        }));
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-r", &file, "-T", "fields", "-E", "separator=,"]);
        let output = tshark.args(["-e", "frame.interface_name", "-e", "frame.comment"]).output();
        assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), expected, "{words:?}");
    }
    interrupted(upf);
}

#[test]
fn upf_prints_ports_at_start_and_totals_at_end() {
    let files = Upf::with_config(&format!("{CONFIG}{V4}"));
    let cpu = placement::allowed()[0].to_string();
    let upf = files.command("upf", "null:", "null:", &["--cpus", &cpu]).spawn().map(Started);
    let upf = upf.unwrap();
    assert!(eventually(|| files.said().contains("next, ")), "{}", files.said());
    let said = files.said();
    let control = files.at("upf.sock");
    for part in [
        &format!("dray upf: 100 sessions, 2 workers on CPU {cpu}\n"),
        "\nN3    10.0.3.1, fd00:3::1  discards frames  null:\n",
        &format!("control socket: {control}\n"),
        &format!("next, from another terminal: dray upf sessions ls --control {control}\n"),
    ] {
        assert!(said.contains(part), "{part:?}: {said}");
    }
    common::signal(&upf.0, Signal::INT);
    let (text, status) = finished(upf);
    assert!(status.success());
    assert!(text.starts_with("dray upf: ended after "), "{text}");
    assert!(text.contains("\nuplink: received 0, forwarded 0, "), "{text}");
}

#[test]
fn one_interface_twice_is_refused() {
    let files = Upf::with_config(&format!("{CONFIG}{V4}"));
    for name in ["upf", "upf-load"] {
        let mut command = files.command(name, "raw:lo", "raw:lo?batch=64", &[]);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said, "dray: --n3 and --n6 both use interface lo: give two ports\n");
    }
}

#[test]
fn invalid_upf_configuration_changes_nothing() {
    let session = |seid: u32, teid: u32, ue: &str, more: &str| {
        format!(
            "[[sessions]]\nseid = {seid}\nue = [\"{ue}\"]\nfars = [ {{ id = 1, action = \"forward\" }} ]\n\
             pdrs = [ {{ id = 1, precedence = 1, from = \"access\", teid = {teid}, far = 1{more} }} ]\n"
        )
    };
    let base = &format!("{CONFIG}{V4}");
    for (sessions, parts) in [
        (session(200, 500, "10.99.0.1", ", qers = [7]"), ["session 200", "pdrs[0].qers", "QER 7"]),
        (session(200, 50, "10.99.0.1", ""), ["session 200", "pdrs[0].teid", "session 50"]),
        (session(200, 500, "10.45.0.9", ""), ["session 200", "ue[0]", "10.45.0.9"]),
        (
            session(200, 500, "10.99.0.1", ", filters = [\"permit in ip\"]"),
            ["session 200", "pdrs[0].filters[0]", "\"in\""],
        ),
        (session(7, 500, "10.99.0.1", ""), ["session 7", "seid", "already in use"]),
    ] {
        let files = Upf::with_config(&format!("{base}{sessions}"));
        let start = Instant::now();
        let output = files.command("upf", "null:", "null:", &[]).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("upf.toml"), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
