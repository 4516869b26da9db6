//! CPU cost of a trial: of its roles, of the switch, and of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dray_lab::peer::{CpuTime, PeerSwitch};
use dray_lab::{Lab, LabError};
use dray_traffic::Sample;

use crate::cpu::{self, CpuCost, CpuTimes, KernelThread, RoleTimes};
use crate::span::Span;
use crate::topology::Topology;
use crate::trial::{Run, Timing, ended_early};

/// Role name of the switch.
pub(crate) const SWITCH: &str = "switch";
/// Entry for threads of a switch that do not forward.
const SWITCH_CONTROL: &str = "switch control";
/// Entry for the kernel's own work.
const KERNEL: &str = "kernel";

/// CPU times up to one moment.
pub(crate) struct CpuReading {
    pub(crate) at: Instant,
    pub(crate) all: BTreeMap<usize, CpuTimes>,
    switch: Option<SwitchReading>,
}

/// CPU times of a user-space switch up to one moment.
#[derive(Clone, Copy)]
struct SwitchReading {
    /// The forwarding thread.
    forwarding: CpuTime,
    /// All other threads.
    control: CpuTime,
    /// Time in which the forwarding thread had frames to move, if the switch reports it.
    work: Option<Duration>,
}

impl CpuReading {
    pub(crate) fn take(lab: &Lab) -> Result<Self, LabError> {
        let what = "/proc/stat".to_owned();
        let all = cpu::read().map_err(|error| LabError::System { what, error })?;
        let reading = |switch: &PeerSwitch| {
            Ok(SwitchReading {
                forwarding: switch.cpu_time()?,
                control: switch.control_cpu_time()?,
                work: switch.work_time()?,
            })
        };
        let switch = lab.switch().map(reading).transpose()?;
        Ok(Self { at: Instant::now(), all, switch })
    }

    /// CPU times of the switch between two readings, scaled to `measure`: of its forwarding thread
    /// on `cpu`, and of its other threads.
    fn switch_times(
        &self,
        after: &Self,
        cpu: usize,
        measure: Duration,
    ) -> Option<(RoleTimes, CpuCost)> {
        let (before, switch) = (self.switch?, after.switch?);
        let scale = measure.as_secs_f64() / (after.at - self.at).as_secs_f64();
        let of =
            |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() * scale;
        let forwarding = RoleTimes {
            cpu,
            user_s: of(before.forwarding.user, switch.forwarding.user),
            system_s: of(before.forwarding.system, switch.forwarding.system),
            work_s: before.work.zip(switch.work).map(|(before, after)| of(before, after)),
        };
        let control = CpuCost {
            user_s: of(before.control.user, switch.control.user),
            system_s: of(before.control.system, switch.control.system),
            ..CpuCost::default()
        };
        Some((forwarding, control))
    }
}

/// Run times of the kernel's threads up to one moment. Reading them takes milliseconds, so they are
/// read while no frames pass.
pub(crate) struct KernelReading {
    at: Instant,
    threads: BTreeMap<u32, KernelThread>,
}

impl KernelReading {
    pub(crate) fn take() -> Self {
        Self { at: Instant::now(), threads: cpu::kernel_threads() }
    }
}

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
