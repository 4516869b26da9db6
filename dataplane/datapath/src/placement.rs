//! Assigns roles to CPUs. No other module decides that.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A requested CPU does not exist or is not available to this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CPU {cpu} is not available; this process may use CPUs {allowed}")]
pub struct NoSuchCpu {
    /// The requested CPU.
    pub cpu: usize,
    /// The available CPUs, as a list of ranges.
    pub allowed: String,
}

/// CPUs, in the order in which roles get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    order: Vec<Cpu>,
}

/// The properties of a CPU that placement depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Number of the CPU.
    pub id: usize,
    /// Lowest-numbered hyperthread of the same core.
    pub core: usize,
    /// Lowest-numbered CPU that shares the same last-level cache.
    pub cache: usize,
    /// True if the kernel keeps other work off the CPU (`isolcpus=`).
    pub isolated: bool,
}

impl Cpu {
    fn read(id: usize) -> Self {
        let list = |file: &str| read_list(&format!("/sys/devices/system/cpu/{file}"));
        let siblings = list(&format!("cpu{id}/topology/thread_siblings_list"));
        let core = siblings.first().copied().unwrap_or(id);
        // The kernel numbers the caches of a CPU from the first level up.
        let caches =
            (0..).map(|index| list(&format!("cpu{id}/cache/index{index}/shared_cpu_list")));
        let last = caches.take_while(|shared_by| !shared_by.is_empty()).last().unwrap_or_default();
        let cache = last.first().copied().unwrap_or_default();
        Self { id, core, cache, isolated: list("isolated").contains(&id) }
    }
}

impl Placement {
    /// Uses the CPUs that this process [can use](reachable).
    pub fn of_this_process() -> Self {
        Self { order: order(reachable().into_iter().map(Cpu::read).collect()) }
    }

    /// Prefers CPUs of a NUMA node, such as that of a network card, if there is one; isolated CPUs
    /// stay first.
    pub fn near(self, node: Option<u32>) -> Self {
        let Some(node) = node else { return self };
        self.preferring(&read_list(&format!("/sys/devices/system/node/node{node}/cpulist")))
    }

    fn preferring(mut self, cpus: &[usize]) -> Self {
        self.order.sort_by_key(|cpu| (!cpu.isolated, !cpus.contains(&cpu.id)));
        self
    }

    /// Uses the given CPUs in the given order.
    pub fn of(cpus: &[usize]) -> Result<Self, NoSuchCpu> {
        let there = reachable();
        match cpus.iter().find(|cpu| !there.contains(cpu)) {
            Some(&cpu) => Err(NoSuchCpu { cpu, allowed: ranges(&there) }),
            None => Ok(Self { order: cpus.iter().map(|&cpu| Cpu::read(cpu)).collect() }),
        }
    }

    /// The CPUs that can be assigned to roles, in order.
    pub fn cpus(&self) -> Vec<usize> {
        self.order.iter().map(|cpu| cpu.id).collect()
    }

    /// Assigns a CPU to each of `roles`: one of its own if there are enough CPUs, otherwise in
    /// turn. The sender and the receiver, first and last of a chain, get different CPUs if there
    /// are two.
    pub fn assign(&self, roles: usize) -> Vec<Cpu> {
        (0..roles).map(|role| self.order[role % self.order.len()]).collect()
    }

    /// Splits off a CPU for a noisy neighbour, which shares the last-level cache but no core with
    /// the CPUs of the roles. Returns it with the CPUs left for the roles; `None` if no CPU
    /// qualifies.
    pub fn beside_neighbour(&self) -> Option<(Cpu, Self)> {
        let (first, others) = self.order.split_first()?;
        let shares_cache = |cpu: &&Cpu| cpu.cache == first.cache && cpu.core != first.core;
        let neighbour = *others.iter().rev().find(shares_cache)?;
        let rest = self.order.iter().copied().filter(|cpu| cpu.core != neighbour.core);
        Some((neighbour, Self { order: rest.collect() }))
    }

    /// Assigns a CPU to a switch, exclusively if there are two, and one of the other CPUs to each
    /// of the `roles` around it.
    pub fn assign_around_switch(&self, roles: usize) -> (Cpu, Vec<Cpu>) {
        let (&switch, others) = self.order.split_first().expect("at least one CPU");
        let others = if others.is_empty() { &self.order } else { others };
        (switch, (0..roles).map(|role| others[role % others.len()]).collect())
    }
}

/// Keeps the calling thread on one CPU, if it may use that.
pub fn pin_thread(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // Otherwise it runs on those that its container has.
    let _ = sched_setaffinity(None, &set);
}

