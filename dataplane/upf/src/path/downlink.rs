//! Downlink: from N6 into the tunnels on N3.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use arrayvec::ArrayVec;
use dray_port::{Frame, ahead, clock};
use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::gtpu;
use dray_wire::icmp::Problem;
use dray_wire::ip::{self, Packet, Version, protocol};
use dray_wire::router;

use self::tunnel::{Flow, Tunnel};
use super::head::{CHUNK, LOOK, PACKET, ROOM};
use super::lane::{DIVIDED_MAX, Lane, Leaving};
use super::packet_buffer::{PacketBuffer, Waiting};
use super::passes::{self, Passes, Stop};
use super::reading::{self, Unread};
use super::sessions::Change;
use crate::compile::address_key;
use crate::config::{Action, Ends};
use crate::counters::DropReason;
use crate::event::Event;
use crate::matcher::{Probe, qfis};
use crate::meter::Patience;
use crate::session::{Rule, Session};

mod tunnel;

pub(crate) struct Downlink {
    pub(crate) store: PacketBuffer,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) of_uplink: Receiver<ForUser>,
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
pub(crate) struct Item {
    /// Number of its frame in the chunk.
    frame: u16,
    /// Number of its session; before that is found, of the bucket to look for it in.
    slot: u32,
    /// Key of its destination.
    key: u64,
}

impl passes::Item for Item {
    #[inline(always)]
    fn place(&self) -> (usize, u64) {
        (self.frame.into(), self.key)
    }

    #[inline(always)]
    fn slot(&mut self) -> &mut u32 {
        &mut self.slot
    }
}

impl Passes for Downlink {
    type Item = Item;

    /// Drops buffered packets whose time has expired, and takes a message that the uplink has for
    /// a user.
    #[inline(always)]
    fn prepare(&mut self, lane: &mut Lane) -> bool {
        self.expire(lane);
        match self.of_uplink.try_recv() {
            Ok(message) => {
                self.take_one_of_uplink(lane, &message);
                true
            }
            Err(_) => false,
        }
    }

