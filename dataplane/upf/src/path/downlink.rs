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
use super::forwarder::{Chunk, Encapsulation, Forwarder, Forwarding};
use super::header_buffer::{CHUNK, COPY_LEN, HEADROOM, PACKET_AT};
use super::packet_buffer::{PacketBuffer, Waiting};
use super::passes::{self, Passes, Stop};
use super::reading::{self, ParseError};
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
    /// Number of its session; until the session is found, that of the bucket to search.
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

    /// Drops expired buffered packets, and processes a message of the uplink for a user.
    #[inline(always)]
    fn prepare(&mut self, forwarder: &mut Forwarder) -> bool {
        self.expire(forwarder);
        match self.of_uplink.try_recv() {
            Ok(message) => {
                self.process_message(forwarder, &message);
                true
            }
            Err(_) => false,
        }
    }

    #[inline(always)]
    fn parse(
        &mut self,
        forwarder: &mut Forwarder,
        frames: &[Frame<'_>],
        _: &mut usize,
    ) -> ArrayVec<Item, CHUNK> {
        let mut items = ArrayVec::new();
        for (index, frame) in ahead(frames).enumerate() {
            match self.key(forwarder, index, frame) {
                Ok(Some(key)) => {
                    let home = forwarder.sessions.table.prefetch(key);
                    items.push(Item { frame: index as u16, slot: home, key });
                }
                Ok(None) => self.other(forwarder, frame),
                Err(reason) => forwarder.dropped(reason, frame),
            }
        }
        items
    }

    #[cold]
    fn unknown(&mut self, forwarder: &mut Forwarder, frame: &Frame<'_>, item: &Item) {
        match self.packet(forwarder, item.frame, frame) {
            Err(ParseError::Invalid) => forwarder.dropped(DropReason::InnerIp, frame),
            Ok(packet) if ip::is_group(packet.destination()) => self.other(forwarder, frame),
            Ok(_) | Err(ParseError::MayChange) => {
                forwarder.dropped(DropReason::NoSession, frame);
                self.report(forwarder, frame, item, Problem::Unreachable);
            }
        }
    }

    #[inline(always)]
    fn check<const DIVIDE: bool>(
        &mut self,
        forwarder: &mut Forwarder,
        chunk: &mut Chunk<'_>,
        item: &Item,
        now: u64,
    ) -> Result<(), Stop> {
        let frame = &chunk.frames[usize::from(item.frame)];
        let packet = self.packet(forwarder, item.frame, frame)?;
        let is_generated = forwarder.is_generated;
        if forwarder.from.is_martian(packet.version, packet.src) && !is_generated {
            return Err(DropReason::MartianSource.into());
        }
        let session = &forwarder.sessions.slots[item.slot as usize];
        let rule = *find(session, &packet).ok_or(DropReason::NoRule)?;
        match rule.action {
            Action::Forward => {}
            Action::Drop => return Err(DropReason::Rule.into()),
            // Messages of our own are not buffered, so that all buffered packets were received.
            Action::Buffer if is_generated => return Err(DropReason::BufferSession.into()),
            Action::Buffer => {
                return Err(self.keep(forwarder, frame, item.slot, &rule, packet.len, now));
            }
        }
        if packet.ttl <= 1 {
            return Err(Stop::Report(DropReason::TtlExpired, Problem::TimeExceeded));
        }
        let peer = session.tunnels[usize::from(rule.tunnel)];
        let mac = forwarder.mac_of(peer.hop);
        let head = &forwarder.headers[usize::from(item.frame)].0;
        let dst = mac.unwrap_or_else(|| sender_mac(head, is_generated));
        let flow = Flow::of(&packet, item.key);
        let forwarding = Forwarding {
            slot: item.slot,
            frame: item.frame,
            packet: &packet,
            rule: &rule,
            at: ETHERNET_LEN,
            buffer_at: PACKET_AT,
            // The parsed beginning of the packet, as in `packet`.
            copied: frame.len().min(COPY_LEN) - ETHERNET_LEN,
            hop: peer.hop,
            is_resolved: mac.is_some(),
            headers: Tunnel { peer, qfi: rule.qfi, dst, flow },
        };
        forwarder.forward::<_, DIVIDE>(chunk, forwarding, now)
    }

    /// Sends an ICMP error to the sender of a packet.
    #[cold]
    fn report(&mut self, forwarder: &mut Forwarder, frame: &Frame<'_>, _: &Item, problem: Problem) {
        forwarder.report(problem, || reading::copy_of(frame));
    }

    fn report_lost(&mut self, forwarder: &mut Forwarder, frame: &[u8]) {
        let from = forwarder.from.clone();
        forwarder.report(Problem::Unreachable, || {
            let packet = tunnel::user_packet(frame).unwrap_or_default();
            let (version, sender_mac) = (packet.first().map_or(0, |byte| byte >> 4), &frame[..6]);
            let kind = if version == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
            [&from.mac.0[..], sender_mac, &kind.to_be_bytes(), packet].concat()
        });
    }

    /// Releases buffered packets that need not wait any more.
    fn change(&mut self, forwarder: &mut Forwarder, change: &mut Change) {
        // Buffered packets are forwarded below, so the end markers have to be sent first.
        for (hop, frame) in change.end_markers.iter().flat_map(|end_markers| end_markers.frames()) {
            forwarder.send_end_marker(change.slot, *hop, frame);
        }
        forwarder.sessions.apply(change);
        let session = &mut forwarder.sessions.slots[change.slot as usize];
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
            forwarder.counters.drops.add(DropReason::SessionGone, gone.into());
            return;
        }
        let mut store = std::mem::take(&mut self.store);
        let mut leaving =
            store.divide(&mut waiting, |frame| self.must_wait(forwarder, change.slot, frame));
        forwarder.sessions.slots[change.slot as usize].waiting = waiting;
        // All buffered packets of a flow leave before any newer one is processed, so the flow stays
        // in order.
        let frames: Vec<Frame<'_>> = store.waiting(leaving).map(Frame::from).collect();
        forwarder.patience = Patience::Endless;
        frames.chunks(CHUNK).for_each(|chunk| _ = self.chunk(forwarder, chunk, false));
        forwarder.patience = Patience::Usual;
        self.waiting.remove(change.slot, store.forget(&mut leaving));
        self.store = store;
    }
}

