//! Patch mode: each port of a pair transmits unchanged what the other receives.

use dray_port::Frame;

use super::View;
use super::port::OpenPort;
use super::tally::Tally;
use crate::config::Flow;
use crate::counters::DropReason;

/// Moves `frames`, received on port `from`; returns how many are done with.
#[inline]
pub(super) fn forward(
    view: &View,
    flow: Flow,
    worker: usize,
    from: &OpenPort,
    frames: &[Frame<'_>],
    tally: &mut Tally,
) -> usize {
    let count = frames.len();
    let Some(to) = view.partner(from.index) else {
        tally.dropped(from, DropReason::NoReceiver, frames);
        return count;
    };
    let taken = to.transmit(worker, frames, tally);
    match flow {
        Flow::Backpressure => taken,
        Flow::Drop => {
            if taken < count {
                to.refused(worker, &frames[taken..], tally);
            }
            count
        }
    }
}
