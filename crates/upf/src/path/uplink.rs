//! Uplink: from the tunnels on N3 to N6.
//!
//! Each chunk of packets goes through passes: parse the headers and prefetch the bucket in the
//! table; find the session and prefetch it; prefetch what it points to; check and rewrite;
//! transmit.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use arrayvec::ArrayVec;
use dray_port::{Frame, ahead, clock};
use dray_wire::checksum;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::fragment::FragmentHeader;
use dray_wire::gtpu::{self, FIXED_LEN as GTP_FIXED, GtpuError, Header, message};
use dray_wire::icmp::{self, Problem};
use dray_wire::ip::{self, Fragment, IPV4_LEN, Packet, Version, ecn, protocol};
use dray_wire::router;
use dray_wire::udp::{UDP_LEN, Udp};

use super::downlink::ForUser;
use super::head::{LOOK, PACKET, ROOM};
use super::lane::{self, CHUNK, DIVIDED_MAX, Departures, Lane, Leaving, Unread};
use super::reassembly::{Part, Reassembly};
use crate::config::{Action, Ends};
use crate::counters::DropReason;
use crate::event::Event;
use crate::interface::Interface;
use crate::matcher::{Probe, qfis};
use crate::meter::{Meter, Sharing};
use crate::session::{Rule, Session};
use crate::tunnels::Tunnels;

/// Number of the user's packet's first bytes that must be in the head for parsing: the longest IPv4
/// header, and ports.
const INNER_LOOK: usize = 60 + 4;

/// Maximum number of queued messages from the uplink to the downlink; more are lost.
pub(crate) const MESSAGES_MAX: usize = 64;

/// Rate limit for error indications: a thousand per second, each counted with a fixed length.
const INDICATIONS_KBPS: u64 = 8000;
const INDICATION_LEN: usize = 1000;

pub(crate) struct Uplink {
    pub(crate) lane: Lane,
    /// Channel to a worker of the downlink.
    to_downlink: SyncSender<ForUser>,
    fragments: Reassembly,
    /// Outer source addresses that [`Item::gnb`] cannot hold, by number of the frame in the chunk.
    sources: [u128; CHUNK],
    /// The gNB tunnels in use.
    tunnels: Arc<Tunnels>,
    indications: Meter,
}

/// A user's packet in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    /// Number of its frame in the chunk.
    frame: u16,
    /// Position of the packet in the frame.
    at: u16,
    /// Position of the packet in the head.
    look: u16,
    /// Length of the packet, as the tunnel's headers say.
    len: u16,
    /// Bit of its QFI, as returned by [`qfis`].
    qfis: u64,
    /// Congestion notification bits of the outer header.
    ecn: u8,
    teid: u32,
    /// Number of its session; before that is found, of the bucket to look for it in.
    slot: u32,
    /// Outer source address if it is IPv4; 0: see [`Uplink::sources`].
    gnb: u32,
}

