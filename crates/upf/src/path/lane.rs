//! What both directions have: where packets come from and go to, and what is counted.

use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use dray_port::{Frame, Scratch, clock, scratch};
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::fragment::{Fragments, IPV4_HEADER_MAX};
use dray_wire::icmp::{self, Problem};
use dray_wire::ip::{PORTS_LEN, Packet, Version, protocol};

use super::head::{Head, LOOK, PACKET, ROOM};
use super::held::Held;
use super::sessions::{Changes, Sessions};
use crate::counters::{Counters, DropReason, Published};
use crate::event::{Event, Teller};
use crate::interface::Interface;
use crate::meter::{Meter, Sharing};
use crate::session::{Counting, Report, Rule};
use crate::usage::{Due, Way};

/// Packets that go through the passes together: what is fetched for the last of them is still in the
/// first-level cache when its turn comes.
pub(super) const CHUNK: usize = 32;

/// Messages of our own about what went wrong: no more than this, in 1000 bits per second, whoever
/// sends what asks for them.
const ANSWERS_KBPS: u64 = 1000;

/// How long packets wait for a port that takes none: behind them wait those that have to be answered.
const PATIENCE: Duration = Duration::from_millis(10);

pub(crate) struct Lane {
    pub(super) way: Way,
    /// Its number among the workers of its direction, and whether there are others.
    pub(super) worker: usize,
    pub(super) sharing: Sharing,
    /// Where packets come from.
    pub(super) from: Arc<Interface>,
    /// Where they go.
    pub(super) to: Arc<Interface>,
    pub(super) sessions: Sessions,
    pub(super) changes: Changes,
    pub(crate) counters: Counters,
    pub(crate) published: Arc<Published>,
    pub(super) teller: Teller,
    pub(super) heads: Box<[Head]>,
    /// For the fragments of a packet that is divided.
    pieces: Box<[Head]>,
    pub(super) scratch: Scratch,
    held: Held,
    /// The tick at which the port out took something last.
    moved: u64,
    answers: Meter,
}

/// The longest beginning of an IPv4 packet that is divided: its header, and ports.
pub(super) const DIVIDED_MAX: usize = IPV4_HEADER_MAX + PORTS_LEN;

/// A packet that goes on, by its frame's number in the chunk.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub(super) frame: u16,
    /// Its new headers in the head.
    pub(super) head: (u16, u16),
    /// All that follows, in the frame.
    pub(super) body: (u16, u16),
}

pub(super) type Departures = ArrayVec<Leaving, CHUNK>;
type Batch<'f> = ArrayVec<Frame<'f>, CHUNK>;

impl Leaving {
    #[inline(always)]
    fn frame<'f>(&self, frame: &Frame<'f>, heads: &'f [Head]) -> Frame<'f> {
        let head = usize::from(self.head.0)..usize::from(self.head.1);
        let body = usize::from(self.body.0)..usize::from(self.body.1);
        frame.with_head(&heads[usize::from(self.frame)].0[head], body)
    }
}

