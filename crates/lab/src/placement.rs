//! Which role runs on which CPU. The only place that decides it.

use std::collections::BTreeSet;
use std::fs;

use crate::LabError;

/// CPUs in the order in which roles should be given them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    order: Vec<Cpu>,
}

/// A CPU as far as placement cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: usize,
    /// The lowest-numbered hyperthread of its core.
    pub core: usize,
    /// Kept free of other work by the kernel (`isolcpus=`).
    isolated: bool,
}

impl Cpu {
    fn read(id: usize) -> Self {
        let list = |file: &str| read_list(&format!("/sys/devices/system/cpu/{file}"));
        let siblings = list(&format!("cpu{id}/topology/thread_siblings_list"));
        let core = siblings.first().copied().unwrap_or(id);
        Self { id, core, isolated: list("isolated").contains(&id) }
    }
}

impl Placement {
    /// Uses the CPUs that this process may use.
    pub fn of_this_process() -> Self {
        Self { order: order(allowed().into_iter().map(Cpu::read).collect()) }
    }

    /// Uses the given CPUs in the given order.
    pub fn of(cpus: &[usize]) -> Result<Self, LabError> {
        let allowed = allowed();
        match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            Some(&cpu) => Err(LabError::NoSuchCpu { cpu, allowed: ranges(&allowed) }),
            None => Ok(Self { order: cpus.iter().map(|&cpu| Cpu::read(cpu)).collect() }),
        }
    }

    /// The CPUs that roles may be given, in their order.
    pub fn cpus(&self) -> Vec<usize> {
        self.order.iter().map(|cpu| cpu.id).collect()
    }

    /// A CPU for each of `roles`: one of its own where there are enough, else in turn. The sender
    /// and the receiver, first and last of a chain, are on different CPUs where there are two.
    pub fn assign(&self, roles: usize) -> Vec<Cpu> {
        (0..roles).map(|role| self.order[role % self.order.len()]).collect()
    }

    /// A CPU for a switch, which has it to itself where there are two, and for each of the `roles`
    /// around it one of the others.
    pub fn assign_around_switch(&self, roles: usize) -> (Cpu, Vec<Cpu>) {
        let (&switch, others) = self.order.split_first().expect("there is a CPU");
        let others = if others.is_empty() { &self.order } else { others };
        (switch, (0..roles).map(|role| others[role % others.len()]).collect())
    }
}

/// Isolated CPUs first; whole cores before second hyperthreads; CPU 0, where the kernel does most
/// of its own work, as late as possible.
fn order(mut cpus: Vec<Cpu>) -> Vec<Cpu> {
    cpus.sort_by_key(|cpu| (!cpu.isolated, cpu.id != cpu.core, cpu.id == 0, cpu.id));
    cpus
}

/// The CPUs that this process may use, ascending; at least one.
pub fn allowed() -> Vec<usize> {
    let count = rustix::thread::CpuSet::MAX_CPU;
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..count).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Reads a list such as `0-3,8`; `None` where it is not one.
pub fn parse_ranges(text: &str) -> Option<Vec<usize>> {
    let mut numbers = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More CPUs than any kernel knows are a slip of the keyboard.
        if first > last || last >= 1 << 16 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers.into_iter().collect())
}

/// Writes a list such as `0-3,8`; `numbers` ascend.
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
            .map(|id| Cpu { id, isolated: isolated.contains(&id), core: id % half.max(1) })
            .collect()
    }

    #[test]
    fn whole_cores_come_before_hyperthreads_and_cpu_0() {
        let order = |text, isolated: &[usize], threads| -> Vec<usize> {
            order(cpus(text, isolated, threads)).iter().map(|cpu| cpu.id).collect()
        };
        assert_eq!(order("0-1", &[], 1), [1, 0]);
        assert_eq!(order("0-7", &[], 2), [1, 2, 3, 0, 4, 5, 6, 7]);
        assert_eq!(order("0-7", &[2, 6], 2), [2, 6, 1, 3, 0, 4, 5, 7]);
    }

    #[test]
    fn roles_share_where_there_are_too_few_cpus() {
        let order = cpus("4-5", &[], 1);
        let assigned = Placement { order: order.clone() }.assign(3);
        assert_eq!(assigned, [order[0], order[1], order[0]]);
    }

    #[test]
    fn a_switch_has_a_cpu_of_its_own_where_there_are_two() {
        for (text, switch, ends) in [("4", 4, [4, 4]), ("4-5", 4, [5, 5]), ("4-6", 4, [5, 6])] {
            let placement = Placement { order: cpus(text, &[], 1) };
            let (middle, around) = placement.assign_around_switch(2);
            assert_eq!((middle.id, [around[0].id, around[1].id]), (switch, ends));
        }
    }

    #[test]
    fn lists_of_ranges() {
        assert_eq!(parse_ranges("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_ranges(""), Some(vec![]));
        for wrong in ["x", "3-1", "1-", "-1", "0-99999999999", "0-70000"] {
            assert_eq!(parse_ranges(wrong), None, "{wrong}");
        }
        assert_eq!(ranges(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let error = Placement::of(&[60_000]).unwrap_err().to_string();
        assert!(error.contains("60000") && error.contains("may use CPUs"), "{error}");
    }
}
