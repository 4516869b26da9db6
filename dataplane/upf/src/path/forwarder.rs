//! The part of a worker that is the same in both directions: interfaces, sessions, queues and
//! counters.

mod departures;
mod fates;
mod forwarding;
mod next_hops;
mod replies;
mod shaping;

use std::sync::Arc;

use arrayvec::ArrayVec;
use dray_capture::{Side, Tap};
use dray_datapath::{Bucket, Sharing};
use dray_port::{Frame, Scratch, scratch};
use dray_wire::ethernet::{ETHERNET_LEN, ethertype};
use dray_wire::gtpu::Direction;
use dray_wire::ip::IPV6_LEN;

use super::egress_queue::{EgressQueue, FrameClass};
use super::header_buffer::{CHUNK, COPY_LEN, HEADROOM, HeaderBuffer};
use super::pending_rates::PendingRates;
use super::sessions::{Changes, Sessions};
use super::shaping_queue::ShapingQueue;
use super::unresolved::Unresolved;
use crate::counters::{Counters, DropReason, SharedCounters};
use crate::event::EventSender;
use crate::interface::Interface;
use crate::meter::{self, Patience};
use crate::session::{Counting, END, LISTED, Report, Rule};

pub(super) use departures::{Chunk, Departure, Departures};
pub(super) use forwarding::{Encapsulation, Forwarding};

/// Maximum rate of our own error messages, in 1000 bits per second, however many packets call for
/// them.
const ERRORS_KBPS: u64 = 1000;

/// Maximum number of silent neighbours solicited for a chunk of received frames.
const NOTES: usize = 4;

/// A worker of one direction without the direction's own passes.
pub(crate) struct Forwarder {
    pub(super) direction: Direction,
    /// Number of the worker in its direction.
    pub(super) worker: usize,
    /// Sharing of accounts with other workers of the direction.
    pub(super) sharing: Sharing,
    /// Interface that packets come from.
    pub(super) from: Arc<Interface>,
    /// Interface that packets go to.
    pub(super) to: Arc<Interface>,
    pub(super) sessions: Sessions,
    pub(crate) changes: Changes,
    pub(crate) counters: Counters,
    /// Counters of the direction, in which this worker has a row.
    published: Arc<SharedCounters>,
    pub(super) events: EventSender,
    pub(crate) tap: Arc<Tap>,
    pub(super) headers: Box<[HeaderBuffer]>,
    /// Heads for the fragments of a packet.
    fragment_headers: Box<[HeaderBuffer]>,
    pub(super) scratch: Scratch,
    egress: EgressQueue,
    /// Packets that wait for the Ethernet address of their next hop.
    pub(super) unresolved: Unresolved,
    shaped: ShapingQueue,
    /// The packets of the chunk that have to wait for their rate, by their frames' numbers, and
    /// their sessions with the ticks from which they may leave.
    delays: ArrayVec<(u16, (u32, u64)), CHUNK>,
    /// Time that packets may wait for their rate.
    pub(super) patience: Patience,
    /// Ticks by which the clock of the rates is behind.
    lag: u64,
    /// Tick at which `lag` was last changed.
    lag_at: u64,
    /// The rates of the packet in process if its next hop is not known.
    pending: Option<PendingRates>,
    /// True while the packet in process was made here.
    pub(super) is_generated: bool,
    /// Tick at which the egress port last took a packet.
    moved: u64,
    error_limit: Bucket,
}

