//! CPU cost of a trial: of its roles, of the switch, and of the kernel.

use std::collections::BTreeSet;

use dray_lab::LabError;
use dray_results::{CpuCost, SWITCH};
use dray_traffic::Sample;

use crate::cpu::{self, RoleTimes};
use crate::run::{Run, ended_early};
use crate::span::Span;
use crate::timing::Timing;
use crate::topology::Topology;

/// Entry for threads of a switch that do not forward.
const SWITCH_CONTROL: &str = "switch control";
/// Entry for the kernel's own work.
const KERNEL: &str = "kernel";

/// CPU time over the measurement: of each role, of the user-space switch if there is one, and of
/// the kernel.
pub(crate) fn costs(
    topologies: &[Topology],
    timing: &Timing,
    run: &Run,
) -> Result<Vec<(String, CpuCost)>, LabError> {
    let span = Span::new(run.measure_from_ns, timing);
    let (mut roles, mut times) = (Vec::new(), Vec::new());
    for (topology, reports) in topologies.iter().zip(&run.reports) {
        for (station, report) in topology.stations().zip(reports) {
            let samples = report.samples();
            let seconds = |count: fn(&Sample) -> u64| {
                span.seconds(samples, count).ok_or_else(|| ended_early(station))
            };
            let knows = samples.last().is_some_and(|sample| sample.work_ns.is_some());
            let work_s = knows.then(|| seconds(|sample| sample.work_ns.unwrap_or(0)));
            times.push(RoleTimes {
                cpu: station.cpu,
                user_s: seconds(|sample| sample.user_ns)?,
                system_s: seconds(|sample| sample.system_ns)?,
                work_s: work_s.transpose()?,
            });
            roles.push(station.role.clone());
        }
    }
    let [before, after] = &run.cpus;
    let switch_cpu = topologies[0].switch_cpu;
    let switch = switch_cpu.and_then(|cpu| before.switch_times(after, cpu, timing.measure));
    if let Some((forwarding, _)) = switch {
        roles.push(SWITCH.to_owned());
        times.push(forwarding);
    }
    let of_roles = cpu::attribute(&before.all, &after.all, &times);
    let mut costs: Vec<(String, CpuCost)> = roles.into_iter().zip(of_roles).collect();
    costs.extend(switch.map(|(_, control)| (SWITCH_CONTROL.to_owned(), control)));
    costs.push((KERNEL.to_owned(), of_kernel(run, &times, timing)));
    Ok(costs)
}

fn of_kernel(run: &Run, times: &[RoleTimes], timing: &Timing) -> CpuCost {
    let [before, after] = &run.cpus;
    let [first, last] = &run.kernel;
    let share = timing.measure.as_secs_f64() / (last.at - first.at).as_secs_f64();
    let cpus: BTreeSet<usize> = times.iter().map(|role| role.cpu).collect();
    let threads = [&first.threads, &last.threads];
    cpu::of_kernel([&before.all, &after.all], threads, share.min(1.0), &cpus)
}
