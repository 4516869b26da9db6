//! Uplink: from the tunnels on N3 to N6.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use arrayvec::ArrayVec;
use dray_datapath::Bucket;
use dray_port::{Frame, ahead, clock};
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet};
use dray_wire::gtpu::{self, GtpuError, Header, message};
use dray_wire::icmp::{self, Problem};
use dray_wire::ip::{self, Packet, Version, ecn};
use dray_wire::router;

use self::headers::{Item, Odd, Outer, outer, user_packet, usual_packet};
use self::wrong_gnb::WrongGnbReports;
use super::downlink::ForUser;
use super::forwarder::{Chunk, Forwarder, Forwarding};
use super::header_buffer::{CHUNK, COPY_LEN, PACKET_AT};
use super::passes::{self, Passes, Stop};
use super::reading;
use super::reassembly::{Part, Reassembly};
use crate::config::{Action, Ends};
use crate::counters::DropReason;
use crate::event::Event;
use crate::interface::Interface;
use crate::matcher::Probe;
use crate::meter;
use crate::packet;
use crate::session::{Rule, Session};
use crate::tunnels::Tunnels;

mod headers;
#[cfg(test)]
mod tests;
mod wrong_gnb;

/// Number of the user's packet's first bytes that must be in the header buffer: those of the
/// longest IPv4 header, and ports.
const INNER_MIN: usize = 60 + 4;

/// Maximum number of queued messages from the uplink to the downlink; more are lost.
pub(crate) const MESSAGES_MAX: usize = 64;

/// Rate limit for error indications: a thousand per second, each counted with a fixed length.
const INDICATIONS_KBPS: u64 = 8000;
const INDICATION_LEN: u64 = 1000;

pub(crate) struct Uplink {
    /// Channel to a worker of the downlink.
    to_downlink: SyncSender<ForUser>,
    fragments: Reassembly,
    /// Outer source addresses too long for [`Item::gnb`], by number of the frame in the chunk.
    sources: [u128; CHUNK],
    /// The gNB tunnels in use.
    tunnels: Arc<Tunnels>,
    indications: Bucket,
    wrong_gnb: WrongGnbReports,
}

impl passes::Item for Item {
    #[inline(always)]
    fn place(&self) -> (usize, u64) {
        (self.frame.into(), self.teid.into())
    }

    #[inline(always)]
    fn slot(&mut self) -> &mut u32 {
        &mut self.slot
    }
}

impl Passes for Uplink {
    type Item = Item;

    /// Processes a completely reassembled packet, and drops expired fragments.
    #[inline(always)]
    fn prepare(&mut self, forwarder: &mut Forwarder) -> bool {
        self.fragments.expire(&mut forwarder.counters.drops);
        let is_complete = self.fragments.is_complete();
        if is_complete {
            self.take_complete(forwarder);
        }
        is_complete
    }

