//! Taking over a running switch: no frame is lost, no peer reconnects, and a take-over that fails
//! disturbs nothing.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use dray_daemon::{Channel, Limits, Response, Server};
use dray_lab::NetworkNamespace;
use dray_lab::peer::{EndpointRole, PeerDir, SwitchKind};
use dray_netdev::Interface;
use dray_port::{Frame, Port, Transmit};
use dray_switch::client::Client;
use dray_switch::{DropReason, PortState, PortStatus};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::common::takeover::{PATIENCE, Program, fails, start_in};
use crate::common::veths::Veths;
use crate::common::{self, Started, alone, eventually, listens};
use crate::ends::{self, Frames};
use crate::exchange::{cpus, exchange, exchange_all, never_reconnected, pass_both_ways};
use crate::hostile::HostileDriver;
use crate::with_dpdk::{Endpoint, MemifClient, PLAIN};

pub(crate) const PROGRAM: Program = Program("switch", 4);

/// A switch in a process of its own, which others take over.
pub(crate) struct Running {
    pub(crate) folder: TempDir,
    /// Network namespace that it runs in, if not the test's.
    namespace: Option<Arc<NetworkNamespace>>,
    pub(crate) process: Started,
    /// Options of the processes that take over.
    options: Vec<&'static str>,
}

impl Running {
    pub(crate) fn new(options: &[&str], ports: &[&str]) -> Self {
        Self::within(None, options, ports)
    }

    fn within(namespace: Option<Arc<NetworkNamespace>>, options: &[&str], ports: &[&str]) -> Self {
        Self::in_folder(tempfile::tempdir().expect("a folder"), namespace, options, ports)
    }

    /// Starts one in a network namespace, with `ports` in which `DIR` is `folder`.
    pub(crate) fn in_folder(
        folder: TempDir,
        namespace: Option<Arc<NetworkNamespace>>,
        options: &[&str],
        ports: &[&str],
    ) -> Self {
        let mut command = common::command();
        command.arg("switch").args(options);
        command.arg("--control").arg(control_of(folder.path()));
        let at = folder.path().to_str().expect("text");
        command.args(ports.iter().map(|port| port.replace("DIR", at)));
        let process = start_in(namespace.as_deref(), &mut command);
        let running = Self { folder, namespace, process, options: Vec::new() };
        assert!(eventually(|| listens(running.control())), "the switch listens");
        running
    }

    pub(crate) fn control(&self) -> PathBuf {
        control_of(self.folder.path())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.control())
    }

    pub(crate) fn port(&self, name: &str) -> PortStatus {
        self.client().port(&name.parse().unwrap()).expect("a reply")
    }

    pub(crate) fn plug(&self, name: &str, keys: &str) -> Port {
        ends::plug(&self.folder.path().join(name), keys)
    }

    /// Starts another process, which takes over; returns once the one before has ended.
    fn take_over(&mut self) {
        let options = self.options.clone();
        self.take_over_by(|command| command.args(options));
    }

    /// Like [`take_over`](Self::take_over), by a process with what `change` adds to its command.
    pub(crate) fn take_over_by(&mut self, change: impl FnOnce(&mut Command) -> &mut Command) {
        let (namespace, control) = (self.namespace.as_deref(), self.control());
        let mut command = PROGRAM.takes_over(&control);
        change(&mut command);
        PROGRAM.replaced(&mut self.process, namespace, &control, &mut command);
    }
}

fn control_of(folder: &Path) -> PathBuf {
    folder.join("control")
}