impl Downlink {
    #[cold]
    fn process_message(&mut self, forwarder: &mut Forwarder, message: &ForUser) {
        forwarder.is_generated = true;
        match message {
            ForUser::Frame(frame) => _ = self.chunk(forwarder, &[Frame::from(&frame[..])], false),
            ForUser::Advertisement { prefix, to } => {
                let sent = self.advertise(forwarder, *prefix, *to);
                forwarder.counters.generated_dropped += u64::from(sent.is_none());
            }
        }
        forwarder.is_generated = false;
    }

    /// Sends a router advertisement with its prefix to a user, in the tunnel of the rule that
    /// matches packets to the user's address. The message does not count against the limits of the
    /// session.
    fn advertise(&mut self, forwarder: &mut Forwarder, prefix: u64, user: Ipv6Addr) -> Option<()> {
        let Forwarder { sessions, from, .. } = &*forwarder;
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
        let Forwarder { from, to, .. } = &*forwarder;
        let flow = Flow { tos: 0, src_port: gtpu::PORT };
        let tunnel = Tunnel { peer, qfi: rule.qfi, dst: MacAddr([0; 6]), flow };
        let len = tunnel.headers_len();
        // The user's own packets have to fit the MTU of N6 as well.
        let mtu = (to.mtu + ETHERNET_LEN - len).min(from.mtu);
        let prefix = Ipv6Addr::from(u128::from(prefix) << 64);
        let packet = router::advertisement(own, user, prefix, mtu as u32)?;
        let mut message = vec![0; len];
        tunnel.write_headers(to, &mut message, packet.len());
        if tunnel.has_checksum() {
            tunnel.write_checksum(to, &mut message, 0, &packet);
        }
        message.extend(packet);
        forwarder.send_own(peer.hop, &message);
        forwarder.counters.router_advertisements += 1;
        Some(())
    }

