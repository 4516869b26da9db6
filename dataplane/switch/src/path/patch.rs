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
    let Some(rate) = &from.rate_in else {
        return pass(view, flow, worker, from, frames, tally);
    };
    let passed = rate.pass(frames);
    let done = match passed {
        0 => 0,
        passed => pass(view, flow, worker, from, &frames[..passed], tally),
    };
    if done < passed {
        // These frames wait, so it is not the turn of the ones behind them yet.
        rate.give_back(&frames[done..passed]);
        return done;
    }
    let beyond = &frames[passed..];
    tally.received(from, beyond);
    tally.dropped(from, DropReason::PolicedIn, beyond);
    frames.len()
}

#[inline]
fn pass(
    view: &View,
    flow: Flow,
    worker: usize,
    from: &OpenPort,
    frames: &[Frame<'_>],
    tally: &mut Tally,
) -> usize {
    let count = frames.len();
    let Some(to) = view.partner(from.index) else {
        tally.received(from, frames);
        tally.dropped(from, DropReason::NoReceiver, frames);
        return count;
    };
    let taken = to.transmit(worker, frames, tally);
    let done = match flow {
        Flow::Backpressure => taken,
        Flow::Drop => {
            if taken < count {
                to.refused(worker, &frames[taken..], tally);
            }
            count
        }
    };
    // Only now is it known how many frames are done with: a capture shows a frame as sent before it
    // shows it as received.
    tally.received(from, &frames[..done]);
    done
}
