//! The parts that both directions have: interfaces, sessions, and counters.

use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use dray_capture::{Side, Tap};
use dray_datapath::{Bucket, Sharing};
use dray_port::{Frame, Scratch, clock, scratch};
use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::fragment::{Fragments, IPV4_HEADER_MAX};
use dray_wire::gtpu::Direction;
use dray_wire::icmp::{self, Problem};
use dray_wire::ip::{IPV6_LEN, PORTS_LEN, Packet, Version, protocol};

use super::head::{CHUNK, Head, LOOK, PACKET, ROOM};
use super::held::{Held, Sort};
use super::later::Later;
use super::sessions::{Change, Changes, Sessions};
use super::toll::Toll;
use super::unresolved::{self, Lost, Unresolved};
use crate::counters::{Counters, DropReason, Ledger, Sent, account};
use crate::event::Teller;
use crate::interface::Interface;
use crate::meter::{self, Patience};
use crate::neighbours::HOPS_MAX;
use crate::session::{Counting, END, LISTED, Report, Rule, Session};

/// Maximum rate of our own error messages, in 1000 bits per second, however many packets call for
/// them.
const ANSWERS_KBPS: u64 = 1000;

/// Maximum time that packets wait for a port that takes none: control messages wait behind them.
const PATIENCE: Duration = Duration::from_millis(10);

/// Maximum time by which packets leave later than at their rate without their rate being delayed, too.
const LATE: Duration = Duration::from_millis(5);
/// The clock of the rates catches up by one tick in so many.
const CATCH_UP: u64 = 128;

pub(crate) struct Lane {
    pub(super) direction: Direction,
    /// Number of the worker in its direction; `sharing` says if there are others.
    pub(super) worker: usize,
    pub(super) sharing: Sharing,
    /// Interface that packets come from.
    pub(super) from: Arc<Interface>,
    /// Interface that packets go to.
    pub(super) to: Arc<Interface>,
    pub(super) sessions: Sessions,
    pub(crate) changes: Changes,
    pub(crate) counters: Counters,
    /// Ledger of the direction, in which this worker has an account.
    published: Arc<Ledger>,
    pub(super) teller: Teller,
    pub(crate) tap: Arc<Tap>,
    pub(super) heads: Box<[Head]>,
    /// Heads for the fragments of a packet.
    pieces: Box<[Head]>,
    pub(super) scratch: Scratch,
    held: Held,
    /// Packets that wait for the Ethernet address of their next hop.
    pub(super) unresolved: Unresolved,
    later: Later,
    /// The packets of the chunk that have to wait for their rate, by their frames' numbers, and their
    /// sessions with the ticks from which they may leave.
    waits: ArrayVec<(u16, (u32, u64)), CHUNK>,
    /// Time that packets may wait for their rate.
    pub(super) patience: Patience,
    /// Ticks by which the clock of the rates is behind.
    lag: u64,
    /// Tick at which `lag` was last changed.
    lag_at: u64,
    /// The rates of the packet in process if its next hop is not known.
    toll: Option<Toll>,
    /// True while the packet in process was made here.
    pub(super) is_own: bool,
    /// Tick at which the egress port last took a packet.
    moved: u64,
    answers: Bucket,
}

/// Maximum number of silent neighbours looked up for a chunk of received frames.
const NOTES: usize = 4;

/// Maximum length of the beginning of a fragmented IPv4 packet: its header and ports.
pub(super) const DIVIDED_MAX: usize = IPV4_HEADER_MAX + PORTS_LEN;

/// A packet to be transmitted, by its frame's number in the chunk.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub(super) frame: u16,
    /// Range of its new headers in the head.
    pub(super) head: (u16, u16),
    /// Range of the remaining bytes in the frame.
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

