//! Hosts: their facts, and a comparison that tells whether two runs were measured on the same host.

use dray_results::HostFacts;

/// Returns the differences between two hosts that figures depend on.
pub fn host_differences(a: &HostFacts, b: &HostFacts) -> Vec<String> {
    let facts = facts(a).into_iter().zip(facts(b));
    facts
        .filter(|((_, a), (_, b))| a != b)
        .map(|((name, a), (_, b))| format!("{name} {a}, {b}"))
        .collect()
}

/// Returns the facts that figures depend on: name and value.
pub fn facts(host: &HostFacts) -> Vec<(&'static str, String)> {
    let or_unknown = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".to_owned());
    let or_none = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "none".to_owned());
    let caches: Vec<String> = host
        .caches
        .iter()
        .filter(|cache| cache.kind != "instruction")
        .map(|cache| format!("L{} {} KiB", cache.level, cache.bytes >> 10))
        .collect();
    vec![
        ("processor", or_unknown(&host.cpu_model)),
        ("architecture", host.architecture.clone()),
        (
            "CPUs",
            format!("{} ({} cores, {} threads each)", host.cpus, host.cores, host.threads_per_core),
        ),
        ("NUMA nodes", host.numa_nodes.to_string()),
        ("caches", caches.join(", ")),
        (
            "isolated CPUs",
            if host.isolated_cpus.is_empty() { "none".into() } else { host.isolated_cpus.clone() },
        ),
        ("governor", or_none(&host.governor)),
        ("kernel", host.kernel.clone()),
        ("system", or_unknown(&host.os)),
        ("virtual machine", host.virtualization.clone().unwrap_or_else(|| "no".to_owned())),
        ("mitigations", host.mitigations.clone().unwrap_or_else(|| "kernel default".to_owned())),
        ("constant time-stamp counter", if host.constant_tsc { "yes" } else { "no" }.to_owned()),
        (
            "memory",
            host.memory_bytes.map_or("unknown".to_owned(), |bytes| {
                format!("{:.0} GiB", bytes as f64 / (1u64 << 30) as f64)
            }),
        ),
    ]
}
