//! An output port without room: packets that it does not accept stay at their source.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use dray_port::memory::Peer;
use dray_port::{Frame, Port, Transmit};
use dray_upf::{DropReason, Operation, Upf, UpfConfig, Worker};

use crate::ends::{
    self, INTERFACES, from_dn, from_gnb, plain_session, session_of, to_dn, to_gnb, udp,
};

const SERVER: &str = "203.0.113.9";
const USER: &str = "10.45.0.1";

/// Accepts as many frames as there is room for.
struct Narrow {
    inner: Box<dyn Transmit>,
    room: Arc<AtomicUsize>,
}

impl Transmit for Narrow {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let count = frames.len().min(self.room.load(Relaxed));
        self.room.fetch_sub(count, Relaxed);
        self.inner.transmit(&frames[..count])
    }

    fn frame_max(&self) -> usize {
        self.inner.frame_max()
    }
}

fn narrow(peer: &Peer) -> (Port, Arc<AtomicUsize>) {
    let mut port = peer.port();
    let room = Arc::<AtomicUsize>::default();
    let inner = port.tx.remove(0);
    port.tx.push(Box::new(Narrow { inner, room: room.clone() }));
    (port, room)
}

#[test]
fn full_port_delays_packets_in_order() {
    let (n3, n6) = (Peer::default(), Peer::default());
    let config = UpfConfig::from_toml(&format!("{INTERFACES}{}", plain_session(1))).unwrap();
    let ((n3_port, n3_room), (n6_port, n6_room)) = (narrow(&n3), narrow(&n6));
    let (upf, mut workers) = Upf::new(&config, n3_port, n6_port).unwrap();
    let up: Vec<_> = (0..200u8).map(|number| udp(USER, SERVER, (5000, 80), &[number])).collect();
    let down: Vec<_> = (0..200u8).map(|number| udp(SERVER, USER, (80, 5000), &[number])).collect();
    n3.send(up.iter().map(|packet| from_gnb(1, None, packet)));
    n6.send(down.iter().map(|packet| from_dn(packet)));
    let (mut out_up, mut out_down) = (Vec::new(), Vec::new());
    for step in 0..200 {
        n6_room.fetch_add(1 + step % 7, Relaxed);
        n3_room.fetch_add(1 + step % 4, Relaxed);
        workers.iter_mut().for_each(|worker| _ = worker.poll().unwrap());
        out_up.extend(n6.received());
        out_down.extend(n3.received());
        // A few packets are held; the others stay at their source.
        let held =
            |direction: usize, out: usize| workers[direction].counters().rx_packets as usize - out;
        assert!(held(0, out_up.len()) <= 32 && held(1, out_down.len()) <= 32, "{step}");
    }
    assert!(out_up.iter().eq(up.iter().map(|packet| to_dn(packet)).collect::<Vec<_>>().iter()));
    let inner: Vec<u8> = out_down.iter().map(|frame| to_gnb(frame).2[28]).collect();
    assert!(inner.iter().copied().eq(0..200));
    workers.iter_mut().for_each(Worker::publish);
    assert_eq!((upf.uplink().drops.total(), upf.downlink().drops.total()), (0, 0));
    assert_eq!((upf.uplink().tx_packets, upf.downlink().tx_packets), (200, 200));
}

/// A port that never has room again does not block for long: packets behind the held ones get
/// replies.
#[test]
fn stuck_port_drops_packets_after_wait() {
    let (n3, n6) = (Peer::default(), Peer::default());
    let config = UpfConfig::from_toml(&format!("{INTERFACES}{}", plain_session(1))).unwrap();
    let (n6_port, _) = narrow(&n6);
    let (upf, mut workers) = Upf::new(&config, n3.port(), n6_port).unwrap();
    let packet = from_gnb(1, None, &udp(USER, SERVER, (5000, 80), b"stuck"));
    let echo = ends::message_from_gnb(&dray_wire::gtpu::echo_request(7));
    n3.send((0..64).map(|_| packet.clone()).chain([echo]));
    let until = Instant::now() + Duration::from_secs(30);
    while n3.received().is_empty() && Instant::now() < until {
        workers[0].poll().unwrap();
    }
    workers[0].publish();
    let counters = upf.uplink();
    assert_eq!((counters.rx_packets, counters.control), (65, 1));
    assert_eq!(counters.drops.get(DropReason::PortFull), 64);
}

/// Buffered packets of a session, more than one transmit call takes, pass through a narrow port.
#[test]
fn buffered_packets_wait_for_room() {
    let (n3, n6) = (Peer::default(), Peer::default());
    let forward = "{ id = 2, action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1001 } }";
    let buffering = plain_session(1).replace(forward, "{ id = 2, action = \"buffer\" }");
    let config = UpfConfig::from_toml(&format!("{INTERFACES}{buffering}")).unwrap();
    let (n3_port, room) = narrow(&n3);
    let (upf, mut workers) = Upf::new(&config, n3_port, n6.port()).unwrap();
    n6.send((0..50u8).map(|number| from_dn(&udp(SERVER, USER, (80, 5000), &[number]))));
    while workers[1].poll().unwrap() {}
    let session = session_of(&plain_session(1));
    upf.apply(&[Operation::Modify { session, end_marker: false }]).unwrap();
    let (mut out, stop) = (Vec::new(), AtomicBool::new(false));
    let dropped = || upf.downlink().drops.get(DropReason::PortFull) as usize;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                workers[1].poll().unwrap();
                workers[1].publish();
            }
        });
        let until = Instant::now() + Duration::from_secs(30);
        while out.len() + dropped() < 50 && Instant::now() < until {
            room.store(3, Relaxed);
            out.extend(n3.received());
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
    let numbers: Vec<u8> = out.iter().map(|frame| to_gnb(frame).2[28]).collect();
    // A thread that does not get to run may count a pause as a stuck port, and drop packets.
    assert_eq!(numbers.len() + dropped(), 50, "{numbers:?}");
    assert!(numbers.is_sorted(), "{numbers:?}");
}