/// Sorts CPUs: isolated CPUs first, and whole cores before second hyperthreads. Among these, CPUs
/// that share a last-level cache are together, because roles exchange lines faster there: the
/// largest set first, CPU 0 not counted. CPU 0, where the kernel does most of its own work, is the
/// last of its set.
fn order(mut cpus: Vec<Cpu>) -> Vec<Cpu> {
    let all = cpus.clone();
    cpus.sort_by_cached_key(|&cpu| {
        let class = |cpu: Cpu| (!cpu.isolated, cpu.id != cpu.core);
        let is_with = |other: &&Cpu| (class(**other), other.cache) == (class(cpu), cpu.cache);
        let set = all.iter().filter(is_with).filter(|other| other.id != 0).count();
        (class(cpu), Reverse(set), cpu.cache, cpu.id == 0, cpu.id)
    });
    cpus
}

/// CPUs in this process's affinity mask, ascending; at least one.
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// CPUs that roles can be put on, ascending; at least one: the CPUs in this process's affinity
/// mask, and isolated CPUs, which run only what was explicitly put there.
pub fn reachable() -> Vec<usize> {
    let list = |file: &str| read_list(&format!("/sys/devices/system/cpu/{file}"));
    with_isolated(allowed(), &list("online"), &list("isolated"), can_have)
}

/// Adds the isolated CPUs that the process can use, but only if it is allowed exactly the CPUs that
/// are not isolated: any other set was chosen for the process, and is kept.
fn with_isolated(
    allowed: Vec<usize>,
    online: &[usize],
    isolated: &[usize],
    can_have: impl FnOnce(&[usize]) -> Vec<usize>,
) -> Vec<usize> {
    let others: Vec<_> = online.iter().copied().filter(|cpu| !isolated.contains(cpu)).collect();
    if isolated.is_empty() || allowed != others {
        return allowed;
    }
    let all: BTreeSet<_> = allowed.into_iter().chain(can_have(isolated)).collect();
    all.into_iter().collect()
}

/// Returns the CPUs of `cpus` that a thread of this process may run on; a control group may forbid
/// some.
fn can_have(cpus: &[usize]) -> Vec<usize> {
    let try_them = || {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        if sched_setaffinity(None, &set).is_ok() { allowed() } else { Vec::new() }
    };
    std::thread::scope(|scope| scope.spawn(try_them).join().unwrap_or_default())
}

/// Parses a list such as `0-3,8`; `None` if it is invalid.
pub fn parse_ranges(text: &str) -> Option<Vec<usize>> {
    let mut numbers = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More CPUs than any kernel supports: a typing error.
        if first > last || last >= 1 << 16 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers.into_iter().collect())
}