/// Transmits `batch` after the packets that wait for the egress port; there is room to hold it.
/// `sort` returns what a frame counts as, by its index.
#[inline(always)]
fn send(
    batch: &[Frame<'_>],
    sort: impl Fn(usize) -> Sort,
    (to, worker, tap): (&Interface, usize, &Tap),
    held: &mut Held,
    counters: &mut Counters,
    moved: &mut u64,
) {
    let sent = if held.is_empty() { to.transmit(tap, worker, batch) } else { Sent::default() };
    let taken = sent.taken;
    let left = batch[..taken].iter().enumerate().map(|(index, frame)| (frame.len(), sort(index)));
    count(counters, left, sent);
    if taken < batch.len() {
        if held.is_empty() {
            *moved = clock::ticks();
        }
        let others = batch.iter().enumerate().skip(taken);
        held.keep(others.map(|(index, frame)| (frame, sort(index))));
    }
}

/// Counts frames that the egress port took, by length; `lost` of them were refused.
#[inline(always)]
fn count(counters: &mut Counters, frames: impl Iterator<Item = (usize, Sort)>, sent: Sent) {
    let (mut packets, mut own) = (0, 0);
    for (len, sort) in frames {
        packets += u64::from(sort == Sort::Packet);
        own += u64::from(sort == Sort::Own);
        counters.tx_bytes += if sort == Sort::Own { 0 } else { len as u64 };
    }
    counters.tx_packets += packets;
    counters.generated += own;
    let lost = sent.lost;
    if lost > 0 {
        // It is not known which ones.
        let lost_packets = packets.min(lost as u64);
        counters.tx_packets -= lost_packets;
        let too_long = lost_packets.min(sent.too_long as u64);
        counters.drops.add(DropReason::TooBig, too_long);
        counters.drops.add(DropReason::Undeliverable, lost_packets - too_long);
        let lost_own = own.min(lost as u64 - lost_packets);
        counters.generated -= lost_own;
        counters.generated_dropped += lost_own;
    }
}

/// Makes a packet wait; `until` is its session, and the tick from which it may leave.
fn keep(
    (frame, sort): (&Frame<'_>, Sort),
    until: (u32, u64),
    later: &mut Later,
    counters: &mut Counters,
) {
    match later.keep((frame, sort), until) {
        true => counters.delayed += u64::from(sort == Sort::Packet),
        false => drop_sort(counters, DropReason::Policed, sort),
    }
}

impl Lane {
    pub(crate) fn new(
        direction: Direction,
        (worker, sharing): (usize, Sharing),
        (from, to): (Arc<Interface>, Arc<Interface>),
        (sessions, changes): (Sessions, Changes),
        published: Arc<Ledger>,
        teller: Teller,
        unresolved: Unresolved,
    ) -> Self {
        let later = Later::new(to.mtu);
        Self {
            direction,
            worker,
            sharing,
            from,
            to,
            sessions,
            changes,
            counters: Counters::default(),
            published,
            teller,
            tap: Arc::default(),
            heads: vec![Head([0; ROOM + LOOK]); CHUNK].into(),
            pieces: vec![Head([0; ROOM + LOOK]); CHUNK].into(),
            scratch: scratch(),
            held: Held::new(),
            unresolved,
            later,
            waits: ArrayVec::new(),
            patience: Patience::Usual,
            lag: 0,
            lag_at: 0,
            toll: None,
            is_own: false,
            moved: 0,
            answers: meter::own(ANSWERS_KBPS),
        }
    }

    /// Publishes its counters to other threads.
    pub(crate) fn publish(&self) {
        self.published.set(account(self.worker), &self.counters);
    }

    /// Counts frames that the port lost, by reason.
    pub(crate) fn lost(&mut self, reason: DropReason, frames: u64) {
        self.counters.rx_packets += frames;
        self.counters.drops.add(reason, frames);
    }

    /// Returns the number of packets that wait for the egress port, for their next hop or for their
    /// rate.
    pub(crate) fn held(&self) -> u64 {
        self.held.count(Sort::Packet) + self.unresolved.packets() + self.later.packets()
    }

    /// Counts a control message.
    #[inline]
    pub(super) fn consumed(&mut self) {
        self.counters.consumed += 1;
        self.counters.control += 1;
    }

    /// Counts received frames.
    #[inline(always)]
    pub(super) fn received(&mut self, frames: &[Frame<'_>]) {
        self.counters.rx_packets += frames.len() as u64;
        self.counters.rx_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }

    /// Counts the packet of a frame that is dropped.
    #[inline]
    pub(super) fn dropped(&mut self, reason: DropReason, frame: &Frame<'_>) {
        match self.is_own {
            true => self.counters.generated_dropped += 1,
            false => self.counters.drops.add(reason, 1),
        }
        let kind = Side::In.dropped(reason as u8);
        self.from.show(&self.tap, kind, std::slice::from_ref(frame));
    }

    /// Returns true if packets wait for the egress port, so that no more should be taken.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        !self.held.is_empty()
    }

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

    /// See [`Unresolved::mac_of`].
    #[inline(always)]
    pub(super) fn mac_of(&self, hop: u16) -> Option<MacAddr> {
        self.unresolved.mac_of(&self.to, hop)
    }

    /// Returns true if packets wait for next hops.
    #[inline(always)]
    pub(super) fn has_waiting(&self) -> bool {
        !self.unresolved.is_empty()
    }

    /// Has a packet wait for a next hop. Returns another one that was dropped for it if its sender has to
    /// be told.
    #[cold]
    pub(super) fn wait(
        &mut self,
        frame: &Frame<'_>,
        leaving: &Leaving,
        hop: u16,
    ) -> Option<Vec<u8>> {
        let sort = if self.is_own { Sort::Own } else { Sort::Packet };
        let Self { heads, to, worker, tap, unresolved, counters, toll, .. } = self;
        let frame = leaving.frame(frame, heads);
        wait((&frame, sort), (hop, *toll), (to, *worker, tap), unresolved, counters)
    }

    /// Transmits a message of our own to a next hop, or has it wait. The destination in its Ethernet
    /// header is 0.
    #[cold]
    pub(super) fn post(&mut self, hop: u16, message: &[u8]) {
        let mac = self.mac_of(hop);
        self.make_room(1);
        let Self { to, worker, tap, held, unresolved, counters, moved, .. } = self;
        let message = Frame::from(message);
        match mac {
            Some(MacAddr(mac)) => {
                let message = message.with_head(&mac, mac.len()..message.len());
                send(&[message], |_| Sort::Own, (to, *worker, tap), held, counters, moved);
            }
            // Nobody is told of a packet that had to make room.
            None => {
                wait((&message, Sort::Own), (hop, None), (to, *worker, tap), unresolved, counters);
            }
        }
    }

    /// Transmits packets whose next hop has an Ethernet address now, while the egress port has room;
    /// returns true if there were any.
    pub(super) fn release_resolved(&mut self) -> bool {
        let learned = self.to.neighbours.learned();
        if std::mem::replace(&mut self.unresolved.learned, learned) == learned {
            return false;
        }
        let mut any = false;
        for hop in 0..HOPS_MAX as u16 {
            while self.unresolved.is_awaited(hop)
                && let Some(mac) = self.to.mac_of(hop)
            {
                if self.is_full() {
                    // The others leave once the port has taken these: newer packets wait behind them.
                    self.unresolved.learned = learned.wrapping_sub(1);
                    return any;
                }
                // Packets of the same session that left earlier.
                self.release_later(clock::ticks());
                self.make_room(CHUNK);
                self.release_hop(hop, mac);
                any = true;
            }
        }
        any
    }

    /// Transmits the first packets that wait for a next hop with the address `mac`, or has them wait for
    /// their rates.
    fn release_hop(&mut self, hop: u16, mac: MacAddr) {
        let Self { direction, sharing, sessions, later, lag, .. } = self;
        let Self { unresolved, to, worker, tap, held, counters, moved, .. } = self;
        let now = clock::ticks() - *lag;
        unresolved.release(hop, mac, |frames, notes| {
            let are_own = notes.first().is_some_and(|(sort, _)| *sort == Sort::Own);
            to.neighbours.leave(hop, frames.len() as u16, are_own);
            if are_own {
                counters.made(frames.len(), to.transmit(tap, *worker, frames));
                return;
            }
            let (mut batch, mut sorts) = (Batch::new(), ArrayVec::<Sort, CHUNK>::new());
            for (frame, (sort, toll)) in frames.iter().zip(notes) {
                let pay = |toll: &Toll| toll.pay(sessions, later, (*direction, *sharing), now);
                match (toll.as_ref().map_or(Some(0), pay), toll) {
                    (Some(from), Some(toll)) if from > now => {
                        keep((frame, *sort), (toll.slot, from), later, counters);
                    }
                    (Some(_), _) => {
                        batch.push(*frame);
                        sorts.push(*sort);
                    }
                    (None, _) => drop_sort(counters, DropReason::Policed, *sort),
                }
            }
            send(&batch, |index| sorts[index], (to, *worker, tap), held, counters, moved);
        });
    }

    /// Transmits the packets that have waited for their rate and may leave at the tick `now`, while
    /// the egress port has room; returns true if there were any.
    #[cold]
    pub(crate) fn release_later(&mut self, now: u64) -> bool {
        let Some(next) = self.later.next() else { return false };
        // After a pause of the thread, packets that became due meanwhile do not leave all at once: the
        // clock of the rates goes on where it was, and catches up slowly.
        let elapsed = now.saturating_sub(std::mem::replace(&mut self.lag_at, now));
        let caught_up = now - self.lag.saturating_sub(elapsed / CATCH_UP);
        let latest = caught_up.min(next + clock::to_ticks(LATE));
        self.lag = now - latest;
        self.release_until(latest)
    }

    /// Transmits all packets that wait for their rate.
    #[cold]
    pub(crate) fn flush_later(&mut self) {
        self.release_until(u64::MAX);
    }

    fn release_until(&mut self, latest: u64) -> bool {
        let mut any = false;
        while self.later.next().is_some_and(|from| from <= latest) {
            self.make_room(CHUNK);
            let Self { later, to, worker, tap, held, counters, moved, .. } = self;
            any |= later.release(latest, |batch, sorts| {
                send(batch, |index| sorts[index], (to, *worker, tap), held, counters, moved);
            });
        }
        if self.later.is_empty() {
            self.lag = 0;
        }
        any
    }

    /// Transmits the packets of a session that wait for their rate before the session changes, if newer
    /// ones could overtake them.
    pub(super) fn hurry(&mut self, change: &Change) {
        let (slot, new) = (change.slot, &change.session);
        if !self.has_later() || new.rules.is_empty() {
            return;
        }
        let metered = |rule: &Rule| (rule.pdr, rule.meters);
        let of = |session: &Session| session.rules.iter().map(metered).collect::<Vec<_>>();
        let is_same = self.sessions.slots.get(slot as usize).is_some_and(|old| of(old) == of(new));
        if (change.rates_change || !is_same) && self.later.hurry(slot) {
            self.release_until(0);
        }
    }

    /// Transmits an end marker of a session to a next hop, after the packets of the session that wait for
    /// their rate.
    pub(super) fn part(&mut self, slot: u32, hop: u16, marker: &[u8]) {
        let (last, mac) = (self.later.last(slot), self.mac_of(hop));
        let (Some(from), Some(MacAddr(mac))) = (last, mac) else { return self.post(hop, marker) };
        let Self { later, counters, .. } = self;
        let marker = Frame::from(marker);
        let marker = marker.with_head(&mac, mac.len()..marker.len());
        keep((&marker, Sort::Own), (slot, from), later, counters);
    }

    /// Drops a packet that has waited for its next hop for too long; `None` if there is none. Returns its
    /// frame if its sender has to be told.
    pub(super) fn expire(&mut self, now: u64) -> Option<Option<Vec<u8>>> {
        let Self { to, tap, unresolved, counters, .. } = self;
        let mut told = None;
        let lost =
            |lost: Lost<'_>| told = lose(&lost, to, tap, counters).then(|| lost.frame.to_vec());
        unresolved.expire(now, lost).then_some(told)
    }

    /// Drops all packets that wait for next hops.
    pub(crate) fn abandon(&mut self) {
        while self.expire(u64::MAX).is_some() {}
    }

    /// Has neighbours that are silent asked soon if they have sent one of `frames`.
    #[inline(always)]
    pub(super) fn note_sources(&self, frames: &[Frame<'_>]) {
        if self.from.neighbours.has_silent() {
            self.note_silent(frames);
        }
    }

    #[cold]
    fn note_silent(&self, frames: &[Frame<'_>]) {
        let mut beginning = [0; ETHERNET_LEN + IPV6_LEN];
        let from_silent = frames.iter().zip(&self.heads).filter(|(frame, head)| {
            let len = frame.len().min(beginning.len());
            let copy = &head.0[ROOM..ROOM + len];
            if copy.get(ETHERNET_LEN - 2..ETHERNET_LEN) != Some(&ethertype::IPV6.to_be_bytes()) {
                return self.from.note_source(copy);
            }
            // The copy of a packet with longer headers may have been overwritten by its inner packet.
            frame.copy_from(0, &mut beginning[..len]);
            self.from.note_source(&beginning[..len])
        });
        from_silent.take(NOTES).for_each(drop);
    }

    /// Returns the time until the next packet may leave that waits for its rate.
    pub(crate) fn next_later(&self) -> Option<Duration> {
        let next = self.later.next()?;
        Some(clock::to_duration((next + self.lag).saturating_sub(clock::ticks())))
    }

    /// Returns true if packets wait for their rates.
    #[inline(always)]
    pub(crate) fn has_later(&self) -> bool {
        !self.later.is_empty()
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
    pub(super) fn transmit(&mut self, frames: &[Frame<'_>], departures: &Departures) {
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
    pub(super) fn divide(
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
            // Only senders of whole packets are told.
            wait((frame, sort(index)), (hop, toll), (to, *worker, tap), unresolved, counters);
        }
        true
    }

    /// Waits until `count` packets can be held, in case the egress port takes none.
    #[inline(always)]
    fn make_room(&mut self, count: usize) {
        // While packets are held, only buffered or fragmented packets get here.
        while !self.held.has_room(count) {
            if !self.release() {
                std::thread::yield_now();
            }
        }
    }

    /// Sends a reply on the interface that packets come from.
    pub(super) fn answer(&mut self, frame: &[u8]) {
        let sent = self.from.transmit(&self.tap, self.worker, &[Frame::from(frame)]);
        self.counters.made(1, sent);
    }

    /// Returns an error message, if there is one and the rate limit is not exceeded.
    pub(super) fn complaint(&mut self, frame: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let now = clock::ticks();
        self.answers.reserve(0, now, 0)?;
        let frame = frame()?;
        self.answers.reserve(frame.len() as u64, now, 0)?;
        self.counters.complaints += 1;
        Some(frame)
    }

    /// Sends a [`complaint`](Self::complaint), if there is one, as an [`answer`](Self::answer).
    pub(super) fn complain(&mut self, frame: impl FnOnce() -> Option<Vec<u8>>) {
        if let Some(frame) = self.complaint(frame) {
            self.answer(&frame);
        }
    }

    /// Tells the sender of a frame what became of its packet. `frame` copies the frame, and is
    /// called only if the message is sent.
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

    /// Processes a frame for us or for a group that concerns the network itself. A UDP packet to a
    /// port that is not open is answered with an error (RFC 1122, section 3.2.2.1; RFC 4443,
    /// section 3.1).
    #[cold]
    pub(super) fn hear(&mut self, frame: &[u8]) {
        match heard(&self.from, frame) {
            Ok(reply) => {
                self.consumed();
                if let Some(reply) = reply {
                    self.answer(&reply);
                }
            }
            Err(reason) => {
                self.dropped(reason, &Frame::from(frame));
                if reason == DropReason::NotForUs && asks_a_port(frame) {
                    self.tell(Problem::NoPort, || frame.to_vec());
                }
            }
        }
    }

    /// Checks the packet of a frame, by its number in the chunk, against the limits of `rule`, and
    /// counts it if it passes, now or after it has waited for its rate. If its next hop is not known, its
    /// rates are left for later.
    #[inline(always)]
    pub(super) fn admit(
        &mut self,
        (slot, frame): (u32, u16),
        rule: &Rule,
        (len, is_resolved): (usize, bool),
        now: u64,
    ) -> Result<(), DropReason> {
        if !is_resolved {
            return self.admit_unresolved(slot, rule, len, now);
        }
        let Self { direction, sharing, teller, sessions, lag, .. } = self;
        let session = &sessions.slots[slot as usize];
        let (direction, sharing, accounts) = (*direction, *sharing, &*sessions.accounts);
        let now = now - *lag;
        let packet = || Counting { accounts, slot, direction, len, now, sharing };
        match session.admit(rule, packet, |report| tell(teller, session.seid, &report)) {
            Err(DropReason::Policed) => self.admit_later((slot, frame), rule, len, now),
            result => result,
        }
    }

    /// Has a packet wait that exceeds a rate, if it does not have to wait for too long.
    #[cold]
    fn admit_later(
        &mut self,
        (slot, frame): (u32, u16),
        rule: &Rule,
        len: usize,
        now: u64,
    ) -> Result<(), DropReason> {
        let Self { direction, sharing, teller, sessions, later, waits, patience, .. } = self;
        if !later.may_wait(slot) {
            return Err(DropReason::Policed);
        }
        let session = &sessions.slots[slot as usize];
        let (direction, sharing, accounts) = (*direction, *sharing, &*sessions.accounts);
        let packet = Counting { accounts, slot, direction, len, now, sharing };
        let tell = |report: Report| tell(teller, session.seid, &report);
        let from = session.admit_later(rule, packet, *patience, tell)?;
        if from > now {
            waits.push((frame, (slot, from)));
        }
        Ok(())
    }

    /// Like [`admit`](Self::admit), for a packet whose next hop is not known.
    #[cold]
    fn admit_unresolved(
        &mut self,
        slot: u32,
        rule: &Rule,
        len: usize,
        now: u64,
    ) -> Result<(), DropReason> {
        let Self { direction, sharing, teller, sessions, .. } = self;
        let session = &sessions.slots[slot as usize];
        let (direction, sharing, accounts) = (*direction, *sharing, &*sessions.accounts);
        let packet = || Counting { accounts, slot, direction, len, now, sharing };
        let without_rates = Rule { meters: [END; LISTED], ..*rule };
        let tell = |report: Report| tell(teller, session.seid, &report);
        session.admit(&without_rates, packet, tell)?;
        let has_rates = rule.meters[0] != END;
        self.toll = has_rates.then(|| Toll::new((session.seid, slot), rule.meters, len));
        Ok(())
    }
}

/// Has a frame wait for a next hop, which is asked for if it is the first. Returns another one that was
/// dropped for it if its sender has to be told.
#[cold]
fn wait(
    (frame, sort): (&Frame<'_>, Sort),
    (hop, toll): (u16, Option<Toll>),
    (to, worker, tap): (&Interface, usize, &Tap),
    unresolved: &mut Unresolved,
    counters: &mut Counters,
) -> Option<Vec<u8>> {
    if !unresolved.is_awaited(hop)
        && let Some(question) = to.neighbours.question_for(hop)
    {
        to.ask(question, (worker, tap), counters);
    }
    counters.buffering += u64::from(sort == Sort::Packet);
    let mut told = None;
    unresolved.make_room(hop, |lost| {
        let must_tell = lose(&lost, to, tap, counters) && to.is_silent(lost.hop);
        told = must_tell.then(|| lost.frame.to_vec());
    });
    if unresolved.keep((hop, toll), frame, sort, clock::ticks()) {
        to.neighbours.wait(hop, sort == Sort::Own);
    } else {
        drop_sort(counters, DropReason::TooBig, sort);
    }
    told
}

/// Counts a frame that is dropped.
fn drop_sort(counters: &mut Counters, reason: DropReason, sort: Sort) {
    match sort {
        Sort::Packet => counters.drops.add(reason, 1),
        Sort::Own => counters.generated_dropped += 1,
        Sort::Part => {}
    }
}

/// Counts a packet that has waited for its next hop in vain; returns true if it is a whole one that was
/// received, or the last fragment of one.
fn lose(lost: &Lost<'_>, to: &Interface, tap: &Tap, counters: &mut Counters) -> bool {
    let sort = unresolved::sort(lost.frame);
    to.neighbours.leave(lost.hop, 1, sort == Sort::Own);
    let reason = DropReason::NoNeighbour;
    drop_sort(counters, reason, sort);
    if sort != Sort::Own {
        let unknown = [0; 6];
        let frame = Frame::from(lost.frame);
        let frame = frame.with_head(&unknown, unknown.len()..frame.len());
        to.show(tap, Side::Out.dropped(reason as u8), &[frame]);
    }
    sort == Sort::Packet
}

#[cold]
fn tell(teller: &Teller, seid: u64, report: &Report) {
    teller.tell(report.of(seid));
}

/// Why a packet was not parsed.
pub(super) enum Unread {
    /// The packet is invalid.
    Invalid,
    /// The headers extend beyond the copied bytes, into memory that a peer can write to,
    /// so what is checked may differ from what is transmitted. A copy of the whole packet has to be
    /// parsed.
    MayChange,
}

/// Parses the packet of `len` bytes at `at` in the frame. `look` holds its first bytes, at least 60
/// if it has as many. If the headers extend beyond them, the whole frame is parsed.
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
    // A loop, because the result of a second call would be passed through memory each time.
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

/// Returns how many of a parsed packet's first `there` bytes have to leave exactly as they were
/// read, because decisions depend on them.
#[inline(always)]
pub(super) fn checked_len(packet: &Packet, there: usize) -> usize {
    (packet.header_len + PORTS_LEN).min(packet.len).min(there)
}

/// Returns a copy of a whole frame.
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

/// Returns true if a frame contains a UDP packet and was sent to a single station. No error is sent
/// for a frame to a group (RFC 1122, section 3.2.2).
fn asks_a_port(frame: &[u8]) -> bool {
    let bytes = frame.get(ETHERNET_LEN..).unwrap_or_default();
    let is_for_one = Ethernet::parse(frame).is_some_and(|header| !header.dst.is_group());
    is_for_one
        && Packet::parse(bytes, bytes.len()).is_ok_and(|packet| packet.protocol == protocol::UDP)
}

/// Returns the reply to a frame that is for us or for a group.
fn heard(own: &Interface, frame: &[u8]) -> Result<Option<Vec<u8>>, DropReason> {
    let ethernet = Ethernet::parse(frame).ok_or(DropReason::NotIp)?;
    let bytes = &frame[ETHERNET_LEN..];
    match ethernet.ethertype {
        // No reply may go to a group, or to ourselves.
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

/// Returns the Ethernet type of an IP version.
#[inline(always)]
pub(super) fn ethertype(version: Version) -> u16 {
    match version {
        Version::V4 => ethertype::IPV4,
        Version::V6 => ethertype::IPV6,
    }
}
