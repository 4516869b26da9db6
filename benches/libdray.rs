//! Rate of a forwarder in C over libdray (dataplane/capi/examples/forward.c), beside that of `dray
//! forward`: both between two polled `vhost:` ports on CPU 1, in turns. Sender and receiver are
//! drivers in one thread on CPU 0.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dray_port::{Frame, Port, PortUri};
use dray_traffic::line;
use dray_wire::{Flow, test_frame};
use rustix::thread::{CpuSet, sched_setaffinity};

const TURNS: usize = 15;
const TRIAL: Duration = Duration::from_secs(1);
/// Frames on their way: less than a ring has room for.
const WINDOW: usize = 512;
/// Frames that are transmitted by one call.
const BATCH: usize = 64;

fn main() {
    let folder = tempfile::tempdir().expect("a directory");
    let forward = compile(folder.path());
    let mut cpus = CpuSet::new();
    cpus.set(0);
    sched_setaffinity(None, &cpus).expect("CPU 0");
    for size in [64, 1500] {
        let mut ratios = Vec::new();
        let mut before = distance();
        for turn in 0..TURNS {
            let at = |name: &str| folder.path().join(format!("{size}-{turn}-{name}"));
            let mut in_c = Command::new("taskset");
            in_c.args(["-c", "1"]).arg(&forward);
            let c = trial(&at("c"), size, &mut in_c, &["", ""]);
            let between = distance();
            let mut own = Command::new("taskset");
            own.args(["-c", "1", env!("CARGO_BIN_EXE_dray"), "forward", "--both-ways"]);
            own.args(["--interval", "0"]);
            let rust = trial(&at("dray"), size, &mut own, &["--from", "--to"]);
            let after = distance();
            print!("{size} B: C {c:.2}, dray forward {rust:.2} Mpps, cache line ");
            // The host may have moved the CPUs meanwhile (docs/performance.md), or used one.
            match (before, between, after) {
                (Some(before), Some(between), Some(after)) => {
                    println!("{before:.0}, {between:.0}, {after:.0} ns");
                    if [before, after].iter().all(|ns| (ns / between - 1.0).abs() < 0.3) {
                        ratios.push(c / rust);
                    }
                }
                _ => println!("not measured: busy CPUs"),
            }
            before = after;
        }
        ratios.sort_unstable_by(f64::total_cmp);
        let [Some(least), Some(median), Some(most)] =
            [ratios.first(), ratios.get(ratios.len() / 2), ratios.last()]
        else {
            println!("{size} B: no turn in which the CPUs stayed where they were");
            continue;
        };
        let turns = ratios.len();
        println!(
            "{size} B: C to dray forward {median:.2} ({least:.2} to {most:.2}, {turns} turns)"
        );
    }
}

/// Returns the time that a cache line takes between the two CPUs, in nanoseconds; `None` if one of
/// them is busy.
fn distance() -> Option<f64> {
    line::round_trip_ns(0, 1).expect("two CPUs")
}

/// Returns the forwarder, compiled as docs/libdray.md says.
fn compile(folder: &Path) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let run = |command: &mut Command| assert!(command.status().expect("it starts").success());
    run(Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--quiet", "--package", "dray-capi"])
        .current_dir(workspace));
    let built = Path::new(env!("CARGO_BIN_EXE_dray")).with_file_name("libdray.so");
    for name in ["libdray.so.0", "libdray.so"] {
        std::fs::copy(&built, folder.join(name)).expect("libdray");
    }
    let forward = folder.join("forward");
    run(Command::new("cc")
        .args(["-O2", "-Idataplane/capi/include", "dataplane/capi/examples/forward.c"])
        .arg(format!("-L{0}", folder.display()))
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(["-ldray", "-o"])
        .arg(&forward)
        .current_dir(workspace));
    forward
}

/// Returns the rate of frames of `size` bytes through `forwarder`, in Mpps. It gets two ports at
/// `socket`, each after one of the `options`.
fn trial(socket: &Path, size: usize, forwarder: &mut Command, options: &[&str; 2]) -> f64 {
    let sockets = ["in", "out"].map(|end| format!("{}-{end}", socket.display()));
    for (option, socket) in options.iter().zip(&sockets) {
        forwarder.args(Some(option).filter(|option| !option.is_empty()));
        forwarder.arg(format!("vhost:{socket}?wait=poll"));
    }
    let _forwarder = Stopped(forwarder.stdout(Stdio::null()).spawn().expect("it starts"));
    let [mut from, mut to] = sockets.map(|socket| {
        let uri: PortUri = format!("virtio:{socket}?wait=poll").parse().expect("a short path");
        let start = Instant::now();
        while !Path::new(&socket).exists() {
            assert!(start.elapsed() < Duration::from_secs(10), "no port at {socket}");
        }
        uri.open().expect("a driver")
    });
    let frame = test_frame::build(&Flow::default(), size);
    let frames = [Frame::from(&frame[..]); BATCH];
    wait_for_path(&mut from, &mut to, &frames[..1]);

    let (mut sent, mut received) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < TRIAL {
        if sent - received <= WINDOW - BATCH {
            sent += from.tx[0].transmit(&frames).expect("a driver");
        }
        received += receive(&mut to);
    }
    let rate = received as f64 / start.elapsed().as_secs_f64() / 1e6;
    let end = Instant::now();
    while received < sent && end.elapsed() < Duration::from_secs(1) {
        received += receive(&mut to);
    }
    assert_eq!(received, sent, "a ring has room for all frames on their way");
    rate
}

fn receive(port: &mut Port) -> usize {
    port.rx[0].receive(&mut |frames| frames.len()).expect("a driver")
}

/// Sends `frames` until they arrive, and waits until no more do.
fn wait_for_path(from: &mut Port, to: &mut Port, frames: &[Frame<'_>]) {
    let start = Instant::now();
    let mut last = None;
    while last.is_none_or(|last: Instant| last.elapsed() < Duration::from_millis(100)) {
        assert!(start.elapsed() < Duration::from_secs(10), "no frame arrives");
        if last.is_none() {
            from.tx[0].transmit(frames).expect("a driver");
        }
        if receive(to) > 0 {
            last = Some(Instant::now());
        }
    }
}

/// A forwarder that ends with its trial.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
