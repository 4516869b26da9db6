//! Byte streams: a [`sender`] that writes as much as TCP takes, and a [`receiver`] that reads and
//! checks it. One or several streams per role; each is a connection of its own.
//!
//! What flows is a pattern that both sides know, so a figure is one of intact bytes. The
//! kernel's own count of what TCP carried stands beside ours.

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

/// How long the end of a stream is waited for once its sender has stopped: many streams on few CPUs
/// have megabytes under way each, and a lost segment is sent again only after 200 ms or more.
const END_MAX: Duration = Duration::from_secs(5);

/// How long a role sleeps before it looks whether it should stop.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The longest sleep of a role that has a sample to take after `until_sample`, as `poll` takes it.
fn sleep(until_sample: Duration) -> rustix::event::Timespec {
    // A role that wakes a little early looks once more, which is cheaper than to be late.
    let time = until_sample.min(SLEEP_MAX);
    rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) }
}
