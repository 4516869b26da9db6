//! Transmitting: packets leave in batches, or are held while the egress port takes none.

use std::time::Duration;

use arrayvec::ArrayVec;
use dray_port::{Frame, clock};
use dray_wire::fragment::{Fragments, IPV4_HEADER_MAX};
use dray_wire::ip::{PORTS_LEN, Packet};

use super::super::egress_queue::Sort;
use super::super::head::{CHUNK, Head, PACKET};
use super::super::toll::Toll;
use super::Lane;
use super::fates::{Batch, count, keep, send, wait};
use crate::counters::DropReason;

/// Maximum time that packets wait for a port that takes none: control messages wait behind them.
const PATIENCE: Duration = Duration::from_millis(10);

/// Maximum length of the beginning of a fragmented IPv4 packet: its header and ports.
pub(crate) const DIVIDED_MAX: usize = IPV4_HEADER_MAX + PORTS_LEN;

/// A packet to be transmitted, by its frame's number in the chunk.
#[derive(Clone, Copy)]
pub(crate) struct Leaving {
    pub(crate) frame: u16,
    /// Range of its new headers in the head.
    pub(crate) head: (u16, u16),
    /// Range of the remaining bytes in the frame.
    pub(crate) body: (u16, u16),
}

pub(crate) type Departures = ArrayVec<Leaving, CHUNK>;

impl Leaving {
    #[inline(always)]
    pub(super) fn frame<'f>(&self, frame: &Frame<'f>, heads: &'f [Head]) -> Frame<'f> {
        let head = usize::from(self.head.0)..usize::from(self.head.1);
        let body = usize::from(self.body.0)..usize::from(self.body.1);
        frame.with_head(&heads[usize::from(self.frame)].0[head], body)
    }
}

