//! Running a role: on a thread of its own, with signals and rates.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};
use dray_datapath::{Cancel, Placement};
use dray_port::PortUri;
use dray_traffic::agent::Role;
use dray_traffic::{Job, Report, RoleError, Signal};

use super::captured::Captured;
use super::common::Common;
use super::describe::{describe, nothing_came, rates, too_few};
use super::waiting::{Waiting, frames_of};
use crate::common::{Failure, cancel_on_signals, print, print_json};

/// Runs the role on a thread of its own and signals it when to end.
pub(super) fn run(job: Job, common: &Common) -> Result<(), Failure> {
    if let Some(cpu) = common.cpu {
        Placement::of(&[cpu]).map_err(Failure::usage)?;
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set).context("setting the CPU affinity")?;
    }
    let cancel = cancel_on_signals()?;
    dray_daemon::watch_threads();
    // A sender measures its duration itself, to the tick.
    let keeps_time = matches!(job, Job::Send(_) | Job::Ping(_) | Job::StreamSend(_));
    let frames = frames_of(&job);
    let expected = expected(&job);
    let captured = common.control.as_ref().map(|address| Captured::serve(address, &job));
    let captured = captured.transpose()?;
    let open = |uri: &PortUri| match &captured {
        Some(captured) => captured.open(uri),
        None => uri.open(),
    };
    let mut role = Role::open(job, &open, &|| ()).map_err(|error| match error {
        wrong if wrong.is_wrong_usage() => Failure::usage(wrong),
        other => other.into(),
    })?;
    role.agreements().iter().for_each(|agreement| eprintln!("{agreement}"));
    let signal = Signal::default();
    let limit = common.duration.filter(|_| !keeps_time);
    let deadline = limit.map(|duration| Instant::now() + duration);
    let bytes = Arc::<AtomicU64>::default();
    let mut waiting = Waiting::new(role.watch(), frames, bytes.clone());
    let on_sample = Some(rates(common.interval, bytes));
    let (report, left) = thread::scope(|scope| -> anyhow::Result<(Report, usize)> {
        let run = || {
            if keeps_time {
                // The duration starts when the peers are connected.
                role.connect(&signal)?;
            }
            let report = role.run(&signal, on_sample)?;
            Ok::<_, RoleError>((report, role.part()))
        };
        let role = thread::Builder::new().name("role".to_owned()).spawn_scoped(scope, run)?;
        while !role.is_finished() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                signal.stop();
            }
            if cancel.check().is_err() {
                signal.drain();
            }
            if let Some(line) = waiting.line() {
                eprintln!("{line}");
            }
            thread::sleep(Cancel::INTERVAL);
        }
        Ok(role.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    })?;
    if left > 0 {
        let seconds = Role::PARTING.as_secs();
        eprintln!("{left} transmitted frames were not taken within {seconds} s and are lost");
    }
    if common.json {
        print_json(&report)?;
    } else {
        print(&describe(&report))?;
    }
    match nothing_came(&report, left).or_else(|| too_few(&report, expected)) {
        Some(why) => {
            let missing = waiting.missing().map(|peer| format!("; it waited for {peer}"));
            Err(anyhow!(why + &missing.unwrap_or_default()).into())
        }
        None => Ok(()),
    }
}

/// Returns the number of frames that a receiver is to wait for.
fn expected(job: &Job) -> Option<u64> {
    match job {
        Job::Receive(job) => job.count,
        _ => None,
    }
}
