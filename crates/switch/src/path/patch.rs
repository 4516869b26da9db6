//! Patch mode: what one port of a pair receives, the other transmits, as it is.

use dray_port::Frame;

use super::View;
use super::port::bytes;
use super::worker::Tally;
use crate::config::Flow;
use crate::counters::DropReason;

/// Moves `frames`, received on port `from`; how many are done with.
#[inline]
pub(super) fn forward(
    view: &View,
    flow: Flow,
    worker: usize,
    from: u16,
    frames: &[Frame<'_>],
    tally: &mut Tally,
) -> usize {
    let count = frames.len();
    let Some(to) = view.partner(from) else {
        tally.received(from, count, bytes(frames));
        tally.of(from).drops.add(DropReason::NoReceiver, count as u64);
        return count;
    };
    let counters = tally.of(to.index);
    let taken = to.transmit(worker, frames, counters);
    let done = match flow {
        Flow::Backpressure => taken,
        Flow::Drop => {
            if taken < count {
                to.refused(worker, count - taken, counters);
            }
            count
        }
    };
    tally.received(from, done, bytes(&frames[..done]));
    done
}