    /// Stops at the first frame that completes a reassembled packet, so that later frames do not
    /// overtake that packet.
    #[inline(always)]
    fn parse(
        &mut self,
        forwarder: &mut Forwarder,
        frames: &[Frame<'_>],
        parsed: &mut usize,
    ) -> ArrayVec<Item, CHUNK> {
        let mut items = ArrayVec::new();
        for (index, frame) in ahead(frames).enumerate() {
            let own = &forwarder.from;
            let bytes = forwarder.headers[index].copy(frame);
            let usual = bytes.first_chunk().and_then(|head| usual_packet(head, frame.len(), own));
            let Some(mut item) = usual.or_else(|| self.unusual(forwarder, index, frame)) else {
                if self.fragments.is_complete() {
                    *parsed = index + 1;
                    break;
                }
                continue;
            };
            item.frame = index as u16;
            if usize::from(item.at) + INNER_MIN > COPY_LEN && frame.len() > COPY_LEN {
                item.buffer_at = PACKET_AT as u16;
                forwarder.headers[index].copy_packet(frame, usize::from(item.at));
            }
            item.slot = forwarder.sessions.table.prefetch(item.teid.into());
            items.push(item);
        }
        items
    }

    #[inline(always)]
    fn check<const DIVIDE: bool>(
        &mut self,
        forwarder: &mut Forwarder,
        chunk: &mut Chunk<'_>,
        item: &Item,
        now: u64,
    ) -> Result<(), Stop> {
        let Forwarder { sessions, headers, from, to, scratch, unresolved, .. } = forwarder;
        let frame = &chunk.frames[usize::from(item.frame)];
        let buffer_at = usize::from(item.buffer_at);
        let buffer = &mut headers[usize::from(item.frame)].0[buffer_at..];
        let (at, len) = (usize::from(item.at), usize::from(item.len));
        let copied = buffer.len().min(len);
        let packet = reading::parse(&buffer[..copied], len, frame, at, scratch)?;
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
            return Err(Stop::Report(DropReason::TtlExpired, Problem::TimeExceeded));
        }
        let Some(hop) = to.route(packet.dst) else {
            return Err(Stop::Report(DropReason::NoRoute, Problem::NoRoute));
        };
        if item.ecn & ecn::ECT_1 != 0 {
            mark(buffer, &packet, item.ecn)?;
        }
        let mac = unresolved.mac_of(to, hop);
        // Any address but 0, which marks messages of our own while they wait.
        let dst = mac.unwrap_or(to.mac);
        let forwarding = Forwarding {
            slot: item.slot,
            frame: item.frame,
            packet: &packet,
            rule: &rule,
            at,
            buffer_at,
            copied,
            hop,
            is_resolved: mac.is_some(),
            // This header overwrites the tunnel's headers.
            headers: Ethernet { dst, src: to.mac, ethertype: reading::ethertype(packet.version) },
        };
        forwarder.forward::<_, DIVIDE>(chunk, forwarding, now)
    }

    /// Sends a gNB an error indication: its tunnel does not exist.
    #[cold]
    fn unknown(&mut self, forwarder: &mut Forwarder, frame: &Frame<'_>, _: &Item) {
        forwarder.dropped(DropReason::UnknownTeid, frame);
        let from = forwarder.from.clone();
        forwarder.send_error(|| {
            let whole = reading::copy_of(frame);
            let outer = outer(&whole, whole.len(), &from).ok()?;
            let header = Header::parse(&whole[outer.at..], outer.udp.payload_len).ok()?;
            let own = outer.packet.destination();
            let indication = gtpu::error_indication(header.teid, own, outer.udp.src_port);
            reply(&from, &outer, gtpu::PORT, &indication)
        });
    }

    /// Counts a packet that is dropped, unless it stays on the user's link and gets a reply.
    #[cold]
    fn discard(
        &mut self,
        forwarder: &mut Forwarder,
        frame: &Frame<'_>,
        item: &Item,
        reason: DropReason,
    ) {
        let reason = match reason {
            DropReason::LinkLocal => match self.local(forwarder, *item) {
                Ok(()) => return,
                Err(reason) => reason,
            },
            other => other,
        };
        forwarder.dropped(reason, frame);
        if reason == DropReason::WrongGnb {
            self.report_wrong_gnb(forwarder, item);
        }
    }

    /// Sends an ICMP error to the user, through the tunnel that the session's downlink rules
    /// select.
    #[cold]
    fn report(
        &mut self,
        forwarder: &mut Forwarder,
        frame: &Frame<'_>,
        item: &Item,
        problem: Problem,
    ) {
        let to = forwarder.to.clone();
        let user = forwarder.sessions.slots[item.slot as usize].user();
        let message = forwarder.error_message(|| {
            let whole = reading::copy_of(frame);
            let bytes = whole.get(usize::from(item.at)..)?.get(..usize::from(item.len))?;
            let packet = Packet::parse(bytes, bytes.len()).ok()?;
            // The frame may have changed since it was checked: only the user itself gets the ICMP
            // error.
            user.has(packet.version, packet.src).then_some(())?;
            let own = to.address_for(packet.source())?;
            let message = icmp::error(own, &packet, bytes, problem)?;
            Some(to.frame(to.mac, reading::ethertype(packet.version), &message))
        });
        self.send_to_user(forwarder, message);
    }

    fn report_lost(&mut self, forwarder: &mut Forwarder, frame: &[u8]) {
        let to = forwarder.to.clone();
        let message = forwarder.error_message(|| {
            let bytes = frame.get(ETHERNET_LEN..)?;
            let packet = Packet::parse(bytes, bytes.len()).ok()?;
            let own = to.address_for(packet.source())?;
            let message = icmp::error(own, &packet, bytes, Problem::Unreachable)?;
            Some(to.frame(to.mac, reading::ethertype(packet.version), &message))
        });
        self.send_to_user(forwarder, message);
    }

