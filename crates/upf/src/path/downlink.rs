//! Downlink: from N6 into the tunnels on N3. The passes are those of the [uplink](super::uplink).

use std::net::{IpAddr, Ipv6Addr};
use std::sync::mpsc::Receiver;

use arrayvec::ArrayVec;
use dray_port::{Frame, ahead, clock};
use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::gtpu::{self, Container, Direction};
use dray_wire::icmp::Problem;
use dray_wire::ip::{self, Fragment, Header, IPV4_LEN, IPV6_LEN, Packet, Version, ecn, protocol};
use dray_wire::router;
use dray_wire::udp::{UDP_LEN, Udp};

use super::TTL;
use super::head::{LOOK, PACKET, ROOM};
use super::lane::{self, CHUNK, DIVIDED_MAX, Departures, Lane, Leaving, Unread};
use super::store::Store;
use crate::compile::address_key;
use crate::config::{Action, Ends};
use crate::counters::DropReason;
use crate::event::Event;
use crate::interface::Interface;
use crate::matcher::{Probe, qfis};
use crate::session::{Peer, Rule, Session};

pub(crate) struct Downlink {
    pub(crate) lane: Lane,
    pub(crate) store: Store,
    pub(crate) of_uplink: Receiver<ForUser>,
    /// True while the frame in process comes from the uplink, and so is sent in our own name.
    pub(crate) is_of_uplink: bool,
}

/// A message from the uplink for a user.
pub(crate) enum ForUser {
    /// A frame that is forwarded like one from N6.
    Frame(Vec<u8>),
    /// A router advertisement.
    Advertisement {
        /// First half of the user's IPv6 addresses.
        prefix: u64,
        to: Ipv6Addr,
    },
}

/// A packet for a user. It is parsed only when its session is in the cache: storing all its fields
/// until then would take longer than looking at its destination twice.
#[derive(Clone, Copy)]
struct Item {
    /// Number of its frame in the chunk.
    frame: u16,
    /// Number of its session; before that is found, of the bucket to look for it in.
    slot: u32,
    /// Key of its destination.
    key: u64,
}

/// Why a packet is not forwarded as it is, and whether its sender is told.
enum Stop {
    Drop(DropReason),
    Kept,
    /// It is forwarded in fragments.
    Divide,
    Tell(DropReason, Problem),
    /// A copy of it has to be parsed.
    Copy,
}

impl From<DropReason> for Stop {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

impl From<Unread> for Stop {
    fn from(why: Unread) -> Self {
        match why {
            Unread::Invalid => Self::Drop(DropReason::InnerIp),
            Unread::MayChange => Self::Copy,
        }
    }
}

impl Downlink {
    /// Takes `frames` while the egress port has room, and returns how many it took.
    pub(crate) fn take(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut taken = 0;
        for chunk in frames.chunks(CHUNK) {
            if self.lane.is_full() {
                break;
            }
            self.chunk(chunk);
            taken += chunk.len();
        }
        self.lane.received(&frames[..taken]);
        taken
    }

    /// Takes a message that the uplink has for a user; returns true if there was one.
    #[inline(always)]
    pub(super) fn take_of_uplink(&mut self) -> bool {
        match self.of_uplink.try_recv() {
            Ok(message) => {
                self.take_one_of_uplink(&message);
                true
            }
            Err(_) => false,
        }
    }

    #[cold]
    fn take_one_of_uplink(&mut self, message: &ForUser) {
        match message {
            ForUser::Frame(frame) => {
                self.is_of_uplink = true;
                self.chunk(&[Frame::from(&frame[..])]);
                self.is_of_uplink = false;
            }
            ForUser::Advertisement { prefix, to } => {
                if let Err(reason) = self.advertise(*prefix, *to) {
                    self.lane.counters.drops.add(reason, 1);
                }
            }
        }
    }

