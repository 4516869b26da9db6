//! Applying a configuration file to a running switch: what differs is changed, the rest is not
//! disturbed, and a file that cannot be applied changes nothing.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use dray_port::Port;
use dray_switch::client::{Client, ClientError};
use dray_switch::{PortStatus, SwitchConfig};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, Started, alone, eventually, serves};
use crate::ends::{self, Frames};
use crate::exchange::{exchange_all, never_reconnected};

/// A switch that was started with a configuration file. In its texts, `DIR` stands for its folder.
struct Running {
    folder: TempDir,
    process: Started,
}

impl Running {
    fn new(options: &[&str], text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = common::command();
        let file = folder.path().join("switch.toml");
        fs::write(&file, of_file(folder.path(), text)).unwrap();
        command.args(["switch", "--config"]).arg(&file);
        command.args(options.iter().map(|word| in_folder(folder.path(), word)));
        let log = File::create(folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Started(command.spawn().expect("dray starts"));
        let running = Self { folder, process };
        assert!(eventually(|| serves(running.at("control"))), "{}", running.log());
        running
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap()
    }

    /// Replaces the configuration file, as editors do.
    fn write(&self, text: &str) {
        fs::write(self.at("new.toml"), of_file(self.folder.path(), text)).unwrap();
        fs::rename(self.at("new.toml"), self.at("switch.toml")).unwrap();
    }

    fn try_apply(&self, text: &str, options: &[&str]) -> Output {
        fs::write(self.at("apply.toml"), of_file(self.folder.path(), text)).unwrap();
        self.try_apply_file(&self.at("apply.toml"), options)
    }

    fn try_apply_file(&self, file: &Path, options: &[&str]) -> Output {
        let mut command = common::command();
        command.args(["switch", "apply"]).arg(file).args(options);
        command.output().expect("dray starts")
    }

    /// Applies a file; returns what the command prints.
    fn apply(&self, text: &str, options: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.try_apply(text, options);
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let folder = self.folder.path().to_str().unwrap();
        String::from_utf8(stdout).unwrap().replace(folder, "DIR")
    }

    /// Applies a file that must be refused; returns the line that says why.
    fn refused(&self, text: &str, status: i32) -> String {
        refusal(&self.try_apply(text, &[]), status, self.folder.path())
    }

    fn client(&self) -> Client {
        Client::new(&self.at("control"))
    }

    fn text(&self, target: &str) -> Result<String, ClientError> {
        dray_daemon::Client::new(&self.at("control"), "dray switch").text(target)
    }

    fn port(&self, name: &str) -> PortStatus {
        self.client().port(&name.parse().unwrap()).expect("a reply")
    }

    fn names(&self) -> Vec<String> {
        let ports = self.client().ports().expect("a reply");
        ports.into_iter().map(|port| port.config.name.to_string()).collect()
    }

    fn plug(&self, name: &str, keys: &str) -> Port {
        ends::plug(&self.at(name), keys)
    }

    /// Everything that must stay as it is if nothing changes.
    fn state(&self) -> (String, Vec<PortStatus>, Vec<String>, Vec<String>, bool) {
        // Workers publish a moment after they have moved frames.
        sleep(Duration::from_millis(100));
        let client = self.client();
        let stations = client.table(None).unwrap().into_iter();
        let stations =
            stations.map(|entry| format!("{} {} {}", entry.mac, entry.port, entry.pinned));
        let captured: Value = serde_json::from_str(&self.text("/capture").unwrap()).unwrap();
        let captured = captured["ports"].as_array().unwrap().iter();
        // No port has the number of an empty name.
        let captured = captured.filter_map(Value::as_str).filter(|name| !name.is_empty());
        let captured = captured.map(str::to_owned).collect();
        let is_ready = self.text("/readyz").is_ok();
        (client.config().unwrap(), client.ports().unwrap(), stations.collect(), captured, is_ready)
    }
}

fn in_folder(folder: &Path, text: &str) -> String {
    text.replace("DIR", folder.to_str().expect("text"))
}

/// Returns the text of a file that also names the control socket.
fn of_file(folder: &Path, text: &str) -> String {
    in_folder(folder, &format!("control = 'DIR/control'\n{text}"))
}

fn refusal(output: &Output, status: i32, folder: &Path) -> String {
    let said = String::from_utf8_lossy(&output.stderr).replace(folder.to_str().unwrap(), "DIR");
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
    said
}

/// Returns a port for a configuration file.
fn port(name: &str, uri: &str, keys: &str) -> String {
    format!("[[ports]]\nname = '{name}'\nuri = '{uri}'\n{keys}\n")
}

fn vhost(name: &str, keys: &str) -> String {
    port(name, &format!("vhost:DIR/{name}"), keys)
}

#[test]
fn unchanged_ports_lose_nothing_while_others_change() {
    let _alone = alone();
    let head = "mode = 'patch'\nflow = 'backpressure'\n";
    let pair = head.to_owned() + &vhost("a", "") + &vhost("b", "");
    let running = Running::new(&[], &pair);
    let (mut a, mut b) = (running.plug("a", ""), running.plug("b", ""));
    let mut pauses = Vec::new();
    let sent = exchange_all((&mut a, &mut b), |longest| {
        for _ in 0..10 {
            let more = vhost("c", "pair = 'd'") + &port("d", "null:", "");
            let said = running.apply(&(pair.clone() + &more), &[]);
            assert_eq!(said, "+ c: uri vhost:DIR/c, pair d\n+ d: uri null:\nunchanged: 2\n");
            let said = running.apply(&pair, &[]);
            assert_eq!(said, "- c: uri vhost:DIR/c, pair d\n- d: uri null:\nunchanged: 2\n");
            // In place: the peers stay, and frames wait for a moment.
            let rates = head.to_owned() + &vhost("a", "rate_in = '1Gpps'") + &vhost("b", "");
            longest.store(0, Relaxed);
            let said = running.apply(&rates, &[]);
            assert_eq!(said, "~ a: rate_in none -> 1Gpps\nunchanged: 1\n");
            pauses.push(longest.load(Relaxed));
            assert_eq!(running.apply(&pair, &[]), "~ a: rate_in 1Gpps -> none\nunchanged: 1\n");
        }
    });
    pauses.sort_unstable();
    println!("longest pause between two frames at each change, in microseconds: {pauses:?}");
    assert!(never_reconnected(&a) && never_reconnected(&b));
    let [a, b] = ["a", "b"].map(|name| running.port(name));
    assert!(a.disconnects.is_empty() && b.disconnects.is_empty());
    sleep(Duration::from_millis(100));
    let [a, b] = ["a", "b"].map(|name| running.port(name).counters);
    assert_eq!((a.rx_frames, b.tx_frames), (sent, sent));
    assert!(!running.at("c").exists());
}

#[test]
fn file_that_cannot_be_applied_changes_nothing() {
    let _alone = alone();
    let pinned = port("c", "null:", "mac = ['52:54:00:00:00:07']");
    let now = vhost("a", "") + &vhost("b", "") + &pinned;
    for (sandbox, status, part) in [
        ("off", 1, "raw:nosuch0"),
        (
            "on",
            1,
            "a sandboxed switch cannot open interfaces; give the port when the switch starts",
        ),
    ] {
        let running = Running::new(&["--sandbox", sandbox], &now);
        let (mut a, mut b) = (running.plug("a", ""), running.plug("b", ""));
        let frames = Frames::between(1, 2);
        ends::reach((&mut a.tx, &mut b.rx), &frames);
        ends::reach((&mut b.tx, &mut a.rx), &frames.clone().swapped());
        let before = running.state();
        assert_eq!(before.2.len(), 3, "{:?}", before.2);
        // Without port c, with a port d, and port a changed; the last one cannot be opened.
        let next = vhost("d", "") + &vhost("a", "rate_in = '1Mpps'") + &vhost("b", "vlan = 7");
        let why = running.refused(&(next.clone() + &port("e", "raw:nosuch0", "")), status);
        assert!(why.contains(part), "{why}");
        assert_eq!(running.state(), before);
        assert!(!running.at("d").exists());
        // Refused before anything is opened.
        for (more, part) in [
            (vhost("e", "mirror = ['c']"), "apply.toml: line 17: port \"e\": mirror: no such port"),
            (port("e", "vhost:DIR/a", ""), "line 16: port \"e\": socket DIR/a is already used"),
            (port("e", "vhost:DIR/control", ""), "is the switch's control socket"),
            (vhost("d", ""), "line 15: port \"d\": the name is taken"),
        ] {
            let why = running.refused(&(next.clone() + &more), 2);
            assert!(why.contains(part), "{why}");
            assert_eq!(running.state(), before);
        }
        assert!(never_reconnected(&a) && never_reconnected(&b));
        // And what can be applied still is.
        running.apply(&next, &[]);
        assert_eq!(running.names(), ["d", "a", "b"]);
    }
}

/// A port that needs the socket of one that it replaces: the one is closed before the other is
/// opened, and opened again if that fails.
#[test]
fn port_with_another_uri_is_opened_in_its_place() {
    let _alone = alone();
    require_root!();
    let running = Running::new(&[], &(vhost("a", "") + &vhost("b", "")));
    let (a, b) = (running.plug("a", ""), running.plug("b", ""));
    // No process in a sandbox may give files to other users.
    let owned = port("a", "vhost:DIR/a?owner=12345", "") + &vhost("b", "");
    let why = running.refused(&owned, 1);
    assert!(why.contains("owner=12345: root may set any until it enters its sandbox"), "{why}");
    assert_eq!(running.names(), ["a", "b"]);
    assert!(never_reconnected(&b));
    ends::eventually("the peer of a is back", || {
        !never_reconnected(&a) && running.port("a").state.name() == "running"
    });
    let twice = port("a", "vhost:DIR/a?queues=2", "") + &vhost("b", "");
    let said = running.apply(&twice, &[]);
    assert_eq!(said, "~ a: uri vhost:DIR/a -> vhost:DIR/a?queues=2\nunchanged: 1\n");
    drop(a);
    running.plug("a", "queues=2");
    assert!(never_reconnected(&b));
    // Another name for the same socket.
    let said = running.apply(&(port("x", "vhost:DIR/a", "") + &vhost("b", "")), &[]);
    assert_eq!(said, "+ x: uri vhost:DIR/a\n- a: uri vhost:DIR/a?queues=2\nunchanged: 1\n");
    running.plug("a", "");
    assert!(never_reconnected(&b));
}

#[test]
fn keys_change_while_peers_stay() {
    let _alone = alone();
    let running = Running::new(&[], &(vhost("a", "") + &vhost("b", "") + &vhost("c", "")));
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| running.plug(name, ""));
    let frames = Frames::between(1, 2);
    ends::reach((&mut a.tx, &mut b.rx), &frames);
    ends::reach((&mut b.tx, &mut a.rx), &frames.clone().swapped());
    sleep(Duration::from_millis(100));
    let counted = running.port("a").counters;
    let vlans = vhost("a", "vlan = 7") + &vhost("b", "trunk = [7]\nnative = 8") + &vhost("c", "");
    let said = running.apply(&vlans, &[]);
    assert_eq!(
        said,
        "~ a: vlan none -> 7\n~ b: trunk none -> 7+8, native none -> 8\nunchanged: 1\n"
    );
    assert_eq!(running.port("a").counters, counted);
    assert_eq!(running.client().table(None).unwrap(), [], "stations of no VLAN");
    ends::pass((&mut a.tx, &mut b.rx), &frames, &frames.clone().tagged(7), 100);
    // A port that mirrors takes no part in switching, and starts again when it does not.
    let mirror = vhost("a", "") + &vhost("b", "") + &vhost("c", "mirror = ['a']");
    running.apply(&mirror, &[]);
    ends::pass((&mut a.tx, &mut c.rx), &frames, &frames, 100);
    let to_c = Frames::between(2, 3);
    let pinned = vhost("a", "") + &vhost("b", "") + &vhost("c", &format!("mac = ['{}']", to_c.to));
    let said = running.apply(&pinned, &[]);
    assert!(said.contains(&format!("~ c: mirror a -> none, mac none -> {}\n", to_c.to)), "{said}");
    ends::pass((&mut b.tx, &mut c.rx), &to_c, &to_c, 100);
    assert!([&a, &b, &c].into_iter().all(never_reconnected));
}

