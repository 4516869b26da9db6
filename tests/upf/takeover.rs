//! Taking over a running user plane function: no packet is lost or counted twice, no peer
//! reconnects, and a take-over that fails disturbs nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::Duration;

use dray_daemon::{Channel, ClientError, Limits, Response, Server};
use dray_lab::NetworkNamespace;
use dray_port::{LinkState, PortUri};
use dray_upf::SessionStatus;
use dray_upf::api::{Client, Stats, Transaction};
use dray_upf::config::Volume;
use tempfile::TempDir;

use crate::common::takeover::{PATIENCE, Program, assert_is_user, fails, folder_of, start_in};
use crate::common::{self, Started, alone, eventually, serves};
use crate::crash::{SESSIONS, configuration, session};
use crate::fixture::check_adds_up;
use crate::peers::{MEMIF, PACKED, Peers, SPLIT, load, lost_nothing};

const PROGRAM: Program = Program("upf", 4);

/// A user plane function in a process of its own, which others take over.
struct Running {
    folder: TempDir,
    /// Network namespace that it runs in, if not the test's.
    namespace: Option<Arc<NetworkNamespace>>,
    process: Started,
}

impl Running {
    fn new(peers: Peers, more: &[&str]) -> Self {
        let options = peers.options();
        Self::within(None, &[&options.each_ref().map(String::as_str)[..], more].concat())
    }

    /// Starts one with `options`, in which `DIR` is a folder.
    fn within(namespace: Option<Arc<NetworkNamespace>>, options: &[&str]) -> Self {
        Self::in_folder(tempfile::tempdir().expect("a folder"), namespace, options)
    }

    fn in_folder(
        folder: TempDir,
        namespace: Option<Arc<NetworkNamespace>>,
        options: &[&str],
    ) -> Self {
        std::fs::write(folder.path().join("upf.toml"), configuration(&SESSIONS)).unwrap();
        let at = folder.path().to_str().expect("text");
        let mut command = common::command();
        command.arg("upf").args(options.iter().map(|option| option.replace("DIR", at)));
        command.args(["--config", &format!("{at}/upf.toml"), "--control"]);
        command.arg(control_of(folder.path()));
        let process = start_in(namespace.as_deref(), &mut command);
        let running = Self { folder, namespace, process };
        assert!(eventually(|| serves(running.control())), "it serves");
        // It replies once its ports are open.
        running.client().status().expect("a reply");
        running
    }

    fn control(&self) -> PathBuf {
        control_of(self.folder.path())
    }

    fn client(&self) -> Client {
        Client::new(&self.control())
    }

    /// Starts another process with `options`, which takes over; returns once the one before has
    /// ended.
    fn take_over(&mut self, options: &[&str]) {
        self.take_over_by(|command| command.args(options));
    }

    fn take_over_by(&mut self, change: impl FnOnce(&mut Command) -> &mut Command) {
        let (namespace, control) = (self.namespace.as_deref(), control_of(self.folder.path()));
        let mut command = PROGRAM.takes_over(&control);
        change(&mut command);
        PROGRAM.replaced(&mut self.process, namespace, &control, &mut command);
    }

    /// Returns sessions and counters, once no packet is on its way.
    fn sessions_and_stats(&self) -> (Vec<SessionStatus>, Stats) {
        let client = self.client();
        sleep(Duration::from_millis(100));
        check_adds_up(&self.control());
        (client.sessions().unwrap(), client.stats().unwrap())
    }
}

fn control_of(folder: &Path) -> PathBuf {
    folder.join("control")
}

#[test]
fn packets_usage_and_connections_survive_twenty_takeovers() {
    let _alone = alone();
    let mut gaps = Vec::new();
    for peers in [SPLIT, PACKED, MEMIF] {
        let mut running = Running::new(peers, &["--metrics", "127.0.0.1:19464"]);
        let folder = running.folder.path().to_owned();
        let mut seids = SESSIONS.to_vec();
        let report = load(&folder, peers.plug(&folder), |longest| {
            for round in 0..20 {
                longest.store(0, Relaxed);
                running.take_over(&[]);
                gaps.push(longest.swap(0, Relaxed));
                // Changes by the control plane stay.
                let (removed, added) = (seids.remove(0), 210 + round);
                seids.push(added);
                let transaction = Transaction {
                    remove: vec![removed],
                    add: vec![session(added)],
                    ..Transaction::default()
                };
                running.client().change(&transaction).unwrap();
            }
        });
        lost_nothing(&report, &running.sessions_and_stats());
        let (sessions, _) = running.sessions_and_stats();
        let others = sessions.iter().map(|session| session.seid).filter(|seid| *seid > 100);
        assert_eq!(others.collect::<Vec<_>>(), seids);
        let mut monitor = TcpStream::connect("127.0.0.1:19464").unwrap();
        monitor.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut reply = String::new();
        monitor.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        // A new peer connects as usual, also at the files of the first process.
        let [n3, _n6] = peers.plug(&folder);
        let is_up = || n3.link.as_ref().expect("a peer").status().state == LinkState::Running;
        assert!(eventually(is_up));
    }
    gaps.sort_unstable();
    println!("longest latency at each take-over, in microseconds: {gaps:?}");
}