#[test]
fn frames_and_peers_survive_forty_takeovers() {
    let _alone = alone();
    let mut gaps = Vec::new();
    for (workers, queues, packed) in [(1, 1, 0), (1, 1, 1), (1, 2, 0), (2, 2, 1)] {
        let options = ["--mode", "patch", "--flow", "backpressure", "--cpus", &cpus(workers)];
        let ports = ["a", "b"].map(|name| format!("{name}=vhost:DIR/{name}?queues={queues}"));
        let mut running = Running::new(&options, &ports.each_ref().map(String::as_str));
        let keys = format!("packed={packed}&queues={queues}");
        let (mut a, mut b) = (running.plug("a", &keys), running.plug("b", &keys));
        let sent = exchange_all((&mut a, &mut b), |longest| {
            for _ in 0..10 {
                longest.store(0, Relaxed);
                running.take_over();
                gaps.push(longest.swap(0, Relaxed));
            }
        });
        assert!(never_reconnected(&a) && never_reconnected(&b), "{keys}");
        let [a, b] = ["a", "b"].map(|name| running.port(name));
        assert!(a.disconnects.is_empty() && b.disconnects.is_empty(), "{keys}");
        assert_eq!((a.counters.rx_frames, b.counters.tx_frames), (sent, sent), "{keys}");
    }
    gaps.sort_unstable();
    println!("longest pause between two frames at each take-over, in microseconds: {gaps:?}");
    assert!(gaps[gaps.len() - 1] < 500_000, "the slowest take-over: {gaps:?}");
}

#[test]
fn stations_pins_and_counters_stay() {
    let _alone = alone();
    let mut running =
        Running::new(&[], &["a=vhost:DIR/a", "b=vhost:DIR/b", "c=null:,mac=52:54:00:00:00:07"]);
    let (mut a, mut b) = (running.plug("a", ""), running.plug("b", ""));
    let frames = Frames::between(1, 2);
    ends::reach((&mut a.tx, &mut b.rx), &frames);
    ends::reach((&mut b.tx, &mut a.rx), &frames.clone().swapped());
    running.client().reset_stats().unwrap();
    ends::pass((&mut a.tx, &mut b.rx), &frames, &frames, 100);
    let names = |running: &Running| {
        let table = running.client().table(None).unwrap();
        let stations = table.into_iter().map(|entry| (entry.mac, entry.port, entry.pinned));
        stations.collect::<Vec<_>>()
    };
    let figures = |running: &Running| {
        let client = running.client();
        // Workers publish a moment after they have moved frames.
        (names(running), client.stats().unwrap(), client.stats_since_reset().unwrap())
    };
    sleep(Duration::from_millis(100));
    let before = figures(&running);
    assert_eq!(before.0.len(), 3, "{:?}", before.0);
    let added = "d=null:".parse().unwrap();
    running.client().add_port(&added).unwrap();
    running.take_over();
    let after = figures(&running);
    assert_eq!((&after.0, &after.1[..3]), (&before.0, &before.1[..]));
    assert_eq!(after.2[0].counters.rx_frames, before.2[0].counters.rx_frames);
    assert_eq!(after.1.len(), 4, "the port that was added later stays");
    // Without flooding: the stations are known.
    let flooded = running.port("c").counters.tx_frames;
    ends::pass((&mut a.tx, &mut b.rx), &frames, &frames, 100);
    sleep(Duration::from_millis(100));
    assert_eq!(running.port("c").counters.tx_frames, flooded);
    assert_eq!(running.port("b").counters.drops.get(DropReason::ReceiverFull), 0);
    // A new driver connects as usual.
    drop(a);
    let mut a = running.plug("a", "packed=1");
    ends::reach((&mut a.tx, &mut b.rx), &frames);
}

