//! Memory that a peer writes to while its frames are processed: the frame that leaves is the one
//! that was checked.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dray_port::memory::Peer;
use dray_port::{Batch, Frame, Port, Receive, Take, Transmit};
use dray_upf::{DropReason, Upf, UpfConfig, Worker};

use super::{down_packet, up_packet};
use crate::ends::{self, from_dn, from_gnb, plain_session, to_dn, to_gnb, udp};

type Memory = Arc<[AtomicU8]>;

/// A sender that keeps writing to its frames, like the peer of a shared-memory port.
#[derive(Clone, Default)]
struct Sender {
    waiting: Arc<Mutex<Vec<Memory>>>,
    lent: Arc<Mutex<Vec<Memory>>>,
}

impl Sender {
    fn send(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let shared = |frame: Vec<u8>| frame.into_iter().map(AtomicU8::new).collect::<Memory>();
        self.waiting.lock().unwrap().extend(frames.into_iter().map(shared));
    }

    /// Overwrites the first bytes of each lent frame; `ends` gives their number for each.
    fn overwrite(&self, ends: &[usize]) {
        for (frame, end) in self.lent.lock().unwrap().iter().zip(ends) {
            frame[..*end].iter().for_each(|byte| byte.store(0xee, Relaxed));
        }
    }
}

impl Receive for Sender {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let frames = std::mem::take(&mut *self.waiting.lock().unwrap());
        self.lent.lock().unwrap().clone_from(&frames);
        let batch: Batch<'_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
        assert_eq!(take(&batch), frames.len(), "all frames are taken");
        self.lent.lock().unwrap().clear();
        Ok(frames.len())
    }
}

/// An output port that copies frames only after their sender has overwritten them.
struct Late {
    inner: Box<dyn Transmit>,
    sender: Sender,
    ends: Arc<Mutex<Vec<usize>>>,
}

impl Transmit for Late {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        self.sender.overwrite(&self.ends.lock().unwrap());
        self.inner.transmit(frames)
    }

    fn frame_max(&self) -> usize {
        self.inner.frame_max()
    }
}

/// A user plane function with a peer that writes to frames after they were checked.
struct Changing {
    sender: Sender,
    ends: Arc<Mutex<Vec<usize>>>,
    out: Peer,
    upf: Upf,
    worker: Worker,
}

impl Changing {
    fn new(n6: bool, sessions: &str) -> Self {
        let config = UpfConfig::from_toml(&format!("{}{sessions}", ends::INTERFACES)).unwrap();
        let (sender, out, ends) = (Sender::default(), Peer::default(), Arc::<Mutex<_>>::default());
        let mut ports = [out.port(), out.port()];
        let to = &mut ports[usize::from(!n6)];
        let inner = to.tx.remove(0);
        to.tx.push(Box::new(Late { inner, sender: sender.clone(), ends: ends.clone() }));
        ports[usize::from(n6)].rx = vec![Box::new(sender.clone())];
        let [n3, n6_port]: [Port; 2] = ports;
        let (upf, [up, down]) = Upf::new(&config, n3, n6_port).unwrap();
        Self { sender, ends, out, upf, worker: if n6 { down } else { up } }
    }

    /// Passes frames, each with the number of first bytes that are overwritten before the frame is
    /// transmitted. Returns the frames that leave.
    fn pass(&mut self, frames: Vec<(Vec<u8>, usize)>) -> Vec<Vec<u8>> {
        *self.ends.lock().unwrap() = frames.iter().map(|(_, end)| *end).collect();
        self.sender.send(frames.into_iter().map(|(frame, _)| frame));
        while self.worker.poll().unwrap() {}
        self.worker.publish();
        self.out.received()
    }
}

/// Returns a UDP packet over IPv6 with options of `len` bytes, and the length of all its headers
/// and ports.
fn behind_options(src: &str, dst: &str, len: usize, payload: &[u8]) -> (Vec<u8>, usize) {
    let mut packet = udp(src, dst, (5000, 80), payload);
    packet[6] = 60;
    let mut options = vec![0; len];
    (options[0], options[1]) = (17, (len / 8 - 1) as u8);
    // Padding, which may have any length.
    let mut at = 2;
    while at < len {
        let padding = (len - at - 2).min(255);
        (options[at], options[at + 1]) = (1, padding as u8);
        at += 2 + padding;
    }
    packet.splice(40..40, options);
    let payload_len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
    (packet, 40 + len + 4)
}

