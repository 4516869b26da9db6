//! Patch mode: each port of a pair transmits unchanged what the other receives.

use dray_port::Frame;

use super::port::OpenPort;
use super::tally::Tally;
use super::view::View;
use crate::config::Flow;
use crate::counters::DropReason;

/// Moves `frames`, received on port `from`; returns how many are done with.
#[inline]
pub(super) fn forward(
    view: &View,
    flow: Flow,
    from: &OpenPort,
    frames: &[Frame<'_>],
    tally: &mut Tally,
) -> usize {
    let count = frames.len();
    let Some(to) = view.partner(from.index) else {
        tally.dropped(from, DropReason::NoReceiver, frames);
        return count;
    };
    match flow {
        Flow::Backpressure => tally.transmit(to, frames),
        Flow::Drop => {
            tally.deliver(to, frames);
            count
        }
    }
}