    #[inline(always)]
    fn complete(&mut self, forwarder: &mut Forwarder) {
        if self.fragments.is_complete() && !forwarder.is_full() {
            self.take_complete(forwarder);
        }
    }
}

impl Uplink {
    pub(crate) fn new(to_downlink: SyncSender<ForUser>, tunnels: Arc<Tunnels>) -> Self {
        let indications = meter::own(INDICATIONS_KBPS);
        let fragments = Reassembly::new();
        let (sources, wrong_gnb) = ([0; CHUNK], WrongGnbReports::new());
        Self { to_downlink, fragments, sources, tunnels, indications, wrong_gnb }
    }

    /// Returns the number of fragments that wait for others.
    pub(crate) fn waiting(&self) -> u64 {
        self.fragments.waiting()
    }

    #[cold]
    fn take_complete(&mut self, forwarder: &mut Forwarder) {
        let Some(whole) = self.fragments.complete() else { return };
        forwarder.counters.reassembled += 1;
        forwarder.counters.consumed += u64::from(whole.fragments() - 1);
        self.chunk(forwarder, &[Frame::from(whole.frame())], false);
        self.fragments.give_back(whole);
    }

    /// Passes a message for a user to the downlink, if there is one.
    fn send_to_user(&self, forwarder: &mut Forwarder, message: Option<Vec<u8>>) {
        if let Some(message) = message {
            let sent = self.to_downlink.try_send(ForUser::Frame(message));
            forwarder.counters.generated_dropped += u64::from(sent.is_err());
        }
    }

    /// Reports a packet from an address that its session does not send to.
    #[cold]
    fn report_wrong_gnb(&mut self, forwarder: &mut Forwarder, item: &Item) {
        let session = &forwarder.sessions.slots[item.slot as usize];
        let (seid, teid, source) = (session.seid, item.teid, source(item, &self.sources));
        if self.wrong_gnb.must_report((seid, teid, source), clock::ticks()) {
            let mut expected: Vec<_> = session.tunnels.iter().map(|peer| peer.address).collect();
            expected.sort_unstable();
            expected.dedup();
            let from = ip::address(source);
            forwarder.events.send(Event::WrongGnb { seid, teid, from, expected });
        }
    }

    /// Processes a packet that stays on the user's link: a router solicitation is answered with the
    /// user's prefix (RFC 4861, section 6.2.6; TS 23.501, section 5.8.2.2), everything else is
    /// dropped.
    fn local(&mut self, forwarder: &mut Forwarder, item: Item) -> Result<(), DropReason> {
        let Forwarder { sessions, headers, .. } = forwarder;
        let bytes = &headers[usize::from(item.frame)].0[usize::from(item.buffer_at)..];
        let bytes = &bytes[..bytes.len().min(item.len.into())];
        let packet = Packet::parse(bytes, item.len.into()).map_err(|_| DropReason::InnerIp)?;
        if !router::is_solicitation(&packet, bytes) {
            return Err(DropReason::LinkLocal);
        }
        let session = &mut sessions.slots[item.slot as usize];
        let second = (clock::ticks() / clock::ticks_per_second()) as u32 + 1;
        // A solicitation too long for the header buffer is invalid, too.
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
        forwarder.consumed();
        Ok(())
    }

    /// Returns the user's packet in a frame that the fast path does not handle.
    #[cold]
    fn unusual(
        &mut self,
        forwarder: &mut Forwarder,
        index: usize,
        frame: &Frame<'_>,
    ) -> Option<Item> {
        let bytes = forwarder.headers[index].bytes(frame);
        match user_packet(bytes, frame.len(), &forwarder.from) {
            Ok((item, source)) => {
                self.sources[index] = source;
                Some(item)
            }
            Err(Odd::Drop(reason)) => {
                forwarder.dropped(reason, frame);
                None
            }
            Err(Odd::Fragment(part)) => self.keep_fragment(forwarder, &part, frame),
            Err(Odd::Other) => self.other(forwarder, index, frame),
        }
    }

