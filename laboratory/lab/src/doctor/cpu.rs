//! CPUs, their caches, and what disturbs a polling loop.

use std::path::Path;

use dray_results::{Cache, HostFacts};
use dray_traffic::{line, prefetch};

use super::finding::{Finding, State, size};
use crate::host::{has_cpu_flags, list, read};
use crate::placement::{parse_ranges, ranges};

const GROUP: &str = "cpu";

/// Sender, switch and receiver each poll on a core; one core is left to the kernel.
const CORES_WANTED: usize = 4;

pub(super) fn examine(host: &HostFacts) -> Vec<Finding> {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let mut findings = vec![cpus(host)];
    findings.extend(host.caches.iter().map(cache));
    findings.extend(distances(host));
    findings.extend([numa(host), hyperthreads(host), isolated(host), governor(host)]);
    if matches!(host.architecture.as_str(), "x86_64" | "i686") {
        findings.extend(write_prefetch(host));
        findings.push(tsc(host));
    }
    findings.extend([clock_source(), counters(), cache_allocation(&cpuinfo)]);
    findings
}

fn cpus(host: &HostFacts) -> Finding {
    let model = host.cpu_model.as_deref().unwrap_or("unknown model");
    let detail = format!("{} cores: {} ({model})", host.cores, host.cpus);
    if host.cores >= CORES_WANTED {
        return Finding::new(GROUP, "CPUs", State::Ok, detail);
    }
    Finding::new(GROUP, "CPUs", State::Warning, detail).advise(format!(
        "sender, switch and receiver share cores, which lowers throughput and raises latency; use \
         {CORES_WANTED} cores: one for each of them and one for the kernel"
    ))
}

fn cache(cache: &Cache) -> Finding {
    let item = match cache.kind.as_str() {
        "unified" => format!("L{} cache", cache.level),
        kind => format!("L{} {kind} cache", cache.level),
    };
    let shared = match cache.shared_by.as_slice() {
        [all] if parse_ranges(all).is_some_and(|cpus| cpus.len() > 1) => {
            format!("shared by CPUs {all}")
        }
        [_] => "one".to_owned(),
        several => format!("{} of them", several.len()),
    };
    Finding::new(GROUP, item, State::Ok, format!("{}, {shared}", size(cache.bytes)))
}

/// Maximum number of CPUs between which distances are measured.
const DISTANCES_MAX: usize = 16;

/// The time that a cache line takes between each two CPUs, one row per CPU.
fn distances(host: &HostFacts) -> Vec<Finding> {
    let mut cpus = parse_ranges(&host.cpus).unwrap_or_default();
    let all = cpus.len();
    cpus.truncate(DISTANCES_MAX);
    let row = |&here: &usize| {
        let time = |&there: &usize| match line::round_trip_ns(here.min(there), here.max(there)) {
            Ok(Some(ns)) => format!("{ns:.0}"),
            Ok(None) if here == there => "-".to_owned(),
            Ok(None) => "busy".to_owned(),
            Err(_) => "?".to_owned(),
        };
        let times: Vec<String> = cpus.iter().map(time).collect();
        let of_all = if all > cpus.len() { format!(" of {all}") } else { String::new() };
        let (to, times) = (ranges(&cpus), times.join(", "));
        let detail = format!("ns to CPUs {to}{of_all} and back: {times}");
        Finding::new(GROUP, format!("cache line, CPU {here}"), State::Ok, detail)
    };
    if cpus.len() < 2 { Vec::new() } else { cpus.iter().map(row).collect() }
}

/// The prefetch that ports choose when they copy frames to memory that another CPU uses.
fn write_prefetch(host: &HostFacts) -> Option<Finding> {
    let cpus = parse_ranges(&host.cpus)?;
    // Two threads of one core share a cache, and roles do not share a core if they need not.
    let there = if host.threads_per_core == 1 { cpus.get(1) } else { cpus.last() };
    let (&here, &there) = (cpus.first()?, there?);
    let detail = match prefetch::choice(here, there) {
        Ok(Some(true)) => "on",
        Ok(Some(false)) => "off",
        Ok(None) => "not known, a CPU is busy",
        Err(_) => "not known, this process may not use both",
    };
    let detail = format!("CPUs {here} and {there}: {detail}; queues with long batches find out");
    Some(Finding::new(GROUP, "prefetch for writing", State::Ok, detail))
}

fn numa(host: &HostFacts) -> Finding {
    let detail = match host.numa_nodes {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes; keep the roles and the NIC of a measurement on one node"),
    };
    Finding::new(GROUP, "NUMA", State::Ok, detail)
}

fn hyperthreads(host: &HostFacts) -> Finding {
    let finding = |state, detail: String| Finding::new(GROUP, "hyperthreads", state, detail);
    if host.threads_per_core == 1 {
        return finding(State::Ok, "none visible".to_owned());
    }
    finding(State::Warning, format!("{} per core", host.threads_per_core)).advise(
        "two roles on one core slow each other down; give each a whole core, or disable \
         hyperthreads: echo off > /sys/devices/system/cpu/smt/control (at boot: nosmt)",
    )
}

