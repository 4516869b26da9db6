//! A user plane function driven by bytes that choose the frames that its peers send, and which of
//! them change while it runs.
//!
//! ```text
//! record:  flags | length | frame's bytes ...        (further ones follow, up to 16)
//!          0x01 at N6            0x10 in outer fragments: one more byte says of which length
//!          0x02 valid checksums  0x20 in shared memory: one more byte says what changes
//!          0x04 valid lengths    0x40 in one batch with the next record of the same side
//!          0x08 1400 bytes more  0x80 neighbours are asked before
//! ```
//!
//! Whatever the frames are: each is counted once, as forwarded, kept, dealt with, dropped or as one
//! fragment of a reassembled packet. A packet that leaves to the data network is from an address of
//! the user whose tunnel it arrived in. A packet that leaves to a gNB is from us, and in the tunnel
//! of its destination's user. Each frame causes at most one reply.

#![allow(dead_code, unreachable_pub, reason = "the test and the fuzzer each use only a part")]

mod lent;
mod valid;

use std::net::IpAddr;

use dray_upf::{Counters, Upf, UpfConfig, Worker};
use dray_wire::arp::Arp;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::fragment::FragmentHeader;
use dray_wire::gtpu::{self, Header, message};
use dray_wire::icmp::Discovery;
use dray_wire::ip::{self, Fragment, IPV4_LEN, IPV6_LEN, Packet, Version, protocol};
use dray_wire::udp::UDP_LEN;
use dray_wire::{MacAddr, router};
use lent::{Far, Sent};

/// Configuration in which the gNB `fd00:3::2` and the router `fd00:6::3` have to be learned.
const CONFIG: &str = r#"
sessions_max = 4
buffer_packets = 8
buffer_per_session = 4
buffer_ms = 3600000
n3 = { mac = "02:00:00:00:03:01", addresses = ["10.0.3.1", "fd00:3::1"], neighbours = [
    { address = "10.0.3.2", mac = "02:00:00:00:03:02" } ] }
n6 = { mac = "02:00:00:00:06:01", mtu = 1400, addresses = ["10.0.6.1", "fd00:6::1"], routes = [
    { to = "0.0.0.0/0", via = "10.0.6.2" }, { to = "2001:db8::/32", via = "fd00:6::2" },
    { to = "2001:db8:fe::/48", via = "fd00:6::3" } ],
    neighbours = [ { address = "10.0.6.2", mac = "02:00:00:00:06:02" },
    { address = "fd00:6::2", mac = "02:00:00:00:06:02" } ] }

[[sessions]]
seid = 1
ue = ["10.45.0.1", "2001:db8:1::/64"]
pdrs = [ { id = 1, precedence = 9, from = "access", teid = 1, far = 1 },
         { id = 2, precedence = 9, from = "core", far = 2, qers = [1] },
         { id = 3, precedence = 1, from = "core", far = 3, filters = ["permit out 17 from any 9 to assigned"] },
         { id = 4, precedence = 1, from = "access", teid = 1, far = 4, filters = ["permit out 17 from any 9 to assigned"] } ]
fars = [ { id = 1, action = "forward" }, { id = 3, action = "buffer" }, { id = 4, action = "drop" },
         { id = 2, action = "forward", tunnel = { gnb = "10.0.3.2", teid = 1001 } } ]
qers = [ { id = 1, qfi = 9 } ]

[[sessions]]
seid = 2
ue = ["10.45.0.2", "2001:db8:2::/64"]
pdrs = [ { id = 1, precedence = 9, from = "access", teid = 2, far = 1 },
         { id = 2, precedence = 9, from = "core", far = 2 } ]
fars = [ { id = 1, action = "forward" },
         { id = 2, action = "forward", tunnel = { gnb = "fd00:3::2", teid = 1002 } } ]
"#;

const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 3, 1]), MacAddr([2, 0, 0, 0, 6, 1])];
const OWN: [[&str; 2]; 2] = [["10.0.3.1", "fd00:3::1"], ["10.0.6.1", "fd00:6::1"]];
/// Few enough that reassembly never evicts an outer packet for another.
const RECORDS_MAX: usize = 16;
const USERS: u32 = 2;