/// Why a user's packet is not forwarded as it is.
enum Stop {
    Drop(DropReason),
    /// It is forwarded in fragments.
    Divide,
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

/// A frame that is not a user's packet in a tunnel to us, as far as it was parsed.
enum Odd {
    Drop(DropReason),
    /// The whole frame has to be parsed.
    Other,
    Fragment(Part),
}

impl From<DropReason> for Odd {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

/// The headers around a GTP-U message.
struct Outer {
    ethernet: Ethernet,
    packet: Packet,
    udp: Udp,
    /// Position of the message in the frame.
    at: usize,
}

/// Parses the headers in front of a GTP-U message to us, in a frame of `len` bytes that begins with
/// `bytes`.
#[inline(always)]
fn outer(bytes: &[u8], len: usize, own: &Interface) -> Result<Outer, Odd> {
    let ethernet = Ethernet::parse(bytes).ok_or(DropReason::NotIp)?;
    if ethernet.dst != own.mac {
        let group = ethernet.dst.0[0] & 1 != 0;
        return Err(if group { Odd::Other } else { DropReason::OtherHost.into() });
    }
    match ethernet.ethertype {
        ethertype::IPV4 | ethertype::IPV6 => {}
        ethertype::ARP => return Err(Odd::Other),
        _ => return Err(DropReason::NotIp.into()),
    }
    let packet = Packet::parse(&bytes[ETHERNET_LEN..], len - ETHERNET_LEN)
        .map_err(|_| DropReason::OuterIp)?;
    if packet.fragment != Fragment::Whole {
        return Err(fragment(ethernet, packet, bytes, own));
    }
    if !own.is_own(packet.dst) || packet.protocol != protocol::UDP {
        return Err(Odd::Other);
    }
    let at = ETHERNET_LEN + packet.header_len;
    let datagram = bytes.get(at..at + UDP_LEN).ok_or(Odd::Other)?;
    let udp = Udp::parse(datagram, packet.len - packet.header_len).ok_or(DropReason::OuterUdp)?;
    if udp.dst_port != gtpu::PORT {
        return Err(Odd::Other);
    }
    Ok(Outer { ethernet, packet, udp, at: at + UDP_LEN })
}

/// Classifies a fragment of an outer packet.
#[cold]
fn fragment(ethernet: Ethernet, packet: Packet, bytes: &[u8], own: &Interface) -> Odd {
    match FragmentHeader::parse(&packet, &bytes[ETHERNET_LEN..]) {
        Some(header) if own.is_own(packet.dst) => Odd::Fragment(Part { ethernet, packet, header }),
        _ => DropReason::OuterFragment.into(),
    }
}

/// Fast path: finds the user's packet behind IPv4 without options and GTP-U, with or without a
/// container. It reads each field once, at a position known at compile time; all other frames are
/// left to [`user_packet`].
#[inline(always)]
fn usual_packet(bytes: &[u8; LOOK], len: usize, own: &Interface) -> Option<Item> {
    const IP: usize = ETHERNET_LEN;
    const UDP: usize = IP + IPV4_LEN;
    const GTP: usize = UDP + UDP_LEN;
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().expect("within"));
    let ip: &[u8; IPV4_LEN] = bytes[IP..].first_chunk()?;
    let (ip_len, udp_len) = (usize::from(half(IP + 2)), usize::from(half(UDP + 4)));
    let is_for_us =
        bytes[..6] == own.mac.0 && own.v4.is_some_and(|v4| word(IP + 16) == u32::from(v4));
    // Version 4 without options, not a fragment, UDP.
    let is_ip = (half(IP - 2) == ethertype::IPV4)
        & (bytes[IP] == 0x45)
        & (word(IP + 6) & 0x3fff_00ff == u32::from(protocol::UDP));
    let fits = IP + ip_len <= len && IPV4_LEN + udp_len <= ip_len;
    let whole = GTP_FIXED + usize::from(half(GTP + 2));
    let gtp_fits = UDP_LEN + whole <= udp_len;
    // Flags and type; then, behind two fields that the flags do not cover, the container's headers.
    let (at, qfis) = match (half(GTP), word(GTP + 8) & 0xff, word(GTP + 12)) {
        (0x30ff, ..) => (GTP + GTP_FIXED, qfis(None)),
        (0x34ff, 0x85, container) if container & 0xfff0_00ff == 0x0110_0000 => {
            (GTP + gtpu::CONTAINER_LEN, qfis(Some((container >> 8) as u8)))
        }
        _ => return None,
    };
    let gnb = word(IP + 12);
    let is_usual = is_for_us & is_ip & fits & gtp_fits & (half(UDP + 2) == gtpu::PORT) & (gnb != 0);
    if !is_usual || GTP + whole < at || checksum::internet_of(ip) != 0 {
        return None;
    }
    Some(Item {
        frame: 0,
        at: at as u16,
        look: (ROOM + at) as u16,
        len: (GTP + whole - at) as u16,
        qfis,
        ecn: ip[1] & ecn::MASK,
        teid: word(GTP + 4),
        slot: 0,
        gnb,
    })
}

/// Finds the user's packet, and the outer source address; the caller fills the other fields of the
/// item.
fn user_packet(bytes: &[u8], len: usize, own: &Interface) -> Result<(Item, u128), Odd> {
    let outer = outer(bytes, len, own)?;
    let header = match Header::parse(bytes.get(outer.at..).unwrap_or(&[]), outer.udp.payload_len) {
        Ok(header) if header.message == message::G_PDU => header,
        // The whole frame has to be parsed, even if it turns out to be invalid.
        _ => return Err(Odd::Other),
    };
    let item = Item {
        frame: 0,
        at: (outer.at + header.len) as u16,
        look: (ROOM + outer.at + header.len) as u16,
        len: header.payload_len as u16,
        qfis: qfis(header.container.map(|container| container.qfi)),
        ecn: outer.packet.tos & ecn::MASK,
        teid: header.teid,
        slot: 0,
        gnb: ip::as_ipv4(outer.packet.src).map_or(0, u32::from),
    };
    Ok((item, outer.packet.src))
}

impl Uplink {
    pub(crate) fn new(lane: Lane, to_downlink: SyncSender<ForUser>, tunnels: Arc<Tunnels>) -> Self {
        let indications = Meter::new(INDICATIONS_KBPS);
        let fragments = Reassembly::new();
        Self { lane, to_downlink, fragments, sources: [0; CHUNK], tunnels, indications }
    }

