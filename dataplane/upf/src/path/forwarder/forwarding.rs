//! Forwarding of packets that their session lets pass.

use dray_port::Frame;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet};
use dray_wire::fragment::{Fragments, IPV4_HEADER_MAX};
use dray_wire::icmp::Problem;
use dray_wire::ip::{self, PORTS_LEN, Packet};

use super::super::egress_queue::FrameClass;
use super::super::header_buffer::PACKET_AT;
use super::super::passes::Stop;
use super::super::pending_rates::PendingRates;
use super::super::reading;
use super::Forwarder;
use super::departures::{Chunk, Departure, Departures};
use super::fates::{Batch, keep, send, wait};
use crate::counters::DropReason;
use crate::interface::Interface;
use crate::session::Rule;

/// Headers that a direction puts in front of a packet, from Ethernet's to the one before the
/// packet.
pub(crate) trait Encapsulation: Copy {
    /// Returns the length of the headers in bytes.
    fn headers_len(self) -> usize;

    /// Writes the headers of a packet of `len` bytes to `room`, which is exactly as long as they
    /// are.
    fn write_headers(self, own: &Interface, room: &mut [u8], len: usize);

    /// Returns true if the headers contain a checksum of the packet.
    fn has_checksum(self) -> bool {
        false
    }

    /// Writes the checksum. `head` ends with the headers and the first `copied` bytes of the
    /// packet; `rest` is the rest of the packet.
    fn write_checksum(self, _own: &Interface, _head: &mut [u8], _copied: usize, _rest: &[u8]) {}
}

impl Encapsulation for Ethernet {
    #[inline(always)]
    fn headers_len(self) -> usize {
        ETHERNET_LEN
    }

    #[inline(always)]
    fn write_headers(self, _: &Interface, room: &mut [u8], _: usize) {
        self.write(room.try_into().expect("14 bytes"));
    }
}

/// A packet that its session's rule forwards, and where it goes. No cold function may take it in
/// the fast path: each packet's would be written to memory.
#[derive(Clone, Copy)]
pub(crate) struct Forwarding<'p, E> {
    /// Number of the session.
    pub(crate) slot: u32,
    /// Number of the frame in the chunk.
    pub(crate) frame: u16,
    pub(crate) packet: &'p Packet,
    pub(crate) rule: &'p Rule,
    /// Position of the packet in the frame.
    pub(crate) at: usize,
    /// Position of the packet in the header buffer, and the number of its bytes there.
    pub(crate) buffer_at: usize,
    pub(crate) copied: usize,
    /// Next hop, and true if its Ethernet address is known.
    pub(crate) hop: u16,
    pub(crate) is_resolved: bool,
    pub(crate) headers: E,
}

impl Forwarder {
    /// Forwards a packet of `chunk` if the limits of its rule let it pass: writes its new headers,
    /// and adds it to the departures. With `DIVIDE`, a packet that is too long is forwarded in
    /// fragments.
    #[inline(always)]
    pub(crate) fn forward<E: Encapsulation, const DIVIDE: bool>(
        &mut self,
        chunk: &mut Chunk<'_>,
        forwarding: Forwarding<'_, E>,
        now: u64,
    ) -> Result<(), Stop> {
        let Forwarding { slot, frame, packet, rule, at, buffer_at, .. } = forwarding;
        let headers_len = forwarding.headers.headers_len();
        if packet.len + headers_len > self.to.mtu + ETHERNET_LEN {
            return match DIVIDE {
                true => self.forward_fragments(chunk, forwarding, now),
                false => Err(Stop::Divide),
            };
        }
        self.admit((slot, frame), rule, (packet.len, forwarding.is_resolved), now)?;
        let Self { headers, to, scratch, .. } = self;
        let buffer = &mut headers[usize::from(frame)].0;
        ip::decrement_ttl(&mut buffer[buffer_at..], packet.version);
        let checked = reading::checked_len(packet, forwarding.copied);
        let start = buffer_at - headers_len;
        forwarding.headers.write_headers(to, &mut buffer[start..buffer_at], packet.len);
        if forwarding.headers.has_checksum() {
            // If a peer changes the rest before it is transmitted, the checksum will be wrong.
            let whole = chunk.frames[usize::from(frame)].bytes(scratch);
            let (head, rest) = (&mut buffer[..buffer_at + checked], &whole[at + checked..]);
            let rest = &rest[..packet.len - checked];
            forwarding.headers.write_checksum(to, head, checked, rest);
        }
        let departure = Departure {
            frame,
            head: (start as u16, (buffer_at + checked) as u16),
            body: ((at + checked) as u16, (at + packet.len) as u16),
        };
        match forwarding.is_resolved {
            true => chunk.departures.push(departure),
            false => return Err(Stop::Wait(departure, forwarding.hop)),
        }
        Ok(())
    }