/// A batch of frames at one side.
struct Batch {
    n6: bool,
    asks: bool,
    frames: Vec<Sent>,
}

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub forwarded: u64,
    pub kept: u64,
    pub control: u64,
    pub reassembled: u64,
    pub advertised: u64,
    pub indications: u64,
    pub replies: u64,
}

fn batches(mut bytes: &[u8]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut is_open = false;
    for _ in 0..RECORDS_MAX {
        let [flags, len, rest @ ..] = bytes else { break };
        let (frame, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let mut extra = |flag: u8| {
            let (first, rest) = bytes.split_first().filter(|_| flags & flag != 0)?;
            bytes = rest;
            Some(*first)
        };
        let (pieces, change) = (extra(0x10), extra(0x20));
        let (n6, asks) = (flags & 1 != 0, flags & 0x80 != 0);
        let mut frame = frame.to_vec();
        if flags & 8 != 0 {
            frame.resize(frame.len() + 1400, 7);
        }
        if flags & 2 != 0 && frame.len() > ETHERNET_LEN {
            valid::packet(&mut frame[ETHERNET_LEN..], flags & 4 != 0);
        }
        let frames = match pieces {
            Some(pieces) => divided(frame, pieces),
            None => vec![frame],
        };
        let frames = frames.into_iter().map(|bytes| Sent { bytes, change });
        match batches.last_mut() {
            Some(batch) if is_open && batch.n6 == n6 && !asks => batch.frames.extend(frames),
            _ => batches.push(Batch { n6, asks, frames: frames.collect() }),
        }
        is_open = flags & 0x40 != 0;
    }
    batches
}

/// Divides a frame's packet into fragments of up to `(pieces & 0x7f) + 1` units of eight bytes. If
/// the highest bit of `pieces` is set, the last fragment comes first.
fn divided(frame: Vec<u8>, pieces: u8) -> Vec<Vec<u8>> {
    let size = (usize::from(pieces & 0x7f) + 1) * 8;
    let (header_len, fragment_len) = match frame.get(ETHERNET_LEN).map(|byte| byte >> 4) {
        Some(4) => (IPV4_LEN, 0),
        Some(6) => (IPV6_LEN, 8),
        _ => return vec![frame],
    };
    let Some((head, payload)) = frame.split_at_checked(ETHERNET_LEN + header_len) else {
        return vec![frame];
    };
    let count = payload.len().div_ceil(size);
    let fragments = payload.chunks(size).enumerate().map(|(index, chunk)| {
        let (mut head, offset) = (head.to_vec(), (index * size / 8) as u16);
        let more = u16::from(index + 1 < count);
        let ip = &mut head[ETHERNET_LEN..];
        let len = (fragment_len + chunk.len()) as u16;
        if fragment_len == 0 {
            ip[2..4].copy_from_slice(&(len + IPV4_LEN as u16).to_be_bytes());
            ip[6..8].copy_from_slice(&(offset | more << 13).to_be_bytes());
            valid::packet(ip, false);
        } else {
            ip[4..6].copy_from_slice(&len.to_be_bytes());
            let kind = std::mem::replace(&mut ip[6], 44);
            head.extend([kind, 0]);
            head.extend((offset << 3 | more).to_be_bytes());
            head.extend([0, 0, 0, 7]);
        }
        head.extend(chunk);
        head
    });
    let mut fragments: Vec<_> = fragments.collect();
    if pieces & 0x80 != 0 {
        fragments.reverse();
    }
    fragments
}

/// Returns the key of the packet that a frame at N3 is an outer fragment of, if it is one.
fn fragment_of(frame: &[u8]) -> Option<(u128, u128, u32)> {
    let bytes = frame.get(ETHERNET_LEN..)?;
    let packet = Packet::parse(bytes, bytes.len()).ok()?;
    let header = FragmentHeader::parse(&packet, bytes);
    (packet.fragment != Fragment::Whole).then_some(())?;
    Some((packet.src, packet.dst, header.map_or(0, |header| header.ident)))
}

struct Model {
    upf: Upf,
    workers: [Worker; 2],
    far: [Far; 2],
    seen: Seen,
}

/// Runs the records in `bytes`.
pub fn run(bytes: &[u8]) -> Seen {
    let config = UpfConfig::from_toml(CONFIG).unwrap();
    let ([n3, n6], far) = lent::ports();
    let (upf, workers) = Upf::new(&config, n3, n6).unwrap();
    let mut model = Model { upf, workers, far, seen: Seen::default() };
    for batch in batches(bytes) {
        model.pass(batch);
    }
    let (up, down) = (model.upf.uplink(), model.upf.downlink());
    Seen {
        forwarded: up.tx_packets + down.tx_packets,
        kept: down.buffering,
        control: up.control + down.control,
        reassembled: up.reassembled,
        advertised: down.router_advertisements,
        indications: up.error_indications,
        ..model.seen
    }
}

/// Checks that every frame that arrived is accounted for, once.
fn check_adds_up(counters: &Counters, frames: &[Sent]) {
    let Counters { rx_packets, tx_packets, buffered, consumed, drops, .. } = counters;
    let sum = tx_packets + buffered + consumed + drops.total();
    assert_eq!(*rx_packets, sum, "{frames:x?}: {counters:?}");
}

impl Model {
    fn counters(&self, side: usize) -> Counters {
        if side == 1 { self.upf.downlink() } else { self.upf.uplink() }
    }

    fn run(&mut self, side: usize) {
        let worker = &mut self.workers[side];
        while worker.poll().expect("a port in memory does not fail") {}
        worker.publish();
    }

    fn pass(&mut self, batch: Batch) {
        let Batch { n6, asks, frames } = batch;
        let (side, other) = (usize::from(n6), usize::from(!n6));
        if asks {
            self.upf.solicit_neighbours();
            for (side, far) in self.far.iter().enumerate() {
                far.out.received().iter().for_each(|frame| check_ours(side, frame, false));
            }
        }
        let before = self.counters(side);
        self.far[side].send(frames.clone());
        self.run(side);
        let after = self.counters(side);
        assert_eq!(after.rx_packets - before.rx_packets, frames.len() as u64);
        check_adds_up(&after, &frames);

        let changes = frames.iter().any(|frame| frame.change.is_some());
        let replies = self.far[side].out.received();
        assert!(replies.len() <= frames.len(), "at most one reply for each frame");
        replies.iter().for_each(|frame| check_ours(side, frame, changes));
        self.seen.replies += replies.len() as u64;
        let out = self.far[other].out.received();
        let (questions, out): (Vec<_>, Vec<_>) =
            out.into_iter().partition(|frame| is_question(frame));
        questions.iter().for_each(|frame| check_ours(other, frame, false));
        let tx = after.tx_packets - before.tx_packets;
        // A packet that is fragmented counts once.
        assert!(out.len() as u64 >= tx);
        if n6 {
            out.iter().for_each(|frame| check_tunnel(frame, changes));
        } else {
            let users = match &frames[..] {
                [one] if fragment_of(&one.bytes).is_none() => {
                    let user = user_of(&one.bytes);
                    user..=user
                }
                _ => 1..=USERS,
            };
            out.iter().for_each(|frame| check_from_user(frame, users.clone()));
            // Messages to users.
            self.run(1);
            check_adds_up(&self.counters(1), &frames);
            let messages = self.far[0].out.received();
            assert!(messages.len() <= frames.len());
            let messages = messages.iter().filter(|frame| !is_question(frame));
            messages.for_each(|frame| check_tunnel(frame, changes));
        }
        assert!(self.upf.events().len() <= frames.len());
        assert_eq!(self.upf.session_count(), USERS as usize);
    }
}

/// Returns true if a frame is an ARP request or a neighbour solicitation.
fn is_question(frame: &[u8]) -> bool {
    let bytes = &frame[ETHERNET_LEN..];
    let is_solicitation = || {
        let packet = Packet::parse(bytes, bytes.len()).ok()?;
        let message = Discovery::parse(&packet, bytes)?;
        Some(matches!(message, Discovery::Solicitation { .. }))
    };
    match frame[12..14] {
        [8, 6] => true,
        _ => is_solicitation().unwrap_or(false),
    }
}

/// Returns the user whose tunnel a frame from N3 arrived in.
fn user_of(frame: &[u8]) -> u32 {
    let find = || {
        let bytes = frame.get(ETHERNET_LEN..)?;
        let packet = Packet::parse(bytes, bytes.len()).ok()?;
        let message = bytes.get(packet.header_len + UDP_LEN..)?;
        Some(Header::parse(message, message.len()).ok()?.teid)
    };
    find().unwrap_or(0)
}

fn is_of_user(user: u32, version: Version, address: u128) -> bool {
    match version {
        Version::V4 => ip::address(address) == IpAddr::from([10, 45, 0, user as u8]),
        Version::V6 => address >> 64 == 0x2001_0db8_0000_0000 | u128::from(user) << 16,
    }
}

fn parsed(frame: &[u8]) -> (Ethernet, Packet) {
    let ethernet = Ethernet::parse(frame).expect("whole");
    let bytes = &frame[ETHERNET_LEN..];
    let packet = Packet::parse(bytes, bytes.len());
    let packet = packet.unwrap_or_else(|error| panic!("{error}: {frame:x?}"));
    let kind = if packet.version == Version::V4 { ethertype::IPV4 } else { ethertype::IPV6 };
    assert_eq!((ethernet.ethertype, packet.len), (kind, bytes.len()), "{frame:x?}");
    (ethernet, packet)
}

/// Checks that a packet to the data network is from a user's own address.
fn check_from_user(frame: &[u8], mut users: std::ops::RangeInclusive<u32>) {
    let (ethernet, packet) = parsed(frame);
    assert_eq!(ethernet.src, MACS[1]);
    assert!(!ethernet.dst.is_group() && ethernet.dst != MACS[1], "{frame:x?}");
    assert!(packet.ttl > 0 && ip::is_host(packet.destination()), "{frame:x?}");
    let is_own = users.any(|user| is_of_user(user, packet.version, packet.src));
    assert!(is_own, "from {}: {frame:x?}", packet.source());
    assert!(packet.len <= 1400);
}

/// Checks that a frame is from us, and returns its packet.
fn from_us(side: usize, frame: &[u8], changes: bool) -> Packet {
    let (ethernet, packet) = parsed(frame);
    assert_eq!(ethernet.src, MACS[side]);
    let src = packet.source();
    assert!(OWN[side].contains(&&*src.to_string()), "from {src}: {frame:x?}");
    let upper = &frame[ETHERNET_LEN + packet.header_len..];
    let (kind, dst) = (packet.protocol, packet.destination());
    if packet.version == Version::V6 && !changes {
        assert_eq!(ip::upper_checksum(src, dst, kind, &[upper]), 0, "{frame:x?}");
    }
    packet
}

/// Checks a frame of our own: a reply or a request.
fn check_ours(side: usize, frame: &[u8], changes: bool) {
    let ethernet = Ethernet::parse(frame).expect("whole");
    assert!(ethernet.dst != MACS[side]);
    if ethernet.ethertype == ethertype::ARP {
        let arp = Arp::parse(&frame[ETHERNET_LEN..]).expect("valid");
        assert_eq!((arp.sender.0, ethernet.src), (MACS[side], MACS[side]));
        assert_eq!(arp.sender.1.to_string(), OWN[side][0]);
        return;
    }
    let packet = from_us(side, frame, changes);
    // Requests go to the multicast group of a neighbour.
    let is_one = !ethernet.dst.is_group();
    assert!(is_one || packet.protocol == protocol::ICMPV6 && ip::is_group(packet.destination()));
}

/// Checks that a frame to a gNB is in the tunnel of its inner packet's user.
fn check_tunnel(frame: &[u8], changes: bool) {
    let packet = from_us(0, frame, changes);
    assert!(packet.protocol == protocol::UDP && packet.fragment == Fragment::Whole);
    assert!(packet.len <= 1500);
    let message = &frame[ETHERNET_LEN + packet.header_len + UDP_LEN..];
    let header = Header::parse(message, message.len()).expect("valid");
    assert_eq!(header.len + header.payload_len, message.len());
    assert_eq!((packet.ports.unwrap().1, header.message), (gtpu::PORT, message::G_PDU));
    let bytes = &message[header.len..];
    let inner = Packet::parse(bytes, bytes.len());
    let inner = inner.unwrap_or_else(|error| panic!("{error}: {frame:x?}"));
    assert_eq!(inner.len, bytes.len());
    let user = header.teid - 1000;
    let is_ours = router::is_link_local(inner.src);
    let is_to_user = is_of_user(user, inner.version, inner.dst);
    assert!(is_to_user || is_ours && inner.protocol == protocol::ICMPV6, "{frame:x?}");
}