    /// Sends a router advertisement with its prefix to a user, in the tunnel of the rule that
    /// matches packets to the user's address. No limit counts the message, since it is ours.
    fn advertise(&mut self, prefix: u64, user: Ipv6Addr) -> Result<(), DropReason> {
        let Lane { sessions, heads, from, to, .. } = &mut self.lane;
        let slot = sessions.table.find(prefix).ok_or(DropReason::NoSession)?;
        let session = &sessions.slots[slot as usize];
        let own = router::link_local(from.mac);
        let address = u128::from(prefix) << 64 | u128::from(u128::from(user) as u64);
        let (remote, local) = ((own.into(), None), (address, None));
        let ends = Ends { protocol: protocol::ICMPV6, remote, local };
        let (teid, qfis) = (0, qfis(None));
        let probe = || Probe { teid, qfis, tos: 0, ends };
        let rule = session.find(None, probe).ok_or(DropReason::NoRule)?;
        if rule.action != Action::Forward {
            return Err(DropReason::Rule);
        }
        let peer = session.tunnels[usize::from(rule.tunnel)];
        let dst = to.mac_of(peer.hop).ok_or(DropReason::NoNeighbour)?;
        let outer_len = Tunnel::headers_len(&peer, rule.qfi);
        // The user's own packets have to fit the MTU of N6 as well.
        let mtu = (to.mtu - outer_len).min(from.mtu);
        let prefix = Ipv6Addr::from(u128::from(prefix) << 64);
        let packet = router::advertisement(own, user, prefix, mtu as u32);
        let packet = packet.ok_or(DropReason::TooBig)?;
        let flow = Flow { tos: 0, src_port: gtpu::PORT };
        let tunnel = Tunnel { peer, qfi: rule.qfi, own: to, dst, flow };
        let head = &mut heads[0].0[..PACKET];
        tunnel.write(&mut head[ROOM - outer_len..], packet.len());
        if peer.address.is_ipv6() {
            tunnel.write_checksum(head, &packet);
        }
        let head = ((ROOM - outer_len) as u16, PACKET as u16);
        let leaving = Leaving { frame: 0, head, body: (0, packet.len() as u16) };
        self.lane.transmit(&[Frame::from(&packet[..])], &[leaving].into_iter().collect());
        self.lane.counters.router_advertisements += 1;
        Ok(())
    }

