//! CPU time: the kernel's count for each CPU, divided among the roles that ran there.
//!
//! The kernel does the receiver's half of a veth's work in a soft interrupt on top of whatever
//! runs, usually the sender's system call. Depending on its configuration, it charges that time to
//! the interrupted process, to no process, or to a kernel thread; `/proc/stat` always counts it by
//! CPU (proc_stat(5)), sampled by the timer tick. So a CPU's soft interrupt time is divided among
//! its roles in proportion to their system time, and the part that was already charged to the
//! roles' own times is subtracted there.
//!
//! Other kernel work for a trial has its own entry ([`of_kernel`]): kernel threads, and soft
//! interrupts on CPUs without a role.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, io};

use dray_results::CpuCost;

/// CPU time of one CPU, in seconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTimes {
    /// All time except idle and stolen time.
    pub busy: f64,
    /// Time in soft interrupts.
    pub softirq: f64,
    /// Time that the hypervisor took while the CPU had work.
    pub steal: f64,
}

/// Reads the current times of every CPU.
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

/// CPU times that a role reports for the same span, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoleTimes {
    /// CPU that the role ran on.
    pub cpu: usize,
    /// Time in user mode.
    pub user_s: f64,
    /// Time in the kernel; the kernel's configuration decides whether it includes soft interrupts.
    pub system_s: f64,
    /// Time in which the role had work, if it measures that.
    pub work_s: Option<f64>,
}

/// Divides the soft interrupt time of each CPU between `before` and `after` among its roles.
pub fn attribute(
    before: &BTreeMap<usize, CpuTimes>,
    after: &BTreeMap<usize, CpuTimes>,
    roles: &[RoleTimes],
) -> Vec<CpuCost> {
    let share = |role: &RoleTimes| {
        let on_this_cpu = || roles.iter().filter(|other| other.cpu == role.cpu);
        let (Some(before), Some(after)) = (before.get(&role.cpu), after.get(&role.cpu)) else {
            let &RoleTimes { user_s, system_s, .. } = role;
            let polling_s = polling(role, user_s + system_s);
            return CpuCost { user_s, system_s, softirq_s: 0.0, polling_s };
        };
        let softirq = (after.softirq - before.softirq).max(0.0);
        let busy = (after.busy - before.busy).max(0.0);
        let charged: f64 = on_this_cpu().map(|other| other.user_s + other.system_s).sum();
        // Time that was charged twice: charges cannot exceed the CPU's busy time.
        let overlap = (charged + softirq - busy).clamp(0.0, softirq);
        let system: f64 = on_this_cpu().map(|other| other.system_s).sum();
        let part =
            if system > 0.0 { role.system_s / system } else { 1.0 / on_this_cpu().count() as f64 };
        let (user_s, softirq_s) = (role.user_s, softirq * part);
        let system_s = (role.system_s - overlap * part).max(0.0);
        let polling_s = polling(role, user_s + system_s + softirq_s);
        CpuCost { user_s, system_s, softirq_s, polling_s }
    };
    roles.iter().map(share).collect()
}

/// Time of a role without its work time. Soft interrupts run on top of work, and a working role may
/// have to wait for the CPU, so its work time can exceed its CPU time.
fn polling(role: &RoleTimes, all_s: f64) -> Option<f64> {
    role.work_s.map(|work_s| (all_s - work_s).max(0.0))
}

/// A kernel thread: the CPU that it last ran on, and its run time so far, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelThread {
    cpu: usize,
    run_s: f64,
}

/// Reads the kernel's threads by PID, without those that only run soft interrupts: their time is
/// already in `/proc/stat`. Empty if this process cannot see kernel threads.
pub fn kernel_threads() -> BTreeMap<u32, KernelThread> {
    /// Parent PID of all kernel threads.
    const KTHREADD: &str = "2";
    let Ok(processes) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let thread = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field, the name in parentheses, may hold spaces and parentheses.
        let (name, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        // Fields 4 and 39 of proc_pid_stat(5).
        if fields.get(1) != Some(&KTHREADD) || name.contains("(ksoftirqd/") {
            return None;
        }
        let cpu = fields.get(36)?.parse().ok()?;
        let ran = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        let run_ns: u64 = ran.split(' ').next()?.parse().ok()?;
        Some((pid, KernelThread { cpu, run_s: run_ns as f64 / 1e9 }))
    };
    pids.filter_map(thread).collect()
}