    #[inline(always)]
    fn look(
        &mut self,
        lane: &mut Lane,
        frames: &[Frame<'_>],
        _: &mut usize,
    ) -> ArrayVec<Item, CHUNK> {
        let mut items = ArrayVec::new();
        for (index, frame) in ahead(frames).enumerate() {
            match self.key(lane, index, frame) {
                Ok(Some(key)) => {
                    let home = lane.sessions.table.prefetch(key);
                    items.push(Item { frame: index as u16, slot: home, key });
                }
                Ok(None) => self.other(lane, frame),
                Err(reason) => lane.dropped(reason, frame),
            }
        }
        items
    }

    #[cold]
    fn unknown(&mut self, lane: &mut Lane, frame: &Frame<'_>, item: &Item) {
        match self.packet(lane, item.frame, frame) {
            Err(Unread::Invalid) => lane.dropped(DropReason::InnerIp, frame),
            Ok(packet) if ip::is_group(packet.destination()) => self.other(lane, frame),
            Ok(_) | Err(Unread::MayChange) => {
                lane.dropped(DropReason::NoSession, frame);
                self.report(lane, frame, Problem::Unreachable);
            }
        }
    }

    #[inline(always)]
    fn check(
        &mut self,
        lane: &mut Lane,
        frame: &Frame<'_>,
        item: &Item,
        now: u64,
    ) -> Result<Leaving, Stop> {
        let packet = self.packet(lane, item.frame, frame)?;
        if lane.from.is_martian(packet.version, packet.src) && !lane.is_own {
            return Err(DropReason::MartianSource.into());
        }
        let session = &lane.sessions.slots[item.slot as usize];
        let rule = *find(session, &packet).ok_or(DropReason::NoRule)?;
        match rule.action {
            Action::Forward => {}
            Action::Drop => return Err(DropReason::Rule.into()),
            // No packet of our own waits, so that all that wait were received.
            Action::Buffer if lane.is_own => return Err(DropReason::BufferSession.into()),
            Action::Buffer => return Err(self.keep(lane, frame, item.slot, &rule, packet.len, now)),
        }
        if packet.ttl <= 1 {
            return Err(Stop::Report(DropReason::TtlExpired, Problem::TimeExceeded));
        }
        let peer = session.tunnels[usize::from(rule.tunnel)];
        let to = &lane.to;
        let outer_len = Tunnel::headers_len(&peer, rule.qfi);
        if packet.len + outer_len > to.mtu {
            return Err(too_long(&packet, to.mtu - outer_len));
        }
        let mac = lane.mac_of(peer.hop);
        lane.admit((item.slot, item.frame), &rule, (packet.len, mac.is_some()), now)?;
        let Lane { heads, to, scratch, is_own, .. } = lane;
        let head = &mut heads[usize::from(item.frame)].0;
        let dst = mac.unwrap_or_else(|| asker(head, *is_own));
        ip::decrement_ttl(&mut head[PACKET..], packet.version);
        // Length of the parsed beginning of the packet, as in `packet`.
        let there = frame.len().min(LOOK) - ETHERNET_LEN;
        let checked = reading::checked_len(&packet, there);
        let tunnel =
            Tunnel { peer, qfi: rule.qfi, own: to, dst, flow: Flow::of(&packet, item.key) };
        tunnel.write(&mut head[ROOM - outer_len..PACKET], packet.len);
        if peer.address.is_ipv6() {
            // If a peer changes the rest before it is transmitted, the checksum will be
            // wrong.
            let rest = &frame.bytes(scratch)[ETHERNET_LEN + checked..ETHERNET_LEN + packet.len];
            tunnel.write_checksum(&mut head[..PACKET + checked], rest);
        }
        let leaving = Leaving {
            frame: item.frame,
            head: ((ROOM - outer_len) as u16, (PACKET + checked) as u16),
            body: ((ETHERNET_LEN + checked) as u16, (ETHERNET_LEN + packet.len) as u16),
        };
        match mac {
            Some(_) => Ok(leaving),
            None => Err(Stop::Wait(leaving, peer.hop)),
        }
    }

    /// Sends the fragments into the packet's tunnel. The user's packet itself is fragmented, so
    /// that no router has to fragment outer packets.
    #[cold]
    fn divide(
        &mut self,
        lane: &mut Lane,
        frame: &Frame<'_>,
        item: &Item,
        now: u64,
    ) -> Result<(), Stop> {
        let packet = self.packet(lane, item.frame, frame)?;
        let session = &lane.sessions.slots[item.slot as usize];
        let rule = *find(session, &packet).ok_or(DropReason::NoRule)?;
        let peer = session.tunnels[usize::from(rule.tunnel)];
        let to = lane.to.clone();
        let mac = lane.mac_of(peer.hop);
        lane.admit((item.slot, item.frame), &rule, (packet.len, mac.is_some()), now)?;
        let there = frame.len().min(LOOK) - ETHERNET_LEN;
        let checked = reading::checked_len(&packet, there);
        let is_own = lane.is_own;
        let head = &mut lane.heads[usize::from(item.frame)].0;
        let dst = mac.unwrap_or_else(|| asker(head, is_own));
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
        let hop = mac.is_none().then_some(peer.hop);
        match lane.divide(whole, &copy[..checked], mtu, hop, front) {
            true => Ok(()),
            false => Err(Stop::Report(DropReason::TooBig, Problem::TooBig(mtu as u16))),
        }
    }

    #[inline(always)]
    fn stop(&mut self, lane: &mut Lane, frame: &Frame<'_>, _: &Item, stop: Stop) {
        match stop {
            Stop::Drop(reason) => lane.dropped(reason, frame),
            Stop::Kept => lane.counters.buffering += 1,
            Stop::Report(reason, problem) => {
                lane.dropped(reason, frame);
                self.report(lane, frame, problem);
            }
            Stop::Divide | Stop::Copy | Stop::Wait(..) => {}
        }
    }

    fn report_lost(&mut self, lane: &mut Lane, frame: &[u8]) {
        let from = lane.from.clone();
        lane.report(Problem::Unreachable, || {
            let packet = tunnel::user_packet(frame).unwrap_or_default();
            let (version, asker) = (packet.first().map_or(0, |byte| byte >> 4), &frame[..6]);
            let kind = if version == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
            [&from.mac.0[..], asker, &kind.to_be_bytes(), packet].concat()
        });
    }

    /// Releases buffered packets that need not wait any more.
    fn change(&mut self, lane: &mut Lane, change: &mut Change) {
        // Buffered packets are forwarded below, so the end markers have to be sent first.
        for (hop, frame) in change.farewell.iter().flat_map(|farewell| farewell.frames()) {
            lane.send_end_marker(change.slot, *hop, frame);
        }
        lane.sessions.apply(change);
        let session = &mut lane.sessions.slots[change.slot as usize];
        if !session.buffers() {
            self.waiting.forget_report(change.slot);
        }
        if session.waiting == 0 {
            return;
        }
        let mut waiting = std::mem::take(&mut session.waiting);
        if session.rules.is_empty() {
            let gone = self.store.forget(&mut waiting);
            self.waiting.remove(change.slot, gone);
            lane.counters.drops.add(DropReason::SessionGone, gone.into());
            return;
        }
        let mut store = std::mem::take(&mut self.store);
        let mut leaving =
            store.divide(&mut waiting, |frame| self.must_wait(lane, change.slot, frame));
        lane.sessions.slots[change.slot as usize].waiting = waiting;
        // All buffered packets of a flow leave before any newer one is processed, so the flow stays
        // in order.
        let frames: Vec<Frame<'_>> = store.waiting(leaving).map(Frame::from).collect();
        lane.patience = Patience::Endless;
        frames.chunks(CHUNK).for_each(|chunk| _ = self.chunk(lane, chunk, false));
        lane.patience = Patience::Usual;
        self.waiting.remove(change.slot, store.forget(&mut leaving));
        self.store = store;
    }
}

impl Downlink {
    #[cold]
    fn take_one_of_uplink(&mut self, lane: &mut Lane, message: &ForUser) {
        lane.is_own = true;
        match message {
            ForUser::Frame(frame) => _ = self.chunk(lane, &[Frame::from(&frame[..])], false),
            ForUser::Advertisement { prefix, to } => {
                let sent = self.advertise(lane, *prefix, *to);
                lane.counters.generated_dropped += u64::from(sent.is_none());
            }
        }
        lane.is_own = false;
    }