    #[inline(always)]
    fn chunk(&mut self, frames: &[Frame<'_>]) {
        let mut items = self.look(frames);
        self.find(frames, &mut items);
        self.lane.sessions.prefetch_more(self.lane.way, items.iter().map(|item| item.slot));
        let now = clock::ticks();
        let mut departures = Departures::new();
        for item in &items {
            let frame = &frames[usize::from(item.frame)];
            match self.check(frame, item, now) {
                Ok(leaving) => departures.push(leaving),
                Err(Stop::Divide) => {
                    self.lane.transmit(frames, &departures);
                    departures.clear();
                    if let Err(stop) = self.divide(frame, item, now) {
                        self.stop(frame, &stop);
                    }
                }
                Err(Stop::Copy) => self.check_copy(frames, frame, &mut departures),
                Err(stop) => self.stop(frame, &stop),
            }
        }
        self.lane.transmit(frames, &departures);
    }

    /// Processes a private copy of `frame`, which no peer can write to, after transmitting
    /// the packets of `frames` that are ready.
    #[cold]
    fn check_copy(&mut self, frames: &[Frame<'_>], frame: &Frame<'_>, departures: &mut Departures) {
        let whole = lane::copy_of(frame);
        self.lane.transmit(frames, departures);
        departures.clear();
        // The copy uses the first head, whose own packet has been transmitted or dropped.
        self.chunk(&[Frame::from(&whole[..])]);
    }

    #[inline(always)]
    fn stop(&mut self, frame: &Frame<'_>, stop: &Stop) {
        match *stop {
            Stop::Drop(reason) => self.lane.counters.drops.add(reason, 1),
            Stop::Kept => self.lane.counters.buffered += 1,
            Stop::Tell(reason, problem) => {
                self.lane.counters.drops.add(reason, 1);
                self.tell(frame, problem);
            }
            Stop::Divide | Stop::Copy => {}
        }
    }

    /// Parses the headers, and processes all frames that are not users' packets.
    #[inline(always)]
    fn look(&mut self, frames: &[Frame<'_>]) -> ArrayVec<Item, CHUNK> {
        let mut items = ArrayVec::new();
        for (index, frame) in ahead(frames).enumerate() {
            match self.key(index, frame) {
                Ok(Some(key)) => {
                    let home = self.lane.sessions.table.prefetch(key);
                    items.push(Item { frame: index as u16, slot: home, key });
                }
                Ok(None) => self.other(frame),
                Err(reason) => self.lane.counters.drops.add(reason, 1),
            }
        }
        items
    }

    /// Returns the key of the user that the packet in a frame is for; `None` if it is not to be
    /// routed.
    #[inline(always)]
    fn key(&mut self, index: usize, frame: &Frame<'_>) -> Result<Option<u64>, DropReason> {
        const IP: usize = ETHERNET_LEN;
        let Lane { from, heads, .. } = &mut self.lane;
        let bytes = heads[index].copy(frame);
        let ethernet = Ethernet::parse(bytes).ok_or(DropReason::NotIp)?;
        if ethernet.dst != from.mac {
            let group = ethernet.dst.0[0] & 1 != 0;
            return if group { Ok(None) } else { Err(DropReason::OtherHost) };
        }
        let (version, dst) = match ethernet.ethertype {
            ethertype::IPV4 => {
                let dst = bytes.get(IP + 16..IP + 20).and_then(<[u8]>::first_chunk::<4>);
                let dst = IpAddr::from(*dst.ok_or(DropReason::InnerIp)?);
                (Version::V4, ip::number(dst))
            }
            ethertype::IPV6 => {
                let dst = bytes.get(IP + 24..IP + 40).and_then(<[u8]>::first_chunk::<16>);
                let dst = u128::from_be_bytes(*dst.ok_or(DropReason::InnerIp)?);
                // The key of a group address could be that of an IPv4 address.
                if dst >> 120 == 0xff {
                    return Ok(None);
                }
                (Version::V6, dst)
            }
            ethertype::ARP => return Ok(None),
            _ => return Err(DropReason::NotIp),
        };
        Ok((!from.is_own(dst)).then(|| address_key(version, dst)))
    }

    /// Parses the packet of a frame; it is invalid unless its version is the one that the frame's
    /// Ethernet header names.
    #[inline(always)]
    fn packet(&mut self, index: u16, frame: &Frame<'_>) -> Result<Packet, Unread> {
        let Lane { heads, scratch, .. } = &mut self.lane;
        let bytes = heads[usize::from(index)].bytes(frame);
        let len = frame.len() - ETHERNET_LEN;
        let packet = lane::parse(&bytes[ETHERNET_LEN..], len, frame, ETHERNET_LEN, scratch)?;
        let kind = [bytes[ETHERNET_LEN - 2], bytes[ETHERNET_LEN - 1]];
        match kind == lane::ethertype(packet.version).to_be_bytes() {
            true => Ok(packet),
            false => Err(Unread::Invalid),
        }
    }

    /// Finds the sessions of the packets.
    #[inline(always)]
    fn find(&mut self, frames: &[Frame<'_>], items: &mut ArrayVec<Item, CHUNK>) {
        items.retain(|item| {
            let slot = self.lane.sessions.table.find_from(item.slot, item.key);
            match slot {
                Some(slot) => {
                    self.lane.sessions.prefetch(self.lane.way, slot);
                    item.slot = slot;
                }
                None => self.unknown(item.frame, &frames[usize::from(item.frame)]),
            }
            slot.is_some()
        });
    }

    /// Counts a packet without a session, and tells its sender.
    #[cold]
    fn unknown(&mut self, index: u16, frame: &Frame<'_>) {
        match self.packet(index, frame) {
            Err(Unread::Invalid) => self.lane.counters.drops.add(DropReason::InnerIp, 1),
            Ok(packet) if ip::is_group(packet.destination()) => self.other(frame),
            Ok(_) | Err(Unread::MayChange) => {
                self.lane.counters.drops.add(DropReason::NoSession, 1);
                self.tell(frame, Problem::Unreachable);
            }
        }
    }

    /// Checks a packet against its session's rules, and writes the tunnel's headers.
    #[inline(always)]
    fn check(&mut self, frame: &Frame<'_>, item: &Item, now: u64) -> Result<Leaving, Stop> {
        let packet = self.packet(item.frame, frame)?;
        if self.lane.from.is_martian(packet.version, packet.src) && !self.is_of_uplink {
            return Err(DropReason::MartianSource.into());
        }
        let session = &self.lane.sessions.slots[item.slot as usize];
        let rule = *find(session, &packet).ok_or(DropReason::NoRule)?;
        match rule.action {
            Action::Forward => {}
            Action::Drop => return Err(DropReason::Rule.into()),
            Action::Buffer => return Err(self.keep(frame, item.slot, &rule, packet.len, now)),
        }
        if packet.ttl <= 1 {
            return Err(Stop::Tell(DropReason::TtlExpired, Problem::TimeExceeded));
        }
        let peer = session.tunnels[usize::from(rule.tunnel)];
        let to = &self.lane.to;
        let outer_len = Tunnel::headers_len(&peer, rule.qfi);
        if packet.len + outer_len > to.mtu {
            return Err(too_long(&packet, to.mtu - outer_len));
        }
        let dst = to.mac_of(peer.hop).ok_or_else(|| no_neighbour(to, peer.hop))?;
        self.lane.admit(item.slot, &rule, packet.len, now)?;
        let Lane { heads, to, scratch, .. } = &mut self.lane;
        let head = &mut heads[usize::from(item.frame)].0;
        ip::decrement_ttl(&mut head[PACKET..], packet.version);
        // Length of the parsed beginning of the packet, as in `packet`.
        let there = frame.len().min(LOOK) - ETHERNET_LEN;
        let checked = lane::checked_len(&packet, there);
        let tunnel =
            Tunnel { peer, qfi: rule.qfi, own: to, dst, flow: Flow::of(&packet, item.key) };
        tunnel.write(&mut head[ROOM - outer_len..PACKET], packet.len);
        if peer.address.is_ipv6() {
            // If a peer changes the rest before it is transmitted, the checksum will be
            // wrong.
            let rest = &frame.bytes(scratch)[ETHERNET_LEN + checked..ETHERNET_LEN + packet.len];
            tunnel.write_checksum(&mut head[..PACKET + checked], rest);
        }
        Ok(Leaving {
            frame: item.frame,
            head: ((ROOM - outer_len) as u16, (PACKET + checked) as u16),
            body: ((ETHERNET_LEN + checked) as u16, (ETHERNET_LEN + packet.len) as u16),
        })
    }

    /// Fragments a packet that [`check`](Self::check) found too long, and sends the fragments into
    /// its tunnel. The user's packet itself is fragmented, so that no router has to fragment outer
    /// packets.
    #[cold]
    fn divide(&mut self, frame: &Frame<'_>, item: &Item, now: u64) -> Result<(), Stop> {
        let packet = self.packet(item.frame, frame)?;
        let session = &self.lane.sessions.slots[item.slot as usize];
        let rule = *find(session, &packet).ok_or(DropReason::NoRule)?;
        let peer = session.tunnels[usize::from(rule.tunnel)];
        let to = self.lane.to.clone();
        let dst = to.mac_of(peer.hop).ok_or_else(|| no_neighbour(&to, peer.hop))?;
        self.lane.admit(item.slot, &rule, packet.len, now)?;
        let there = frame.len().min(LOOK) - ETHERNET_LEN;
        let checked = lane::checked_len(&packet, there);
        let head = &mut self.lane.heads[usize::from(item.frame)].0;
        ip::decrement_ttl(&mut head[PACKET..], packet.version);
        let mut copy = [0; DIVIDED_MAX];
        copy[..checked].copy_from_slice(&head[PACKET..PACKET + checked]);
        let tunnel =
            Tunnel { peer, qfi: rule.qfi, own: &to, dst, flow: Flow::of(&packet, item.key) };
        let outer_len = Tunnel::headers_len(&peer, rule.qfi);
        let front = |head: &mut [u8], rest: &[u8]| {
            let len = head.len() - PACKET + rest.len();
            tunnel.write(&mut head[ROOM - outer_len..PACKET], len);
            if peer.address.is_ipv6() {
                tunnel.write_checksum(head, rest);
            }
            ROOM - outer_len
        };
        let mtu = to.mtu - outer_len;
        let whole = (frame, ETHERNET_LEN, &packet);
        match self.lane.divide(whole, &copy[..checked], mtu, front) {
            true => Ok(()),
            false => Err(Stop::Tell(DropReason::TooBig, Problem::TooBig(mtu as u16))),
        }
    }

    /// Buffers a packet of `len` bytes until its session changes. The control plane is told even if
    /// there is no room for the packet, since it still has to reach the user.
    #[cold]
    fn keep(&mut self, frame: &Frame<'_>, slot: u32, rule: &Rule, len: usize, now: u64) -> Stop {
        let session = &mut self.lane.sessions.slots[slot as usize];
        if self.store.waiting.must_report(slot, now)
            && !self.lane.teller.tell(Event::DownlinkData { seid: session.seid, pdr: rule.pdr })
        {
            self.store.waiting.forget_report(slot);
        }
        match self.store.keep(slot, &mut session.waiting, frame, ETHERNET_LEN + len, now) {
            Ok(()) => Stop::Kept,
            Err(reason) => reason.into(),
        }
    }

    /// Drops buffered packets whose time has expired.
    #[inline(always)]
    pub(super) fn expire(&mut self) {
        if !self.store.is_empty() {
            self.expire_at(clock::ticks());
        }
    }

    #[cold]
    fn expire_at(&mut self, now: u64) {
        // Limited, so that expiring takes no longer than a batch.
        for _ in 0..CHUNK {
            let Some(slot) = self.store.expired(now) else { break };
            let session = &mut self.lane.sessions.slots[slot as usize];
            self.store.forget_first(slot, &mut session.waiting);
            self.lane.counters.drops.add(DropReason::BufferExpired, 1);
        }
    }

    /// Applies a change that a control thread sent, and releases buffered packets that need not
    /// wait any more.
    pub(crate) fn change(&mut self, change: &mut super::Change) {
        // Buffered packets are forwarded below, so the end markers have to be sent first.
        for frame in change.farewell.iter().flat_map(|farewell| farewell.frames()) {
            self.lane.to.transmit(self.lane.worker, &[Frame::from(&frame[..])]);
        }
        self.lane.sessions.apply(change);
        let session = &mut self.lane.sessions.slots[change.slot as usize];
        if !session.buffers() {
            self.store.waiting.forget_report(change.slot);
        }
        if session.waiting == 0 {
            return;
        }
        let mut waiting = std::mem::take(&mut session.waiting);
        if session.rules.is_empty() {
            let gone = self.store.forget(change.slot, &mut waiting);
            self.lane.counters.drops.add(DropReason::SessionGone, gone.into());
            return;
        }
        let mut store = std::mem::take(&mut self.store);
        let mut leaving = store.divide(&mut waiting, |frame| self.must_wait(change.slot, frame));
        self.lane.sessions.slots[change.slot as usize].waiting = waiting;
        // All buffered packets of a flow leave before any newer one is processed, so the flow stays
        // in order.
        let frames: Vec<Frame<'_>> = store.waiting(leaving).map(Frame::from).collect();
        frames.chunks(CHUNK).for_each(|chunk| self.chunk(chunk));
        store.forget(change.slot, &mut leaving);
        self.store = store;
    }

    /// Returns true if the rule that matches a frame of a session buffers it.
    fn must_wait(&mut self, slot: u32, frame: &[u8]) -> bool {
        let frame = Frame::from(frame);
        let Ok(Some(key)) = self.key(0, &frame) else { return false };
        let Ok(packet) = self.packet(0, &frame) else { return false };
        let sessions = &self.lane.sessions;
        let rule = find(&sessions.slots[slot as usize], &packet);
        sessions.table.find(key) == Some(slot)
            && rule.is_some_and(|rule| rule.action == Action::Buffer)
    }

    /// Tells a sender what became of its packet.
    #[cold]
    fn tell(&mut self, frame: &Frame<'_>, problem: Problem) {
        self.lane.tell(problem, || lane::copy_of(frame));
    }

    /// Processes a frame that is for us or for a group.
    #[cold]
    fn other(&mut self, frame: &Frame<'_>) {
        self.lane.hear(&lane::copy_of(frame));
    }
}

/// Returns what becomes of a packet that is longer than `mtu`.
#[cold]
fn too_long(packet: &Packet, mtu: usize) -> Stop {
    match packet.dont_fragment {
        false => Stop::Divide,
        true => Stop::Tell(DropReason::TooBig, Problem::TooBig(mtu as u16)),
    }
}

/// Returns the rule that a packet to a user matches.
#[inline(always)]
fn find<'s>(session: &'s Session, packet: &Packet) -> Option<&'s Rule> {
    let (teid, qfis) = (0, qfis(None));
    session.find(None, || {
        let (server_port, user_port) = packet.ports.unzip();
        let ends = Ends {
            protocol: packet.protocol,
            remote: (packet.src, server_port),
            local: (packet.dst, user_port),
        };
        Probe { teid, qfis, tos: packet.tos, ends }
    })
}

/// Handles an unknown Ethernet address of the next hop. The sender is told only if the hop is
/// silent, not while it is still being asked for.
#[cold]
fn no_neighbour(to: &Interface, hop: u16) -> Stop {
    match to.is_silent(hop) {
        true => Stop::Tell(DropReason::NoNeighbour, Problem::Unreachable),
        false => DropReason::NoNeighbour.into(),
    }
}

/// The headers around a user's packet.
#[derive(Clone, Copy)]
struct Tunnel<'t> {
    peer: Peer,
    qfi: Option<u8>,
    own: &'t Interface,
    dst: MacAddr,
    flow: Flow,
}

/// Fields of the outer headers that depend on the inner packet.
#[derive(Clone, Copy)]
struct Flow {
    /// Congestion notification bits, copied from the inner packet (RFC 6040, section 4.1).
    tos: u8,
    /// UDP source port, the same for all packets of a flow, so that network cards can distribute
    /// flows by it.
    src_port: u16,
}

impl Flow {
    /// Returns the flow of a packet for the user of `key`.
    #[inline(always)]
    fn of(packet: &Packet, key: u64) -> Self {
        // Dynamic ports (RFC 6335).
        const FIRST: u16 = 0xc000;
        const SHIFT: u32 = 64 - 14;
        // Only the first fragment of a packet has ports, so fragments do not use them.
        let ports = match packet.fragment {
            Fragment::Whole => packet.ports.unwrap_or_default(),
            _ => (0, 0),
        };
        let ports = u64::from(ports.0) << 16 | u64::from(ports.1);
        // A user has one key, but hosts on the Internet also differ in the second half of their
        // addresses.
        let ends = packet.src as u64 ^ key.rotate_left(32) ^ ports;
        // The highest bits of a product depend on all bits of its factors.
        let hash = ends.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { tos: packet.tos & ecn::MASK, src_port: FIRST | (hash >> SHIFT) as u16 }
    }
}

impl Tunnel<'_> {
    /// Returns the length of the headers in front of the packet, without the Ethernet header.
    #[inline(always)]
    fn headers_len(peer: &Peer, qfi: Option<u8>) -> usize {
        let ip = if peer.address.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        ip + UDP_LEN + if qfi.is_some() { gtpu::CONTAINER_LEN } else { gtpu::FIXED_LEN }
    }