/// Transmits `batch` behind all that waits for room at the port out; there is room to hold it.
#[inline(always)]
fn send(
    batch: &[Frame<'_>],
    (to, worker): (&Interface, usize),
    held: &mut Held,
    counters: &mut Counters,
    moved: &mut u64,
) {
    let taken = if held.is_empty() { to.transmit(worker, batch) } else { 0 };
    counters.tx_packets += taken as u64;
    counters.tx_bytes += batch[..taken].iter().map(|frame| frame.len() as u64).sum::<u64>();
    if taken < batch.len() {
        if held.is_empty() {
            *moved = clock::ticks();
        }
        held.keep(&batch[taken..]);
    }
}

impl Lane {
    pub(crate) fn new(
        way: Way,
        (worker, sharing): (usize, Sharing),
        (from, to): (Arc<Interface>, Arc<Interface>),
        sessions: Sessions,
        changes: Changes,
        teller: Teller,
    ) -> Self {
        Self {
            way,
            worker,
            sharing,
            from,
            to,
            sessions,
            changes,
            counters: Counters::default(),
            published: Arc::default(),
            teller,
            heads: vec![Head([0; ROOM + LOOK]); CHUNK].into(),
            pieces: vec![Head([0; ROOM + LOOK]); CHUNK].into(),
            scratch: scratch(),
            held: Held::new(),
            moved: 0,
            answers: Meter::new(ANSWERS_KBPS),
        }
    }

    /// Counts `frames`.
    #[inline(always)]
    pub(super) fn received(&mut self, frames: &[Frame<'_>]) {
        self.counters.rx_packets += frames.len() as u64;
        self.counters.rx_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }

    /// Whether packets wait for room at the port out, so that no more should be taken.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        !self.held.is_empty()
    }

    /// Transmits packets that wait for room at the port out; whether any moved.
    #[cold]
    pub(crate) fn release(&mut self) -> bool {
        let Self { held, to, worker, .. } = self;
        let (taken, bytes) = held.release(|frames| to.transmit(*worker, frames));
        self.counters.tx_packets += taken as u64;
        self.counters.tx_bytes += bytes as u64;
        let now = clock::ticks();
        if taken > 0 {
            self.moved = now;
        } else if now - self.moved > clock::to_ticks(PATIENCE) || !self.to.is_ready(self.worker) {
            self.give_up();
        }
        taken > 0
    }

    /// Drops what waits for room at the port out.
    pub(crate) fn give_up(&mut self) {
        let count = self.held.forget();
        self.counters.drops.add(DropReason::PortFull, count as u64);
    }

    /// Transmits what leaves.
    #[inline]
    pub(super) fn transmit(&mut self, frames: &[Frame<'_>], departures: &Departures) {
        if departures.is_empty() {
            return;
        }
        self.make_room(departures.len());
        let Self { heads, to, worker, held, counters, moved, .. } = self;
        let frame = |leaving: &Leaving| leaving.frame(&frames[usize::from(leaving.frame)], heads);
        let batch: Batch<'_> = departures.iter().map(frame).collect();
        send(&batch, (to, *worker), held, counters, moved);
    }

    /// Transmits the IPv4 packet that lies at `at` in `frame`, in fragments of up to `mtu` bytes; false if
    /// it must not be divided. `checked` are its first bytes as they are to leave, its header at least.
    /// `front` writes all that is in front of a fragment, to the memory that ends with the fragment's first
    /// bytes, which begin at [`PACKET`]; it gets the others too, and returns the place where it begins.
    #[cold]
    pub(super) fn divide(
        &mut self,
        (frame, at, packet): (&Frame<'_>, usize, &Packet),
        checked: &[u8],
        mtu: usize,
        front: impl Fn(&mut [u8], &[u8]) -> usize,
    ) -> bool {
        let (header, ports) = checked.split_at(packet.header_len);
        let Some(mut fragments) = Fragments::new(header, packet.len, mtu) else { return false };
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
        self.make_room(leaving.len());
        let Self { pieces, to, worker, held, counters, moved, .. } = self;
        let batch: Batch<'_> = leaving.iter().map(|leaving| leaving.frame(frame, pieces)).collect();
        send(&batch, (to, *worker), held, counters, moved);
        true
    }

    /// Waits until so many packets can be held, if the port out takes none.
    #[inline(always)]
    fn make_room(&mut self, count: usize) {
        // Only packets that were buffered or divided come while others wait.
        while !self.held.has_room(count) {
            if !self.release() {
                std::thread::yield_now();
            }
        }
    }

    /// Sends an answer to where packets come from.
    pub(super) fn answer(&mut self, frame: &[u8]) {
        self.from.transmit(self.worker, &[Frame::from(frame)]);
    }

    /// A frame about what went wrong, where there is one and there have not been too many.
    pub(super) fn complaint(&mut self, frame: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let now = clock::ticks();
        let frame = if self.answers.conforms(now) { frame() } else { None }?;
        self.answers.pass(now, frame.len(), Sharing::Alone);
        self.counters.complaints += 1;
        Some(frame)
    }

    /// As [`answer`](Self::answer), for a [`complaint`](Self::complaint).
    pub(super) fn complain(&mut self, frame: impl FnOnce() -> Option<Vec<u8>>) {
        if let Some(frame) = self.complaint(frame) {
            self.answer(&frame);
        }
    }

    /// Tells the sender of a frame, which is copied out if need be, what became of its packet.
    #[cold]
    pub(super) fn tell(&mut self, problem: Problem, frame: impl FnOnce() -> Vec<u8>) {
        let from = self.from.clone();
        self.complain(|| {
            let frame = frame();
            let bytes = frame.get(ETHERNET_LEN..)?;
            let packet = Packet::parse(bytes, bytes.len()).ok()?;
            let own = from.address_for(packet.source())?;
            let message = icmp::error(own, &packet, bytes, problem)?;
            let to = Ethernet::parse(&frame)?.src;
            let is_right = from.is_other_station(to) && from.is_other_host(packet.source());
            is_right.then_some(())?;
            Some(from.frame(to, ethertype(packet.version), &message))
        });
    }

    /// Deals with a frame that is about the network itself: it is for us, or for a group. Whoever sends
    /// to a port of ours where nobody is learns that (RFC 1122, section 3.2.2.1; RFC 4443, section 3.1).
    #[cold]
    pub(super) fn hear(&mut self, frame: &[u8]) {
        match heard(&self.from, frame) {
            Ok(reply) => {
                self.counters.control += 1;
                if let Some(reply) = reply {
                    self.answer(&reply);
                }
            }
            Err(reason) => {
                self.counters.drops.add(reason, 1);
                if reason == DropReason::NotForUs && asks_a_port(frame) {
                    self.tell(Problem::NoPort, || frame.to_vec());
                }
            }
        }
    }

    /// Whether the limits of `rule` let the packet pass, which is counted then.
    #[inline(always)]
    pub(super) fn admit(
        &mut self,
        slot: u32,
        rule: &Rule,
        len: usize,
        now: u64,
    ) -> Result<(), DropReason> {
        let Self { way, sharing, teller, sessions, .. } = self;
        let session = &sessions.slots[slot as usize];
        let (way, sharing, accounts) = (*way, *sharing, &*sessions.accounts);
        let packet = || Counting { accounts, slot, way, len, now, sharing };
        session.admit(rule, packet, |report| tell(teller, session.seid, &report))
    }
}

#[cold]
fn tell(teller: &Teller, seid: u64, report: &Report) {
    let Report { urr, due, counted } = *report;
    teller.tell(Event::Usage { seid, urr, quota: due == Due::Quota, counted });
}

/// Why a packet was not read.
pub(super) enum Unread {
    /// It is not valid.
    Invalid,
    /// Its headers go on behind the bytes that were copied, in memory that others may write to: what is
    /// there when it is looked at need not be what leaves. A copy of all of it has to be looked at.
    MayChange,
}

/// Reads the packet of `len` bytes that lies at `at` in the frame; `look` holds its first bytes, at
/// least 60 where it has as many. Where its headers go on behind those, all of the frame is looked at.
#[inline(always)]
pub(super) fn parse<'f>(
    look: &'f [u8],
    len: usize,
    frame: &'f Frame<'_>,
    at: usize,
    scratch: &'f mut Scratch,
) -> Result<Packet, Unread> {
    let mut bytes = look;
    let mut scratch = Some(scratch);
    // A loop, for what a call returned would go through memory each time.
    loop {
        let packet = Packet::parse(bytes, len).map_err(|_| Unread::Invalid)?;
        match scratch.take() {
            Some(scratch) if packet.is_cut() && look.len() < len => {
                if frame.may_change() {
                    return Err(Unread::MayChange);
                }
                bytes = whole(frame, at, scratch);
            }
            _ => return Ok(packet),
        }
    }
}

/// Bytes of a packet that was read from its first `there` bytes that have to leave as they were read: all
/// but those that nothing was decided by.
#[inline(always)]
pub(super) fn checked_len(packet: &Packet, there: usize) -> usize {
    (packet.header_len + PORTS_LEN).min(packet.len).min(there)
}

/// A copy of all of a frame.
#[cold]
pub(super) fn copy_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut whole = vec![0; frame.len()];
    frame.copy_into(&mut whole);
    whole
}

#[cold]
fn whole<'f>(frame: &'f Frame<'_>, at: usize, scratch: &'f mut Scratch) -> &'f [u8] {
    &frame.bytes(scratch)[at..]
}

