//! Events that the switch logs, and what its supervisor is informed of.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{self, Started, alone, eventually};

/// Starts a switch with a port `a` that logs into a file.
fn start(
    folder: &TempDir,
    environment: impl FnOnce(&File) -> Vec<(&'static str, String)>,
) -> Started {
    let at = |name: &str| folder.path().join(name).display().to_string();
    let log = File::create(at("log")).unwrap();
    let mut command = common::command();
    command.args(["switch", "--control", &at("control"), &format!("a=vhost:{}", at("a"))]);
    command.envs(environment(&log)).stderr(log);
    let switch = Started(command.spawn().unwrap());
    assert!(eventually(|| common::listens(at("control"))));
    switch
}

#[test]
fn log_of_flapping_peer_is_bounded_with_time() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let _switch = start(&folder, |_| Vec::new());
    let began = Instant::now();
    for _ in 0..10_000 {
        drop(UnixStream::connect(folder.path().join("a")));
    }
    let control = folder.path().join("control").display().to_string();
    let disconnects = || {
        let stats = common::success(&["switch", "stats", "--json", "--control", &control]);
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        stats[0]["disconnects"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(serde_json::Value::as_u64)
            .sum::<u64>()
    };
    let lines = || {
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        let lines = log.lines().filter(|line| line.contains("peer disconnected"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let times = |line: &String| line.split_once(" times=").unwrap().1.parse::<u64>().unwrap();
    let logged = || lines().iter().map(times).sum::<u64>();
    assert!(eventually(|| disconnects() > 5000 && logged() == disconnects()), "{:?}", lines());
    // One in a second.
    assert!(lines().len() as u64 <= began.elapsed().as_secs() + 1, "{:?}", lines());
    let expected =
        format!("WARN  peer disconnected port=a uri=vhost:{}/a ", folder.path().display());
    assert!(lines()[0].contains(&expected), "{:?}", lines());
}

#[test]
fn journal_gets_fields_and_supervisor_signs_of_life() {
    let _alone = alone();
    require_root!();
    let journal = Path::new("/run/systemd/journal/socket");
    if journal.exists() {
        common::note_skip("this machine has a journal of its own; scripts/alone.sh hides it");
        return;
    }
    fs::create_dir_all(journal.parent().unwrap()).unwrap();
    let entries = UnixDatagram::bind(journal).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let notify = folder.path().join("notify");
    let messages = UnixDatagram::bind(&notify).unwrap();
    for socket in [&entries, &messages] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    let next = |socket: &UnixDatagram| {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let switch = start(&folder, |log| {
        let file = log.metadata().unwrap();
        vec![
            ("JOURNAL_STREAM", format!("{}:{}", file.dev(), file.ino())),
            ("NOTIFY_SOCKET", notify.display().to_string()),
            ("WATCHDOG_USEC", "400000".to_owned()),
        ]
    });
    // Descriptors for the supervisor to keep may come at any time.
    let next_state =
        || std::iter::repeat_with(|| next(&messages)).find(|it| !it.starts_with("FDSTORE"));
    assert_eq!(next_state().unwrap(), "READY=1\nSTATUS=1 port");
    assert_eq!(next_state().unwrap(), "WATCHDOG=1");
    assert_eq!(next_state().unwrap(), "WATCHDOG=1");
    // The first may be about the user.
    let mut first = std::iter::repeat_with(|| next(&entries)).take(2);
    assert!(first.any(|entry| entry.starts_with("MESSAGE=switch started ")));
    drop(UnixStream::connect(folder.path().join("a")));
    let entry = next(&entries);
    for part in [
        "MESSAGE=peer disconnected port=a ",
        "\nPRIORITY=4\nSYSLOG_IDENTIFIER=dray\nDRAY_PORT=a\nDRAY_URI=vhost:",
        "\nDRAY_REASON=the peer disconnected\nDRAY_TIMES=1\n",
    ] {
        assert!(entry.contains(part), "{entry}");
    }
    common::signal(&switch.0, Signal::TERM);
    assert!(eventually(|| next(&messages) == "STOPPING=1"));
    assert!(next(&entries).starts_with("MESSAGE=switch ended\n"));
    // Nothing else, neither at the start nor at the end.
    sleep(Duration::from_millis(100));
    assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap(), "");
    fs::remove_dir_all("/run/systemd/journal").unwrap();
}

#[test]
fn log_level_is_checked() {
    let _alone = alone();
    for (arguments, variable, part) in [
        (&["switch", "--log-level", "loud"][..], "info", "--log-level"),
        (&["switch"], "loud", "DRAY_LOG: "),
    ] {
        let output = common::command().args(arguments).env("DRAY_LOG", variable).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
        assert!(stderr.contains("give one of off, error, warn, info, debug, trace"), "{stderr}");
    }
}
