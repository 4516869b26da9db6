//! Roles of ours, one in each container: ends, forwarders and echoes.

use std::time::{Duration, Instant};

use dray_lab::peer::PeerSwitch;
use dray_lab::{Lab, LabError};
use dray_results::Agreements;
use dray_traffic::agent::Request;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{Report, Signal};

use crate::jobs;
use crate::reading::{CpuReading, KernelReading};
use crate::run::{Run, unexpected};
use crate::timing::Timing;
use crate::topology::{Load, Station, Topology};

/// Time for the sender to receive its start time.
const LEAD: Duration = Duration::from_millis(20);
/// Additional time for each container to be notified.
const LEAD_EACH: Duration = Duration::from_micros(500);
/// Time for a switch to learn the receiver's address.
const LEAD_LEARNING: Duration = Duration::from_millis(200);
/// Maximum time for a role to report after it should have ended.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts the roles, lets them run, and drains what is queued.
pub(super) fn observe(
    lab: &mut Lab,
    topologies: &[Topology],
    load: &Load,
    timing: &Timing,
) -> Result<Run, LabError> {
    let Timing { warm_up, measure, interval } = *timing;
    let switched_before = switched(lab, topologies)?;
    let started = Instant::now();
    // Roles that share memory wait for each other, so all are started before the first wait.
    let both_ways = Topology::are_both_ways(topologies);
    let jobs = match topologies {
        [up, down] if both_ways => jobs::both_ways([up, down], load, timing),
        _ => topologies.iter().flat_map(|topology| jobs::of(topology, load, timing)).collect(),
    };
    for (station, job) in jobs {
        lab[station.container].request(&Request::Start(Box::new(job)))?;
    }
    // Both directions have the same roles.
    let distinct = if both_ways { &topologies[..1] } else { topologies };
    let stations = || distinct.iter().flat_map(Topology::stations);
    let agreements = wait_until_ready(lab, stations())?;
    let ready_after = started.elapsed();
    let kernel_before = KernelReading::take();
    // All samples fall on multiples of the interval, so the trial starts on one.
    let learns = topologies[0].technique.link.learns;
    let lead = if learns { LEAD_LEARNING } else { LEAD } + LEAD_EACH * stations().count() as u32;
    let earliest = monotonic_ns() + lead.as_nanos() as u64;
    let start_at_ns = earliest.next_multiple_of(interval.as_nanos() as u64);
    for station in stations() {
        lab[station.container].request(&Request::Begin { at_ns: start_at_ns })?;
    }
    let measure_from_ns = start_at_ns + warm_up.as_nanos() as u64;
    let cpus = read_cpus(lab, measure_from_ns, measure)?;

    if both_ways {
        let (reports, kernel) = (end_both_ways(lab, &topologies[0])?, KernelReading::take());
        let kernel = [kernel_before, kernel];
        return Ok(Run { ready_after, agreements, measure_from_ns, reports, cpus, kernel });
    }
    let mut reports = Vec::new();
    for topology in topologies {
        reports.push(vec![lab.wait_until_done(topology.sender.container, TIMEOUT)?]);
    }
    let kernel = [kernel_before, KernelReading::take()];
    if let Some(before) = switched_before {
        // A quiet receiver does not mean that no frames are queued: the switch may not have run.
        let deadline = Instant::now() + Signal::DRAIN_MAX;
        let sent: u64 = reports.iter().map(|reports| sent(&reports[0])).sum();
        while switched(lab, topologies)?.is_some_and(|now| now - before < sent)
            && Instant::now() < deadline
        {
            lab.sleep_until(Instant::now() + Duration::from_millis(2))?;
        }
    }
    // Drain in the direction of frames: a role is quiet only once the roles before it are done.
    for stage in 1..topologies[0].stations().count() {
        let stations = || topologies.iter().filter_map(|topology| topology.stations().nth(stage));
        for station in stations() {
            lab[station.container].request(&Request::Drain)?;
        }
        for (station, reports) in stations().zip(&mut reports) {
            reports.push(lab.wait_until_done(station.container, TIMEOUT)?);
        }
    }
    Ok(Run { ready_after, agreements, measure_from_ns, reports, cpus, kernel })
}

/// Ends the roles of a user plane function that serves both directions, when the senders have
/// ended; returns the reports of each direction.
fn end_both_ways(lab: &mut Lab, up: &Topology) -> Result<Vec<Vec<Report>>, LabError> {
    let mut end = |station: &Station| {
        lab[station.container].request(&Request::Drain)?;
        match lab.wait_until_done(station.container, TIMEOUT)? {
            Report::Both(reports) => Ok(*reports),
            other => Err(unexpected(station, &other)),
        }
    };
    // It is quiet once the senders are done; then the receivers are.
    let [forward_up, forward_down] = end(&up.forwarders[0])?;
    let [send_up, receive_down] = end(&up.sender)?;
    let [send_down, receive_up] = end(&up.receiver)?;
    Ok(vec![vec![send_up, forward_up, receive_up], vec![send_down, forward_down, receive_down]])
}

/// Waits until roles have opened their ports; returns what was negotiated, by container.
pub(super) fn wait_until_ready<'t>(
    lab: &mut Lab,
    stations: impl Iterator<Item = &'t Station>,
) -> Result<Agreements, LabError> {
    let mut agreements = Agreements::new();
    for station in stations {
        let agreed = lab.wait_until_ready(station.container)?;
        if !agreed.is_empty() {
            agreements.insert(lab[station.container].name().to_owned(), agreed);
        }
    }
    Ok(agreements)
}

/// Reads CPU times at `from_ns` on the monotonic clock, and after `measure`.
pub(super) fn read_cpus(
    lab: &mut Lab,
    from_ns: u64,
    measure: Duration,
) -> Result<[CpuReading; 2], LabError> {
    let from = Instant::now() + Duration::from_nanos(from_ns.saturating_sub(monotonic_ns()));
    lab.sleep_until(from)?;
    let before = CpuReading::take(lab)?;
    lab.sleep_until(from + measure)?;
    Ok([before, CpuReading::take(lab)?])
}

/// Number of frames that a sender sent.
fn sent(report: &Report) -> u64 {
    match report {
        Report::Send(report) => report.sent,
        Report::Ping(report) => report.send.sent,
        _ => 0,
    }
}

/// Number of frames that the switch has taken from the senders so far; `None` if no switch counts
/// them.
fn switched(lab: &Lab, topologies: &[Topology]) -> Result<Option<u64>, LabError> {
    let counters = lab.switch().map(PeerSwitch::counters).transpose()?.flatten();
    let outs = || topologies.iter().flat_map(|topology| &topology.sender.outs);
    Ok(counters.map(|ports| outs().map(|hop| ports[hop.local().port].received_frames).sum()))
}