    /// Returns the key of the user that the packet in a frame is for; `None` if it is not to be
    /// routed.
    #[inline(always)]
    fn key(
        &mut self,
        forwarder: &mut Forwarder,
        index: usize,
        frame: &Frame<'_>,
    ) -> Result<Option<u64>, DropReason> {
        const IP: usize = ETHERNET_LEN;
        let Forwarder { from, headers, .. } = forwarder;
        let bytes = headers[index].copy(frame);
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
    fn packet(
        &mut self,
        forwarder: &mut Forwarder,
        index: u16,
        frame: &Frame<'_>,
    ) -> Result<Packet, ParseError> {
        let Forwarder { headers, scratch, .. } = forwarder;
        let bytes = headers[usize::from(index)].bytes(frame);
        let len = frame.len() - ETHERNET_LEN;
        let packet = reading::parse(&bytes[ETHERNET_LEN..], len, frame, ETHERNET_LEN, scratch)?;
        let kind = [bytes[ETHERNET_LEN - 2], bytes[ETHERNET_LEN - 1]];
        match kind == reading::ethertype(packet.version).to_be_bytes() {
            true => Ok(packet),
            false => Err(ParseError::Invalid),
        }
    }

    /// Buffers a packet of `len` bytes until its session changes. The control plane gets a report
    /// even if there is no room for the packet, since it still has to reach the user.
    #[cold]
    fn keep(
        &mut self,
        forwarder: &mut Forwarder,
        frame: &Frame<'_>,
        slot: u32,
        rule: &Rule,
        len: usize,
        now: u64,
    ) -> Stop {
        let session = &mut forwarder.sessions.slots[slot as usize];
        if self.waiting.must_report(slot, now)
            && !forwarder.events.send(Event::DownlinkData { seid: session.seid, pdr: rule.pdr })
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
    fn expire(&mut self, forwarder: &mut Forwarder) {
        if !self.store.is_empty() {
            self.expire_at(forwarder, clock::ticks());
        }
    }

    #[cold]
    fn expire_at(&mut self, forwarder: &mut Forwarder, now: u64) {
        // Limited, so that expiring takes no longer than a batch.
        for _ in 0..CHUNK {
            let Some(slot) = self.store.expired(now) else { break };
            let session = &mut forwarder.sessions.slots[slot as usize];
            self.store.forget_first(&mut session.waiting);
            self.waiting.remove(slot, 1);
            forwarder.counters.drops.add(DropReason::BufferExpired, 1);
        }
    }

    /// Returns true if the rule that matches a frame of a session buffers it.
    fn must_wait(&mut self, forwarder: &mut Forwarder, slot: u32, frame: &[u8]) -> bool {
        let frame = Frame::from(frame);
        let Ok(Some(key)) = self.key(forwarder, 0, &frame) else { return false };
        let Ok(packet) = self.packet(forwarder, 0, &frame) else { return false };
        let sessions = &forwarder.sessions;
        let rule = find(&sessions.slots[slot as usize], &packet);
        sessions.table.find(key) == Some(slot)
            && rule.is_some_and(|rule| rule.action == Action::Buffer)
    }

    /// Processes a frame that is for us or for a group.
    #[cold]
    fn other(&mut self, forwarder: &mut Forwarder, frame: &Frame<'_>) {
        forwarder.process_local(&reading::copy_of(frame));
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

/// Returns the source of the frame in `head`, the station that gets an error if the next hop does
/// not reply; 0 for a message of our own.
#[cold]
fn sender_mac(head: &[u8], is_generated: bool) -> MacAddr {
    let Some(Ethernet { src, .. }) = Ethernet::parse(&head[HEADROOM..]).filter(|_| !is_generated)
    else {
        return MacAddr([0; 6]);
    };
    src
}
