//! Our switch and our ports with other people's: DPDK's testpmd at either end, Open vSwitch, and
//! guests of QEMU. Every frame of ours has a number, and every byte of it is checked.

mod common;
#[path = "../crates/switch/tests/ends/mod.rs"]
mod ends;


use std::path::{Path, PathBuf};

use std::thread::sleep;
use std::time::Duration;

use common::alone;
use dray_lab::peer::{
    Driver, EndpointPort, EndpointRole, EndpointSettings, Memory, PeerDir, PeerEndpoint, PeerPort,
    PeerSwitch, SwitchKind, SwitchSettings, Wiring,
};
use dray_lab::{Cancel, placement};

use dray_switch::{DropReason, PortState};

use ends::{Frames, counters, eventually, open, pass, plug, reach, switch, wait_until_running, wait_until_up};


/// Returns from the calling test, counted as skipped, where a peer is not installed.
macro_rules! require {
    ($($kind:expr),*) => {
        require_root!();
        $(if let Err(why) = $kind.find() {
            common::skip(&why);
            return;
        })*
    };
}

const JUMBO: &[usize] = &[9000, 60, 2048, 2049, 4096, 9014];

/// DPDK's endpoint, with rings of 256 entries.
#[derive(Clone, Copy, Debug)]
struct Endpoint {
    packed: bool,
    queues: u16,
    /// Whether it listens, and our switch connects.
    server: bool,
}

const PLAIN: Endpoint = Endpoint { packed: false, queues: 1, server: false };

impl Endpoint {
    /// The port of our switch that it is plugged into.
    fn port(&self, name: &str, socket: &Path) -> String {
        let Self { queues, server, .. } = *self;
        format!("{name}=vhost:{}?queues={queues}&client={}", socket.display(), u8::from(server))
    }

    /// Starts it, with a port at each socket.
    fn start(&self, dir: &PeerDir, role: EndpointRole, sockets: &[(&str, u64, u64)]) -> PeerEndpoint {
        let ports = sockets.iter().map(|(name, own, peer)| EndpointPort {
            driver: Driver::VirtioUser { packed: self.packed, queue_size: 256 },
            server: self.server,
            queues: self.queues,
            ..EndpointPort::connecting(dir.join(name), *own, *peer)
        });
        let settings = EndpointSettings {
            name: format!("{role:?}").split(' ').next().unwrap().to_lowercase(),
            role,
            cpu: placement::allowed()[0],
            shares_cpu: true,
            memory: Memory::OrdinaryPages,
            ports: ports.collect(),
        };
        let mut endpoint = PeerEndpoint::start(dir, &settings).unwrap();
        endpoint.wait_until_ready(&Cancel::default()).unwrap();
        endpoint
    }

    /// testpmd to testpmd across our switch; all books agree in the end.
    fn sends_and_receives(&self) {
        let dir = PeerDir::new().unwrap();
        let switch = switch("mode = 'patch'");
        for name in ["a", "b"] {
            ends::add(&switch, &self.port(name, &dir.join(&format!("{name}.sock"))));
        }
        let mut receiver = self.start(&dir, EndpointRole::Receiver, &[("b.sock", 2, 1)]);
        let role = EndpointRole::Sender { frame_size: 100 };
        let mut sender = self.start(&dir, role, &[("a.sock", 1, 2)]);
        wait_until_running(&switch);
        receiver.start_traffic().unwrap();
        sender.start_traffic().unwrap();
        let count = |endpoint: &PeerEndpoint| endpoint.counters().unwrap()[0];
        eventually("200,000 frames", || count(&receiver).received_frames > 200_000);
        sender.stop_traffic().unwrap();
        let mut last = None;
        eventually("quiet", || {
            sleep(Duration::from_millis(100));
            let now = (count(&sender), count(&receiver), counters(&switch, "b"));
            last.replace(now) == Some(now)
        });
        let (sent, received) = (count(&sender), count(&receiver));
        let (a, b) = (counters(&switch, "a"), counters(&switch, "b"));
        let books = format!("{self:?} {sent:?} {received:?} {a:?} {b:?}");
        assert_eq!(a.rx_frames, sent.sent_frames, "{books}");
        assert_eq!(a.rx_bytes, sent.sent_bytes, "{books}");
        assert_eq!(b.tx_frames, received.received_frames, "{books}");
        assert_eq!(b.tx_bytes, received.received_bytes, "{books}");
        assert_eq!(received.received_bytes, 100 * received.received_frames, "{books}");
        assert_eq!(a.rx_frames, b.tx_frames + b.drops.total(), "{books}");
        assert_eq!(b.drops.total(), b.drops.get(DropReason::ReceiverFull), "{books}");
        assert_eq!(a.drops.total(), 0, "{books}");
        // What a receiver sends so that learning switches know it.
        assert_eq!(b.rx_frames, count(&receiver).sent_frames, "{books}");
        let status = ends::status(&switch, "a");
        assert_eq!(status.features.iter().any(|name| name == "packed"), self.packed, "{status:?}");
        drop(sender);
        eventually("its end is noticed", || ends::status(&switch, "a").state == PortState::Waiting);
        assert_eq!(ends::status(&switch, "b").state, PortState::Running);
    }
}

