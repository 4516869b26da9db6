//! Peers that violate the protocol. Whatever a driver sends or writes, the switch stays up, the
//! driver is disconnected with a reason that names the violation (unless the protocol permits it),
//! its port accepts another driver, and two well-behaved ports next to it lose nothing.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::alone;
use crate::hostile::ours::Ours;
use crate::hostile::testpmd::{self, Testpmd};
use crate::hostile::violations;
use crate::hostile::{Expect, HostilePeer, Violation};

/// Number of concurrent hostile peers.
const AT_ONCE: usize = 4;

/// Returns the violations whose names contain the value of `VIOLATION`, or all if it is not set.
fn chosen() -> Vec<&'static Violation> {
    let part = std::env::var("VIOLATION").unwrap_or_default();
    violations::all().filter(|violation| violation.name.contains(&part)).collect()
}

/// Commits each violation against a running switch, and returns the outcomes.
fn commit_all<L: HostilePeer>(violations: &[&Violation<L>]) -> Vec<Result<String, String>> {
    let ours = Ours::start();
    let (next, outcomes) =
        (AtomicUsize::new(0), Mutex::new(vec![Ok(String::new()); violations.len()]));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(violation) = violations.get(number)
                {
                    let outcome = ours.commit(violation, number);
                    outcomes.lock().expect("no panic")[number] = outcome;
                }
            });
        }
    });
    match ours.finish() {
        Ok(frames) => {
            eprintln!("{} violations; the neighbours exchanged {frames} frames", violations.len());
        }
        Err(what) => panic!("the neighbours were affected: {what}"),
    }
    outcomes.into_inner().expect("no panic")
}

/// Commits each of these violations, and fails if the switch handled one wrongly.
fn all_are_harmless<L: HostilePeer>(violations: &[&Violation<L>]) {
    let outcomes = commit_all(violations);
    let mut failed = Vec::new();
    for (violation, outcome) in violations.iter().zip(outcomes) {
        match outcome {
            Ok(outcome) => eprintln!("{}: {outcome}", violation.name),
            Err(what) => failed.push(format!("{}: {what}", violation.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn violations_harm_only_the_hostile_peer() {
    let _alone = alone();
    all_are_harmless(&chosen());
}

#[test]
fn violations_of_memif_client_harm_only_the_hostile_peer() {
    let _alone = alone();
    let part = std::env::var("VIOLATION").unwrap_or_default();
    all_are_harmless(
        &violations::memif().filter(|violation| violation.name.contains(&part)).collect::<Vec<_>>(),
    );
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
    let ended = Command::new(program)
        .args(["--exact", "violations::calls_without_asynchronous_io", "--ignored", "--nocapture"])
        .output()
        .expect("this program");
    taker.stop();
    let output = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{output}");
    assert!(output.contains("a full, blocking eventfd as call: nothing"), "{output}");
}

#[test]
#[ignore = "run by another test"]
fn calls_without_asynchronous_io() {
    let _alone = alone();
    let about_events =
        |violation: &&Violation| ["call", "kick"].iter().any(|part| violation.name.contains(part));
    all_are_harmless(&violations::all().filter(about_events).collect::<Vec<_>>());
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

/// Measures what the worst violations cost neighbours on another worker. On an otherwise idle
/// machine:
///
/// ```sh
/// cargo test --release -p dray --test switch -- \
///     --ignored --nocapture --exact violations::cost_of_violations_to_neighbours
/// ```
#[test]
#[ignore = "prints figures"]
fn cost_of_violations_to_neighbours() {
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

/// Prints the neighbours' p50 and p99 with the violation `name` and without one: the medians of
/// turns that alternate, because the state of the machine changes.
fn cost_to_neighbours(name: &str, circumstances: &str) {
    const TURNS: usize = 5;
    const TIME: Duration = Duration::from_secs(4);
    let violation =
        violations::all().find(|violation| violation.name == name).expect("a violation");
    // p50 and p99, with and without the violation.
    let mut figures = [[(); 2]; 2].map(|row| row.map(|()| Vec::new()));
    for turn in 0..2 * TURNS {
        let with = turn % 2;
        let times = match Ours::measure((with == 1).then_some(violation), TIME) {
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
    let violations = chosen();
    let ours = commit_all(&violations);
    let program = std::env::current_exe().expect("this program").display().to_string();
    println!("| what the driver does | dray | testpmd |\n|---|---|---|");
    let mut switch: Option<Testpmd> = None;
    for (violation, ours) in violations.iter().zip(ours) {
        let running = switch.get_or_insert_with(Testpmd::start);
        let (theirs, usable) = running.commit(violation);
        if !usable {
            switch = None;
        }
        let ours = ours.unwrap_or_else(|what| format!("**failed**: {what}"));
        let ours = match violation.expect {
            Expect::Refused(_) => format!("disconnected: {ours}"),
            Expect::Harmless if ours == "nothing" => "goes on".to_owned(),
            _ => ours,
        };
        println!("| {} | {} | {theirs} |", violation.name, ours.replace(&program, "/the/program"));
    }
}