#[test]
fn devices_sockets_and_memif_clients_stay() {
    require_root!();
    let _alone = alone();
    let namespace = Arc::new(NetworkNamespace::scratch().unwrap());
    let run = |line: &str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        assert!(namespace.enter(|| command.status()).unwrap().success(), "{line}");
    };
    run("ip link add v0 type veth peer name v1");
    run("ip link set v0 up");
    run("ip link set v1 up");
    let inside = |uri: &str| namespace.enter(|| Ok(ends::open(uri))).unwrap();
    let mut veth = inside("raw:v1");
    let ports = [
        "a=vhost:DIR/a",
        "tap=tap:tap0",
        "b=vhost:DIR/b",
        "raw=raw:v0",
        "c=vhost:DIR/c",
        "memif=memif:DIR/memif?role=server",
    ];
    let options = ["--mode", "patch"];
    let mut running = Running::within(Some(namespace.clone()), &options, &ports);
    let is_up = || running.port("tap").state == PortState::Running;
    assert!(eventually(is_up), "a socket fails at an interface that is down");
    let mut tap = inside("raw:tap0");
    let memif = running.folder.path().join("memif");
    let mut memif = ends::open(&format!("memif:{}", memif.display()));
    ends::wait_until_up(&memif);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| running.plug(name, ""));
    for _ in 0..3 {
        pass_both_ways(&mut a, &mut tap);
        pass_both_ways(&mut b, &mut veth);
        pass_both_ways(&mut c, &mut memif);
        running.take_over();
    }
    assert!(never_reconnected(&memif) && never_reconnected(&c));
    assert!(running.port("memif").disconnects.is_empty());
}

/// Two other hosts of a VXLAN network, on loopback addresses.
pub(crate) struct Remotes {
    number: u16,
    pub(crate) two: Port,
    three: Port,
}

impl Remotes {
    pub(crate) fn new() -> Self {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = free.local_addr().unwrap().port();
        let open = |host: u8| {
            let remote = format!("remote=127.0.0.1:{number}");
            ends::open(&format!("vxlan:127.0.0.{host}:{number}?vni=7&{remote}"))
        };
        Self { number, two: open(2), three: open(3) }
    }

    /// Returns the port of the switch, which knows the first `known` hosts beforehand.
    pub(crate) fn port(&self, known: usize) -> String {
        let number = self.number;
        let remote = |host: usize| format!("127.0.0.{host}:{number}");
        let keys = match known {
            0 => "learn=any&mtu=9000".to_owned(),
            known => format!("remote={}", (2..2 + known).map(remote).collect::<Vec<_>>().join("+")),
        };
        format!("v=vxlan:127.0.0.1:{number}?vni=7&{keys}")
    }

    /// Makes the switch learn that station 2 is behind the second host.
    pub(crate) fn teach(&mut self, a: &mut Port) {
        let there = Frames::between(1, 2);
        ends::reach((&mut self.two.tx, &mut a.rx), &there.clone().swapped());
        ends::reach((&mut a.tx, &mut self.two.rx), &there);
        seen(&mut self.three);
    }

    /// Passes frames both ways, of which the third host sees none.
    pub(crate) fn pass(&mut self, a: &mut Port) {
        let there = Frames::between(1, 2);
        let back = there.clone().swapped();
        ends::pass((&mut a.tx, &mut self.two.rx), &there, &there, 300);
        ends::pass((&mut self.two.tx, &mut a.rx), &back, &back, 300);
        assert_eq!(seen(&mut self.three), 0, "no frame is flooded");
    }
}

/// Returns the number of frames that have arrived.
fn seen(port: &mut Port) -> usize {
    let mut count = 0;
    while port.rx[0].receive(&mut |frames| frames.len()).unwrap() > 0 {
        count += 1;
    }
    count
}

#[test]
fn hosts_and_stations_of_vxlan_stay() {
    let _alone = alone();
    for known in [2, 0] {
        let mut remotes = Remotes::new();
        let mut running = Running::new(&[], &["a=vhost:DIR/a", &remotes.port(known)]);
        let mut a = running.plug("a", "");
        remotes.teach(&mut a);
        remotes.pass(&mut a);
        for _ in 0..3 {
            running.take_over();
            remotes.pass(&mut a);
        }
    }
}

/// Transmits slowly enough that a socket has room for all frames of a pause, also on a busy
/// machine.
struct Slow(Box<dyn Transmit>);