fn isolated(host: &HostFacts) -> Finding {
    if !host.isolated_cpus.is_empty() {
        return Finding::new(GROUP, "isolated CPUs", State::Ok, &host.isolated_cpus);
    }
    let finding = Finding::new(GROUP, "isolated CPUs", State::Missing, "none");
    let cost = "other work interrupts polling roles, which causes loss and raises tail latency";
    let cpus = parse_ranges(&host.cpus).unwrap_or_default();
    match isolate(&cpus) {
        Some(cpus) => {
            // The file exists if the kernel can stop the tick (CONFIG_NO_HZ_FULL).
            let can_stop_tick = Path::new("/sys/devices/system/cpu/nohz_full").exists();
            let tick = if can_stop_tick { format!(" nohz_full={cpus}") } else { String::new() };
            finding.advise(format!("{cost}; boot with isolcpus={cpus}{tick} rcu_nocbs={cpus}"))
        }
        None => finding.advise(format!("{cost}; isolation needs at least 2 CPUs")),
    }
}

/// Returns the CPUs to isolate: at least the upper half, never the first, which the kernel uses.
fn isolate(cpus: &[usize]) -> Option<String> {
    let keep = (cpus.len() / 2).clamp(1, 2);
    let isolated = cpus.get(keep..)?;
    (!isolated.is_empty()).then(|| ranges(isolated))
}

fn governor(host: &HostFacts) -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "governor", state, detail);
    match host.governor.as_deref() {
        Some("performance") => finding(State::Ok, "performance"),
        Some(other) => finding(State::Warning, other).advise(
            "CPU frequency changes with load, so results depend on what ran before; cpupower \
             frequency-set -g performance (Debian: linux-cpupower)",
        ),
        // Nothing can be done about it from inside the machine.
        None => finding(State::Unknown, "the kernel does not control the frequency"),
    }
}

fn tsc(host: &HostFacts) -> Finding {
    if host.constant_tsc {
        return Finding::new(GROUP, "constant TSC", State::Ok, "runs at a constant rate");
    }
    Finding::new(GROUP, "constant TSC", State::Missing, "stops or changes its rate").advise(
        "times in cycles are invalid; use a CPU with constant_tsc and nonstop_tsc, or have the \
         hypervisor expose them (QEMU: -cpu host,+invtsc)",
    )
}

fn clock_source() -> Finding {
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let finding = |state, detail: &str| Finding::new(GROUP, "clock source", state, detail);
    match source.as_deref() {
        None => finding(State::Unknown, "not reported by the kernel"),
        Some(slow @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies")) => {
            finding(State::Warning, slow).advise(
                "each timestamp takes a microsecond or is coarse, which distorts latency; boot \
                 with tsc=reliable if the TSC is constant",
            )
        }
        Some(fast) => finding(State::Ok, fast),
    }
}

fn counters() -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "hardware counters", state, detail);
    let sources = list("/sys/bus/event_source/devices");
    let is_core = |name: &String| name.starts_with("cpu") || name.starts_with("armv8");
    match sources.iter().find(|name| is_core(name)) {
        Some(name) => finding(State::Ok, &format!("event source {name}")),
        None => finding(State::Missing, "no CPU event source").advise(
            "cycles, instructions and cache misses per frame cannot be counted; have the \
             hypervisor expose the PMU (QEMU: -cpu host,pmu=on) or use a physical machine",
        ),
    }
}

fn cache_allocation(cpuinfo: &str) -> Finding {
    let supported = has_cpu_flags(cpuinfo, &["cat_l3"]) || has_cpu_flags(cpuinfo, &["cat_l2"]);
    // Arm's MPAM has no CPU flag; there, the file system shows support.
    let in_kernel = read("/proc/filesystems").is_some_and(|text| text.contains("resctrl"));
    let mounted = Path::new("/sys/fs/resctrl/schemata").exists();
    let cost = "a neighbour's use of the shared cache affects every result";
    let finding = |state, detail: &str| Finding::new(GROUP, "cache allocation", state, detail);
    match (supported, in_kernel, mounted) {
        (_, _, true) => finding(State::Ok, "resctrl is mounted"),
        (true, true, _) => {
            finding(State::Ok, "available; to mount it: mount -t resctrl resctrl /sys/fs/resctrl")
        }
        (true, false, _) => finding(State::Missing, "supported by the CPU, but not by the kernel")
            .advise(format!("{cost}; boot a kernel with CONFIG_X86_CPU_RESCTRL")),
        (false, _, _) => finding(
            State::Missing,
            "not supported by this CPU, or hidden by the hypervisor",
        )
        .advise(format!(
            "{cost}; use a physical machine whose CPU has Intel CAT or AMD QoS (flag cat_l3)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_cpu_is_never_isolated() {
        let cpus = |count: usize| (0..count).collect::<Vec<_>>();
        assert_eq!(isolate(&cpus(0)), None);
        assert_eq!(isolate(&cpus(1)), None);
        assert_eq!(isolate(&cpus(2)).as_deref(), Some("1"));
        assert_eq!(isolate(&cpus(4)).as_deref(), Some("2-3"));
        assert_eq!(isolate(&cpus(16)).as_deref(), Some("2-15"));
        assert_eq!(isolate(&[0, 2, 4, 6]).as_deref(), Some("4,6"));
    }

    #[test]
    fn cache_finding_names_sharing_cpus() {
        let detail = |kind: &str, shared_by: &[&str]| {
            let shared_by = shared_by.iter().map(|cpus| (*cpus).to_owned()).collect();
            let finding =
                cache(&Cache { level: 2, kind: kind.to_owned(), bytes: 2 << 20, shared_by });
            format!("{}: {}", finding.item, finding.detail)
        };
        assert_eq!(detail("unified", &["0-3"]), "L2 cache: 2 MiB, shared by CPUs 0-3");
        assert_eq!(detail("data", &["0", "1"]), "L2 data cache: 2 MiB, 2 of them");
        assert_eq!(detail("unified", &["0"]), "L2 cache: 2 MiB, one");
    }
}
