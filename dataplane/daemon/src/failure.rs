//! The panic of any thread ends the process.
//!
//! A process whose worker has panicked would answer on its control socket and move no frame, and
//! its supervisor would see nothing to restart. So a long-running program calls [`watch_threads`]
//! before it starts any thread: from then on it ends with status 1 when a thread panics, at once
//! and without destructors. A program with clients to inform also calls [`announce_failures`] and
//! checks [`failure`]: its control socket answers 503 with the reason for [`FAREWELL`], and then
//! the program ends.

use std::any::Any;
use std::fmt::Display;
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::log;

/// Time between a failure and the end of the process, in which control sockets report the reason.
pub const FAREWELL: Duration = Duration::from_secs(1);

static FIRST: OnceLock<String> = OnceLock::new();
static ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Turns the panic of any thread into a [`failure`] of the process. Call it once, from the program
/// itself and not from a library.
pub fn watch_threads() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // In a sandbox a thread may not read the files that a backtrace needs, and the attempt
        // would end the process before its clients are informed.
        if !is_announced() {
            print(panic);
        }
        fail(describe(panic));
    }));
}

/// Leaves ending the process after a failure to the caller, which must check [`failure`] many times
/// a second and must not wait for other threads meanwhile.
pub fn announce_failures() {
    ANNOUNCED.store(true, Ordering::Relaxed);
}

fn is_announced() -> bool {
    ANNOUNCED.load(Ordering::Relaxed)
}

/// Records `why` as the failure of the process, unless there is an earlier one.
pub fn fail(why: impl Display) {
    let _ = FIRST.set(why.to_string());
    if !is_announced() {
        exit(failure().unwrap_or_default());
    }
}

/// Returns the reason that the process must end, once one of its threads has died.
pub fn failure() -> Option<&'static str> {
    FIRST.get().map(String::as_str)
}

/// Ends the process with status 1 and a reason, without waiting: other threads may be waiting for a
/// thread that has died.
pub fn exit(why: &str) -> ! {
    log::report_failure(why);
    process::exit(1);
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let place = panic.location().map_or(String::new(), |place| format!(" at {place}"));
    let message = message(panic.payload());
    format!("thread {} panicked{place}: {message}", thread.name().unwrap_or("(unnamed)"))
}

fn message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