impl Transmit for Slow {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        sleep(Duration::from_millis(40));
        self.0.transmit(frames)
    }

    fn frame_max(&self) -> usize {
        self.0.frame_max()
    }
}

/// Makes a port transmit so.
pub(crate) fn slow_down(port: &mut Port) {
    let fast = port.tx.pop().expect("one");
    port.tx.push(Box::new(Slow(fast)));
}

/// Passes frames each way between a container and an uplink while the switch is taken over. All
/// arrive but those that the kernel counts: `dropped` returns their number at interfaces.
fn survive_takeovers(
    running: &mut Running,
    (a, uplink): (&mut Port, &mut Port),
    dropped: impl Fn() -> u64,
) {
    // It answers once all ports are there.
    running.port("v");
    slow_down(a);
    slow_down(uplink);
    let mut pass = |from: &mut Port, to: &mut Port| {
        exchange((from, to), |longest| {
            for _ in 0..3 {
                longest.store(0, Relaxed);
                running.take_over();
                sleep(Duration::from_millis(200));
                println!("longest pause: {} us", longest.load(Relaxed));
            }
        })
    };
    let (out, back) = (pass(a, uplink), pass(uplink, a));
    let [a, v] = ["a", "v"].map(|name| running.port(name).counters);
    assert_eq!(a.rx_frames, out.sent);
    let missed = uplink.rx[0].dropped().unwrap() + v.drops.get(DropReason::Missed) + dropped();
    assert!(
        out.lost + back.lost <= missed,
        "{out:?} {back:?}, of which the kernel counts {missed}"
    );
}

/// Returns the number of frames that interfaces have dropped, as one that a busy machine polls
/// late.
fn dropped_at(namespace: &NetworkNamespace) -> u64 {
    let mut ip = Command::new("ip");
    let output = namespace.enter(|| ip.args(["-j", "-s", "link"]).output()).unwrap();
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |link: &serde_json::Value| {
        ["/stats64/rx/dropped", "/stats64/tx/dropped"]
            .map(|path| link.pointer(path).and_then(serde_json::Value::as_u64).expect("a number"))
    };
    links.as_array().expect("interfaces").iter().flat_map(of).sum()
}

#[test]
fn frames_through_vxlan_survive_takeovers() {
    let _alone = alone();
    let mut remotes = Remotes::new();
    let options = ["--mode", "patch", "--flow", "backpressure"];
    let mut running = Running::new(&options, &["a=vhost:DIR/a", &remotes.port(1)]);
    let mut a = running.plug("a", "");
    survive_takeovers(&mut running, (&mut a, &mut remotes.two), || 0);
}

#[test]
fn frames_through_afxdp_survive_takeovers() {
    let _alone = alone();
    require_root!();
    for keys in ["", "?xdp=generic&defer=50", "?queues=2&umem=one&wakeup=0", "?chunk=4096"] {
        let veths = Veths::new(2, &[["x0", "x1"]]);
        let mut uplink = veths.open("afxdp:x1?wait=poll");
        let options = ["--mode", "patch", "--flow", "backpressure", "--sandbox", "off"];
        let port = format!("v=afxdp:x0{keys}");
        let ports = ["a=vhost:DIR/a", &port];
        let mut running = Running::within(Some(veths.0.clone()), &options, &ports);
        running.options = vec!["--sandbox", "off"];
        let mut a = running.plug("a", "");
        survive_takeovers(&mut running, (&mut a, &mut uplink), || dropped_at(&veths.0));
        let interface = veths.0.enter(|| Interface::find("x0")).unwrap();
        assert!(!interface.takes_vlan_tags_off().unwrap());
        // The last process detaches the program, and undoes what the first has changed.
        let Started(last) = &mut running.process;
        rustix::process::kill_process(Pid::from_child(last), Signal::TERM).unwrap();
        assert!(last.wait().unwrap().success());
        assert!(interface.takes_vlan_tags_off().unwrap());
        veths.open("afxdp:x0");
    }
}