impl Forwarder {
    pub(crate) fn new(
        direction: Direction,
        (worker, sharing): (usize, Sharing),
        (from, to): (Arc<Interface>, Arc<Interface>),
        (sessions, changes): (Sessions, Changes),
        published: Arc<SharedCounters>,
        events: EventSender,
        unresolved: Unresolved,
    ) -> Self {
        let shaped = ShapingQueue::new(to.mtu);
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
            events,
            tap: Arc::default(),
            headers: vec![HeaderBuffer([0; HEADROOM + COPY_LEN]); CHUNK].into(),
            fragment_headers: vec![HeaderBuffer([0; HEADROOM + COPY_LEN]); CHUNK].into(),
            scratch: scratch(),
            egress: EgressQueue::new(),
            unresolved,
            shaped,
            delays: ArrayVec::new(),
            patience: Patience::Usual,
            lag: 0,
            lag_at: 0,
            pending: None,
            is_generated: false,
            moved: 0,
            error_limit: meter::own(ERRORS_KBPS),
        }
    }

    /// Publishes its counters to other threads.
    pub(crate) fn publish(&self) {
        self.published.set(SharedCounters::row_of(self.worker), &self.counters);
    }

    /// Counts frames that the port lost, by reason.
    pub(crate) fn lost(&mut self, reason: DropReason, frames: u64) {
        self.counters.rx_packets += frames;
        self.counters.drops.add(reason, frames);
    }

    /// Returns the number of packets that wait for the egress port, for their next hop or for their
    /// rate.
    pub(crate) fn held(&self) -> u64 {
        self.egress.count(FrameClass::Packet) + self.unresolved.packets() + self.shaped.packets()
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
        match self.is_generated {
            true => self.counters.generated_dropped += 1,
            false => self.counters.drops.add(reason, 1),
        }
        let kind = Side::In.dropped(reason as u8);
        self.from.show(&self.tap, kind, std::slice::from_ref(frame));
    }

    /// Returns true if packets wait for the egress port, so that no more should be taken.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        !self.egress.is_empty()
    }

    /// Solicits silent neighbours that have sent one of `frames`.
    #[inline(always)]
    pub(super) fn note_sources(&self, frames: &[Frame<'_>]) {
        if self.from.neighbours.has_silent() {
            self.note_silent(frames);
        }
    }

    #[cold]
    fn note_silent(&self, frames: &[Frame<'_>]) {
        let mut beginning = [0; ETHERNET_LEN + IPV6_LEN];
        let from_silent = frames.iter().zip(&self.headers).filter(|(frame, head)| {
            let len = frame.len().min(beginning.len());
            let copy = &head.0[HEADROOM..HEADROOM + len];
            if copy.get(ETHERNET_LEN - 2..ETHERNET_LEN) != Some(&ethertype::IPV6.to_be_bytes()) {
                return self.from.note_source(copy);
            }
            // The copy of a packet with longer headers may have been overwritten by its inner
            // packet.
            frame.copy_from(0, &mut beginning[..len]);
            self.from.note_source(&beginning[..len])
        });
        from_silent.take(NOTES).for_each(drop);
    }

    /// Checks the packet of a frame, by its number in the chunk, against the limits of `rule`, and
    /// counts it if it passes, now or after it has waited for its rate. If its next hop is not
    /// known, its rates are left for later.
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
        let Self { direction, sharing, events, sessions, lag, .. } = self;
        let session = &sessions.slots[slot as usize];
        let (direction, sharing, accounts) = (*direction, *sharing, &*sessions.accounts);
        let now = now - *lag;
        let packet = || Counting { accounts, slot, direction, len, now, sharing };
        match session.admit(rule, packet, |report| send_report(events, session.seid, &report)) {
            Err(DropReason::Policed) => self.admit_shaped((slot, frame), rule, len, now),
            result => result,
        }
    }

    /// Delays a packet that exceeds a rate, if the delay is short enough.
    #[cold]
    fn admit_shaped(
        &mut self,
        (slot, frame): (u32, u16),
        rule: &Rule,
        len: usize,
        now: u64,
    ) -> Result<(), DropReason> {
        let Self { direction, sharing, events, sessions, shaped, delays, patience, .. } = self;
        if !shaped.may_wait(slot) {
            return Err(DropReason::Policed);
        }
        let session = &sessions.slots[slot as usize];
        let (direction, sharing, accounts) = (*direction, *sharing, &*sessions.accounts);
        let packet = Counting { accounts, slot, direction, len, now, sharing };
        let send = |report: Report| send_report(events, session.seid, &report);
        let from = session.admit_shaped(rule, &packet, *patience, send)?;
        if from > now {
            delays.push((frame, (slot, from)));
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
        let Self { direction, sharing, events, sessions, .. } = self;
        let session = &sessions.slots[slot as usize];
        let (direction, sharing, accounts) = (*direction, *sharing, &*sessions.accounts);
        let packet = || Counting { accounts, slot, direction, len, now, sharing };
        let without_rates = Rule { meters: [END; LISTED], ..*rule };
        let send = |report: Report| send_report(events, session.seid, &report);
        session.admit(&without_rates, packet, send)?;
        let has_rates = rule.meters[0] != END;
        self.pending = has_rates.then(|| PendingRates::new((session.seid, slot), rule.meters, len));
        Ok(())
    }
}

#[cold]
fn send_report(events: &EventSender, seid: u64, report: &Report) {
    events.send(report.of(seid));
}
