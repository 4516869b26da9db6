//! Peers that violate the protocol. Whatever a driver says or writes, the switch stays up, the
//! driver is disconnected with a reason that names the violation (unless the protocol permits it),
//! its port accepts another driver, and two well-behaved ports next to it lose nothing.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::alone;
use crate::liar::lies;
use crate::liar::ours::Ours;
use crate::liar::testpmd::{self, Testpmd};
use crate::liar::{Expect, Lie, Lies};

/// Number of concurrent liars.
const AT_ONCE: usize = 4;

/// Returns the lies whose names contain the value of `LIE`, or all if it is not set.
fn chosen() -> Vec<&'static Lie> {
    let part = std::env::var("LIE").unwrap_or_default();
    lies::all().filter(|lie| lie.name.contains(&part)).collect()
}

/// Commits each violation against a running switch, and returns the outcomes.
fn hear_all<L: Lies>(lies: &[&Lie<L>]) -> Vec<Result<String, String>> {
    let ours = Ours::start();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(vec![Ok(String::new()); lies.len()]));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(lie) = lies.get(number)
                {
                    let outcome = ours.hear(lie, number);
                    outcomes.lock().expect("no panic")[number] = outcome;
                }
            });
        }
    });
    match ours.finish() {
        Ok(frames) => eprintln!("{} lies; the neighbours exchanged {frames} frames", lies.len()),
        Err(what) => panic!("the neighbours were affected: {what}"),
    }
    outcomes.into_inner().expect("no panic")
}