#[test]
fn afxdp_ports_share_interface_and_umem_after_takeovers() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(2, &[["x0", "x1"], ["y0", "y1"]]);
    // Frames between two ports are not copied; another one has a queue of the same interface.
    let ports = ["x=afxdp:x0?umem=one", "y=afxdp:y0?umem=one", "z=afxdp:x0?queue=1", "n=null:"];
    let options = ["--mode", "patch", "--flow", "backpressure", "--sandbox", "off"];
    let mut running = Running::within(Some(veths.0.clone()), &options, &ports);
    running.options = vec!["--sandbox", "off"];
    let open = |end: &str| veths.open(&format!("afxdp:{end}?wait=poll"));
    let (mut x, mut y) = (open("x1"), open("y1"));
    for _ in 0..3 {
        // More frames than there are chunks.
        (0..10).for_each(|_| pass_both_ways(&mut x, &mut y));
        running.take_over();
    }
    // The last process can open and close such ports as well.
    let client = running.client();
    client.remove_port(&"y".parse().unwrap()).unwrap();
    client.add_port(&"y=afxdp:y0?umem=one".parse().unwrap()).unwrap();
    (0..10).for_each(|_| pass_both_ways(&mut x, &mut y));
}

/// Returns ports for DPDK's vhost-user and memif clients in `dir`, each paired with one of our own.
pub(crate) fn dpdk_ports(dir: &PeerDir, queues: u16) -> [String; 6] {
    let at = |name: &str| dir.join(name).display().to_string();
    [
        format!("own=vhost:DIR/own?queues={queues}"),
        format!("echo=vhost:{}?queues={queues}", at("echo.sock")),
        "x=vhost:DIR/x".to_owned(),
        format!("m0=memif:{}?role=server&id=0", at("memif.sock")),
        "y=vhost:DIR/y".to_owned(),
        format!("m1=memif:{}?role=server&id=1", at("memif.sock")),
    ]
}

#[test]
fn peers_stay_connected_with_dpdk() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    for (packed, queues, workers) in [(false, 1, 1), (true, 2, 1), (false, 2, 2)] {
        let dir = PeerDir::new().unwrap();
        let ports = dpdk_ports(&dir, queues);
        let ports = ports.each_ref().map(String::as_str);
        let options = ["--mode", "patch", "--cpus", &cpus(workers)];
        let mut running = Running::new(&options, &ports);
        let endpoint = Endpoint { packed, queues, ..PLAIN };
        let mut echo = endpoint.start(&dir, EndpointRole::Echo, &[("echo.sock", 2, 1)]);
        echo.start_traffic().unwrap();
        let memif = dir.join("memif.sock");
        let _memif = MemifClient::start(&dir, &format!("{},socket-abstract=no", memif.display()));
        let mut own = running.plug("own", &format!("queues={queues}"));
        let [mut x, mut y] = ["x", "y"].map(|name| running.plug(name, ""));
        let there = Frames::between(1, 2);
        let back = there.clone().swapped();
        for _ in 0..3 {
            ends::reach((&mut own.tx, &mut own.rx), &there);
            ends::pass((&mut own.tx, &mut own.rx), &there, &back, 500);
            pass_both_ways(&mut x, &mut y);
            running.take_over();
        }
        for name in ["echo", "m0", "m1"] {
            assert!(running.port(name).disconnects.is_empty(), "{name}");
        }
    }
}

