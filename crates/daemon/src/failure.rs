//! The death of a thread ends the process.
//!
//! A worker that has panicked leaves a process that answers on its control socket and moves no
//! frame, and its supervisor sees nothing to restart. So a program that runs for long calls
//! [`watch_threads`] before it starts any thread: from then on it ends with status 1 when a thread
//! panics, at once and without its destructors. One that has clients to tell calls
//! [`announce_failures`] besides, and looks at [`failure`]: its control socket answers 503
//! with the reason for as long as [`FAREWELL`], and then it ends.

use std::any::Any;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Time between a failure and the end of the process in which control sockets say why.
pub const FAREWELL: Duration = Duration::from_secs(1);

static FIRST: OnceLock<String> = OnceLock::new();
static ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Makes the panic of any thread a [`failure`] of the process. To be called once, by the program
/// itself and not by a library.
pub fn watch_threads() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // In a sandbox a thread may not read what a backtrace takes, and to try would end the process
        // before its clients are told.
        if !is_announced() {
            print(panic);
        }
        fail(describe(panic));
    }));
}

/// Leaves the end of the process after a failure to the caller, who looks at [`failure`] many times a
/// second and waits for no other thread meanwhile.
pub fn announce_failures() {
    ANNOUNCED.store(true, Ordering::Relaxed);
}

fn is_announced() -> bool {
    ANNOUNCED.load(Ordering::Relaxed)
}

/// Makes `why` the failure of the process, unless there is an earlier one.
pub fn fail(why: impl Display) {
    let _ = FIRST.set(why.to_string());
    if !is_announced() {
        exit(failure().unwrap_or_default());
    }
}

/// Why the process has to end, once a thread of it has died.
pub fn failure() -> Option<&'static str> {
    FIRST.get().map(String::as_str)
}

/// Ends the process with status 1 and a reason, and waits for nothing: a thread that is dead may
/// have left others waiting for it.
pub fn exit(why: &str) -> ! {
    let _ = writeln!(io::stderr(), "dray: {why}");
    process::exit(1);
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let place = panic.location().map_or(String::new(), |place| format!(" at {place}"));
    let message = message(panic.payload());
    format!("thread {} panicked{place}: {message}", thread.name().unwrap_or("without a name"))
}

fn message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