/// Commits each of these violations, and fails if the switch handled one wrongly.
fn all_are_harmless<L: Lies>(lies: &[&Lie<L>]) {
    let outcomes = hear_all(lies);
    let mut failed = Vec::new();
    for (lie, outcome) in lies.iter().zip(outcomes) {
        match outcome {
            Ok(outcome) => eprintln!("{}: {outcome}", lie.name),
            Err(what) => failed.push(format!("{}: {what}", lie.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn lies_harm_only_the_liar() {
    let _alone = alone();
    all_are_harmless(&chosen());
}

#[test]
fn lies_of_memif_client_harm_only_the_liar() {
    let _alone = alone();
    let part = std::env::var("LIE").unwrap_or_default();
    all_are_harmless(&lies::memif().filter(|lie| lie.name.contains(&part)).collect::<Vec<_>>());
}

/// Takes all asynchronous I/O contexts of the machine, until its input ends.
const TAKE_AIO: &str = "
import ctypes, os, select, sys
libc = ctypes.CDLL(None, use_errno=True)
io_setup = 206 if os.uname().machine == 'x86_64' else 0
def take(events):
    return libc.syscall(io_setup, events, ctypes.byref(ctypes.c_ulong(0))) == 0
for events in (4096, 64, 1):
    while take(events):
        pass
print('taken', flush=True)
# Other programs give theirs back.
while not select.select([sys.stdin], [], [], 0.0005)[0]:
    while take(1):
        pass
";

/// A process that holds all asynchronous I/O contexts.
struct TakeAio(Child);

impl TakeAio {
    fn start() -> Self {
        let mut child = Command::new("python3")
            .args(["-c", TAKE_AIO])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe");
        assert_eq!(line, "taken\n");
        Self(child)
    }

    /// Ends the process's input, which makes it release all contexts.
    fn stop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for TakeAio {
    fn drop(&mut self) {
        self.stop();
    }
}

/// `fs.aio-max-nr` limits the whole machine, and any user can exhaust it.
#[test]
fn exhausted_aio_blocks_no_call() {
    let _alone = alone();
    let mut taker = TakeAio::start();
    // A process that has no context yet.
    let program = std::env::current_exe().expect("this program");
    let told = Command::new(program)
        .args(["--exact", "liars::calls_without_asynchronous_io", "--ignored", "--nocapture"])
        .output()
        .expect("this program");
    taker.stop();
    let output = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{output}");
    assert!(output.contains("a full, blocking eventfd as call: nothing"), "{output}");
}

#[test]
#[ignore = "run by another test"]
fn calls_without_asynchronous_io() {
    let _alone = alone();
    let about_events = |lie: &&Lie| ["call", "kick"].iter().any(|part| lie.name.contains(part));
    all_are_harmless(&lies::all().filter(about_events).collect::<Vec<_>>());
}

/// Address space ends at 128 TiB: drivers may share 96 TiB of it.
#[test]
fn peer_memory_limit_leaves_address_space() {
    let _alone = alone();
    let ours = Ours::start();
    let (served, because) = ours.crowd(100).expect("served");
    assert!((90..96).contains(&served), "{served} of 100");
    assert!(because.contains("peers already share"), "{because}");
    ours.finish().expect("nothing is lost");
}

/// Measures what the worst lies cost neighbours on another worker. On an otherwise idle machine:
///
/// ```sh
/// cargo test --release -p dray --test switch -- \
///     --ignored --nocapture --exact liars::cost_of_lies_to_neighbours
/// ```
#[test]
#[ignore = "prints figures"]
fn cost_of_lies_to_neighbours() {
    let _alone = alone();
    let full = "a full, blocking eventfd as call";
    // A process without an asynchronous I/O context creates one as soon as it can, so the
    // measurement without a context comes first.
    let mut taker = TakeAio::start();
    cost_to_neighbours(full, "asynchronous I/O exhausted before the start, and ");
    taker.stop();
    for name in [
        "endless receive chains of 256 empty buffers",
        "a call with 100,000 watchers",
        "endless kicks with an empty ring",
        "endless memory tables of 32 regions",
    ] {
        cost_to_neighbours(name, "");
    }
    let _taker = TakeAio::start();
    cost_to_neighbours(full, "asynchronous I/O exhausted, and ");
}

/// Prints the neighbours' p50 and p99 with the lie `name` and without one: the medians of turns
/// that alternate, because the state of the machine changes.
fn cost_to_neighbours(name: &str, circumstances: &str) {
    const TURNS: usize = 5;
    const TIME: Duration = Duration::from_secs(4);
    let lie = lies::all().find(|lie| lie.name == name).expect("a lie");
    // p50 and p99, with and without the lie.
    let mut figures = [[(); 2]; 2].map(|row| row.map(|()| Vec::new()));
    for turn in 0..2 * TURNS {
        let with = turn % 2;
        let times = match Ours::measure((with == 1).then_some(lie), TIME) {
            Ok(times) => times,
            Err(what) => return println!("{circumstances}{name}: frames were lost: {what}"),
        };
        for (part, figures) in [50, 99].into_iter().zip(&mut figures[with]) {
            figures.push(times[(times.len() - 1) * part / 100].as_secs_f64() * 1e6);
        }
    }
    println!("{circumstances}{name}: {figures:.1?}");
    let [[p50, p99], [lie_p50, lie_p99]] = figures.map(|row| {
        row.map(|mut figures| {
            figures.sort_by(f64::total_cmp);
            figures[TURNS / 2]
        })
    });
    println!(
        "  p50 {p50:.1} us without, {lie_p50:.1} us with; p99 {p99:.1} us without, {lie_p99:.1} us \
         with: {:.2} x",
        lie_p99 / p99
    );
}

/// Prints the table in `docs/hostile-peers.md`:
/// `cargo test --release --test switch -- --ignored --nocapture prints_testpmd_table`.
#[test]
#[ignore = "minutes, and a table to be read"]
fn prints_testpmd_table() {
    let _alone = alone();
    assert!(testpmd::is_there(), "apt-get install dpdk");
    let lies = chosen();
    let ours = hear_all(&lies);
    let program = std::env::current_exe().expect("this program").display().to_string();
    println!("| what the driver does | dray | testpmd |\n|---|---|---|");
    let mut switch: Option<Testpmd> = None;
    for (lie, ours) in lies.iter().zip(ours) {
        let running = switch.get_or_insert_with(Testpmd::start);
        let (theirs, usable) = running.hear(lie);
        if !usable {
            switch = None;
        }
        let ours = ours.unwrap_or_else(|what| format!("**failed**: {what}"));
        let ours = match lie.expect {
            Expect::Refused(_) => format!("disconnected: {ours}"),
            Expect::Harmless if ours == "nothing" => "goes on".to_owned(),
            _ => ours,
        };
        println!("| {} | {} | {theirs} |", lie.name, ours.replace(&program, "/the/program"));
    }
}
