//! Our switch and our ports with third-party programs: DPDK's testpmd at either end, and Open
//! vSwitch. Every frame of ours has a number, and every byte of it is checked.

use std::path::{Path, PathBuf};

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::alone;
use crate::common::endpoints::{BOTH_ENDS, at_rest, go_round};
use dray_lab::peer::{
    Driver, EndpointPort, EndpointRole, EndpointSettings, Memory, PeerDir, PeerEndpoint, PeerPort,
    PeerSwitch, Protocol, SwitchKind, SwitchSettings, Wiring,
};
use dray_lab::{Cancel, placement};
use dray_port::LinkState;

use dray_switch::{DropReason, PortState, Switch};

use crate::ends::{
    self, Frames, LENS, counters, eventually, open, pass, plug, reach, switch, wait_until_running,
    wait_until_up,
};

const JUMBO: &[usize] = &[9000, 60, 2048, 2049, 4096, 9014];

/// A DPDK endpoint with rings of 256 entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) packed: bool,
    pub(crate) queues: u16,
    /// True if the endpoint listens and our switch connects.
    pub(crate) server: bool,
}

pub(crate) const PLAIN: Endpoint = Endpoint { packed: false, queues: 1, server: false };

impl Endpoint {
    /// Port of our switch that the endpoint is connected to.
    fn port(&self, name: &str, socket: &Path) -> String {
        let Self { queues, server, .. } = *self;
        format!("{name}=vhost:{}?queues={queues}&client={}", socket.display(), u8::from(server))
    }

    /// Starts the endpoint with a port at each socket.
    pub(crate) fn start(
        &self,
        dir: &PeerDir,
        role: EndpointRole,
        sockets: &[(&str, u64, u64)],
    ) -> PeerEndpoint {
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
            memory: Memory::OrdinaryPages,
            ports: ports.collect(),
        };
        let mut endpoint = PeerEndpoint::start(dir, &settings).unwrap();
        endpoint.wait_until_ready(&Cancel::default()).unwrap();
        endpoint
    }

    /// Starts our switch with this endpoint's ports `a` and `b`.
    fn start_switch(&self, dir: &PeerDir) -> Switch {
        let switch = switch("mode = 'patch'");
        for name in ["a", "b"] {
            ends::add(&switch, &self.port(name, &dir.join(&format!("{name}.sock"))));
        }
        switch
    }

    /// One testpmd sends to another across our switch, and all counters agree in the end. Both poll
    /// on one CPU, in turns of milliseconds, in which the receiver's ring overflows: few frames
    /// arrive.
    fn sends_and_receives(&self) {
        let dir = PeerDir::new().unwrap();
        let switch = self.start_switch(&dir);
        let mut receiver = self.start(&dir, EndpointRole::Receiver, &[("b.sock", 2, 1)]);
        let role = EndpointRole::Sender { frame_size: 100 };
        let mut sender = self.start(&dir, role, &[("a.sock", 1, 2)]);
        wait_until_running(&switch);
        receiver.start_traffic().unwrap();
        sender.start_traffic().unwrap();
        let count = |endpoint: &PeerEndpoint| endpoint.counters().unwrap()[0];
        eventually("2,000 frames", || count(&receiver).received_frames > 2_000);
        sender.stop_traffic().unwrap();
        let (sent, received) = at_rest(|| (count(&sender), count(&receiver)));
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
        // Frames that a receiver sends so that learning switches know it.
        assert_eq!(b.rx_frames, count(&receiver).sent_frames, "{books}");
        let status = ends::status(&switch, "a");
        assert_eq!(status.features.iter().any(|name| name == "packed"), self.packed, "{status:?}");
        drop(sender);
        eventually("its end is noticed", || ends::status(&switch, "a").state == PortState::Waiting);
        assert_eq!(ends::status(&switch, "b").state, PortState::Running);
    }

    /// One testpmd is both ends, and frames circulate both ways across our switch; all counters
    /// agree.
    fn goes_round(&self) {
        let dir = PeerDir::new().unwrap();
        let switch = self.start_switch(&dir);
        let mut both = self.start(&dir, BOTH_ENDS, &[("a.sock", 1, 2), ("b.sock", 2, 1)]);
        wait_until_running(&switch);
        let ports = go_round(&mut both);
        let counted = ["a", "b"].map(|name| counters(&switch, name));
        let books = format!("{self:?} {ports:?} {counted:?}");
        for (here, there) in [(0, 1), (1, 0)] {
            let (port, ours) = (&ports[here], &counted[here]);
            assert_eq!(ours.rx_frames, port.sent_frames, "{books}");
            assert_eq!(ours.rx_bytes, port.sent_bytes, "{books}");
            assert_eq!(ours.tx_frames, port.received_frames, "{books}");
            assert_eq!(ours.tx_bytes, port.received_bytes, "{books}");
            assert_eq!(ours.drops.total(), ours.drops.get(DropReason::ReceiverFull), "{books}");
            let arrived = ours.tx_frames + ours.drops.total();
            assert_eq!(counted[there].rx_frames, arrived, "{books}");
        }
    }
}

