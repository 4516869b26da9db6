//! Readings of CPU times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dray_lab::peer::{CpuTime, PeerSwitch};
use dray_lab::{Lab, LabError};
use dray_results::CpuCost;

use crate::cpu::{self, CpuTimes, KernelThread, RoleTimes};

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
            Ok::<_, LabError>(SwitchReading {
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
    pub(crate) fn switch_times(
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
    pub(crate) at: Instant,
    pub(crate) threads: BTreeMap<u32, KernelThread>,
}

impl KernelReading {
    pub(crate) fn take() -> Self {
        Self { at: Instant::now(), threads: cpu::kernel_threads() }
    }
}