    /// Takes `frames` while the egress port has room, and returns how many it took.
    pub(crate) fn take(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut taken = 0;
        while taken < frames.len() && !self.lane.is_full() {
            let rest = &frames[taken..];
            taken += self.chunk(&rest[..rest.len().min(CHUNK)]);
            if self.fragments.is_complete() && !self.lane.is_full() {
                self.take_complete();
            }
        }
        self.lane.received(&frames[..taken]);
        taken
    }

    /// Processes a completely reassembled packet, and drops expired fragments. Returns true if
    /// there was such a packet.
    #[inline(always)]
    pub(super) fn take_reassembled(&mut self) -> bool {
        self.fragments.expire(&mut self.lane.counters.drops);
        let is_complete = self.fragments.is_complete();
        if is_complete {
            self.take_complete();
        }
        is_complete
    }

    #[cold]
    fn take_complete(&mut self) {
        let Some(whole) = self.fragments.complete() else { return };
        self.lane.counters.reassembled += 1;
        self.chunk(&[Frame::from(whole.frame())]);
        self.fragments.give_back(whole);
    }

    /// Processes frames up to the first one that completes a reassembled packet, so that later
    /// frames do not overtake that packet; returns how many frames were processed.
    #[inline(always)]
    fn chunk(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut looked = frames.len();
        let mut items = self.look(frames, &mut looked);
        self.find(frames, &mut items);
        self.lane.sessions.prefetch_more(self.lane.way, items.iter().map(|item| item.slot));
        let now = clock::ticks();
        let mut departures = Departures::new();
        for item in &items {
            let frame = &frames[usize::from(item.frame)];
            match self.check(frame, item, now) {
                Ok(leaving) => departures.push(leaving),
                Err(Stop::Drop(reason)) => self.refuse(frames, *item, reason),
                Err(Stop::Copy) => self.check_copy(frames, frame, &mut departures),
                Err(Stop::Divide) => {
                    self.lane.transmit(frames, &departures);
                    departures.clear();
                    if let Err(reason) = self.divide(frame, item, now) {
                        self.refuse(frames, *item, reason);
                    }
                }
            }
        }
        self.lane.transmit(frames, &departures);
        looked
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

    /// Parses the headers around users' packets, and processes all other frames.
    #[inline(always)]
    fn look(&mut self, frames: &[Frame<'_>], looked: &mut usize) -> ArrayVec<Item, CHUNK> {
        let mut items = ArrayVec::new();
        for (index, frame) in ahead(frames).enumerate() {
            let own = &self.lane.from;
            let bytes = self.lane.heads[index].copy(frame);
            let usual = bytes.first_chunk().and_then(|head| usual_packet(head, frame.len(), own));
            let Some(mut item) = usual.or_else(|| self.unusual(index, frame)) else {
                if self.fragments.is_complete() {
                    *looked = index + 1;
                    break;
                }
                continue;
            };
            item.frame = index as u16;
            if usize::from(item.at) + INNER_LOOK > LOOK && frame.len() > LOOK {
                item.look = PACKET as u16;
                self.lane.heads[index].copy_packet(frame, usize::from(item.at));
            }
            item.slot = self.lane.sessions.table.prefetch(item.teid.into());
            items.push(item);
        }
        items
    }

    /// Finds the sessions of the packets.
    #[inline(always)]
    fn find(&mut self, frames: &[Frame<'_>], items: &mut ArrayVec<Item, CHUNK>) {
        items.retain(|item| {
            let slot = self.lane.sessions.table.find_from(item.slot, item.teid.into());
            match slot {
                Some(slot) => {
                    self.lane.sessions.prefetch(self.lane.way, slot);
                    item.slot = slot;
                }
                None => self.unknown_teid(&frames[usize::from(item.frame)]),
            }
            slot.is_some()
        });
    }

    /// Checks a packet against its session's rules, and writes its new header.
    #[inline(always)]
    fn check(&mut self, frame: &Frame<'_>, item: &Item, now: u64) -> Result<Leaving, Stop> {
        let Lane { sessions, heads, from, to, scratch, .. } = &mut self.lane;
        let look = usize::from(item.look);
        let head = &mut heads[usize::from(item.frame)].0;
        let (at, len) = (usize::from(item.at), usize::from(item.len));
        let there = (head.len() - look).min(len);
        let packet = lane::parse(&head[look..look + there], len, frame, at, scratch)?;
        let session = &sessions.slots[item.slot as usize];
        if !session.is_from_user(packet.version, packet.src) {
            return Err(foreign(&packet).into());
        }
        if to.is_martian(packet.version, packet.dst) {
            return Err(to.martian_destination(packet.destination()).into());
        }
        let rule = *find(session, item, &packet).ok_or(DropReason::NoRule)?;
        let is_bound = rule.gnb == item.gnb && item.gnb != 0;
        if !is_bound && !is_right_gnb(session, item, &self.sources, from) {
            return Err(DropReason::WrongGnb.into());
        }
        if rule.action != Action::Forward {
            return Err(DropReason::Rule.into());
        }
        if packet.ttl <= 1 {
            return Err(DropReason::TtlExpired.into());
        }
        if packet.len > to.mtu {
            return Err(if packet.dont_fragment {
                DropReason::TooBig.into()
            } else {
                Stop::Divide
            });
        }
        let hop = to.route(packet.dst).ok_or(DropReason::NoRoute)?;
        let dst = to.mac_of(hop).ok_or(DropReason::NoNeighbour)?;
        let header = Ethernet { dst, src: to.mac, ethertype: lane::ethertype(packet.version) };
        if item.ecn & ecn::ECT_1 != 0 {
            mark(&mut head[look..], &packet, item.ecn)?;
        }
        ip::decrement_ttl(&mut head[look..], packet.version);
        // This header overwrites the tunnel's headers.
        let start = look - ETHERNET_LEN;
        header.write((&mut head[start..look]).try_into().expect("14 bytes"));
        let checked = lane::checked_len(&packet, there);
        self.lane.admit(item.slot, &rule, packet.len, now)?;
        Ok(Leaving {
            frame: item.frame,
            head: (start as u16, (look + checked) as u16),
            body: ((at + checked) as u16, (at + packet.len) as u16),
        })
    }

    /// Fragments a packet that [`check`](Self::check) found too long, and sends the fragments.
    #[cold]
    fn divide(&mut self, frame: &Frame<'_>, item: &Item, now: u64) -> Result<(), DropReason> {
        let Lane { sessions, heads, to, scratch, .. } = &mut self.lane;
        let to = to.clone();
        let (at, len) = (usize::from(item.at), usize::from(item.len));
        let bytes = &mut heads[usize::from(item.frame)].0[usize::from(item.look)..];
        let there = bytes.len().min(len);
        let packet = lane::parse(&bytes[..there], len, frame, at, scratch);
        let packet = packet.map_err(|_| DropReason::InnerIp)?;
        let session = &sessions.slots[item.slot as usize];
        let rule = *find(session, item, &packet).ok_or(DropReason::NoRule)?;
        let hop = to.route(packet.dst).ok_or(DropReason::NoRoute)?;
        let dst = to.mac_of(hop).ok_or(DropReason::NoNeighbour)?;
        mark(bytes, &packet, item.ecn)?;
        ip::decrement_ttl(bytes, packet.version);
        let checked = lane::checked_len(&packet, there);
        let mut copy = [0; DIVIDED_MAX];
        copy[..checked].copy_from_slice(&bytes[..checked]);
        self.lane.admit(item.slot, &rule, packet.len, now)?;
        let ethernet = Ethernet { dst, src: to.mac, ethertype: lane::ethertype(packet.version) };
        let front = |head: &mut [u8], _: &[u8]| {
            ethernet.write((&mut head[ROOM..PACKET]).try_into().expect("14 bytes"));
            ROOM
        };
        match self.lane.divide((frame, at, &packet), &copy[..checked], to.mtu, front) {
            true => Ok(()),
            false => Err(DropReason::TooBig),
        }
    }

    /// Counts a user's packet that is not forwarded. If a router has to report the reason, the
    /// message goes to the user, through the tunnel that the session's downlink rules select.
    #[cold]
    fn refuse(&mut self, frames: &[Frame<'_>], item: Item, reason: DropReason) {
        let reason = match reason {
            DropReason::LinkLocal => match self.local(item) {
                Ok(()) => return,
                Err(reason) => reason,
            },
            other => other,
        };
        self.lane.counters.drops.add(reason, 1);
        let to = self.lane.to.clone();
        let problem = match reason {
            DropReason::TtlExpired => Problem::TimeExceeded,
            DropReason::TooBig => Problem::TooBig(to.mtu as u16),
            DropReason::NoRoute => Problem::NoRoute,
            DropReason::NoNeighbour => Problem::Unreachable,
            _ => return,
        };
        let frame = &frames[usize::from(item.frame)];
        let user = self.lane.sessions.slots[item.slot as usize].user();
        let message = self.lane.complaint(|| {
            let whole = lane::copy_of(frame);
            let bytes = whole.get(usize::from(item.at)..)?.get(..usize::from(item.len))?;
            let packet = Packet::parse(bytes, bytes.len()).ok()?;
            // The frame may have changed since it was checked: only the user itself is told.
            user.has(packet.version, packet.src).then_some(())?;
            // While the next hop is being asked for, it may still reply.
            let is_lost = || to.route(packet.dst).is_some_and(|hop| to.is_silent(hop));
            if problem == Problem::Unreachable && !is_lost() {
                return None;
            }
            let own = to.address_for(packet.source())?;
            let message = icmp::error(own, &packet, bytes, problem)?;
            Some(to.frame(to.mac, lane::ethertype(packet.version), &message))
        });
        if let Some(message) = message {
            // If the queue is full, the message is dropped.
            let _ = self.to_downlink.try_send(ForUser::Frame(message));
        }
    }

    /// Processes a packet that stays on the user's link: a router solicitation is answered with the
    /// user's prefix (RFC 4861, section 6.2.6; TS 23.501, section 5.8.2.2), everything else is
    /// dropped.
    fn local(&mut self, item: Item) -> Result<(), DropReason> {
        let Lane { sessions, heads, .. } = &mut self.lane;
        let bytes = &heads[usize::from(item.frame)].0[usize::from(item.look)..];
        let bytes = &bytes[..bytes.len().min(item.len.into())];
        let packet = Packet::parse(bytes, item.len.into()).map_err(|_| DropReason::InnerIp)?;
        if !router::is_solicitation(&packet, bytes) {
            return Err(DropReason::LinkLocal);
        }
        let session = &mut sessions.slots[item.slot as usize];
        let second = (clock::ticks() / clock::ticks_per_second()) as u32 + 1;
        // A solicitation too long for the head is unusual, and gets no reply either.
        if session.ue_v6 == 0
            || session.waiting == second
            || !router::is_valid_solicitation(&packet, bytes)
        {
            return Err(DropReason::Solicitation);
        }
        session.waiting = second;
        let to = match packet.src {
            0 => icmp::ALL_NODES.0,
            src => src.into(),
        };
        let message = ForUser::Advertisement { prefix: session.ue_v6, to };
        self.to_downlink.try_send(message).map_err(|_| DropReason::Solicitation)?;
        self.lane.counters.control += 1;
        Ok(())
    }

    /// Returns the user's packet in a frame that the fast path does not handle.
    #[cold]
    fn unusual(&mut self, index: usize, frame: &Frame<'_>) -> Option<Item> {
        let bytes = self.lane.heads[index].bytes(frame);
        match user_packet(bytes, frame.len(), &self.lane.from) {
            Ok((item, source)) => {
                self.sources[index] = source;
                Some(item)
            }
            Err(Odd::Drop(reason)) => {
                self.lane.counters.drops.add(reason, 1);
                None
            }
            Err(Odd::Fragment(part)) => self.keep_fragment(&part, frame),
            Err(Odd::Other) => self.other(index, frame),
        }
    }

    #[cold]
    fn keep_fragment(&mut self, part: &Part, frame: &Frame<'_>) -> Option<Item> {
        self.fragments.take(part, frame, clock::ticks(), &mut self.lane.counters.drops);
        None
    }

    /// Parses a whole frame: it may still contain a user's packet, behind headers longer than
    /// usual.
    #[cold]
    fn other(&mut self, index: usize, frame: &Frame<'_>) -> Option<Item> {
        let whole = lane::copy_of(frame);
        match user_packet(&whole, whole.len(), &self.lane.from) {
            Ok((item, source)) => {
                self.sources[index] = source;
                return Some(item);
            }
            Err(Odd::Drop(reason)) => self.lane.counters.drops.add(reason, 1),
            Err(Odd::Fragment(part)) => return self.keep_fragment(&part, frame),
            Err(Odd::Other) => match outer(&whole, whole.len(), &self.lane.from) {
                Err(_) => self.lane.hear(&whole),
                Ok(outer) => match self.message(&whole, &outer) {
                    Ok(()) => self.lane.counters.control += 1,
                    Err(reason) => self.lane.counters.drops.add(reason, 1),
                },
            },
        }
        None
    }

    /// Processes a GTP-U message that is not a user's packet, or is invalid.
    fn message(&mut self, frame: &[u8], outer: &Outer) -> Result<(), DropReason> {
        if !self.lane.from.is_other_station(outer.ethernet.src)
            || !self.lane.from.is_other_host(outer.packet.source())
        {
            return Err(DropReason::MartianSource);
        }
        let bytes = &frame[outer.at..];
        let reply_port = outer.udp.src_port;
        let header = match Header::parse(bytes, outer.udp.payload_len) {
            Ok(header) => header,
            Err(GtpuError::UnknownExtension(_)) => {
                let from = self.lane.from.clone();
                self.lane
                    .complain(|| reply(&from, outer, gtpu::PORT, &gtpu::supported_extensions(0)));
                return Err(DropReason::GtpuUnknownExtension);
            }
            Err(GtpuError::ExtensionLength(_) | GtpuError::Container(_)) => {
                return Err(DropReason::GtpuExtension);
            }
            Err(_) => return Err(DropReason::Gtpu),
        };
        let payload = &bytes[header.len..header.len + header.payload_len];
        match header.message {
            message::ECHO_REQUEST => {
                // The response carries the sequence number, which every request must have.
                let sequence = header.sequence.ok_or(DropReason::Gtpu)?;
                let response = gtpu::echo_response(sequence);
                if let Some(reply) = reply(&self.lane.from, outer, reply_port, &response) {
                    self.lane.answer(&reply);
                }
            }
            message::END_MARKER => self.lane.counters.end_markers += 1,
            message::ERROR_INDICATION => {
                if !self.indications.pass(clock::ticks(), INDICATION_LEN, Sharing::Alone) {
                    return Err(DropReason::Limited);
                }
                let (teid, gnb) =
                    gtpu::parse_error_indication(payload).map_err(|_| DropReason::Gtpu)?;
                // Only the gNB itself knows which tunnels it has.
                if outer.packet.source() != gnb {
                    return Err(DropReason::WrongGnb);
                }
                self.tunnels.check(gnb, teid)?;
                self.lane.counters.error_indications += 1;
                self.lane.teller.tell(Event::TunnelGone { gnb, teid });
            }
            message::ECHO_RESPONSE | message::SUPPORTED_EXTENSIONS => {}
            _ => return Err(DropReason::Gtpu),
        }
        Ok(())
    }

    /// Tells a gNB that its tunnel does not exist.
    #[cold]
    fn unknown_teid(&mut self, frame: &Frame<'_>) {
        self.lane.counters.drops.add(DropReason::UnknownTeid, 1);
        let from = self.lane.from.clone();
        self.lane.complain(|| {
            let whole = lane::copy_of(frame);
            let outer = outer(&whole, whole.len(), &from).ok()?;
            let header = Header::parse(&whole[outer.at..], outer.udp.payload_len).ok()?;
            let own = outer.packet.destination();
            let indication = gtpu::error_indication(header.teid, own, outer.udp.src_port);
            reply(&from, &outer, gtpu::PORT, &indication)
        });
    }
}

/// Returns the reason to drop a packet whose source is not one of the user's addresses.
#[cold]
fn foreign(packet: &Packet) -> DropReason {
    let is_own = packet.src == 0 || router::is_link_local(packet.src);
    match packet.version == Version::V6 && is_own {
        true => DropReason::LinkLocal,
        false => DropReason::Spoofed,
    }
}

/// Returns true if a packet comes from a gNB that its session accepts: one that the session sends
/// to, or one in the networks that the configuration trusts.
#[cold]
fn is_right_gnb(session: &Session, item: &Item, sources: &[u128; CHUNK], own: &Interface) -> bool {
    let source = match item.gnb {
        0 => sources[usize::from(item.frame)],
        gnb => ip::number(Ipv4Addr::from(gnb).into()),
    };
    session.has_gnb(source) || own.is_trusted_gnb(source)
}

/// Marks a packet with the congestion notification of the outer header.
#[cold]
fn mark(header: &mut [u8], packet: &Packet, outer: u8) -> Result<(), DropReason> {
    let codepoint = ecn::decapsulated(packet.tos, outer).ok_or(DropReason::Congestion)?;
    ip::set_ecn(header, packet.version, codepoint);
    Ok(())
}

/// Returns the rule that a user's packet matches.
#[inline(always)]
fn find<'s>(session: &'s Session, item: &Item, packet: &Packet) -> Option<&'s Rule> {
    let Item { teid, qfis, .. } = *item;
    session.find(Some((teid, qfis)), || {
        let (user_port, server_port) = packet.ports.unzip();
        let ends = Ends {
            protocol: packet.protocol,
            remote: (packet.dst, server_port),
            local: (packet.src, user_port),
        };
        Probe { teid, qfis, tos: packet.tos, ends }
    })
}

/// Returns a frame with `message` to the source of `outer`, to the port `port`; `None` if no reply
/// may go there.
fn reply(own: &Interface, outer: &Outer, port: u16, message: &[u8]) -> Option<Vec<u8>> {
    let (src, dst) = (outer.packet.destination(), outer.packet.source());
    let is_right = own.is_other_host(dst) && own.is_other_station(outer.ethernet.src);
    is_right.then_some(())?;
    let datagram = super::datagram(src, dst, port, message)?;
    let kind = lane::ethertype(outer.packet.version);
    Some(own.frame(outer.ethernet.src, kind, &datagram))
}

#[cfg(test)]
mod tests;