/// Whether a frame has a UDP packet, and was sent to one station alone: nobody is told of what all of a link
/// were sent (RFC 1122, section 3.2.2).
fn asks_a_port(frame: &[u8]) -> bool {
    let bytes = frame.get(ETHERNET_LEN..).unwrap_or_default();
    let is_for_one = frame.first().is_some_and(|byte| byte & 1 == 0);
    is_for_one
        && Packet::parse(bytes, bytes.len()).is_ok_and(|packet| packet.protocol == protocol::UDP)
}

/// Returns the reply to a frame that is for us or for a group.
fn heard(own: &Interface, frame: &[u8]) -> Result<Option<Vec<u8>>, DropReason> {
    let ethernet = Ethernet::parse(frame).ok_or(DropReason::NotIp)?;
    let bytes = &frame[ETHERNET_LEN..];
    match ethernet.ethertype {
        // No reply may go to a group, nor to ourselves.
        _ if !own.is_other_station(ethernet.src) => Err(DropReason::MartianSource),
        ethertype::ARP => own.hear_arp(bytes),
        ethertype::IPV4 | ethertype::IPV6 => {
            let packet = Packet::parse(bytes, bytes.len()).map_err(|_| DropReason::OuterIp)?;
            match ethernet.ethertype == self::ethertype(packet.version) {
                true => own.hear_ip(&ethernet, &packet, bytes),
                false => Err(DropReason::OuterIp),
            }
        }
        _ => Err(DropReason::NotIp),
    }
}

/// What follows an Ethernet header.
#[inline(always)]
pub(super) fn ethertype(version: Version) -> u16 {
    match version {
        Version::V4 => ethertype::IPV4,
        Version::V6 => ethertype::IPV6,
    }
}
