//! Third-party switches and endpoints: frames pass, and nothing is left behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::endpoints::{BOTH_ENDS, at_rest, go_round};
use crate::common::{self, Traces, alone, eventually, success};
use dray_lab::peer::{
    Driver, EndpointPort, EndpointRole, EndpointSettings, Memory, PeerDir, PeerEndpoint, PeerPort,
    PeerSwitch, SwitchKind, SwitchSettings, Wiring,
};
use dray_lab::{Cancel, placement};
use rustix::process::Signal;

/// Switches that Debian packages.
const PACKAGED: [SwitchKind; 2] = [SwitchKind::Testpmd, SwitchKind::OvsDpdk];

/// Returns the CPU of the switch (the last one) and that of the endpoints (the first one).
fn cpus() -> (usize, usize) {
    let allowed = placement::allowed();
    (*allowed.last().unwrap(), allowed[0])
}

/// Returns the number of huge pages reserved on this machine.
fn reserved() -> String {
    fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap()
}

/// Returns the number of huge pages in this machine's pool without those of tests. Other programs'
/// tests reserve some for a few seconds, so `scripts/test-programs.py` reads it before it starts
/// any.
fn reserved_by_user() -> String {
    std::env::var("DRAY_HUGEPAGES").unwrap_or_else(|_| reserved())
}

const SPLIT: Driver = Driver::VirtioUser { packed: false, queue_size: 256 };
const PACKED: Driver = Driver::VirtioUser { packed: true, queue_size: 256 };

/// Parameters that differ between tests.
#[derive(Clone, Copy)]
struct Setting {
    kind: SwitchKind,
    wiring: Wiring,
    memory: Memory,
    driver: Driver,
    /// True if the switch listens, false if the endpoints do.
    listens: bool,
}

const PLAIN: Setting = Setting {
    kind: SwitchKind::Testpmd,
    wiring: Wiring::Pairs,
    memory: Memory::HugePages,
    driver: SPLIT,
    listens: true,
};

impl Setting {
    fn start_switch(&self, dir: &PeerDir) -> PeerSwitch {
        let server = self.listens;
        let port = |name| PeerPort { server, ..PeerPort::listening(dir.join(name)) };
        let settings = SwitchSettings {
            kind: self.kind,
            cpu: cpus().0,
            sleeps: false,
            wiring: self.wiring,
            memory: self.memory,
            ports: vec![port("a.sock"), port("b.sock")],
        };
        PeerSwitch::start(dir, &settings, &Cancel::default()).unwrap()
    }

    fn start_endpoint(&self, dir: &PeerDir, role: EndpointRole, ports: &[&str]) -> PeerEndpoint {
        let ports = ports.iter().map(|name| {
            let (own, peer) = if *name == "a.sock" { (1, 2) } else { (2, 1) };
            let port = EndpointPort::connecting(dir.join(name), own, peer);
            EndpointPort { driver: self.driver, server: !self.listens, ..port }
        });
        let (switch, endpoints) = cpus();
        let settings = EndpointSettings {
            name: format!("{role:?}").split(' ').next().unwrap().to_lowercase(),
            role,
            // An endpoint that is the back end runs on the switch's CPU.
            cpu: if self.driver == Driver::Vhost { switch } else { endpoints },
            memory: self.memory,
            ports: ports.collect(),
        };
        let mut endpoint = PeerEndpoint::start(dir, &settings).unwrap();
        endpoint.wait_until_ready(&Cancel::default()).unwrap();
        endpoint
    }

    /// One endpoint sends through the switch to another, and the counters agree. Both poll on one
    /// CPU, in turns of milliseconds, in which the receiver's ring overflows: few frames arrive.
    /// Nothing is left behind. Returns true if the switch has counters.
    fn sends_and_receives(&self) -> bool {
        let (before, pages) = (Traces::now(), reserved_by_user());
        let dir = PeerDir::new().unwrap();
        let switch = self.start_switch(&dir);
        assert!(switch.ready_after() > Duration::ZERO);
        let mut receiver = self.start_endpoint(&dir, EndpointRole::Receiver, &["b.sock"]);
        let role = EndpointRole::Sender { frame_size: 100 };
        let mut sender = self.start_endpoint(&dir, role, &["a.sock"]);
        let count = |endpoint: &PeerEndpoint| endpoint.counters().unwrap()[0];
        receiver.start_traffic().unwrap();
        sender.start_traffic().unwrap();
        let arrived = || count(&receiver).received_frames > 2_000;
        assert!(eventually(arrived), "{:?} {:?}", count(&sender), count(&receiver));
        sender.stop_traffic().unwrap();
        let (sent, received) = at_rest(|| (count(&sender), count(&receiver)));
        assert!(received.received_frames <= sent.sent_frames, "{sent:?} {received:?}");
        assert_eq!(received.received_bytes, 100 * received.received_frames, "{received:?}");
        assert!(switch.cpu_time().unwrap().user > Duration::ZERO);
        assert_eq!(switch.needs().hugepages_mib > 0, self.memory == Memory::HugePages);
        let counters = switch.counters().unwrap();
        if let Some(counters) = &counters {
            assert_eq!(counters[0].received_frames, sent.sent_frames, "{counters:?}");
            assert_eq!(counters[1].sent_frames, received.received_frames, "{counters:?}");
        }
        let path = dir.path().to_owned();
        drop((sender, receiver, switch, dir));
        assert!(!path.exists());
        assert_eq!(Traces::now(), before);
        assert!(eventually(|| reserved() == pages), "{} pages, not {pages}", reserved());
        counters.is_some()
    }