#[test]
fn packets_survive_takeovers_over_devices_and_sockets() {
    require_root!();
    let _alone = alone();
    let namespace = Arc::new(NetworkNamespace::scratch().unwrap());
    for line in [
        "ip link set lo up",
        "ip link add v0 type veth peer name v1",
        "ip link set v0 up",
        "ip link set v1 up",
    ] {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        assert!(namespace.enter(|| command.status()).unwrap().success(), "{line}");
    }
    let vxlan = |own: u8, other: u8| format!("vxlan:127.0.0.{own}?vni=7&remote=127.0.0.{other}");
    for ([n3, n6], peers) in [
        (["tap:t0", "raw:v0"], ["raw:t0", "raw:v1"]),
        ([&vxlan(1, 2)[..], "afxdp:v0"], [&vxlan(2, 1), "raw:v1"]),
    ] {
        let options = ["--n3", n3, "--n6", n6];
        let mut running = Running::within(Some(namespace.clone()), &options);
        let ports = peers.map(|uri| {
            let uri: PortUri = uri.parse().unwrap();
            namespace.enter(|| Ok(uri.open().unwrap())).unwrap()
        });
        let folder = running.folder.path().to_owned();
        let report = load(&folder, ports, |_| {
            for _ in 0..10 {
                running.take_over(&[]);
            }
        });
        lost_nothing(&report, &running.sessions_and_stats());
    }
}

/// Root starts the first process, which becomes another user; that user starts the next one, and
/// root the last.
#[test]
fn processes_of_root_and_of_its_user_take_over_from_each_other() {
    require_root!();
    let _alone = alone();
    const OPTIONS: [&str; 2] = ["--user", "4242:4243"];
    let options = SPLIT.options();
    let options = [&options.each_ref().map(String::as_str)[..], &OPTIONS].concat();
    let mut running = Running::in_folder(folder_of(4242, 4243), None, &options);
    let folder = running.folder.path().to_owned();
    assert_is_user(&running.process, 4242, 4243);
    let report = load(&folder, SPLIT.plug(&folder), |_| {
        running.take_over_by(|command| command.uid(4242).gid(4243));
        assert_is_user(&running.process, 4242, 4243);
        running.take_over(&OPTIONS);
        assert_is_user(&running.process, 4242, 4243);
    });
    lost_nothing(&report, &running.sessions_and_stats());
    let why = fails(PROGRAM.takes_over(&running.control()).args(["--user", "root"]));
    assert!(why.contains("user 4242's, and this is user 0"), "{why}");
    common::signal(&running.process.0, rustix::process::Signal::TERM);
    assert!(running.process.0.wait().unwrap().success());
    let left = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["upf.toml"], "only the configuration is left");
}

#[test]
fn quota_and_configuration_of_the_next_process_hold() {
    let _alone = alone();
    let mut running = Running::new(SPLIT, &[]);
    let folder = running.folder.path().to_owned();
    let mut first = running.client().session(1).unwrap().config.unwrap();
    first.urrs[0].quota = Volume { uplink: Some(10_000), ..Volume::default() };
    running.client().change(&Transaction { modify: vec![first], ..Default::default() }).unwrap();
    load(&folder, SPLIT.plug(&folder), |_| {
        let used_up = || running.client().stats().unwrap().uplink.drops.total() > 10;
        assert!(eventually(used_up));
        let before = running.client().session(1).unwrap().usage[0].counted.uplink_octets;
        let config = configuration(&[201, 205]);
        std::fs::write(folder.join("upf.toml"), config).unwrap();
        running.take_over(&["--config", folder.join("upf.toml").to_str().unwrap()]);
        sleep(Duration::from_millis(200));
        let after = running.client().session(1).unwrap().usage[0].counted.uplink_octets;
        assert_eq!(after, before);
    });
    let (sessions, _) = running.sessions_and_stats();
    let others = sessions.iter().map(|session| session.seid).filter(|seid| *seid > 100);
    assert_eq!(others.collect::<Vec<_>>(), [201, 205]);
}