#[test]
fn failed_takeover_disturbs_nothing() {
    require_root!();
    let _alone = alone();
    let options = ["--mode", "patch", "--flow", "backpressure"];
    let mut running = Running::new(&options, &["a=vhost:DIR/a", "b=vhost:DIR/b"]);
    let control = running.control();
    let (mut a, mut b) = (running.plug("a", ""), running.plug("b", "packed=1"));
    exchange_all((&mut a, &mut b), |_| {
        PROGRAM.refuses_others(&control);
        let unix = format!("u=unix:{}", running.folder.path().join("u").display());
        running.client().add_port(&unix.parse().unwrap()).unwrap();
        let why = fails(&mut PROGRAM.takes_over(&control));
        assert!(why.contains("port \"u\": such a port cannot be handed over"), "{why}");
        running.client().remove_port(&"u".parse().unwrap()).unwrap();

        let why = fails(PROGRAM.takes_over(&control).arg("a=null:"));
        assert!(why.contains("port \"a\" runs as vhost:"), "{why}");
        let why = fails(PROGRAM.takes_over(&control).arg("x=raw:nosuch0"));
        assert!(why.contains("nosuch0"), "{why}");
    });
    assert!(never_reconnected(&a) && never_reconnected(&b));
    let Started(process) = &mut running.process;
    assert!(process.try_wait().unwrap().is_none(), "the switch still runs");
    // And can be taken over, files of sockets included.
    running.take_over();
    drop(b);
    let mut b = running.plug("b", "");
    exchange_all((&mut a, &mut b), |_| ());
}

/// Containers change what is theirs: the files of their ports' sockets, and memory that they share.
/// Each harms its own port alone.
#[test]
fn hostile_peers_do_not_prevent_a_takeover() {
    use std::fs::{create_dir, remove_dir_all, remove_file};
    let _alone = alone();
    let options = ["--mode", "patch", "--flow", "backpressure"];
    let outside = tempfile::tempdir().unwrap();
    let own = outside.path().join("own");
    create_dir(&own).unwrap();
    let gone = format!("gone=vhost:{}/s", own.display());
    let ports = [
        "a=vhost:DIR/a",
        "b=vhost:DIR/b",
        "deleted=vhost:DIR/deleted",
        "linked=vhost:DIR/linked",
        "other=vhost:DIR/other",
        &gone,
        "memif=memif:DIR/memif?role=server",
        "short=vhost:DIR/short",
    ];
    let mut running = Running::new(&options, &ports);
    let at = |running: &Running, name: &str| running.folder.path().join(name);
    let (mut a, mut b) = (running.plug("a", ""), running.plug("b", ""));
    let [mut deleted, mut linked, mut other] =
        ["deleted", "linked", "other"].map(|name| running.plug(name, ""));
    let mut gone = ends::plug(&own.join("s"), "");
    let mut memif = ends::open(&format!("memif:{}", at(&running, "memif").display()));
    ends::wait_until_up(&memif);
    let mut driver = HostileDriver::connect(&at(&running, "short"));
    // Protocol features and version 1.
    driver.start(1 << 30 | 1 << 32);
    driver.sync();

    for name in ["deleted", "memif"] {
        remove_file(at(&running, name)).unwrap();
    }
    for name in ["linked", "other"] {
        remove_file(at(&running, name)).unwrap();
    }
    std::os::unix::fs::symlink("b", at(&running, "linked")).unwrap();
    let _other = UnixListener::bind(at(&running, "other")).unwrap();
    remove_dir_all(&own).unwrap();
    // The rings, at its start, stay.
    ftruncate(driver.memory.as_fd(), 512 << 10).unwrap();

    for _ in 0..2 {
        exchange_all((&mut a, &mut b), |_| running.take_over());
        pass_both_ways(&mut deleted, &mut linked);
        pass_both_ways(&mut other, &mut gone);
    }
    for port in [&a, &b, &deleted, &linked, &other, &gone, &memif] {
        assert!(never_reconnected(port));
    }
    assert!(eventually(|| driver.is_hung_up()), "the peer that has changed its memory leaves");
    let why = running.port("short").last_disconnect.unwrap_or_default();
    assert!(why.contains("do not fit the file of 524288 bytes"), "{why}");
    // The socket is free for the next driver.
    let mut next = running.plug("short", "");
    pass_both_ways(&mut next, &mut memif);
}