impl Lane {
    /// Transmits packets that wait for the egress port; returns true if any were taken.
    #[cold]
    pub(crate) fn release(&mut self) -> bool {
        let Self { held, to, worker, tap, counters, .. } = self;
        let transmit = |frames: &[Frame<'_>]| to.transmit(tap, *worker, frames);
        let taken = held.release(transmit, |frames, sent| {
            count(counters, frames.iter().copied(), sent);
        });
        let now = clock::ticks();
        if taken > 0 {
            self.moved = now;
        } else if now - self.moved > clock::to_ticks(PATIENCE) || !self.to.is_ready(self.worker) {
            self.give_up();
        }
        taken > 0
    }

    /// Drops the packets that wait for the egress port.
    pub(crate) fn give_up(&mut self) {
        self.counters.drops.add(DropReason::PortFull, self.held.count(Sort::Packet));
        self.counters.generated_dropped += self.held.count(Sort::Own);
        self.held.forget();
    }

    /// Keeps those packets in `departures` that have to wait for their rate, and transmits the others.
    #[cold]
    fn transmit_shaped(&mut self, frames: &[Frame<'_>], departures: &Departures) {
        let sort = if self.is_own { Sort::Own } else { Sort::Packet };
        let Self { heads, waits, later, counters, .. } = self;
        let mut ready = Departures::new();
        for leaving in departures {
            match waits.iter().find(|(frame, _)| *frame == leaving.frame) {
                None => ready.push(*leaving),
                Some((_, until)) => {
                    let frame = leaving.frame(&frames[usize::from(leaving.frame)], heads);
                    keep((&frame, sort), *until, later, counters);
                }
            }
        }
        waits.clear();
        self.transmit(frames, &ready);
    }

    /// Transmits the packets in `departures`, except those that have to wait.
    #[inline]
    pub(crate) fn transmit(&mut self, frames: &[Frame<'_>], departures: &Departures) {
        if departures.is_empty() {
            return;
        }
        if !self.waits.is_empty() {
            return self.transmit_shaped(frames, departures);
        }
        self.make_room(departures.len());
        let Self { heads, to, worker, tap, held, counters, moved, is_own, .. } = self;
        let frame = |leaving: &Leaving| leaving.frame(&frames[usize::from(leaving.frame)], heads);
        let batch: Batch<'_> = departures.iter().map(frame).collect();
        let to = (&**to, *worker, &**tap);
        // Two calls, in each of which the compiler knows the sort.
        match is_own {
            false => send(&batch, |_| Sort::Packet, to, held, counters, moved),
            true => send(&batch, |_| Sort::Own, to, held, counters, moved),
        }
    }

    /// Transmits the IPv4 packet at `at` in `frame` in fragments of up to `mtu` bytes; returns
    /// false if it must not be fragmented. `checked` are its first bytes as they are to be
    /// transmitted, at least its header. `front` writes what precedes a fragment. It gets memory
    /// that ends with the fragment's first bytes, which begin at [`PACKET`], and the remaining
    /// bytes of the fragment; it returns the position where the frame begins. With a `hop`, fragments
    /// wait for the Ethernet address of that next hop.
    #[cold]
    pub(crate) fn divide(
        &mut self,
        (frame, at, packet): (&Frame<'_>, usize, &Packet),
        checked: &[u8],
        mtu: usize,
        hop: Option<u16>,
        front: impl Fn(&mut [u8], &[u8]) -> usize,
    ) -> bool {
        let (header, ports) = checked.split_at(packet.header_len);
        let Some(mut fragments) = Fragments::new(header, packet.len, mtu) else {
            self.waits.clear();
            return false;
        };
        let mut leaving = Departures::new();
        let mut header = [0; IPV4_HEADER_MAX];
        for (number, head) in self.pieces.iter_mut().enumerate() {
            let Some((header_len, body)) = fragments.next(&mut header) else { break };
            let ports = if number == 0 { ports } else { &[] };
            let (middle, end) = (PACKET + header_len, PACKET + header_len + ports.len());
            head.0[PACKET..middle].copy_from_slice(&header[..header_len]);
            head.0[middle..end].copy_from_slice(ports);
            let body = at + body.start + ports.len()..at + body.end;
            let rest = &frame.bytes(&mut self.scratch)[body.clone()];
            let start = front(&mut head.0[..end], rest);
            leaving.push(Leaving {
                frame: number as u16,
                head: (start as u16, end as u16),
                body: (body.start as u16, body.end as u16),
            });
        }
        self.counters.fragmented += 1;
        let (last, is_own) = (leaving.len() - 1, self.is_own);
        let sort = |index: usize| match index {
            _ if is_own => Sort::Own,
            index if index < last => Sort::Part,
            _ => Sort::Packet,
        };
        if let Some((_, until)) = self.waits.pop() {
            let Self { pieces, later, counters, .. } = self;
            for (index, leaving) in leaving.iter().enumerate() {
                let piece = leaving.frame(frame, pieces);
                keep((&piece, sort(index)), until, later, counters);
            }
            return true;
        }
        self.make_room(leaving.len());
        let Self { pieces, to, worker, tap, held, counters, moved, unresolved, toll, .. } = self;
        let batch: Batch<'_> = leaving.iter().map(|leaving| leaving.frame(frame, pieces)).collect();
        let Some(hop) = hop else {
            send(&batch, sort, (to, *worker, tap), held, counters, moved);
            return true;
        };
        for (index, frame) in batch.iter().enumerate() {
            let toll = if index == 0 { *toll } else { toll.map(Toll::paid) };
            // Only senders of whole packets get an ICMP error.
            wait((frame, sort(index)), (hop, toll), (to, *worker, tap), unresolved, counters);
        }
        true
    }

    /// Waits until `count` packets can be held, in case the egress port takes none.
    #[inline(always)]
    pub(super) fn make_room(&mut self, count: usize) {
        // While packets are held, only buffered or fragmented packets get here.
        while !self.held.has_room(count) {
            if !self.release() {
                std::thread::yield_now();
            }
        }
    }
}
