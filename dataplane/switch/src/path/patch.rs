//! Patch mode: each port of a pair transmits unchanged what the other receives.

use dray_port::Frame;

use super::View;
use super::port::{OpenPort, bytes};
use super::worker::Tally;
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
        return pass(view, flow, worker, from.index, frames, tally);
    };
    let passed = rate.pass(frames);
    let done = match passed {
        0 => 0,
        passed => pass(view, flow, worker, from.index, &frames[..passed], tally),
    };
    if done < passed {
        // These frames wait, so it is not the turn of the ones behind them yet.
        rate.give_back(&frames[done..passed]);
        return done;
    }
    let beyond = &frames[passed..];
    tally.received(from.index, beyond.len(), bytes(beyond));
    tally.of(from.index).drops.add(DropReason::PolicedIn, beyond.len() as u64);
    frames.len()
}

#[inline]
fn pass(
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
