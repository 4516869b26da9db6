//! Fates of a complete frame: it leaves, waits, or is dropped.

use arrayvec::ArrayVec;
use dray_capture::{Side, Tap};
use dray_port::{Frame, clock};

use super::super::egress_queue::{EgressQueue, Sort};
use super::super::head::CHUNK;
use super::super::later::Later;
use super::super::toll::Toll;
use super::super::unresolved::{self, Lost, Unresolved};
use crate::counters::{Counters, DropReason, Sent};
use crate::interface::Interface;

pub(super) type Batch<'f> = ArrayVec<Frame<'f>, CHUNK>;

/// Transmits `batch` after the packets that wait for the egress port; there is room to hold it.
/// `sort` returns what a frame counts as, by its index.
#[inline(always)]
pub(super) fn send(
    batch: &[Frame<'_>],
    sort: impl Fn(usize) -> Sort,
    (to, worker, tap): (&Interface, usize, &Tap),
    held: &mut EgressQueue,
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
pub(super) fn count(
    counters: &mut Counters,
    frames: impl Iterator<Item = (usize, Sort)>,
    sent: Sent,
) {
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
pub(super) fn keep(
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

/// Keeps a frame until its next hop is known; the first one solicits it. Returns another frame that
/// was dropped for it, if its sender must be notified.
#[cold]
pub(super) fn wait(
    (frame, sort): (&Frame<'_>, Sort),
    (hop, toll): (u16, Option<Toll>),
    (to, worker, tap): (&Interface, usize, &Tap),
    unresolved: &mut Unresolved,
    counters: &mut Counters,
) -> Option<Vec<u8>> {
    if !unresolved.is_awaited(hop)
        && let Some(solicitation) = to.neighbours.solicitation_for(hop)
    {
        to.solicit(solicitation, (worker, tap), counters);
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

/// Counts a packet that has waited for its next hop in vain; returns true if it is a whole one that was
/// received, or the last fragment of one.
pub(super) fn lose(lost: &Lost<'_>, to: &Interface, tap: &Tap, counters: &mut Counters) -> bool {
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

/// Counts a frame that is dropped.
pub(super) fn drop_sort(counters: &mut Counters, reason: DropReason, sort: Sort) {
    match sort {
        Sort::Packet => counters.drops.add(reason, 1),
        Sort::Own => counters.generated_dropped += 1,
        Sort::Part => {}
    }
}
