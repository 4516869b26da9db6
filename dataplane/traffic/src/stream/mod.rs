//! Byte streams: a [`sender`] that writes as much as TCP takes, and a [`receiver`] that reads and
//! checks it. Each stream of a role is a connection of its own.
//!
//! The stream is a pattern that both sides know, so figures count intact bytes. The kernel's own
//! count of what TCP carried is reported beside it.

mod calls;
mod incoming;
mod outgoing;
mod pattern;
pub mod receiver;
mod report;
pub mod sender;
mod uri;

pub use report::{StreamBytes, StreamReceiveReport, StreamSendReport, ZeroCopy};
pub use uri::{Family, StreamUri};

use std::time::Duration;

/// Time to wait for the end of a stream once its sender has stopped: many streams on few CPUs have
/// megabytes under way each, and a lost segment is sent again only after 200 ms or more.
const END_MAX: Duration = Duration::from_secs(5);

/// Maximum sleep of a role before it checks if it should stop.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Returns the longest sleep of a role whose next sample is due after `until_sample`, for `poll`.
fn sleep(until_sample: Duration) -> rustix::event::Timespec {
    // A role that wakes a little early only polls once more, which is cheaper than to be late.
    let time = until_sample.min(SLEEP_MAX);
    rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) }
}