/// A request may end without a reply when the process that has accepted it ends, but a client
/// always finds a program that listens.
#[test]
fn clients_find_the_control_socket_at_any_time() {
    let _alone = alone();
    let mut running = Running::new(SPLIT, &[]);
    let (client, stop) = (running.client(), AtomicBool::new(false));
    let [replies, broken] = scope(|scope| {
        let asks = scope.spawn(|| {
            let [mut replies, mut broken] = [0, 0];
            while !stop.load(Relaxed) {
                match client.status() {
                    Ok(status) => replies += u32::from(status.sessions == 103),
                    Err(ClientError::Broken { .. }) => broken += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            [replies, broken]
        });
        for _ in 0..20 {
            running.take_over(&[]);
        }
        stop.store(true, Relaxed);
        asks.join().expect("replies")
    });
    println!("{replies} replies, and {broken} requests without one");
    assert!(replies > 100 && broken <= 20, "{replies} {broken}");
}

#[test]
fn failed_takeover_disturbs_nothing() {
    require_root!();
    let _alone = alone();
    let mut running = Running::new(SPLIT, &[]);
    let (control, folder) = (running.control(), running.folder.path().to_owned());
    let report = load(&folder, SPLIT.plug(&folder), |_| {
        PROGRAM.refuses_others(&control);
        let why = fails(PROGRAM.takes_over(&control).args(["--n3", "null:"]));
        assert!(why.contains("port \"n3\" runs as vhost:"), "{why}");
        let why = fails(PROGRAM.takes_over(&control).args(["--metrics", "192.0.2.1:9464"]));
        assert!(why.contains("metrics address 192.0.2.1:9464"), "{why}");
    });
    lost_nothing(&report, &running.sessions_and_stats());
    let Started(process) = &mut running.process;
    assert!(process.try_wait().unwrap().is_none(), "it still runs");
    // And can be taken over, files of sockets included.
    running.take_over(&[]);
    load(&folder, SPLIT.plug(&folder), |_| ());
}

#[test]
fn port_that_cannot_be_handed_over_is_named() {
    let _alone = alone();
    let running = Running::within(None, &["--n3", "null:", "--n6", "virtio:DIR/n6"]);
    let why = fails(&mut PROGRAM.takes_over(&running.control()));
    assert!(why.contains("port \"n6\": such a port cannot be handed over"), "{why}");
    assert_eq!(running.client().status().unwrap().sessions, 103);
}

#[test]
fn takeover_of_nothing_or_of_garbage_fails_in_one_line() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let control = control_of(folder.path());
    let why = fails(&mut PROGRAM.takes_over(&control));
    assert!(why.contains("no program listens at"), "{why}");
    let hello = r#"{"version":"9.9.9","format":4}"#;
    let page = |text: &str| {
        let text = format!("[{hello},{text}]");
        serde_json::to_string(&[(text, 0)]).unwrap()
    };
    for (hello, message, part) in [
        (hello, None, "has ended, or given up"),
        (hello, Some("}".to_owned()), "invalid message"),
        (hello, Some("[]".to_owned()), "no page of the state"),
        (hello, Some(page("{}")), "invalid state"),
        (hello, Some(page(r#"{"Port":[2,"null:",{}]}"#)), "invalid state"),
        (r#"{"version":"9.9.9","format":7}"#, None, "formats 7 and 4"),
        ("{}", None, "missing field"),
    ] {
        let _ = std::fs::remove_file(&control);
        let listener = UnixListener::bind(&control).unwrap();
        let _server = Server::start(listener, Limits::default(), move |mut request| {
            let channel = Channel::of(request.descriptors.pop().expect("one")).unwrap();
            if let Some(message) = &message {
                channel.send(message.as_bytes(), &[], PATIENCE).unwrap();
            }
            Response::text(200, "application/json", hello.to_owned())
        });
        let why = fails(&mut PROGRAM.takes_over(&control));
        assert!(why.contains(part) && why.contains("take-over: "), "{part}: {why}");
        assert!(control.exists(), "the file is not that of the process that failed");
    }
}