    /// Forwards a packet that is too long for the next link in fragments, after the departures of
    /// the chunk. In a tunnel, each fragment gets headers of its own, so that no router has to
    /// fragment outer packets.
    #[cold]
    fn forward_fragments<E: Encapsulation>(
        &mut self,
        chunk: &mut Chunk<'_>,
        forwarding: Forwarding<'_, E>,
        now: u64,
    ) -> Result<(), Stop> {
        let Forwarding { slot, frame: number, packet, at, buffer_at, .. } = forwarding;
        let mtu = self.to.mtu + ETHERNET_LEN - forwarding.headers.headers_len();
        let too_big = || Stop::Report(DropReason::TooBig, Problem::TooBig(mtu as u16));
        if packet.dont_fragment {
            return Err(too_big());
        }
        self.transmit(chunk);
        let checked = reading::checked_len(packet, forwarding.copied);
        let head = &mut self.headers[usize::from(number)].0[buffer_at..][..checked];
        ip::decrement_ttl(head, packet.version);
        let mut copy = [0; IPV4_HEADER_MAX + PORTS_LEN];
        copy[..checked].copy_from_slice(head);
        let (header, ports) = copy[..checked].split_at(packet.header_len);
        let fragments = Fragments::new(header, packet.len, mtu).ok_or_else(too_big)?;
        let admitted = (packet.len, forwarding.is_resolved);
        self.admit((slot, number), forwarding.rule, admitted, now)?;
        let frame = &chunk.frames[usize::from(number)];
        let departures = self.write_fragments((frame, at), fragments, ports, forwarding.headers);
        self.counters.fragmented += 1;
        self.send_fragments(frame, &departures, forwarding.hop, forwarding.is_resolved);
        Ok(())
    }

    /// Writes the headers of the fragments of a packet at `at` in `frame`, whose first bytes after
    /// its IP header are `ports`.
    fn write_fragments<E: Encapsulation>(
        &mut self,
        (frame, at): (&Frame<'_>, usize),
        mut fragments: Fragments<'_>,
        ports: &[u8],
        headers: E,
    ) -> Departures {
        let start = PACKET_AT - headers.headers_len();
        let mut departures = Departures::new();
        let mut header = [0; IPV4_HEADER_MAX];
        for (number, buffer) in self.fragment_headers.iter_mut().enumerate() {
            let Some((header_len, body)) = fragments.next(&mut header) else { break };
            let ports = if number == 0 { ports } else { &[] };
            let copied = header_len + ports.len();
            let head = &mut buffer.0[..PACKET_AT + copied];
            head[PACKET_AT..][..header_len].copy_from_slice(&header[..header_len]);
            head[PACKET_AT + header_len..].copy_from_slice(ports);
            let body = at + body.start + ports.len()..at + body.end;
            let rest = &frame.bytes(&mut self.scratch)[body.clone()];
            headers.write_headers(&self.to, &mut head[start..PACKET_AT], copied + rest.len());
            if headers.has_checksum() {
                headers.write_checksum(&self.to, head, copied, rest);
            }
            departures.push(Departure {
                frame: number as u16,
                head: (start as u16, head.len() as u16),
                body: (body.start as u16, body.end as u16),
            });
        }
        departures
    }

    /// Transmits the fragments of `frame`, or keeps them until their rate or their next hop lets
    /// them leave.
    fn send_fragments(
        &mut self,
        frame: &Frame<'_>,
        departures: &Departures,
        hop: u16,
        is_resolved: bool,
    ) {
        let (last, is_generated) = (departures.len() - 1, self.is_generated);
        let class = |index: usize| match index {
            _ if is_generated => FrameClass::Generated,
            index if index < last => FrameClass::Fragment,
            _ => FrameClass::Packet,
        };
        let delay = self.delays.pop();
        if delay.is_none() {
            self.make_room(departures.len());
        }
        let Self { fragment_headers, to, worker, tap, egress, counters, moved, .. } = self;
        let fragment = |departure: &Departure| departure.frame(frame, fragment_headers);
        let batch: Batch<'_> = departures.iter().map(fragment).collect();
        if let Some((_, until)) = delay {
            for (index, fragment) in batch.iter().enumerate() {
                keep((fragment, class(index)), until, &mut self.shaped, counters);
            }
        } else if is_resolved {
            send(&batch, class, (to, *worker, tap), egress, counters, moved);
        } else {
            for (index, fragment) in batch.iter().enumerate() {
                // The first fragment counts the whole packet in its rates.
                let pending = if index == 0 {
                    self.pending
                } else {
                    self.pending.map(PendingRates::reserved)
                };
                let (fragment, to) = ((fragment, class(index)), (&**to, *worker, &**tap));
                // Only senders of whole packets get an ICMP error.
                wait(fragment, (hop, pending), to, &mut self.unresolved, counters);
            }
        }
    }
}
