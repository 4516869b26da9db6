//! CPU time: what the kernel counted for each CPU, shared out among the roles that ran there.
//!
//! The kernel does the receiver's half of a veth's work in a soft interrupt on top of whatever
//! runs, usually the sender's system call. Depending on its configuration it charges that time to
//! the interrupted process, to nobody, or to a kernel thread; `/proc/stat` has it by CPU in every
//! case (proc_stat(5)), sampled by the timer tick. So a CPU's soft interrupt time is given to the
//! roles on it in proportion to their system time, and as much as the roles' own times were charged
//! with it is taken off there.

use std::collections::BTreeMap;
use std::{fs, io};

use serde::{Deserialize, Serialize};

/// Time that one CPU has spent, in seconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTimes {
    /// Everything but idling and what the hypervisor took.
    pub busy: f64,
    /// In soft interrupts.
    pub softirq: f64,
    /// Taken by the hypervisor while there was something to do.
    pub steal: f64,
}

/// CPU time of a role, or of all of them, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuCost {
    /// In user mode.
    pub user_s: f64,
    /// In the kernel, without soft interrupts.
    pub system_s: f64,
    /// In soft interrupts.
    pub softirq_s: f64,
}

impl CpuCost {
    /// All of it.
    pub fn total_s(&self) -> f64 {
        self.user_s + self.system_s + self.softirq_s
    }
}

impl std::ops::AddAssign for CpuCost {
    fn add_assign(&mut self, other: Self) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.softirq_s += other.softirq_s;
    }
}

/// The times of every CPU now.
pub fn read() -> io::Result<BTreeMap<usize, CpuTimes>> {
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(parse(&fs::read_to_string("/proc/stat")?, ticks_per_second))
}

fn parse(text: &str, ticks_per_second: f64) -> BTreeMap<usize, CpuTimes> {
    let line = |line: &str| {
        let (name, numbers) = line.split_once(' ')?;
        let cpu = name.strip_prefix("cpu")?.parse().ok()?;
        let numbers: Vec<f64> =
            numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let &[user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = &numbers[..] else {
            return None;
        };
        let [busy, softirq, steal] =
            [user + nice + system + irq + softirq, softirq, steal].map(|it| it / ticks_per_second);
        Some((cpu, CpuTimes { busy, softirq, steal }))
    };
    text.lines().filter_map(line).collect()
}

/// A role's own account of its CPU time over the same span, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoleTimes {
    /// The CPU that it ran on.
    pub cpu: usize,
    /// In user mode.
    pub user_s: f64,
    /// In the kernel; whether soft interrupts are in it depends on the kernel.
    pub system_s: f64,
}

/// Shares out the soft interrupt time of each CPU between `before` and `after`.
pub fn attribute(
    before: &BTreeMap<usize, CpuTimes>,
    after: &BTreeMap<usize, CpuTimes>,
    roles: &[RoleTimes],
) -> Vec<CpuCost> {
    let share = |role: &RoleTimes| {
        let on_this_cpu = || roles.iter().filter(|other| other.cpu == role.cpu);
        let (Some(before), Some(after)) = (before.get(&role.cpu), after.get(&role.cpu)) else {
            return CpuCost { user_s: role.user_s, system_s: role.system_s, softirq_s: 0.0 };
        };
        let softirq = (after.softirq - before.softirq).max(0.0);
        let busy = (after.busy - before.busy).max(0.0);
        let charged: f64 = on_this_cpu().map(|other| other.user_s + other.system_s).sum();
        // What was charged twice: a CPU cannot be busy for longer than it was.
        let overlap = (charged + softirq - busy).clamp(0.0, softirq);
        let system: f64 = on_this_cpu().map(|other| other.system_s).sum();
        let part =
            if system > 0.0 { role.system_s / system } else { 1.0 / on_this_cpu().count() as f64 };
        CpuCost {
            user_s: role.user_s,
            system_s: (role.system_s - overlap * part).max(0.0),
            softirq_s: softirq * part,
        }
    };
    roles.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(cpu: usize, busy: f64, softirq: f64) -> [BTreeMap<usize, CpuTimes>; 2] {
        let before = CpuTimes { busy: 5.0, softirq: 1.0, steal: 0.0 };
        let after = CpuTimes { busy: 5.0 + busy, softirq: 1.0 + softirq, steal: 0.0 };
        [BTreeMap::from([(cpu, before)]), BTreeMap::from([(cpu, after)])]
    }

    #[test]
    fn reads_proc_stat() {
        let text = "cpu  9 9 9 9\ncpu0 100 0 200 4000 50 10 90 3 0 0\ncpu1 1 2\nintr 5\n";
        let times = parse(text, 100.0);
        assert_eq!(times, BTreeMap::from([(0, CpuTimes { busy: 4.0, softirq: 0.9, steal: 0.03 })]));
    }

    #[test]
    fn soft_interrupts_charged_to_the_process_are_taken_off_there() {
        let [before, after] = span(1, 1.0, 0.4);
        let role = RoleTimes { cpu: 1, user_s: 0.1, system_s: 0.9 };
        let cost = attribute(&before, &after, &[role])[0];
        assert!((cost.system_s - 0.5).abs() < 1e-9 && (cost.softirq_s - 0.4).abs() < 1e-9);
        assert!((cost.total_s() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn soft_interrupts_charged_to_nobody_are_added() {
        let [before, after] = span(1, 1.0, 0.4);
        let role = RoleTimes { cpu: 1, user_s: 0.1, system_s: 0.5 };
        let cost = attribute(&before, &after, &[role])[0];
        assert!((cost.total_s() - 1.0).abs() < 1e-9 && (cost.system_s - 0.5).abs() < 1e-9);
    }

    #[test]
    fn roles_on_one_cpu_share_by_their_system_time() {
        let [before, after] = span(0, 1.0, 0.4);
        let roles = [0.6, 0.2].map(|system_s| RoleTimes { cpu: 0, user_s: 0.1, system_s });
        let costs = attribute(&before, &after, &roles);
        assert!((costs[0].softirq_s - 0.3).abs() < 1e-9 && (costs[1].softirq_s - 0.1).abs() < 1e-9);
        assert!((costs[0].total_s() + costs[1].total_s() - 1.0).abs() < 1e-9);
    }
}