    /// Writes the headers of a packet of `len` bytes to `room`, which is exactly as long.
    #[inline(always)]
    fn write(&self, room: &mut [u8], len: usize) {
        let (ethernet, rest) = room.split_at_mut(ETHERNET_LEN);
        let kind = match self.peer.address {
            IpAddr::V4(_) => ethertype::IPV4,
            IpAddr::V6(_) => ethertype::IPV6,
        };
        Ethernet { dst: self.dst, src: self.own.mac, ethertype: kind }
            .write(ethernet.try_into().expect("14 bytes"));
        let ip_len = if self.peer.address.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let (ip, rest) = rest.split_at_mut(ip_len);
        let (udp, gtp) = rest.split_at_mut(UDP_LEN);
        let container = self.qfi.map(|qfi| Container {
            direction: Direction::Downlink,
            qfi,
            reflective: false,
            paging_policy: None,
        });
        let gtp_len = gtpu::write_gpdu(gtp, self.peer.teid, container, len);
        let payload_len = gtp_len + len;
        Udp { src_port: self.flow.src_port, dst_port: gtpu::PORT, payload_len }
            .write(udp.try_into().expect("8 bytes"));
        let payload_len = (UDP_LEN + payload_len) as u16;
        let (protocol, tos, ttl) = (protocol::UDP, self.peer.tos | self.flow.tos, TTL);
        match (self.peer.address, self.own.v4, self.own.v6) {
            (IpAddr::V4(dst), Some(src), _) => {
                Header { src, dst, protocol, tos, ttl, payload_len }
                    .write(ip.try_into().expect("20 bytes"));
            }
            (IpAddr::V6(dst), _, Some(src)) => {
                Header { src, dst, protocol, tos, ttl, payload_len }
                    .write(ip.try_into().expect("40 bytes"));
            }
            _ => unreachable!("sessions with a tunnel of an IP version that N3 lacks are refused"),
        }
    }

    /// Writes the UDP checksum, which IPv6 requires, over the headers at the end of `head`, the
    /// first bytes of the packet behind them, and the `rest` of the packet.
    #[cold]
    fn write_checksum(self, head: &mut [u8], rest: &[u8]) {
        let udp = PACKET - Self::headers_len(&self.peer, self.qfi) + IPV6_LEN;
        let Some(src) = self.own.address_for(self.peer.address) else { return };
        let pieces = [&head[udp..], rest];
        let sum = ip::upper_checksum(src, self.peer.address, protocol::UDP, &pieces);
        // Zero would mean that there is no checksum (RFC 768).
        let sum = if sum == 0 { 0xffff } else { sum };
        head[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
}