#[test]
fn dry_run_prints_what_apply_prints_and_changes_nothing() {
    let _alone = alone();
    let now = "mode = 'patch'\n".to_owned() + &vhost("a", "") + &vhost("b", "") + &vhost("c", "");
    let running = Running::new(&[], &now);
    let next = "mode = 'patch'\n".to_owned()
        + &vhost("d", "rate_out = '1Gbit'")
        + &vhost("b", "burst = '1ms'\nrate_in = '2kpps'")
        + &vhost("c", "");
    let before = running.state();
    let said = running.apply(&next, &["--dry-run"]);
    assert_eq!(
        said,
        "+ d: uri vhost:DIR/d, rate_out 1Gbit\n\
         ~ b: rate_in none -> 2kpps, burst none -> 1ms, partner a -> d\n\
         - a: uri vhost:DIR/a\n\
         unchanged: 1\n"
    );
    assert_eq!(running.state(), before);
    let json = running.apply(&next, &["--dry-run", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ports"][1]["keys"][0]["new"], "2kpps");
    assert_eq!(running.apply(&next, &[]), said);
    assert_eq!(running.names(), ["d", "b", "c"]);
    assert_eq!(running.port("b").partner, Some("d".parse().unwrap()));
    assert_eq!(running.apply(&next, &[]), "unchanged: 3\n");
    assert_eq!(running.state().0, {
        let file = fs::read_to_string(running.at("apply.toml")).unwrap();
        let file = SwitchConfig::from_toml(&file).unwrap();
        SwitchConfig { cpus: SwitchConfig::from_toml(&before.0).unwrap().cpus, ..file }.to_toml()
    });
}

#[test]
fn hangup_applies_the_file_and_a_broken_one_is_a_line() {
    let _alone = alone();
    let mut running = Running::new(&[], &(vhost("a", "") + &vhost("b", "")));
    let a = running.plug("a", "");
    let lines = |running: &Running, part: &str| {
        running
            .log()
            .lines()
            .filter(|line| line.contains(part))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let hang_up = |running: &Running, part: &str, count: usize| -> String {
        common::signal(&running.process.0, Signal::HUP);
        assert!(eventually(|| lines(running, part).len() == count), "{}", running.log());
        lines(running, part).pop().unwrap()
    };
    running.write(&(vhost("a", "") + &vhost("c", "") + &vhost("d", "")));
    let said = hang_up(&running, "configuration applied", 1);
    assert!(said.contains("switch.toml added=2 removed=1 changed=0 unchanged=1"), "{said}");
    assert_eq!(running.names(), ["a", "c", "d"]);
    let before = running.state();
    for (number, (text, part)) in [
        ("mode = ", "line 2: "),
        ("prots = []", "line 2: unknown key \\\"prots\\\": did you mean ports?"),
        (
            "mode = 'patch'",
            "line 2: mode = patch: the switch runs with learning, and cannot change",
        ),
        (&port("e", "raw:nosuch0", ""), "a sandboxed switch cannot open interfaces"),
    ]
    .into_iter()
    .enumerate()
    {
        running.write(text);
        let said = hang_up(&running, "configuration not applied", number + 1);
        assert!(said.contains(part) && said.contains("ERROR"), "{said}");
    }
    fs::remove_file(running.at("switch.toml")).unwrap();
    let said = hang_up(&running, "configuration not applied", 5);
    assert!(said.contains("No such file"), "{said}");
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    symlink(elsewhere.path(), running.at("switch.toml")).unwrap();
    let said = hang_up(&running, "configuration not applied", 6);
    assert!(said.contains("the sandbox does not let the switch read this file"), "{said}");
    assert_eq!(running.state(), before);
    assert!(never_reconnected(&a));
    let Started(process) = &mut running.process;
    assert!(process.try_wait().unwrap().is_none(), "the switch still runs");
    common::signal(process, Signal::TERM);
    assert!(process.wait().unwrap().success());
}

#[test]
fn switch_ends_with_its_terminal() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("switch.toml"), "control = 'control'").unwrap();
    let command = format!("exec {} switch --config switch.toml", common::DRAY);
    let mut script = Command::new("script");
    script.args(["--quiet", "--command", &command, "/dev/null"]).current_dir(&folder);
    script.stdin(Stdio::piped()).stdout(Stdio::null());
    let script = Started(script.spawn().expect("script, of package bsdutils"));
    assert!(eventually(|| serves(folder.path().join("control"))));
    drop(script);
    assert!(eventually(|| !folder.path().join("control").exists()));
}

#[test]
fn setting_that_cannot_change_is_refused_with_both_values() {
    let _alone = alone();
    let running = Running::new(&["--flow", "drop", "--idle", "1ms", "x=null:"], &vhost("a", ""));
    let before = running.state();
    for (key, part) in [
        ("mode = 'patch'", "line 2: mode = patch: the switch runs with learning"),
        ("age_s = 7", "line 2: age_s = 7: the switch runs with 300"),
        ("peer_memory = '1G'", "line 2: peer_memory = 1G: the switch runs with 96T"),
        ("metrics = '127.0.0.1:1'", "metrics = 127.0.0.1:1: the switch runs with none"),
        ("cpus = [4000]", "cpus = 4000: the switch runs with "),
    ] {
        let why = running.refused(&format!("{key}\n{}", vhost("a", "")), 2);
        assert!(why.contains("apply.toml: ") && why.contains(part), "{why}");
        assert!(why.contains("or start its successor with dray switch --take-over"), "{why}");
        assert_eq!(running.state(), before);
    }
    // The command line overrides the file, as at the start.
    let said = running.apply(&("idle = 'never'\n".to_owned() + &vhost("a", "vlan = 1")), &[]);
    assert_eq!(said, "~ a: vlan none -> 1\nunchanged: 0\nnot from a file, left alone: x\n");
}

#[test]
fn ports_that_come_from_no_file_stay() {
    let _alone = alone();
    let running = Running::new(&["x=null:"], &(vhost("a", "") + &vhost("b", "")));
    let client = running.client();
    client.add_port(&"y=null:,vlan=2".parse().unwrap()).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(running.at("z")).unwrap();
    let mut passed: dray_switch::PortConfig =
        in_folder(running.folder.path(), "z=vhost:DIR/z").parse().unwrap();
    passed.fd = 1;
    client.add_port_with(&passed, &[std::os::fd::AsFd::as_fd(&listener)]).unwrap();
    let z = running.plug("z", "");
    let said = running.apply(&vhost("b", ""), &[]);
    assert_eq!(said, "- a: uri vhost:DIR/a\nunchanged: 1\nnot from a file, left alone: x, y, z\n");
    assert_eq!(running.names(), ["b", "x", "y", "z"]);
    assert!(running.text("/readyz").is_ok());
    // A file may take over what was added by hand, and drop it later; but not descriptors.
    let said = running.apply(&(vhost("b", "") + &port("y", "null:", "vlan = 3")), &[]);
    assert!(said.starts_with("~ y: vlan 2 -> 3\nunchanged: 1\n"), "{said}");
    let said = running.apply(&vhost("b", ""), &[]);
    assert!(said.starts_with("- y: uri null:, vlan 3\n"), "{said}");
    let why = running.refused(&(vhost("b", "") + &vhost("z", "")), 1);
    assert!(why.contains("port \"z\": the name is taken"), "{why}");
    assert!(never_reconnected(&z));
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let _alone = alone();
    let running = Running::new(&[], &vhost("a", ""));
    let before = running.state();
    for (text, part) in [
        ("mode", "apply.toml: line 2: \"mode\": "),
        ("\u{0}", "apply.toml: line 2: "),
        ("vlan = 1", "apply.toml: line 2: unknown key \"vlan\""),
        (&vhost("a", "vlna = 1"), "line 5: ports[0]: unknown key \"vlna\": did you mean vlan?"),
        (&vhost("a", "fd = 1"), "line 5: port \"a\": fd: file descriptors come with a request"),
    ] {
        let why = running.refused(text, 2);
        assert!(why.contains(part), "{why}");
    }
    let large = running.at("large.toml");
    fs::write(&large, "#").unwrap();
    File::options().append(true).open(&large).unwrap().set_len(100 << 20).unwrap();
    let binary = running.at("binary.toml");
    fs::write(&binary, [0xff; 100]).unwrap();
    for (file, part) in [
        (Path::new("/dev/zero"), "/dev/zero: longer than 1024 KiB, the maximum"),
        (&large, "large.toml: longer than 1024 KiB"),
        (&binary, "binary.toml: not UTF-8 text"),
        (&running.at("none.toml"), "none.toml: No such file"),
        (running.folder.path(), ": Is a directory"),
    ] {
        let output = running.try_apply_file(file, &[]);
        let why = refusal(&output, 2, running.folder.path());
        assert!(why.contains(part), "{why}");
    }
    // An empty file names the usual control socket.
    fs::write(&large, "").unwrap();
    let control = running.at("control").display().to_string();
    let output = running.try_apply_file(&large, &["--control", &control]);
    let why = refusal(&output, 2, running.folder.path());
    assert!(
        why.contains("control = /run/dray/switch.sock: the switch runs with DIR/control"),
        "{why}"
    );
    assert_eq!(running.state(), before);
}

#[test]
fn switch_starts_with_the_configuration_that_is_left() {
    let _alone = alone();
    let mirrors = vhost("a", "") + &port("m", "null:", "mirror = ['a']");
    let running = Running::new(
        &[],
        &(mirrors + &port("n", "null:", "mirror = ['a', 'b']") + &vhost("b", "")),
    );
    let client = running.client();
    client.remove_port(&"a".parse().unwrap()).unwrap();
    let why = client.add_port(&"a=null:,mirror=b".parse().unwrap()).unwrap_err().to_string();
    assert!(why.contains("port \"m\" mirrors it"), "{why}");
    let left = SwitchConfig::from_toml(&client.config().unwrap()).unwrap();
    let names: Vec<_> = left.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["n", "b"]);
    assert_eq!(left.check(&left.cpus), Ok(()));
    // A switch that takes over has all of them.
    let mut command = common::command();
    command.args(["switch", "--take-over", "--control"]).arg(running.at("control"));
    let _next = Started(command.stderr(Stdio::null()).spawn().unwrap());
    let mut before = running.process;
    assert!(eventually(|| before.0.try_wait().unwrap().is_some()));
    let names = client.ports().unwrap().into_iter().map(|port| port.config.name.to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["m", "n", "b"]);
}