    /// Sends a router advertisement with its prefix to a user, in the tunnel of the rule that
    /// matches packets to the user's address. No limit counts the message, since it is ours.
    fn advertise(&mut self, lane: &mut Lane, prefix: u64, user: Ipv6Addr) -> Option<()> {
        let Lane { sessions, from, .. } = &*lane;
        let slot = sessions.table.find(prefix)?;
        let session = &sessions.slots[slot as usize];
        let own = router::link_local(from.mac);
        let address = u128::from(prefix) << 64 | u128::from(u128::from(user) as u64);
        let (remote, local) = ((own.into(), None), (address, None));
        let ends = Ends { protocol: protocol::ICMPV6, remote, local };
        let (teid, qfis) = (0, qfis(None));
        let probe = || Probe { teid, qfis, tos: 0, ends };
        let rule = *session.find(None, probe).filter(|rule| rule.action == Action::Forward)?;
        let peer = session.tunnels[usize::from(rule.tunnel)];
        let mac = lane.mac_of(peer.hop);
        let Lane { heads, from, to, .. } = lane;
        let outer_len = Tunnel::headers_len(&peer, rule.qfi);
        // The user's own packets have to fit the MTU of N6 as well.
        let mtu = (to.mtu - outer_len).min(from.mtu);
        let prefix = Ipv6Addr::from(u128::from(prefix) << 64);
        let packet = router::advertisement(own, user, prefix, mtu as u32);
        let packet = packet?;
        let flow = Flow { tos: 0, src_port: gtpu::PORT };
        let dst = mac.unwrap_or(MacAddr([0; 6]));
        let tunnel = Tunnel { peer, qfi: rule.qfi, own: to, dst, flow };
        let head = &mut heads[0].0[..PACKET];
        tunnel.write(&mut head[ROOM - outer_len..], packet.len());
        if peer.address.is_ipv6() {
            tunnel.write_checksum(head, &packet);
        }
        let head = ((ROOM - outer_len) as u16, PACKET as u16);
        if mac.is_none() {
            let message = [&heads[0].0[ROOM - outer_len..PACKET], &packet].concat();
            lane.send_own(peer.hop, &message);
            lane.counters.router_advertisements += 1;
            return Some(());
        }
        let leaving = Leaving { frame: 0, head, body: (0, packet.len() as u16) };
        lane.transmit(&[Frame::from(&packet[..])], &[leaving].into_iter().collect());
        lane.counters.router_advertisements += 1;
        Some(())
    }