pub(crate) fn memory_of_fixed_size() -> OwnedFd {
    let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, 4096).unwrap();
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    memory
}

#[test]
fn applied_file_removes_what_earlier_file_had() {
    let _alone = alone();
    let mut running = Running::new(&[], &["a=null:"]);
    let file = "[[ports]]\nname = 'b'\nuri = 'null:'\n";
    running.client().apply(file, false).unwrap();
    running.client().add_port(&"c=null:".parse().unwrap()).unwrap();
    running.take_over();
    let said = running.client().apply("", false).unwrap().to_string();
    assert_eq!(said, "- b: uri null:\nunchanged: 0\nnot from a file, left alone: a, c\n");
}

#[test]
fn takeover_of_no_switch_or_of_garbage_fails_in_one_line() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let control = control_of(folder.path());
    let why = fails(&mut PROGRAM.takes_over(&control));
    assert!(why.contains("no program listens at"), "{why}");

    let hello = r#"{"version":"9.9.9","format":4}"#;
    let pages = |texts: &[(&str, usize)]| {
        let text = |&(text, count): &(&str, usize)| (format!("[{hello},{text}]"), count);
        serde_json::to_string(&texts.iter().map(text).collect::<Vec<_>>()).unwrap()
    };
    let state = r#"{"State":{"has_metrics":false,"state":{"settings":"","at_s":0,"has_ended":false,"ports":[],"configured":[],"given":[],"stations":[],"uptime_s":1e300,"reset":null}}}"#;
    let port = |origin: bool| {
        let own = r#"{"config":{"name":"a","uri":"vhost:/nosuch/a"},"partner":null}"#;
        let rest = r#""changes":0,"said":[[[1,2,3],0]],"starts":[],"devices":0,"frame_max":0,"ends":{},"last_end":null"#;
        format!(r#"{{"Port":[0,{own},{{"origin":{origin},"own":false,"connected":true,{rest}}}]}}"#)
    };
    for (hello, message, part) in [
        (hello, None, "has ended, or given up"),
        (hello, Some("}".to_owned()), "invalid message"),
        (hello, Some(pages(&[("{}", 0)])), "invalid state"),
        (hello, Some(pages(&[(&port(false), 3)])), "no page of the state"),
        (hello, Some(pages(&[(state, 0)])), "no control socket"),
        (hello, Some(pages(&[(state, 1), (&port(true), 2)])), "2 of its 3 file descriptors"),
        (
            hello,
            Some(pages(&[(state, 1), (&port(false), 3)])),
            "vhost:/nosuch/a: incomplete message header: 3 of 12",
        ),
        (r#"{"version":"9.9.9","format":7}"#, None, "formats 7 and 4"),
        ("{}", None, "missing field"),
    ] {
        let _ = std::fs::remove_file(&control);
        let listener = UnixListener::bind(&control).unwrap();
        let _server = Server::start(listener, Limits::default(), move |mut request| {
            let channel = Channel::of(request.descriptors.pop().expect("one")).unwrap();
            if let Some(message) = &message {
                // In place of the control socket; then the connection to a driver, the progress of
                // its queues, and the counters.
                let (driver, other) = UnixStream::pair().unwrap();
                let memory = memory_of_fixed_size();
                let descriptors = [other.as_fd(), driver.as_fd(), memory.as_fd(), memory.as_fd()];
                channel.send(message.as_bytes(), &descriptors, PATIENCE).unwrap();
            }
            Response::text(200, "application/json", hello.to_owned())
        });
        let why = fails(&mut PROGRAM.takes_over(&control));
        assert!(why.contains(part) && why.contains("take-over: "), "{part}: {why}");
        assert!(control.exists(), "the file is not that of the process that failed");
    }
}