#[test]
fn testpmd_to_testpmd_across_switch() {
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
        let endpoint = Endpoint { packed, queues, server };
        endpoint.sends_and_receives();
        endpoint.goes_round();
    }
}

#[test]
fn testpmd_echoes_and_forwards_frames_across_switch() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    echoes_and_forwards(&[LENS]);
}

#[test]
fn testpmd_echoes_and_forwards_long_frames_across_switch() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    echoes_and_forwards(&[JUMBO]);
}

fn echoes_and_forwards(lens: &[&'static [usize]]) {
    for packed in [false, true] {
        let endpoint = Endpoint { packed, ..PLAIN };
        echoes(endpoint, lens);
        forwards(endpoint, lens);
    }
}

/// Frames to an echo come back through the same port, with their addresses swapped.
fn echoes(endpoint: Endpoint, lens: &[&'static [usize]]) {
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
    // On a busy machine, an echo that gets no CPU does not receive all of those.
    let before = counters(&switch, "echo").drops;
    assert_eq!(before.total(), before.get(DropReason::ReceiverFull), "{before:?}");
    let plain = lens.iter().map(|lens| there.clone().lens(lens));
    for there in plain.chain([there.clone().tagged(0x6064)]) {
        let back = there.clone().swapped();
        pass((&mut port.tx, &mut port.rx), &there, &back, 2000);
    }
    // Both stations are known: no frame was flooded back to its sender, and none was lost.
    assert_eq!(counters(&switch, "echo").drops, before);
    assert_eq!(ends::status(&switch, "echo").stations, 1);
}

/// Frames pass through a forwarder between two pairs of ports, both ways, unchanged.
fn forwards(endpoint: Endpoint, lens: &[&'static [usize]]) {
    let dir = PeerDir::new().unwrap();
    let switch = switch("mode = 'patch'\nflow = 'backpressure'");
    let socket = |name: &str| dir.join(&format!("{name}.sock"));
    for name in ["a", "b", "c", "d"] {
        let vhost = |socket: PathBuf| format!("{name}=vhost:{}", socket.display());
        let outer = name == "a" || name == "d";
        let port = if outer { vhost(socket(name)) } else { endpoint.port(name, &socket(name)) };
        ends::add(&switch, &port);
    }
    let middle = [("b.sock", 2, 1), ("c.sock", 3, 4)];
    let mut forwarder = endpoint.start(&dir, EndpointRole::Forwarder, &middle);
    forwarder.start_traffic().unwrap();
    let (mut a, mut d) = (plug(&socket("a"), "packed=1"), plug(&socket("d"), "size=512"));
    let there = Frames::between(1, 4);
    reach((&mut a.tx, &mut d.rx), &there);
    let plain = lens.iter().map(|lens| there.clone().lens(lens));
    for frames in plain.chain([there.clone().tagged(0x0fff)]) {
        pass((&mut a.tx, &mut d.rx), &frames, &frames, 2000);
        let back = frames.swapped();
        pass((&mut d.tx, &mut a.rx), &back, &back, 2000);
    }
}

/// Connects our own ports to both sides of a third-party switch, with packed or split rings, one
/// after the other.
fn across(kind: SwitchKind, wiring: Wiring, server: bool, queues: u16, packed: [bool; 2]) {
    let dir = PeerDir::new().unwrap();
    let sockets = ["a.sock", "b.sock"].map(|name| dir.join(name));
    let port = |socket: &PathBuf| PeerPort { server, queues, ..PeerPort::listening(socket) };
    let settings = SwitchSettings {
        kind,
        cpu: *placement::allowed().last().unwrap(),
        sleeps: false,
        wiring,
        memory: Memory::HugePages,
        ports: sockets.iter().map(port).collect(),
    };
    let _switch = PeerSwitch::start(&dir, &settings, &Cancel::default()).unwrap();
    for packed in packed.map(u8::from) {
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
        for (there, back) in
            [(there.clone(), back.clone()), (there.tagged(0x2007), back.tagged(0x2007))]
        {
            pass((&mut a.tx, &mut b.rx), &there, &there, 3000);
            pass((&mut b.tx, &mut a.rx), &back, &back, 3000);
        }
    }
}

/// Connects our memif ports to both sides of VPP.
fn across_memif(wiring: Wiring) {
    let dir = PeerDir::new().unwrap();
    let sockets = ["a.sock", "b.sock"].map(|name| dir.join(name));
    let memif =
        |socket: &PathBuf| PeerPort { protocol: Protocol::Memif, ..PeerPort::listening(socket) };
    let settings = SwitchSettings {
        kind: SwitchKind::Vpp,
        cpu: *placement::allowed().last().unwrap(),
        sleeps: false,
        wiring,
        memory: Memory::OrdinaryPages,
        ports: sockets.iter().map(memif).collect(),
    };
    let switch = PeerSwitch::start(&dir, &settings, &Cancel::default()).unwrap();
    let open_all = || {
        sockets.each_ref().map(|socket| {
            let port = open(&format!("memif:{}", socket.display()));
            wait_until_up(&port);
            port
        })
    };
    // The second connection starts from scratch.
    let _first = open_all();
    drop(_first);
    let [mut a, mut b] = open_all();
    let there = Frames::between(1, 2).lens(SHORT_AND_LONG);
    let back = there.clone().swapped();
    reach((&mut a.tx, &mut b.rx), &there);
    reach((&mut b.tx, &mut a.rx), &back);
    pass((&mut a.tx, &mut b.rx), &there, &there, 3000);
    pass((&mut b.tx, &mut a.rx), &back, &back, 3000);
    let counters = switch.counters().unwrap().unwrap();
    assert!(counters.iter().all(|port| port.received_frames >= 3000), "{counters:?}");
    assert!(counters.iter().all(|port| port.sent_frames >= 3000), "{counters:?}");
}

/// Lengths of frames that take one memif buffer, and several.
const SHORT_AND_LONG: &[usize] = &[60, 64, 1514, 2047, 2048, 2049, 4097, 9000];

#[test]
fn memif_port_interoperates_with_dpdk() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    let dir = PeerDir::new().unwrap();
    let socket = dir.join("memif.sock");
    let settings = EndpointSettings {
        name: "echo".to_owned(),
        role: EndpointRole::Echo,
        cpu: placement::allowed()[0],
        memory: Memory::OrdinaryPages,
        ports: vec![EndpointPort {
            driver: Driver::Memif { queue_size: 256 },
            server: true,
            ..EndpointPort::connecting(&socket, 2, 1)
        }],
    };
    let mut echo = PeerEndpoint::start(&dir, &settings).unwrap();
    echo.wait_until_ready(&Cancel::default()).unwrap();
    for size in [256, 64, 1024] {
        echo.start_traffic().unwrap();
        let mut port = open(&format!("memif:{}?size={size}", socket.display()));
        wait_until_up(&port);
        let there = Frames::between(1, 2);
        let back = there.clone().swapped();
        reach((&mut port.tx, &mut port.rx), &there);
        pass((&mut port.tx, &mut port.rx), &there, &back, 3000);
        // When a client leaves, the server unmaps its memory, even while its own data thread reads
        // it.
        echo.stop_traffic().unwrap();
        eventually("the data thread stands still", || {
            let before = echo.cpu_time().unwrap();
            std::thread::sleep(Duration::from_millis(200));
            echo.cpu_time().unwrap() == before
        });
    }
}

/// DPDK's testpmd as the client of interfaces 0 and 1 at a memif socket. It forwards frames between
/// them, and is killed at the end.
pub(crate) struct MemifClient(Child);

impl MemifClient {
    /// `socket` is the value of DPDK's `socket=`, and possibly more.
    pub(crate) fn start(dir: &PeerDir, socket: &str) -> Self {
        let log = std::fs::File::create(dir.join("testpmd.log")).unwrap();
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--no-pci", "--no-huge", "-m", "256", "--no-shconf", "--no-telemetry"]);
        for id in 0..2 {
            command.arg("--vdev").arg(format!("net_memif{id},id={id},socket={socket}"));
        }
        command.args(["--", "--forward-mode=io", "--auto-start", "--no-mlockall", "-i"]);
        command.arg("--total-num-mbufs=16384");
        // testpmd exits when its input ends.
        command.stdin(Stdio::piped()).stderr(log.try_clone().unwrap()).stdout(log);
        Self(command.spawn().expect("dpdk-testpmd"))
    }
}

impl Drop for MemifClient {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn dpdk_is_client_of_memif_ports() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    let dir = PeerDir::new().unwrap();
    let path = dir.join("memif.sock").display().to_string();
    let name = format!("dray-test-{}", std::process::id());
    // DPDK's socket is abstract by default.
    for (ours, theirs) in
        [(path.clone(), format!("{path},socket-abstract=no")), (format!("@{name}"), name)]
    {
        let [mut a, mut b] = [0, 1].map(|id| open(&format!("memif:{ours}?role=server&id={id}")));
        for _ in 0..2 {
            let client = MemifClient::start(&dir, &theirs);
            wait_until_up(&a);
            wait_until_up(&b);
            let there = Frames::between(1, 2);
            let back = there.clone().swapped();
            reach((&mut a.tx, &mut b.rx), &there);
            reach((&mut b.tx, &mut a.rx), &back);
            pass((&mut a.tx, &mut b.rx), &there, &there, 3000);
            pass((&mut b.tx, &mut a.rx), &back, &back, 3000);
            drop(client);
            for port in [&a, &b] {
                let status = || port.link.as_ref().unwrap().status();
                eventually("the end of the client", || status().state == LinkState::Waiting);
                assert_eq!(status().last_end.as_deref(), Some("the peer disconnected"));
            }
        }
    }
}

#[test]
fn our_ports_at_both_ends_of_testpmd() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    for (server, queues) in [(true, 1), (true, 2), (false, 1)] {
        across(SwitchKind::Testpmd, Wiring::Pairs, server, queues, [false, true]);
    }
}

#[test]
fn our_ports_at_both_ends_of_open_vswitch() {
    let _alone = alone();
    require!(SwitchKind::OvsDpdk);
    for (wiring, server, queues) in [
        (Wiring::Learning, true, 1),
        (Wiring::Pairs, false, 1),
        (Wiring::Learning, false, 2),
        (Wiring::Pairs, true, 2),
    ] {
        across(SwitchKind::OvsDpdk, wiring, server, queues, [false, true]);
    }
}

#[test]
#[ignore = "needs Snabb, of which Debian has no package"]
fn our_ports_at_both_ends_of_snabb() {
    let _alone = alone();
    require!(SwitchKind::Snabb);
    for server in [true, false] {
        across(SwitchKind::Snabb, Wiring::Pairs, server, 1, [false, false]);
    }
}

#[test]
#[ignore = "needs VPP, of which Debian has no package"]
fn our_ports_at_both_ends_of_vpp() {
    let _alone = alone();
    require!(SwitchKind::Vpp);
    across_memif(Wiring::Pairs);
    across_memif(Wiring::Learning);
    across(SwitchKind::Vpp, Wiring::Learning, true, 1, [false, true]);
    across(SwitchKind::Vpp, Wiring::Pairs, false, 1, [false, true]);
}