    /// Returns the key of the user that the packet in a frame is for; `None` if it is not to be
    /// routed.
    #[inline(always)]
    fn key(
        &mut self,
        lane: &mut Lane,
        index: usize,
        frame: &Frame<'_>,
    ) -> Result<Option<u64>, DropReason> {
        const IP: usize = ETHERNET_LEN;
        let Lane { from, heads, .. } = lane;
        let bytes = heads[index].copy(frame);
        let ethernet = Ethernet::parse(bytes).ok_or(DropReason::NotIp)?;
        if ethernet.dst != from.mac {
            return if ethernet.dst.is_group() { Ok(None) } else { Err(DropReason::OtherHost) };
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
    fn packet(&mut self, lane: &mut Lane, index: u16, frame: &Frame<'_>) -> Result<Packet, Unread> {
        let Lane { heads, scratch, .. } = lane;
        let bytes = heads[usize::from(index)].bytes(frame);
        let len = frame.len() - ETHERNET_LEN;
        let packet = reading::parse(&bytes[ETHERNET_LEN..], len, frame, ETHERNET_LEN, scratch)?;
        let kind = [bytes[ETHERNET_LEN - 2], bytes[ETHERNET_LEN - 1]];
        match kind == reading::ethertype(packet.version).to_be_bytes() {
            true => Ok(packet),
            false => Err(Unread::Invalid),
        }
    }

    /// Buffers a packet of `len` bytes until its session changes. The control plane gets a report
    /// even if there is no room for the packet, since it still has to reach the user.
    #[cold]
    fn keep(
        &mut self,
        lane: &mut Lane,
        frame: &Frame<'_>,
        slot: u32,
        rule: &Rule,
        len: usize,
        now: u64,
    ) -> Stop {
        let session = &mut lane.sessions.slots[slot as usize];
        if self.waiting.must_report(slot, now)
            && !lane.events.send(Event::DownlinkData { seid: session.seid, pdr: rule.pdr })
        {
            self.waiting.forget_report(slot);
        }
        let len = ETHERNET_LEN + len;
        let room = self.store.check_room(len).and_then(|()| self.waiting.add(slot));
        match room {
            Ok(()) => {
                self.store.keep((slot, ()), &mut session.waiting, frame, len, now);
                Stop::Kept
            }
            Err(reason) => reason.into(),
        }
    }

    /// Drops buffered packets whose time has expired.
    #[inline(always)]
    fn expire(&mut self, lane: &mut Lane) {
        if !self.store.is_empty() {
            self.expire_at(lane, clock::ticks());
        }
    }

    #[cold]
    fn expire_at(&mut self, lane: &mut Lane, now: u64) {
        // Limited, so that expiring takes no longer than a batch.
        for _ in 0..CHUNK {
            let Some(slot) = self.store.expired(now) else { break };
            let session = &mut lane.sessions.slots[slot as usize];
            self.store.forget_first(&mut session.waiting);
            self.waiting.remove(slot, 1);
            lane.counters.drops.add(DropReason::BufferExpired, 1);
        }
    }

    /// Returns true if the rule that matches a frame of a session buffers it.
    fn must_wait(&mut self, lane: &mut Lane, slot: u32, frame: &[u8]) -> bool {
        let frame = Frame::from(frame);
        let Ok(Some(key)) = self.key(lane, 0, &frame) else { return false };
        let Ok(packet) = self.packet(lane, 0, &frame) else { return false };
        let sessions = &lane.sessions;
        let rule = find(&sessions.slots[slot as usize], &packet);
        sessions.table.find(key) == Some(slot)
            && rule.is_some_and(|rule| rule.action == Action::Buffer)
    }

    /// Reports the fate of a packet to its sender.
    #[cold]
    fn report(&mut self, lane: &mut Lane, frame: &Frame<'_>, problem: Problem) {
        lane.report(problem, || reading::copy_of(frame));
    }

    /// Processes a frame that is for us or for a group.
    #[cold]
    fn other(&mut self, lane: &mut Lane, frame: &Frame<'_>) {
        lane.process_local(&reading::copy_of(frame));
    }
}

/// Returns what becomes of a packet that is longer than `mtu`.
#[cold]
fn too_long(packet: &Packet, mtu: usize) -> Stop {
    match packet.dont_fragment {
        false => Stop::Divide,
        true => Stop::Report(DropReason::TooBig, Problem::TooBig(mtu as u16)),
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

/// Returns the source of the frame that begins with `head`: the station to notify if the packet
/// waits for a next hop in vain. Returns 0 for a packet of our own.
#[cold]
fn asker(head: &[u8], is_own: bool) -> MacAddr {
    let Some(Ethernet { src, .. }) = Ethernet::parse(&head[ROOM..]).filter(|_| !is_own) else {
        return MacAddr([0; 6]);
    };
    src
}