    /// One endpoint is both ends, and the switch passes its frames both ways.
    fn circulates(&self) {
        let dir = PeerDir::new().unwrap();
        let switch = self.start_switch(&dir);
        let mut both = self.start_endpoint(&dir, BOTH_ENDS, &["a.sock", "b.sock"]);
        let ports = go_round(&mut both);
        let counters = switch.counters().unwrap();
        for (port, counters) in ports.iter().zip(counters.iter().flatten()) {
            assert_eq!(counters.received_frames, port.sent_frames, "{counters:?} {port:?}");
            assert_eq!(counters.sent_frames, port.received_frames, "{counters:?} {port:?}");
        }
    }
}

#[test]
fn counters_balance_through_testpmd() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    for driver in [SPLIT, PACKED] {
        let testpmd = Setting { driver, ..PLAIN };
        assert!(testpmd.sends_and_receives());
        testpmd.circulates();
    }
}

#[test]
fn counters_balance_without_huge_pages() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    let testpmd = Setting { memory: Memory::OrdinaryPages, ..PLAIN };
    testpmd.sends_and_receives();
    testpmd.circulates();
}

#[test]
fn endpoints_can_listen() {
    let _alone = alone();
    require!(SwitchKind::Testpmd, SwitchKind::OvsDpdk);
    for kind in PACKAGED {
        let connects = Setting { kind, listens: false, ..PLAIN };
        assert!(connects.sends_and_receives(), "{kind:?}");
        connects.circulates();
    }
}

#[test]
fn counters_balance_through_open_vswitch() {
    let _alone = alone();
    require!(SwitchKind::Testpmd, SwitchKind::OvsDpdk);
    let ovs = Setting { kind: SwitchKind::OvsDpdk, ..PLAIN };
    for driver in [SPLIT, PACKED] {
        Setting { driver, ..ovs }.sends_and_receives();
        for wiring in [Wiring::Pairs, Wiring::Learning] {
            Setting { driver, wiring, ..ovs }.circulates();
        }
    }
}

/// Takes free huge pages once a program has been started, before it has those added for it, and
/// leaves it some of them.
const TAKER: &str = "
import mmap, os, sys, time
print('ready', flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.0005)
free = int(open('/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages').read())
taken = mmap.mmap(-1, (free - int(sys.argv[2])) << 21, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x40000)
sys.stdin.read()";

/// Runs `start` while another process takes the huge pages of the program with this log.
fn start_robbed<T>(dir: &PeerDir, log: &str, left: u32, start: impl FnOnce() -> T) -> T {
    let mut taker = Command::new("python3");
    taker.args(["-c", TAKER]).arg(dir.join(log)).arg(left.to_string());
    let mut taker = taker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(taker.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let started = start();
    assert!(taker.wait().unwrap().success());
    started
}

#[test]
fn programs_start_although_others_take_their_pages() {
    let _alone = alone();
    require!(SwitchKind::Testpmd, SwitchKind::OvsDpdk);
    let pages = reserved_by_user();
    for (kind, log, left) in
        [(SwitchKind::OvsDpdk, "ovs-dpdk.log", 200), (SwitchKind::Testpmd, "testpmd.log", 4)]
    {
        let dir = PeerDir::new().unwrap();
        let switch = Setting { kind, ..PLAIN };
        start_robbed(&dir, log, left, || switch.start_switch(&dir));
    }
    // By then it has opened its socket, at which the switch waits for it.
    let dir = PeerDir::new().unwrap();
    let connects = Setting { listens: false, ..PLAIN };
    let switch = connects.start_switch(&dir);
    let start = || connects.start_endpoint(&dir, BOTH_ENDS, &["a.sock", "b.sock"]);
    go_round(&mut start_robbed(&dir, "loop.log", 4, start));
    drop((switch, dir));
    assert!(eventually(|| reserved() == pages), "{} pages, not {pages}", reserved());
}

#[test]
fn endpoint_can_be_back_end() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    let dir = PeerDir::new().unwrap();
    let back_end = Setting { driver: Driver::Vhost, listens: false, ..PLAIN };
    let mut echo = back_end.start_endpoint(&dir, EndpointRole::Echo, &["a.sock"]);
    echo.start_traffic().unwrap();
    let role = EndpointRole::Sender { frame_size: 64 };
    let mut sender = PLAIN.start_endpoint(&dir, role, &["a.sock"]);
    sender.start_traffic().unwrap();
    let count = || echo.counters().unwrap()[0];
    assert!(eventually(|| count().received_frames > 100_000 && count().sent_frames > 0));
}

