//! Samples of third-party programs, whose counters are the reports of their roles.

use std::time::{Duration, Instant};

use dray_lab::peer::CpuTime;
use dray_lab::{Lab, LabError};
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{ReceiveReport, Sample, SendReport, StreamReport};

use crate::reading::CpuReading;
use crate::timing::Timing;
use crate::topology::Topology;

/// Time for frames in flight to arrive.
pub(super) const QUIET: Duration = Duration::from_millis(60);

/// Time after which frames that still arrive are not of this trial.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// Start of the measurement on the monotonic clock, and CPU times before and after it.
pub(super) type Measured = (u64, [CpuReading; 2]);

/// Calls `take` after the warm-up, at the interval of `timing`.
pub(super) fn measure(
    lab: &mut Lab,
    timing: &Timing,
    mut take: impl FnMut() -> Result<(), LabError>,
) -> Result<Measured, LabError> {
    lab.sleep_until(Instant::now() + timing.warm_up)?;
    let (from, measure_from_ns) = (Instant::now(), monotonic_ns());
    let before = CpuReading::take(lab)?;
    let intervals = (timing.measure.as_nanos() / timing.interval.as_nanos()) as u32;
    for number in 0..=intervals {
        lab.sleep_until(from + number * timing.interval)?;
        take()?;
    }
    Ok((measure_from_ns, [before, CpuReading::take(lab)?]))
}

/// Calls `take`, which returns the sum of all counters, until it returns the same sum twice.
/// Programs on one CPU wait for each other while frames are in flight, and one counts frames after
/// the other was asked.
pub(super) fn measure_rest(
    lab: &mut Lab,
    mut take: impl FnMut() -> Result<u64, LabError>,
) -> Result<(), LabError> {
    let deadline = Instant::now() + LONGEST_REST;
    let mut before = None;
    while Instant::now() < deadline {
        lab.sleep_until(Instant::now() + QUIET)?;
        let counted = Some(take()?);
        if counted == before {
            break;
        }
        before = counted;
    }
    Ok(())
}

/// Returns a sample of a program's counters, taken now.
pub(super) fn sample(frames: u64, bytes: u64, cpu: CpuTime) -> Sample {
    Sample {
        at_ns: monotonic_ns(),
        frames,
        bytes,
        user_ns: cpu.user.as_nanos() as u64,
        system_ns: cpu.system.as_nanos() as u64,
        work_ns: None,
    }
}

/// Returns the report of a sender of these frames and bytes.
pub(super) fn sender((sent, bytes): (u64, u64), samples: Vec<Sample>) -> SendReport {
    SendReport { sent, bytes, streams: vec![sent], samples, ..SendReport::default() }
}

/// Returns the report of a receiver of these frames and bytes.
pub(super) fn receiver((received, bytes): (u64, u64), samples: Vec<Sample>) -> ReceiveReport {
    // All frames are one stream; its missing frames are those sent but not received.
    let streams = vec![StreamReport { received, next: received, ..StreamReport::default() }];
    ReceiveReport { received, bytes, streams, samples, ..ReceiveReport::default() }
}

/// Fails if the sender has several links: `program` sends to one port.
pub(super) fn check_one_port(topology: &Topology, program: &str) -> Result<(), LabError> {
    if topology.sender.outs.len() == 1 {
        return Ok(());
    }
    let what = "sends to one port, so forwarders cannot be side by side".to_owned();
    Err(LabError::Peer { peer: program.to_owned(), what })
}
