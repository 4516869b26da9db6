//! Plan of the impairments.

use std::time::Duration;

use crate::uri::query::{Query, UriError};

/// Impairments of received frames. Frames are counted from 1. If several impairments apply to one
/// frame, the first in this order is used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Plan {
    /// Maximum rate, in frames per second. Test frames count by the time at which they were due, so
    /// that the outcome does not depend on scheduling; other frames count by their arrival.
    pub rate: Option<f64>,
    /// Number of frames, in all, that may be ahead of the rate before frames are dropped.
    pub queue: Option<u32>,
    /// Drops every n-th frame.
    pub drop: Option<u32>,
    /// Duplicates every n-th frame.
    pub duplicate: Option<u32>,
    /// Delivers every n-th frame after the one that follows it.
    pub swap: Option<u32>,
    /// Delay after which a frame is delivered, in order: counted from when a test frame was sent,
    /// or from when another frame arrived.
    pub delay: Duration,
    /// Delays every n-th frame by [`late_by`](Self::late_by) instead.
    pub late: Option<u32>,
    /// See [`late`](Self::late).
    pub late_by: Duration,
    /// Number of the frame at which the receiving thread panics, to show how a program handles
    /// that.
    pub panic: Option<u32>,
}

impl Plan {
    /// Maximum delay: a receiver that has seen nothing for longer considers the queues empty.
    pub const DELAY_MAX: Duration = Duration::from_millis(50);
    /// Default of `queue`: one burst.
    pub const QUEUE: u32 = 64;

    pub(super) fn parse(query: &mut Query<'_>) -> Result<Self, UriError> {
        let each = "a number N from 1, for every Nth frame";
        let mut number = |key| query.take(key, each, |text| text.parse().ok().filter(|n| *n > 0));
        let [drop, duplicate, swap] = [number("drop")?, number("duplicate")?, number("swap")?];
        let late = number("late")?;
        let panic = query.take("panic", "the number of a frame, from 1", |text| {
            text.parse().ok().filter(|frame| *frame > 0)
        })?;
        let queue = query.take("queue", "a number of frames, from 1", |text| {
            text.parse().ok().filter(|frames| *frames > 0)
        })?;
        let rate = query.take("rate", "frames per second, from 1", |text| {
            text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 1.0)
        })?;
        let mut micros = |key| {
            let range = "0 to 50000 microseconds";
            let most = Self::DELAY_MAX.as_micros() as u32;
            query.take(key, range, |text| text.parse().ok().filter(|us: &u32| *us <= most))
        };
        let (delay, late_by) = (micros("delay")?, micros("late_by")?);
        let duration = |us: Option<u32>| Duration::from_micros(us.unwrap_or(0).into());
        let (delay, late_by) = (duration(delay), duration(late_by));
        if late.is_some() == late_by.is_zero() {
            return Err(query.error("late and late_by must be given together".to_owned()));
        }
        if queue.is_some() && rate.is_none() {
            return Err(query.error("queue needs rate".to_owned()));
        }
        Ok(Self { rate, queue, drop, duplicate, swap, delay, late, late_by, panic })
    }
}