#[test]
fn invalid_switch_settings_are_rejected() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    let (before, pages) = (Traces::now(), reserved_by_user());
    let dir = PeerDir::new().unwrap();
    let cancel = Cancel::default();
    let port = |name| PeerPort::listening(dir.join(name));
    let settings = SwitchSettings {
        kind: SwitchKind::Testpmd,
        cpu: cpus().0,
        sleeps: false,
        wiring: Wiring::Pairs,
        memory: Memory::HugePages,
        ports: vec![port("a.sock"), port("b.sock")],
    };
    let error = |change: &dyn Fn(&mut SwitchSettings)| {
        let mut settings = settings.clone();
        change(&mut settings);
        PeerSwitch::start(&dir, &settings, &cancel).unwrap_err().to_string()
    };
    let learning = error(&|settings| settings.wiring = Wiring::Learning);
    assert!(learning.contains("does not learn"), "{learning}");
    let odd = error(&|settings| settings.ports.truncate(1));
    assert!(odd.contains("1 port cannot be paired"), "{odd}");
    let cpu = error(&|settings| settings.cpu = 60_000);
    assert!(cpu.contains("CPU 60000 is not available"), "{cpu}");
    let twice = error(&|settings| settings.ports[1] = settings.ports[0].clone());
    assert!(twice.contains("a.sock; each port needs its own"), "{twice}");

    let settings = EndpointSettings {
        name: "lonely".to_owned(),
        role: EndpointRole::Receiver,
        cpu: cpus().1,
        memory: Memory::OrdinaryPages,
        ports: vec![EndpointPort::connecting(dir.join("nobody.sock"), 1, 2)],
    };
    let mut endpoint = PeerEndpoint::start(&dir, &settings).unwrap();
    let error = endpoint.wait_until_ready(&cancel).unwrap_err().to_string();
    assert!(error.starts_with("lonely: ended before") && error.contains("virtio"), "{error}");
    drop(endpoint);
    drop(dir);
    assert_eq!(Traces::now(), before);
    assert!(eventually(|| reserved() == pages), "{} pages, not {pages}", reserved());
}

/// Environment variable that tells this program, started by the test below, to be the victim.
const VICTIM: &str = "DRAY_TEST_VICTIM";

#[test]
#[ignore = "run and killed by another test"]
fn killed_peer_switches() {
    if std::env::var_os(VICTIM).is_some() {
        let dir = PeerDir::new().unwrap();
        let _switches = PACKAGED.map(|kind| {
            let switch = Setting { kind, ..PLAIN }.start_switch(&dir);
            for name in ["a.sock", "b.sock"] {
                fs::remove_file(dir.join(name)).unwrap();
            }
            switch
        });
        println!("{}", dir.path().display());
        sleep(Duration::from_secs(3600));
    }
}

#[test]
fn after_sigkill_the_next_start_cleans_up() {
    let _alone = alone();
    require!(SwitchKind::Testpmd, SwitchKind::OvsDpdk);
    success(&["lab", "clean"]);
    let (before, pages) = (Traces::now(), reserved_by_user());
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "with_dpdk::killed_peer_switches", "--ignored", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(victim.stdout.take().unwrap()).lines();
    let path = output.find_map(|line| line.ok().filter(|line| line.starts_with('/'))).unwrap();
    assert_ne!(reserved(), pages);
    assert_eq!(success(&["lab", "clean"]), "nothing to remove\n", "its owner is alive");
    common::signal(&victim, Signal::KILL);
    victim.wait().unwrap();
    // The processes end by themselves; files and huge pages stay.
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
    assert!(Path::new(&path).exists());
    let said = success(&["lab", "clean"]);
    assert!(said.contains(path.rsplit('/').next().unwrap()), "{said}");
    assert!(!Path::new(&path).exists());
    // Memory of a dying process is freed when the process is gone.
    assert!(eventually(|| reserved() == pages), "{} pages, not {pages}", reserved());
    before.assert_unchanged();
}
