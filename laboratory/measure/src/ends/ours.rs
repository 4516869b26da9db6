//! Roles of ours, one in each container: ends, forwarders and echoes.

use std::time::{Duration, Instant};

use dray_lab::peer::{PeerSwitch, PortCounters};
use dray_lab::{Lab, LabError};
use dray_results::Agreements;
use dray_traffic::agent::Request;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{Report, Signal};

use crate::jobs;
use crate::reading::{CpuReading, KernelReading};
use crate::run::Run;
use crate::timing::Timing;
use crate::topology::{Hop, Load, Station, Topology};

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
    let switched_before = switch_counters(lab)?;
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

    let mut reports = Vec::new();
    for topology in topologies {
        reports.push(vec![lab.wait_until_done(topology.sender.container, TIMEOUT)?]);
    }
    let kernel = [kernel_before, KernelReading::take()];
    // Drain in the direction of frames: a role is quiet only once the roles before it are done.
    for stage in 1..topologies[0].stations().count() {
        if let Some(before) = &switched_before {
            wait_for_switch(lab, before, topologies, &reports)?;
        }
        let stations = topologies.iter().filter_map(|topology| topology.stations().nth(stage));
        let mut containers: Vec<_> = stations.map(|station| station.container).collect();
        // One user plane function serves both directions.
        containers.dedup();
        for container in &containers {
            lab[*container].request(&Request::Drain)?;
        }
        let mut ended = Vec::new();
        for container in containers {
            match lab.wait_until_done(container, TIMEOUT)? {
                Report::Both(directions) => ended.extend(*directions),
                report => ended.push(report),
            }
        }
        reports.iter_mut().zip(ended).for_each(|(reports, report)| reports.push(report));
    }
    Ok(Run { ready_after, agreements, measure_from_ns, reports, cpus, kernel })
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

/// Counters of the switch's ports, if a switch counts frames.
fn switch_counters(lab: &Lab) -> Result<Option<Vec<PortCounters>>, LabError> {
    Ok(lab.switch().map(PeerSwitch::counters).transpose()?.flatten())
}

/// Waits until the switch has taken what the last roles that ended transmitted: a quiet receiver
/// does not mean that no frames are queued, as the switch may not have run.
fn wait_for_switch(
    lab: &mut Lab,
    before: &[PortCounters],
    topologies: &[Topology],
    reports: &[Vec<Report>],
) -> Result<(), LabError> {
    let deadline = Instant::now() + Signal::DRAIN_MAX;
    let stage = reports[0].len() - 1;
    let outs = || {
        let stations = topologies.iter().filter_map(|topology| topology.stations().nth(stage));
        stations.flat_map(|station| &station.outs)
    };
    let transmitted: u64 = reports.iter().map(|reports| transmitted(&reports[stage])).sum();
    while let Some(now) = switch_counters(lab)?
        && Instant::now() < deadline
    {
        let taken = |hop: &Hop| {
            let port = hop.local().port;
            now[port].received_frames - before[port].received_frames
        };
        if outs().map(taken).sum::<u64>() >= transmitted {
            break;
        }
        lab.sleep_until(Instant::now() + Duration::from_millis(2))?;
    }
    Ok(())
}

/// Number of frames that a role transmitted.
fn transmitted(report: &Report) -> u64 {
    match report {
        Report::Send(report) => report.sent,
        Report::Ping(report) => report.send.sent,
        Report::Forward(report) => report.transmitted,
        _ => 0,
    }
}