/// Returns rules that match ports: only the tests' packets pass.
fn by_ports() -> String {
    let filter = |rule: &str| {
        format!(
            "{rule} filters = [\"permit out 17 from any 80 to assigned 5000\"], precedence = 255,"
        )
    };
    plain_session(1)
        .replace("{ id = 1, precedence = 255,", &filter("{ id = 1,"))
        .replace("{ id = 2, precedence = 255,", &filter("{ id = 2,"))
}

const USER_V6: &str = "2001:db8:1::77";
const SERVER_V6: &str = "2001:db8:ff::1";

#[test]
fn uplink_sends_the_bytes_it_checked() {
    for qfi in [None, Some(9)] {
        let mut changing = Changing::new(false, &by_ports());
        let tunnel = from_gnb(1, qfi, &[]).len();
        let mut packets = vec![(up_packet(b"up"), 24), (up_packet(&[7; 1000]), 24)];
        let v6 = udp(USER_V6, SERVER_V6, (5000, 80), b"six");
        packets.push((v6, 44));
        for options in [8, 16, 48, 56, 64, 72, 200, 1000] {
            packets.push(behind_options(USER_V6, SERVER_V6, options, &[3; 100]));
            packets.push((up_packet(&[options as u8]), 24));
        }
        for (packet, end) in &packets {
            let out = changing.pass(vec![(from_gnb(1, qfi, packet), tunnel + end)]);
            assert_eq!(out, [to_dn(packet)], "{:?}", changing.upf.uplink());
        }
        // Packets that had to be copied whole do not overtake others.
        let frames = packets.iter().map(|(packet, _)| (from_gnb(1, qfi, packet), 0)).collect();
        let expected: Vec<_> = packets.iter().map(|(packet, _)| to_dn(packet)).collect();
        assert_eq!(changing.pass(frames), expected);
    }
}

#[test]
fn downlink_sends_the_bytes_it_checked() {
    let mut changing = Changing::new(true, &by_ports());
    let mut packets = vec![(down_packet(b"down"), 24), (down_packet(&[7; 1000]), 24)];
    for options in [8, 16, 48, 56, 64, 72, 200, 1000] {
        let (mut packet, end) = behind_options(SERVER_V6, USER_V6, options, &[3; 100]);
        packet[end - 4..end].rotate_left(2);
        packets.push((packet, end));
        packets.push((down_packet(&[options as u8]), 24));
    }
    for (packet, end) in &packets {
        let out = changing.pass(vec![(from_dn(packet), 14 + end)]);
        let [out] = &out[..] else { panic!("{out:x?} {:?}", changing.upf.downlink()) };
        assert_eq!(to_gnb(out).2, ends::routed(packet));
    }
    let frames = packets.iter().map(|(packet, _)| (from_dn(packet), 0)).collect();
    let out: Vec<_> = changing.pass(frames).iter().map(|frame| to_gnb(frame).2).collect();
    assert!(
        out.iter().eq(packets
            .iter()
            .map(|(packet, _)| ends::routed(packet))
            .collect::<Vec<_>>()
            .iter())
    );
}

/// Ports are matched wherever they are: headers so long that the ports lie behind the copied part
/// of a frame do not evade a rule.
#[test]
fn long_headers_do_not_hide_ports() {
    let mut packets: Vec<_> =
        (1..40).map(|units| behind_options(USER_V6, SERVER_V6, 8 * units, b"hidden").0).collect();
    for packet in &mut packets {
        let at = packet.len() - 14;
        packet[at + 2..at + 4].copy_from_slice(&9u16.to_be_bytes());
    }
    // Port 9 is dropped; all others pass.
    let rules = plain_session(1).replace(
        "pdrs = [",
        "pdrs = [ { id = 7, precedence = 1, from = \"access\", teid = 1, far = 7, filters = [\"permit \
         out 17 from any 9 to assigned\"] },",
    );
    let rules = rules.replace("fars = [", "fars = [ { id = 7, action = \"drop\" },");
    let mut changing = Changing::new(false, &rules);
    let count = packets.len() as u64;
    let frames = packets.iter().map(|packet| (from_gnb(1, Some(9), packet), 0)).collect();
    assert_eq!(changing.pass(frames), Vec::<Vec<u8>>::new());
    assert_eq!(changing.upf.uplink().drops.get(DropReason::Rule), count);
}
