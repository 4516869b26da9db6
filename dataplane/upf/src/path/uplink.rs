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
use super::head::{CHUNK, LOOK, PACKET, ROOM};
use super::lane::{DIVIDED_MAX, Lane, Leaving};
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

/// Number of the user's packet's first bytes that must be in the head for parsing: the longest IPv4
/// header, and ports.
const INNER_LOOK: usize = 60 + 4;

/// Maximum number of queued messages from the uplink to the downlink; more are lost.
pub(crate) const MESSAGES_MAX: usize = 64;

/// Rate limit for error indications: a thousand per second, each counted with a fixed length.
const INDICATIONS_KBPS: u64 = 8000;
const INDICATION_LEN: u64 = 1000;

pub(crate) struct Uplink {
    /// Channel to a worker of the downlink.
    to_downlink: SyncSender<ForUser>,
    fragments: Reassembly,
    /// Outer source addresses that [`Item::gnb`] cannot hold, by number of the frame in the chunk.
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
    fn prepare(&mut self, lane: &mut Lane) -> bool {
        self.fragments.expire(&mut lane.counters.drops);
        let is_complete = self.fragments.is_complete();
        if is_complete {
            self.take_complete(lane);
        }
        is_complete
    }

    /// Stops at the first frame that completes a reassembled packet, so that later frames do not
    /// overtake that packet.
    #[inline(always)]
    fn look(
        &mut self,
        lane: &mut Lane,
        frames: &[Frame<'_>],
        looked: &mut usize,
    ) -> ArrayVec<Item, CHUNK> {
        let mut items = ArrayVec::new();
        for (index, frame) in ahead(frames).enumerate() {
            let own = &lane.from;
            let bytes = lane.heads[index].copy(frame);
            let usual = bytes.first_chunk().and_then(|head| usual_packet(head, frame.len(), own));
            let Some(mut item) = usual.or_else(|| self.unusual(lane, index, frame)) else {
                if self.fragments.is_complete() {
                    *looked = index + 1;
                    break;
                }
                continue;
            };
            item.frame = index as u16;
            if usize::from(item.at) + INNER_LOOK > LOOK && frame.len() > LOOK {
                item.look = PACKET as u16;
                lane.heads[index].copy_packet(frame, usize::from(item.at));
            }
            item.slot = lane.sessions.table.prefetch(item.teid.into());
            items.push(item);
        }
        items
    }

    #[inline(always)]
    fn check(
        &mut self,
        lane: &mut Lane,
        frame: &Frame<'_>,
        item: &Item,
        now: u64,
    ) -> Result<Leaving, Stop> {
        let Lane { sessions, heads, from, to, scratch, unresolved, .. } = lane;
        let look = usize::from(item.look);
        let head = &mut heads[usize::from(item.frame)].0;
        let (at, len) = (usize::from(item.at), usize::from(item.len));
        let there = (head.len() - look).min(len);
        let packet = reading::parse(&head[look..look + there], len, frame, at, scratch)?;
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
        let mac = unresolved.mac_of(to, hop);
        // Any address tells a user's packet that waits from a message of our own.
        let dst = mac.unwrap_or(to.mac);
        let header = Ethernet { dst, src: to.mac, ethertype: reading::ethertype(packet.version) };
        if item.ecn & ecn::ECT_1 != 0 {
            mark(&mut head[look..], &packet, item.ecn)?;
        }
        ip::decrement_ttl(&mut head[look..], packet.version);
        // This header overwrites the tunnel's headers.
        let start = look - ETHERNET_LEN;
        header.write((&mut head[start..look]).try_into().expect("14 bytes"));
        let checked = reading::checked_len(&packet, there);
        lane.admit((item.slot, item.frame), &rule, (packet.len, mac.is_some()), now)?;
        let leaving = Leaving {
            frame: item.frame,
            head: (start as u16, (look + checked) as u16),
            body: ((at + checked) as u16, (at + packet.len) as u16),
        };
        match mac {
            Some(_) => Ok(leaving),
            None => Err(Stop::Wait(leaving, hop)),
        }
    }

    #[cold]
    fn divide(
        &mut self,
        lane: &mut Lane,
        frame: &Frame<'_>,
        item: &Item,
        now: u64,
    ) -> Result<(), Stop> {
        let Lane { sessions, heads, to, scratch, unresolved, .. } = lane;
        let to = to.clone();
        let (at, len) = (usize::from(item.at), usize::from(item.len));
        let bytes = &mut heads[usize::from(item.frame)].0[usize::from(item.look)..];
        let there = bytes.len().min(len);
        let packet = reading::parse(&bytes[..there], len, frame, at, scratch);
        let packet = packet.map_err(|_| DropReason::InnerIp)?;
        let session = &sessions.slots[item.slot as usize];
        let rule = *find(session, item, &packet).ok_or(DropReason::NoRule)?;
        let hop = to.route(packet.dst).ok_or(DropReason::NoRoute)?;
        let mac = unresolved.mac_of(&to, hop);
        let dst = mac.unwrap_or(to.mac);
        mark(bytes, &packet, item.ecn)?;
        ip::decrement_ttl(bytes, packet.version);
        let checked = reading::checked_len(&packet, there);
        let mut copy = [0; DIVIDED_MAX];
        copy[..checked].copy_from_slice(&bytes[..checked]);
        lane.admit((item.slot, item.frame), &rule, (packet.len, mac.is_some()), now)?;
        let ethernet = Ethernet { dst, src: to.mac, ethertype: reading::ethertype(packet.version) };
        let front = |head: &mut [u8], _: &[u8]| {
            ethernet.write((&mut head[ROOM..PACKET]).try_into().expect("14 bytes"));
            ROOM
        };
        let hop = mac.is_none().then_some(hop);
        match lane.divide((frame, at, &packet), &copy[..checked], to.mtu, hop, front) {
            true => Ok(()),
            false => Err(DropReason::TooBig.into()),
        }
    }

    /// Sends a gNB an error indication: its tunnel does not exist.
    #[cold]
    fn unknown(&mut self, lane: &mut Lane, frame: &Frame<'_>, _: &Item) {
        lane.dropped(DropReason::UnknownTeid, frame);
        let from = lane.from.clone();
        lane.send_error(|| {
            let whole = reading::copy_of(frame);
            let outer = outer(&whole, whole.len(), &from).ok()?;
            let header = Header::parse(&whole[outer.at..], outer.udp.payload_len).ok()?;
            let own = outer.packet.destination();
            let indication = gtpu::error_indication(header.teid, own, outer.udp.src_port);
            reply(&from, &outer, gtpu::PORT, &indication)
        });
    }

    #[inline(always)]
    fn stop(&mut self, lane: &mut Lane, frame: &Frame<'_>, item: &Item, stop: Stop) {
        if let Stop::Drop(reason) = stop {
            self.refuse(lane, frame, *item, reason);
        }
    }

    fn report_lost(&mut self, lane: &mut Lane, frame: &[u8]) {
        let to = lane.to.clone();
        let message = lane.error_message(|| {
            let bytes = frame.get(ETHERNET_LEN..)?;
            let packet = Packet::parse(bytes, bytes.len()).ok()?;
            let own = to.address_for(packet.source())?;
            let message = icmp::error(own, &packet, bytes, Problem::Unreachable)?;
            Some(to.frame(to.mac, reading::ethertype(packet.version), &message))
        });
        self.send_to_user(lane, message);
    }

    #[inline(always)]
    fn complete(&mut self, lane: &mut Lane) {
        if self.fragments.is_complete() && !lane.is_full() {
            self.take_complete(lane);
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
    fn take_complete(&mut self, lane: &mut Lane) {
        let Some(whole) = self.fragments.complete() else { return };
        lane.counters.reassembled += 1;
        lane.counters.consumed += u64::from(whole.fragments() - 1);
        self.chunk(lane, &[Frame::from(whole.frame())], false);
        self.fragments.give_back(whole);
    }

    /// Counts a user's packet that is not forwarded. If a router has to report the reason, the
    /// message goes to the user, through the tunnel that the session's downlink rules select.
    #[cold]
    fn refuse(&mut self, lane: &mut Lane, frame: &Frame<'_>, item: Item, reason: DropReason) {
        let reason = match reason {
            DropReason::LinkLocal => match self.local(lane, item) {
                Ok(()) => return,
                Err(reason) => reason,
            },
            other => other,
        };
        lane.dropped(reason, frame);
        let to = lane.to.clone();
        let problem = match reason {
            DropReason::TtlExpired => Problem::TimeExceeded,
            DropReason::TooBig => Problem::TooBig(to.mtu as u16),
            DropReason::NoRoute => Problem::NoRoute,
            DropReason::WrongGnb => return self.report_wrong_gnb(lane, &item),
            _ => return,
        };
        let user = lane.sessions.slots[item.slot as usize].user();
        let message = lane.error_message(|| {
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
        self.send_to_user(lane, message);
    }

    /// Passes a message for a user to the downlink, if there is one.
    fn send_to_user(&self, lane: &mut Lane, message: Option<Vec<u8>>) {
        if let Some(message) = message {
            let sent = self.to_downlink.try_send(ForUser::Frame(message));
            lane.counters.generated_dropped += u64::from(sent.is_err());
        }
    }

    /// Reports a packet from an address that its session does not send to.
    #[cold]
    fn report_wrong_gnb(&mut self, lane: &mut Lane, item: &Item) {
        let session = &lane.sessions.slots[item.slot as usize];
        let (seid, teid, source) = (session.seid, item.teid, source(item, &self.sources));
        if self.wrong_gnb.must_report((seid, teid, source), clock::ticks()) {
            let mut expected: Vec<_> = session.tunnels.iter().map(|peer| peer.address).collect();
            expected.sort_unstable();
            expected.dedup();
            let from = ip::address(source);
            lane.events.send(Event::WrongGnb { seid, teid, from, expected });
        }
    }

    /// Processes a packet that stays on the user's link: a router solicitation is answered with the
    /// user's prefix (RFC 4861, section 6.2.6; TS 23.501, section 5.8.2.2), everything else is
    /// dropped.
    fn local(&mut self, lane: &mut Lane, item: Item) -> Result<(), DropReason> {
        let Lane { sessions, heads, .. } = lane;
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
        lane.consumed();
        Ok(())
    }

    /// Returns the user's packet in a frame that the fast path does not handle.
    #[cold]
    fn unusual(&mut self, lane: &mut Lane, index: usize, frame: &Frame<'_>) -> Option<Item> {
        let bytes = lane.heads[index].bytes(frame);
        match user_packet(bytes, frame.len(), &lane.from) {
            Ok((item, source)) => {
                self.sources[index] = source;
                Some(item)
            }
            Err(Odd::Drop(reason)) => {
                lane.dropped(reason, frame);
                None
            }
            Err(Odd::Fragment(part)) => self.keep_fragment(lane, &part, frame),
            Err(Odd::Other) => self.other(lane, index, frame),
        }
    }

    #[cold]
    fn keep_fragment(&mut self, lane: &mut Lane, part: &Part, frame: &Frame<'_>) -> Option<Item> {
        let Lane { scratch, counters, .. } = lane;
        self.fragments.take((part, frame), clock::ticks(), scratch, &mut counters.drops);
        None
    }

    /// Parses a whole frame: it may still contain a user's packet, behind headers longer than
    /// usual.
    #[cold]
    fn other(&mut self, lane: &mut Lane, index: usize, frame: &Frame<'_>) -> Option<Item> {
        let whole = reading::copy_of(frame);
        match user_packet(&whole, whole.len(), &lane.from) {
            Ok((item, source)) => {
                self.sources[index] = source;
                return Some(item);
            }
            Err(Odd::Drop(reason)) => lane.dropped(reason, frame),
            Err(Odd::Fragment(part)) => return self.keep_fragment(lane, &part, frame),
            Err(Odd::Other) => match outer(&whole, whole.len(), &lane.from) {
                Err(_) => lane.process_local(&whole),
                Ok(outer) => match self.message(lane, &whole, &outer) {
                    Ok(()) => lane.consumed(),
                    Err(reason) => lane.dropped(reason, frame),
                },
            },
        }
        None
    }

    /// Processes a GTP-U message that is not a user's packet, or is invalid.
    fn message(&mut self, lane: &mut Lane, frame: &[u8], outer: &Outer) -> Result<(), DropReason> {
        if !lane.from.is_other_station(outer.ethernet.src)
            || !lane.from.is_other_host(outer.packet.source())
        {
            return Err(DropReason::MartianSource);
        }
        let bytes = &frame[outer.at..];
        let reply_port = outer.udp.src_port;
        let header = match Header::parse(bytes, outer.udp.payload_len) {
            Ok(header) => header,
            Err(GtpuError::UnknownExtension(_)) => {
                let from = lane.from.clone();
                lane.send_error(|| reply(&from, outer, gtpu::PORT, &gtpu::supported_extensions(0)));
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
                if let Some(reply) = reply(&lane.from, outer, reply_port, &response) {
                    lane.answer(&reply);
                }
            }
            message::END_MARKER => lane.counters.end_markers += 1,
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
                lane.counters.error_indications += 1;
                lane.events.send(Event::TunnelGone { gnb, teid });
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