/// Formats a list such as `0-3,8`; `numbers` must be ascending.
pub fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let text = |(first, last)| {
        if first == last { format!("{first}") } else { format!("{first}-{last}") }
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

fn read_list(path: &str) -> Vec<usize> {
    fs::read_to_string(path).ok().and_then(|text| parse_ranges(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str, isolated: &[usize], threads_per_core: usize) -> Vec<Cpu> {
        let ids = parse_ranges(text).unwrap();
        let half = ids.len() / threads_per_core;
        ids.into_iter()
            .map(|id| Cpu {
                id,
                isolated: isolated.contains(&id),
                core: id % half.max(1),
                cache: 0,
            })
            .collect()
    }

    #[test]
    fn whole_cores_precede_hyperthreads_and_cpu_0() {
        let order = |text, isolated: &[usize], threads| -> Vec<usize> {
            order(cpus(text, isolated, threads)).iter().map(|cpu| cpu.id).collect()
        };
        assert_eq!(order("0-1", &[], 1), [1, 0]);
        assert_eq!(order("0-7", &[], 2), [1, 2, 3, 0, 4, 5, 6, 7]);
        assert_eq!(order("0-7", &[2, 6], 2), [2, 6, 1, 3, 0, 4, 5, 7]);
    }

    #[test]
    fn cpus_that_share_a_cache_are_together() {
        let sorted = |caches: &[&[usize]], isolated: &[usize], threads| -> Vec<usize> {
            let all = caches.concat();
            let mut all = cpus(&ranges(&all), isolated, threads);
            for cpu in &mut all {
                cpu.cache =
                    *caches.iter().find(|them| them.contains(&cpu.id)).unwrap().first().unwrap();
            }
            order(all).iter().map(|cpu| cpu.id).collect()
        };
        assert_eq!(sorted(&[&[0, 1, 2, 3], &[4, 5, 6, 7]], &[], 1), [4, 5, 6, 7, 1, 2, 3, 0]);
        assert_eq!(sorted(&[&[0, 1, 2], &[3, 4]], &[], 1), [1, 2, 0, 3, 4]);
        // Two whole cores of each cache, and their second hyperthreads.
        let two_of_each = [&[0, 1, 4, 5][..], &[2, 3, 6, 7]];
        assert_eq!(sorted(&two_of_each, &[], 2), [2, 3, 1, 0, 4, 5, 6, 7]);
        assert_eq!(sorted(&two_of_each, &[1, 3], 2), [1, 3, 2, 0, 4, 5, 6, 7]);
    }

    #[test]
    fn cpus_of_a_node_precede_others_except_isolated_ones() {
        let near = |isolated: &[usize], node: &[usize]| -> Vec<usize> {
            let placement = Placement { order: order(cpus("0-7", isolated, 2)) };
            placement.preferring(node).cpus()
        };
        assert_eq!(near(&[], &[2, 3, 6, 7]), [2, 3, 6, 7, 1, 0, 4, 5]);
        assert_eq!(near(&[1, 3], &[2, 3, 6, 7]), [3, 1, 2, 6, 7, 0, 4, 5]);
        assert_eq!(near(&[], &[]), [1, 2, 3, 0, 4, 5, 6, 7], "an unknown node changes nothing");
    }

    #[test]
    fn roles_share_cpus_when_too_few() {
        let order = cpus("4-5", &[], 1);
        let assigned = Placement { order: order.clone() }.assign(3);
        assert_eq!(assigned, [order[0], order[1], order[0]]);
    }

    #[test]
    fn switch_gets_exclusive_cpu_of_two() {
        for (text, switch, ends) in [("4", 4, [4, 4]), ("4-5", 4, [5, 5]), ("4-6", 4, [5, 6])] {
            let placement = Placement { order: cpus(text, &[], 1) };
            let (middle, around) = placement.assign_around_switch(2);
            assert_eq!((middle.id, [around[0].id, around[1].id]), (switch, ends));
        }
    }

    #[test]
    fn isolated_cpus_are_used_unless_confined() {
        let (online, isolated) = ([0, 1, 2, 3], [2, 3]);
        let all = |cpus: &[usize]| cpus.to_vec();
        let taken = |allowed: &[usize], isolated: &[usize]| {
            with_isolated(allowed.to_vec(), &online, isolated, all)
        };
        assert_eq!(taken(&[0, 1], &isolated), online);
        assert_eq!(taken(&[1], &isolated), [1], "taskset");
        assert_eq!(taken(&[1, 2], &isolated), [1, 2], "taskset");
        assert_eq!(taken(&[0, 1, 2, 3], &[]), online);
        // A control group allows only one of the isolated CPUs.
        assert_eq!(with_isolated(vec![0, 1], &online, &isolated, |_| vec![3]), [0, 1, 3]);
        assert_eq!(can_have(&allowed()), allowed());
    }

    #[test]
    fn neighbour_shares_cache_but_no_core() {
        let beside = |cpus: Vec<Cpu>| {
            let (neighbour, rest) = Placement { order: order(cpus) }.beside_neighbour()?;
            Some((neighbour.id, rest.order.iter().map(|cpu| cpu.id).collect::<Vec<_>>()))
        };
        assert_eq!(beside(cpus("0-1", &[], 1)), Some((0, vec![1])));
        // CPU 0 and its second hyperthread.
        assert_eq!(beside(cpus("0-7", &[], 2)), Some((7, vec![1, 2, 0, 4, 5, 6])));
        let mut two_caches = cpus("0-3", &[], 1);
        two_caches.iter_mut().for_each(|cpu| cpu.cache = cpu.id / 2 * 2);
        assert_eq!(beside(two_caches), Some((3, vec![2, 1, 0])));
        assert_eq!(beside(cpus("0-1", &[], 2)), None, "one core");
        assert_eq!(beside(cpus("0", &[], 1)), None);
    }

    #[test]
    fn parses_cpu_ranges() {
        assert_eq!(parse_ranges("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_ranges(""), Some(vec![]));
        for wrong in ["x", "3-1", "1-", "-1", "0-99999999999", "0-70000"] {
            assert_eq!(parse_ranges(wrong), None, "{wrong}");
        }
        assert_eq!(ranges(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn missing_cpu_is_named() {
        let error = Placement::of(&[60_000]).unwrap_err().to_string();
        assert!(error.contains("60000") && error.contains("may use CPUs"), "{error}");
    }
}