/// CPU time of the kernel's own work: `share` of the time of its threads on the CPUs of `roles`
/// between the two readings `threads`, and soft interrupts on other CPUs between the two readings
/// `stat`.
pub fn of_kernel(
    stat: [&BTreeMap<usize, CpuTimes>; 2],
    threads: [&BTreeMap<u32, KernelThread>; 2],
    share: f64,
    roles: &BTreeSet<usize>,
) -> CpuCost {
    let ran = |(pid, after): (&u32, &KernelThread)| {
        let before = threads[0].get(pid).map_or(0.0, |before| before.run_s);
        if roles.contains(&after.cpu) { (after.run_s - before).max(0.0) } else { 0.0 }
    };
    let softirq = |(cpu, after): (&usize, &CpuTimes)| {
        let before = stat[0].get(cpu).map_or(after.softirq, |before| before.softirq);
        if roles.contains(cpu) { 0.0 } else { (after.softirq - before).max(0.0) }
    };
    CpuCost {
        system_s: share * threads[1].iter().map(ran).sum::<f64>(),
        softirq_s: stat[1].iter().map(softirq).sum(),
        ..CpuCost::default()
    }
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
    fn softirq_charged_to_process_is_subtracted() {
        let [before, after] = span(1, 1.0, 0.4);
        let role = RoleTimes { cpu: 1, user_s: 0.1, system_s: 0.9, work_s: Some(0.7) };
        let cost = attribute(&before, &after, &[role])[0];
        assert!((cost.system_s - 0.5).abs() < 1e-9 && (cost.softirq_s - 0.4).abs() < 1e-9);
        assert!((cost.total_s() - 1.0).abs() < 1e-9);
        assert!((cost.polling_s.unwrap() - 0.3).abs() < 1e-9);
    }

    #[test]
    fn polling_is_zero_when_busy_exceeds_cpu_time() {
        let [before, after] = span(1, 0.5, 0.0);
        let role = RoleTimes { cpu: 1, user_s: 0.1, system_s: 0.4, work_s: Some(0.9) };
        assert_eq!(attribute(&before, &after, &[role])[0].polling_s, Some(0.0));
    }

    #[test]
    fn kernel_cost_is_threads_plus_remote_softirq() {
        let [mut before, mut after] = span(1, 1.0, 0.4);
        before.insert(0, CpuTimes { busy: 1.0, softirq: 2.0, ..CpuTimes::default() });
        after.insert(0, CpuTimes { busy: 2.0, softirq: 2.5, ..CpuTimes::default() });
        let thread = |cpu, run_s| KernelThread { cpu, run_s };
        let threads = BTreeMap::from([(10, thread(1, 1.0)), (11, thread(0, 1.0))]);
        let later =
            BTreeMap::from([(10, thread(1, 1.25)), (11, thread(0, 9.0)), (12, thread(1, 0.5))]);
        let cost = of_kernel([&before, &after], [&threads, &later], 0.5, &BTreeSet::from([1]));
        assert!((cost.system_s - 0.375).abs() < 1e-9, "{cost:?}");
        assert!((cost.softirq_s - 0.5).abs() < 1e-9 && cost.polling_s.is_none(), "{cost:?}");
    }

    #[test]
    fn kernel_threads_are_visible_outside_pid_namespace() {
        let threads = kernel_threads();
        // A process in its own PID namespace sees no kernel threads.
        let here = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
        assert_eq!(here, !threads.is_empty());
        assert!(!threads.contains_key(&std::process::id()));
    }

    #[test]
    fn uncharged_softirq_is_added() {
        let [before, after] = span(1, 1.0, 0.4);
        let role = RoleTimes { cpu: 1, user_s: 0.1, system_s: 0.5, work_s: None };
        let cost = attribute(&before, &after, &[role])[0];
        assert!((cost.total_s() - 1.0).abs() < 1e-9 && (cost.system_s - 0.5).abs() < 1e-9);
    }

    #[test]
    fn shared_cpu_softirq_divides_by_system_time() {
        let [before, after] = span(0, 1.0, 0.4);
        let roles =
            [0.6, 0.2].map(|system_s| RoleTimes { cpu: 0, user_s: 0.1, system_s, work_s: None });
        let costs = attribute(&before, &after, &roles);
        assert!((costs[0].softirq_s - 0.3).abs() < 1e-9 && (costs[1].softirq_s - 0.1).abs() < 1e-9);
        assert!((costs[0].total_s() + costs[1].total_s() - 1.0).abs() < 1e-9);
    }
}
