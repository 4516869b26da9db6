//! Code that the data threads of the switch and the user plane function share: how a thread is
//! started and pinned, when it publishes its counters and when it sleeps, what it tells of itself,
//! transmit queues, token buckets; and for every role, its rate, the choice of its CPU and
//! cancellation by a signal.
#![forbid(unsafe_code)]

mod activity;
mod arrivals;
mod bucket;
mod cancel;
mod control;
pub mod counters;
mod idle;
mod pace;
pub mod placement;
mod queues;
mod thread;

pub use activity::{Activity, Moved, check_alive};
pub use arrivals::{ArrivalClock, Arrivals};
pub use bucket::{Bucket, Limit, Sharing};
pub use cancel::{Cancel, Cancelled};
pub use control::ThreadControl;
pub use idle::{Idle, IdleError};
pub use pace::{Pace, Round};
pub use placement::Placement;
pub use queues::TransmitQueues;
pub use thread::spawn;

use std::sync::{Mutex, MutexGuard, PoisonError};

#[doc(hidden)]
pub use dray_shm::SharedWords;
#[doc(hidden)]
pub use serde;

// The macro names this crate as other crates see it.
#[cfg(test)]
extern crate self as dray_datapath;

/// Locks data that stays valid even if a thread that held the lock panicked.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
