//! `dray top`: on a terminal, for programs, and without a switch.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, DRAY, Started, alone, eventually};

/// The sequence with which a terminal returns to its first screen.
const LEAVE: &str = "\x1b[?1049l";

fn switch(folder: &TempDir, ports: &[&str]) -> Started {
    let mut command = common::command();
    command.args(["switch", "a=unix:a", "b=vhost:b", "--control", "control"]);
    command.args(ports).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Started(command.spawn().expect("dray starts"));
    assert!(eventually(|| common::listens(folder.path().join("control"))));
    process
}

/// `dray top` on a terminal, which script(1) provides.
struct OnTerminal {
    script: Child,
    seen: Arc<Mutex<String>>,
}

impl OnTerminal {
    fn start(folder: &TempDir, size: &str, environment: &str) -> Self {
        let command =
            format!("stty {size}; {environment} exec {DRAY} top --control control; echo no");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
        script.current_dir(folder).env("TERM", "xterm").env_remove("NO_COLOR");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().expect("script, of package bsdutils");
        let seen = Arc::<Mutex<String>>::default();
        let (mut output, text) = (script.stdout.take().expect("a pipe"), seen.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Self { script, seen }
    }

    fn shows(&self, part: &str) -> bool {
        eventually(|| self.seen.lock().unwrap().contains(part))
    }

    fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().expect("a pipe").write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Returns the process of `dray top`.
    fn child(&self) -> Pid {
        let children = format!("/proc/{}/task/{0}/children", self.script.id());
        let child = fs::read_to_string(children).expect("a process");
        child.trim().parse().ok().and_then(Pid::from_raw).expect("dray")
    }

    /// Waits for the end; the terminal has to be left as it was.
    fn ends(mut self) {
        assert!(self.script.wait().expect("our child").success());
        assert!(self.shows(LEAVE), "{:?}", self.seen.lock().unwrap());
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn terminal_shows_ports_waits_for_switch_and_is_restored() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a directory");
    let first = switch(&folder, &[]);
    let mut top = OnTerminal::start(&folder, "cols 100 rows 30", "");
    for part in ["mode learning, flow drop", "frames/batch", "receives from", "rx ring", "waiting"]
    {
        assert!(top.shows(part), "{part}: {:?}", top.seen.lock().unwrap());
    }
    assert!(top.shows("\x1b[38;5;") || top.shows("\x1b[3"), "no colour");
    top.press("\r");
    // Of a line, only what changes is written: no spaces.
    assert!(top.shows("settings"));
    // The switch goes away and comes back.
    top.forget();
    drop(first);
    assert!(top.shows("listens"), "{:?}", top.seen.lock().unwrap());
    let _second = switch(&folder, &["later=null:"]);
    assert!(top.shows("later"), "{:?}", top.seen.lock().unwrap());
    top.press("\u{3}");
    top.ends();

    // A terminal that is too small, without colours; a signal.
    let mut top = OnTerminal::start(&folder, "cols 60 rows 30", "NO_COLOR=1");
    assert!(top.shows("columns"));
    top.press("q");
    top.ends();
    let top = OnTerminal::start(&folder, "cols 80 rows 24", "NO_COLOR=1");
    assert!(top.shows("drops/s") && !top.seen.lock().unwrap().contains("\x1b[38;5;"));
    kill_process(top.child(), Signal::TERM).expect("a process");
    top.ends();

    // A terminal that goes away, where its signal is ignored, as nohup(1) leaves it.
    let top = OnTerminal::start(&folder, "cols 80 rows 24", "trap '' HUP;");
    assert!(top.shows("drops/s"));
    let words = format!("/proc/{}/cmdline", top.child().as_raw_nonzero());
    drop(top);
    assert!(eventually(|| fs::read(&words).map_or(true, |words| words.is_empty())));
}

#[test]
fn once_prints_rates_as_text_or_json() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a directory");
    let run = |words: &[&str]| {
        let mut command = common::command();
        command.args(["top", "--control", "control"]).args(words).current_dir(&folder);
        let output = command.stdin(Stdio::null()).output().expect("dray starts");
        let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code(), out, err)
    };
    let (status, _, printed) = run(&["--once"]);
    assert_eq!(status, Some(1), "{printed}");
    assert!(
        printed.starts_with("dray: no program listens at control; start `dray switch`"),
        "{printed}"
    );
    assert_eq!(printed.lines().count(), 1);
    let _switch = switch(&folder, &[]);
    let (status, _, printed) = run(&[]);
    assert_eq!((status, printed.lines().count()), (Some(2), 1), "{printed}");
    assert!(printed.contains("must be a terminal; --once "), "{printed}");
    for wrong in [&["--json"][..], &["--once", "--interval", "0.1"], &["nosuch"]] {
        let (status, _, printed) = run(wrong);
        assert_eq!((status, printed.lines().count()), (Some(2), 1), "{printed}");
    }

    // Frames without a receiver, and the end of a peer.
    let path = folder.path().to_owned();
    let sender = thread::spawn(move || {
        let socket = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        for _ in 0..150 {
            // To a station that is not known.
            let frame = [[2; 6], [4; 6]].concat().repeat(5);
            socket.send_to(&frame, path.join("a")).expect("a port of the switch");
            thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    drop(std::os::unix::net::UnixStream::connect(folder.path().join("b")).expect("a port"));
    let (status, json, _) = run(&["--once", "--json"]);
    sender.join().expect("frames");
    assert_eq!(status, Some(0));
    let rates: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&rates["program"], &rates["ports"][0]["name"]), (&"switch".into(), &"a".into()));
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{json}"));
    let received = number(&rates["ports"][0]["rx"]["frames_per_s"]);
    assert!((10.0..=110.0).contains(&received), "{json}");
    let dropped = number(&rates["ports"][1]["drops"]["receiver_not_ready"]);
    // Workers and ports are asked one after the other.
    let moved = number(&rates["workers"][0]["frames_per_s"]);
    for rate in [dropped, moved] {
        assert!((rate - received).abs() < 20.0, "{json}");
    }
    assert!(number(&rates["workers"][0]["cycles_per_frame"]) > 0.0);
    let ended = number(&rates["ports"][1]["last_disconnect_at"]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((now.as_secs_f64() - ended).abs() < 60.0, "{json}");
    assert!(rates["ports"][1]["last_disconnect"].is_string(), "{json}");
    let (_, text, _) = run(&["--once"]);
    assert!(text.contains("cycles/frame") && text.contains("b     waiting"), "{text}");
}