    #[cold]
    fn keep_fragment(
        &mut self,
        forwarder: &mut Forwarder,
        part: &Part,
        frame: &Frame<'_>,
    ) -> Option<Item> {
        let Forwarder { scratch, counters, .. } = forwarder;
        self.fragments.take((part, frame), clock::ticks(), scratch, &mut counters.drops);
        None
    }

    /// Parses a whole frame: it may still contain a user's packet, behind headers longer than
    /// usual.
    #[cold]
    fn other(
        &mut self,
        forwarder: &mut Forwarder,
        index: usize,
        frame: &Frame<'_>,
    ) -> Option<Item> {
        let whole = reading::copy_of(frame);
        match user_packet(&whole, whole.len(), &forwarder.from) {
            Ok((item, source)) => {
                self.sources[index] = source;
                return Some(item);
            }
            Err(Odd::Drop(reason)) => forwarder.dropped(reason, frame),
            Err(Odd::Fragment(part)) => return self.keep_fragment(forwarder, &part, frame),
            Err(Odd::Other) => match outer(&whole, whole.len(), &forwarder.from) {
                Err(_) => forwarder.process_local(&whole),
                Ok(outer) => match self.message(forwarder, &whole, &outer) {
                    Ok(()) => forwarder.consumed(),
                    Err(reason) => forwarder.dropped(reason, frame),
                },
            },
        }
        None
    }

    /// Processes a GTP-U message that is not a user's packet, or is invalid.
    fn message(
        &mut self,
        forwarder: &mut Forwarder,
        frame: &[u8],
        outer: &Outer,
    ) -> Result<(), DropReason> {
        if !forwarder.from.is_other_station(outer.ethernet.src)
            || !forwarder.from.is_other_host(outer.packet.source())
        {
            return Err(DropReason::MartianSource);
        }
        let bytes = &frame[outer.at..];
        let reply_port = outer.udp.src_port;
        let header = match Header::parse(bytes, outer.udp.payload_len) {
            Ok(header) => header,
            Err(GtpuError::UnknownExtension(_)) => {
                let from = forwarder.from.clone();
                forwarder
                    .send_error(|| reply(&from, outer, gtpu::PORT, &gtpu::supported_extensions(0)));
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
                if let Some(reply) = reply(&forwarder.from, outer, reply_port, &response) {
                    forwarder.reply(&reply);
                }
            }
            message::END_MARKER => forwarder.counters.end_markers += 1,
            message::ERROR_INDICATION => {
                if self.indications.reserve(INDICATION_LEN, clock::ticks(), 0).is_none() {
                    return Err(DropReason::Limited);
                }
                let (teid, gnb) =
                    gtpu::parse_error_indication(payload).map_err(|_| DropReason::Gtpu)?;
                // Only the gNB itself knows which tunnels it has.
                if outer.packet.source() != gnb {
                    return Err(DropReason::WrongGnb);
                }
                self.tunnels.check(gnb, teid)?;
                forwarder.counters.error_indications += 1;
                forwarder.events.send(Event::TunnelGone { gnb, teid });
            }
            message::ECHO_RESPONSE | message::SUPPORTED_EXTENSIONS => {}
            _ => return Err(DropReason::Gtpu),
        }
        Ok(())
    }
}

/// Returns the reason to drop a packet whose source is not one of the user's addresses.
#[cold]
fn foreign(packet: &Packet) -> DropReason {
    let is_generated = packet.src == 0 || router::is_link_local(packet.src);
    match packet.version == Version::V6 && is_generated {
        true => DropReason::LinkLocal,
        false => DropReason::Spoofed,
    }
}

/// Returns true if a packet comes from a gNB that its session accepts: one that the session sends
/// to, or one in the networks that the configuration trusts.
#[cold]
fn is_right_gnb(session: &Session, item: &Item, sources: &[u128; CHUNK], own: &Interface) -> bool {
    let source = source(item, sources);
    session.has_gnb(source) || own.is_trusted_gnb(source)
}

/// Returns the outer source address of a packet.
fn source(item: &Item, sources: &[u128; CHUNK]) -> u128 {
    match item.gnb {
        0 => sources[usize::from(item.frame)],
        gnb => ip::number(Ipv4Addr::from(gnb).into()),
    }
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
    let datagram = packet::datagram(src, dst, port, message)?;
    let kind = reading::ethertype(outer.packet.version);
    Some(own.frame(outer.ethernet.src, kind, &datagram))
}
