//! Fates of a frame whose headers are complete: it is transmitted, waits, or is dropped.

use arrayvec::ArrayVec;
use dray_capture::{Side, Tap};
use dray_port::{Frame, clock};

use super::super::egress_queue::{EgressQueue, FrameClass};
use super::super::header_buffer::CHUNK;
use super::super::pending_rates::PendingRates;
use super::super::shaping_queue::ShapingQueue;
use super::super::unresolved::{self, Lost, Unresolved};
use crate::counters::{Counters, DropReason, Sent};
use crate::interface::Interface;

pub(super) type Batch<'f> = ArrayVec<Frame<'f>, CHUNK>;

/// Transmits `batch` after the packets that wait for the egress port; there is room to hold it.
/// `class` returns the class of a frame by its index.
#[inline(always)]
pub(super) fn send(
    batch: &[Frame<'_>],
    class: impl Fn(usize) -> FrameClass,
    (to, worker, tap): (&Interface, usize, &Tap),
    egress: &mut EgressQueue,
    counters: &mut Counters,
    moved: &mut u64,
) {
    let sent = if egress.is_empty() { to.transmit(tap, worker, batch) } else { Sent::default() };
    let taken = sent.taken;
    let left = batch[..taken].iter().enumerate().map(|(index, frame)| (frame.len(), class(index)));
    count(counters, left, sent);
    if taken < batch.len() {
        if egress.is_empty() {
            *moved = clock::ticks();
        }
        let others = batch.iter().enumerate().skip(taken);
        egress.keep(others.map(|(index, frame)| (frame, class(index))));
    }
}

/// Counts frames that the egress port took, by length; `lost` of them were refused.
#[inline(always)]
pub(super) fn count(
    counters: &mut Counters,
    frames: impl Iterator<Item = (usize, FrameClass)>,
    sent: Sent,
) {
    let (mut packets, mut own) = (0, 0);
    for (len, class) in frames {
        packets += u64::from(class == FrameClass::Packet);
        own += u64::from(class == FrameClass::Generated);
        counters.tx_bytes += if class == FrameClass::Generated { 0 } else { len as u64 };
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
pub(super) fn keep(
    (frame, class): (&Frame<'_>, FrameClass),
    until: (u32, u64),
    shaped: &mut ShapingQueue,
    counters: &mut Counters,
) {
    match shaped.keep((frame, class), until) {
        true => counters.delayed += u64::from(class == FrameClass::Packet),
        false => drop_frame(counters, DropReason::Policed, class),
    }
}

/// Keeps a frame until its next hop is known; the first one solicits it. Returns another frame that
/// was dropped for it, if its sender must be notified.
#[cold]
pub(super) fn wait(
    (frame, class): (&Frame<'_>, FrameClass),
    (hop, pending): (u16, Option<PendingRates>),
    (to, worker, tap): (&Interface, usize, &Tap),
    unresolved: &mut Unresolved,
    counters: &mut Counters,
) -> Option<Vec<u8>> {
    if !unresolved.is_awaited(hop)
        && let Some(solicitation) = to.neighbours.solicitation_for(hop)
    {
        to.solicit(solicitation, (worker, tap), counters);
    }
    counters.buffering += u64::from(class == FrameClass::Packet);
    let mut to_notify = None;
    unresolved.make_room(hop, |lost| {
        let must_notify = lose(&lost, to, tap, counters) && to.is_silent(lost.hop);
        to_notify = must_notify.then(|| lost.frame.to_vec());
    });
    if unresolved.keep((hop, pending), frame, class, clock::ticks()) {
        to.neighbours.wait(hop, class == FrameClass::Generated);
    } else {
        drop_frame(counters, DropReason::TooBig, class);
    }
    to_notify
}

/// Counts a packet that has waited for its next hop in vain; returns true if it is a whole one that
/// was received, or the last fragment of one.
pub(super) fn lose(lost: &Lost<'_>, to: &Interface, tap: &Tap, counters: &mut Counters) -> bool {
    let class = unresolved::class(lost.frame);
    to.neighbours.leave(lost.hop, 1, class == FrameClass::Generated);
    let reason = DropReason::NoNeighbour;
    drop_frame(counters, reason, class);
    if class != FrameClass::Generated {
        let unknown = [0; 6];
        let frame = Frame::from(lost.frame);
        let frame = frame.with_head(&unknown, unknown.len()..frame.len());
        to.show(tap, Side::Out.dropped(reason as u8), &[frame]);
    }
    class == FrameClass::Packet
}

/// Counts a frame that is dropped.
pub(super) fn drop_frame(counters: &mut Counters, reason: DropReason, class: FrameClass) {
    match class {
        FrameClass::Packet => counters.drops.add(reason, 1),
        FrameClass::Generated => counters.generated_dropped += 1,
        FrameClass::Fragment => {}
    }
}
