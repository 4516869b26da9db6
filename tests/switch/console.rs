//! The output of the switch on a terminal: start, rates, end; and the rights of its sockets.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{self, Started, alone, eventually};

/// A running switch in a directory that every user may write to.
struct Running {
    folder: TempDir,
    process: Started,
    control: String,
}

impl Running {
    /// Starts a switch with `arguments`, in which `@` stands for the directory; `query` follows the
    /// path of its control socket.
    fn start(arguments: &[&str], query: &str, user: Option<u32>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("our own directory");
        let control = at(&folder, "control");
        let mut command = common::command();
        command.args(["switch", "--control", &format!("{control}{query}")]);
        let path = folder.path().display().to_string();
        command.args(arguments.iter().map(|word| word.replace('@', &path)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let process = Started(command.spawn().expect("dray starts"));
        let running = Self { folder, process, control };
        assert!(eventually(|| common::listens(&running.control)));
        running
    }

    /// Runs a command that talks to the switch.
    fn ask(&self, words: &[&str]) -> Output {
        let path = self.folder.path().display().to_string();
        let words: Vec<_> = words.iter().map(|word| word.replace('@', &path)).collect();
        let mut command = common::command();
        command.arg("switch").args(words).args(["--control", &self.control]);
        command.output().expect("dray starts")
    }

    fn reply(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Ends the switch; returns its standard output and standard error.
    fn end(mut self, signal: Signal) -> [String; 2] {
        common::signal(&self.process.0, signal);
        assert!(self.process.0.wait().expect("our child").success());
        let (mut out, mut err) = (String::new(), String::new());
        let child = &mut self.process.0;
        child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
        child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
        [out, err]
    }
}

fn at(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// Sends ten frames to the port at `path`, from a station to another.
fn send_ten(path: impl AsRef<Path>) {
    let socket = UnixDatagram::unbound().expect("a socket");
    let mut frame = [0; 60];
    (frame[5], frame[11]) = (1, 2);
    for _ in 0..10 {
        socket.send_to(&frame, path.as_ref()).expect("a port of the switch");
    }
}

#[test]
fn switch_reports_at_start_and_end() {
    let _alone = alone();
    for signal in [Signal::INT, Signal::TERM] {
        let switch = Running::start(&["a=unix:@/a", "--port", "b=vhost:@/b"], "", None);
        let port = switch.folder.path().join("a");
        assert!(eventually(|| port.exists()));
        send_ten(&port);
        assert!(eventually(|| switch.reply(&["stats", "a"]).contains("receiver_not_ready")
            || switch.reply(&["stats"]).contains(" 10 ")));
        let (control, folder) =
            (switch.control.clone(), switch.folder.path().display().to_string());
        let [out, err] = switch.end(signal);
        for part in [
            "mode learning, flow drop, 1 worker on CPU ",
            &format!("a     Unix datagram socket  unix:{folder}/a\n"),
            &format!("b     vhost-user back end   vhost:{folder}/b\n"),
            &format!("control socket: {control}\n"),
            &format!("dray switch stats --watch --control {control}\n"),
        ] {
            assert!(err.contains(part), "{err}");
        }
        assert!(out.starts_with("dray switch: ended after "), "{out}");
        let of_a = out.lines().find(|line| line.starts_with("a ")).expect("a line");
        assert_eq!(of_a.split_whitespace().nth(1), Some("10"), "{out}");
        assert!(out.contains("b: dropped: receiver_not_ready 10\n"), "{out}");
    }
}

#[test]
fn switch_without_ports_names_the_command_to_add_one() {
    let _alone = alone();
    let switch = Running::start(&[], "", None);
    let control = switch.control.clone();
    let [out, err] = switch.end(Signal::TERM);
    let next = format!("dray switch add-port --control {control} a vhost:/run/dray/a.sock\n");
    assert!(err.contains("no ports yet\n") && err.ends_with(&next), "{err}");
    assert!(out.ends_with(", without ports\n"), "{out}");
}

#[test]
fn stats_show_one_port_rates_and_counters_since_reset() {
    let _alone = alone();
    let switch = Running::start(&["a=unix:@/a", "b=null:"], "", None);
    let port = switch.folder.path().join("a");
    assert!(eventually(|| port.exists()));
    send_ten(&port);
    let received = |words: &[&str]| {
        let text = switch.reply(words);
        let of_a = text.lines().find(|line| line.starts_with("a ")).expect("a line");
        of_a.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number")
    };
    assert!(eventually(|| received(&["stats"]) == 10));
    assert!(!switch.reply(&["stats", "a"]).contains("b "));
    let unknown = switch.ask(&["stats", "x"]);
    let printed = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(1), "{printed}");
    assert!(printed.contains("no such port: \"x\"; the switch has a, b"), "{printed}");

    switch.reply(&["stats", "--reset"]);
    send_ten(&port);
    send_ten(&port);
    assert!(eventually(|| received(&["stats"]) == 20));
    assert!(switch.reply(&["stats"]).starts_with("since the reset "));
    assert_eq!(received(&["stats", "--total"]), 30);

    // In a pipe, each interval has a table of its own, with the rate in it.
    let mut command = common::command();
    command.args(["switch", "stats", "a", "--watch", "0.5", "--control", &switch.control]);
    let mut watch = Started(command.stdout(Stdio::piped()).spawn().expect("dray starts"));
    let mut output = BufReader::new(watch.0.stdout.take().expect("a pipe"));
    let mut text = String::new();
    let mut rate = || {
        let mut line = String::new();
        while !line.starts_with("a ") {
            line.clear();
            assert_ne!(output.read_line(&mut line).expect("text"), 0, "{text}");
            text += &line;
        }
        line.split_whitespace().nth(1).expect("a rate").parse::<u32>().expect("a number")
    };
    assert_eq!(rate(), 0);
    let began = Instant::now();
    send_ten(&port);
    let seen = (0..100).map(|_| rate()).find(|rate| *rate > 0).expect("frames in some interval");
    // On a busy machine, intervals are longer or shorter than half a second, and frames arrive in
    // two of them.
    let seen = seen + rate();
    let least = (10.0 / (began.elapsed().as_secs_f64() + 0.5)) as u32;
    assert!((least.saturating_sub(1)..=40).contains(&seen), "{seen}, at least {least}");
    common::signal(&watch.0, Signal::INT);
    assert!(watch.0.wait().expect("our child").success());
    output.read_to_string(&mut text).expect("text");
    let tables = text.lines().filter(|line| line.starts_with("a ")).count();
    assert!(tables >= 2 && text.matches("rx pps").count() == tables, "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn sockets_get_the_rights_of_their_uris() {
    require_root!();
    let _alone = alone();
    let ports =
        ["a=vhost:@/a?mode=0620&owner=1&group=daemon", "b=unix:@/b?group=12345", "c=vhost:@/c"];
    let switch = Running::start(&ports, "?mode=0600&owner=0", None);
    let rights = |name: &str| {
        let file = fs::metadata(switch.folder.path().join(name)).expect("a socket");
        (file.mode() & 0o777, file.uid(), file.gid())
    };
    assert!(eventually(|| switch.reply(&["ports"]).contains("/c")));
    assert_eq!(rights("a"), (0o620, 1, 1));
    assert_eq!(rights("b"), (0o660, 0, 12345));
    assert_eq!(rights("control"), (0o600, 0, 0));
    // In its sandbox, the switch can still set a mode, and says why it cannot set a group.
    switch.reply(&["add-port", "d", "vhost:@/d?mode=0606"]);
    assert_eq!(rights("d").0, 0o606);
    for (query, part) in [
        ("group=12345", "group=12345: root may set any until it enters its sandbox"),
        ("owner=daemon", "owner=daemon: root may set any"),
        ("group=nosuch", "group=nosuch: not in /etc/group"),
    ] {
        let output = switch.ask(&["add-port", "e", &format!("vhost:@/e?{query}")]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && printed.contains(part), "{printed}");
        assert!(!switch.folder.path().join("e").exists(), "{query}");
    }
    let folder = switch.folder.path().to_owned();
    let running = switch.process.0.id();
    assert!(Path::new(&format!("/proc/{running}")).exists());
    drop(switch.end(Signal::TERM));
    assert!(!folder.join("a").exists());
}

#[test]
fn user_may_set_only_groups_that_it_is_in() {
    require_root!();
    let _alone = alone();
    let switch = Running::start(&["a=vhost:@/a?group=65534"], "", Some(65534));
    let printed = switch.reply(&["ports"]);
    assert!(printed.contains("group=65534"), "{printed}");
    drop(switch.end(Signal::TERM));

    let folder = tempfile::tempdir().expect("a directory");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("our own directory");
    let mut command = common::command();
    let port = format!("a=vhost:{}?group=0", at(&folder, "a"));
    command.args(["switch", &port, "--control", &at(&folder, "control")]).uid(65534).gid(65534);
    let output = command.output().expect("dray starts");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("other users may set a group that they are in"), "{printed}");
    assert_eq!(fs::read_dir(&folder).expect("our own directory").count(), 0);
}

#[test]
fn interface_or_socket_used_twice_is_refused() {
    let _alone = alone();
    for (ports, common) in [
        (["a=raw:lo", "b=raw:lo?batch=64"], "interface lo"),
        (["a=tap:lo", "b=afxdp:lo"], "interface lo"),
        (["a=vhost:/tmp/x", "b=virtio:/tmp/x"], "socket /tmp/x"),
    ] {
        let output = common::dray(&["switch", ports[0], ports[1]]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        let expected = format!(
            "dray: port \"b\": {common} is already used by port \"a\"; give each port its own\n"
        );
        assert_eq!(printed, expected);
    }
    let switch = Running::start(&["a=vhost:@/a"], "", None);
    let output = switch.ask(&["add-port", "b", "vhost:@/a?queues=2"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("/a is already used by port \"a\""), "{printed}");
    switch.reply(&["add-port", "b", "vhost:@/b"]);
}

#[test]
fn lists_of_vlans_have_one_form_in_all_places() {
    let _alone = alone();
    let switch = Running::start(&["a=null:,trunk=10+20"], "", None);
    switch.reply(&["add-port", "b", "null:", "--trunk", "10+20"]);
    let printed = switch.reply(&["ports"]);
    assert_eq!(printed.matches("10+20").count(), 2, "{printed}");
    for (words, part) in [
        (&["add-port", "c", "null:", "--trunk", "10-20"][..], "several as 10+20"),
        (&["add-port", "c", "null:", "--tag", "5"], "unexpected argument '--tag' found"),
    ] {
        let output = switch.ask(words);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(part) && !printed.contains("-- --"), "{printed}");
    }
    let output = common::dray(&["switch", "a=null:,trunk=10,20"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("lists are written as trunk=10+20"), "{printed}");
}