#[test]
fn testpmd_to_testpmd_across_our_switch() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    for (packed, queues, server) in [
        (false, 1, false),
        (true, 1, false),
        (false, 2, false),
        (true, 2, false),
        (false, 1, true),
        (true, 2, true),
    ] {
        Endpoint { packed, queues, server }.sends_and_receives();
    }
}

#[test]
fn testpmd_echoes_and_forwards_our_frames_across_our_switch() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    for packed in [false, true] {
        let endpoint = Endpoint { packed, ..PLAIN };
        echoes(endpoint);
        forwards(endpoint);
    }
}

/// Frames to an echo come back through the same port, with their addresses swapped.
fn echoes(endpoint: Endpoint) {
    let dir = PeerDir::new().unwrap();
    let switch = switch("mode = 'learning'");
    let own = dir.join("own.sock");
    ends::add(&switch, &format!("own=vhost:{}", own.display()));
    ends::add(&switch, &endpoint.port("echo", &dir.join("echo.sock")));
    let mut echo = endpoint.start(&dir, EndpointRole::Echo, &[("echo.sock", 2, 1)]);
    echo.start_traffic().unwrap();
    let mut port = plug(&own, if endpoint.packed { "packed=1" } else { "" });
    let there = Frames::between(1, 2);
    reach((&mut port.tx, &mut port.rx), &there);
    for there in [there.clone(), there.clone().lens(JUMBO), there.tagged(0x6064)] {
        let back = there.clone().swapped();
        let why = || {
            format!("{:?} {:?} {:?}", echo.counters(), ends::status(&switch, "echo"), ends::status(&switch, "own"))
        };
        ends::pass_or_say((&mut port.tx, &mut port.rx), &there, &back, 2000, why);
    }
    // Both stations are known: nothing was flooded to where it came from, nothing was lost.
    assert_eq!(counters(&switch, "echo").drops.total(), 0);
    assert_eq!(ends::status(&switch, "echo").stations, 1);
}

/// Frames go through a forwarder between two pairs of ports, both ways, as they are.
fn forwards(endpoint: Endpoint) {
    let dir = PeerDir::new().unwrap();
    let switch = switch("mode = 'patch'\nflow = 'backpressure'");
    let socket = |name: &str| dir.join(&format!("{name}.sock"));
    for name in ["a", "b", "c", "d"] {
        let vhost = |socket: PathBuf| format!("{name}=vhost:{}", socket.display());
        let outer = name == "a" || name == "d";
        let port =
            if outer { vhost(socket(name)) } else { endpoint.port(name, &socket(name)) };
        ends::add(&switch, &port);
    }
    let middle = [("b.sock", 2, 1), ("c.sock", 3, 4)];
    let mut forwarder = endpoint.start(&dir, EndpointRole::Forwarder, &middle);
    forwarder.start_traffic().unwrap();
    let (mut a, mut d) = (plug(&socket("a"), "packed=1"), plug(&socket("d"), "size=512"));
    let there = Frames::between(1, 4);
    reach((&mut a.tx, &mut d.rx), &there);
    for frames in [there.clone(), there.clone().lens(JUMBO), there.tagged(0x0fff)] {
        pass((&mut a.tx, &mut d.rx), &frames, &frames, 2000);
        let back = frames.swapped();
        pass((&mut d.tx, &mut a.rx), &back, &back, 2000);
    }
}

/// Our own ports at both ends of somebody else's switch.
fn across(kind: SwitchKind, wiring: Wiring, server: bool, queues: u16) {
    let dir = PeerDir::new().unwrap();
    let sockets = ["a.sock", "b.sock"].map(|name| dir.join(name));
    let port = |socket: &PathBuf| PeerPort { server, queues, ..PeerPort::listening(socket) };
    let settings = SwitchSettings {
        kind,
        cpu: *placement::allowed().last().unwrap(),
        wiring,
        memory: Memory::HugePages,
        ports: sockets.iter().map(port).collect(),
    };
    let _switch = PeerSwitch::start(&dir, &settings, &Cancel::default()).unwrap();
    for packed in [0, 1] {
        println!("{kind:?}, {wiring:?}, listening {server}, {queues} queues, packed {packed}");
        let [mut a, mut b] = sockets.each_ref().map(|socket| {
            let server = u8::from(!server);
            let path = socket.display();
            open(&format!("virtio:{path}?packed={packed}&queues={queues}&server={server}"))
        });
        wait_until_up(&a);
        wait_until_up(&b);
        let there = Frames::between(1, 2);
        let back = there.clone().swapped();
        reach((&mut a.tx, &mut b.rx), &there);
        reach((&mut b.tx, &mut a.rx), &back);
        for (there, back) in [
            (there.clone(), back.clone()),
            (there.tagged(0x2007), back.tagged(0x2007)),
        ] {
            pass((&mut a.tx, &mut b.rx), &there, &there, 3000);
            pass((&mut b.tx, &mut a.rx), &back, &back, 3000);
        }
    }
}

#[test]
fn our_ports_at_both_ends_of_testpmd() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    for (server, queues) in [(true, 1), (true, 2), (false, 1)] {
        across(SwitchKind::Testpmd, Wiring::Pairs, server, queues);
    }
}

#[test]
fn our_ports_at_both_ends_of_open_vswitch() {
    let _alone = alone();
    require!(SwitchKind::OvsDpdk);
    across(SwitchKind::OvsDpdk, Wiring::Learning, true, 1);
    across(SwitchKind::OvsDpdk, Wiring::Pairs, false, 2);
}
