//! Facts about the host, carried by every result file, so that a figure states where it was
//! measured. None of them identifies the machine or its network, because results are passed on.

use serde::{Deserialize, Serialize};

/// The host as the kernel describes it. Unknown facts are null or empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostFacts {
    /// Kernel release.
    pub kernel: String,
    /// Architecture of the machine, as in `uname -m`.
    pub architecture: String,
    /// Distribution (`PRETTY_NAME` in os-release(5)).
    pub os: Option<String>,
    /// Processor model.
    pub cpu_model: Option<String>,
    /// Online CPUs, as ranges.
    pub cpus: String,
    /// Number of cores of the online CPUs.
    pub cores: usize,
    /// Largest number of hyperthreads of any core.
    pub threads_per_core: usize,
    /// Number of online NUMA nodes.
    pub numa_nodes: usize,
    /// The caches of all CPUs.
    pub caches: Vec<Cache>,
    /// CPUs that the kernel keeps free of other work (`isolcpus=`), as ranges.
    pub isolated_cpus: String,
    /// Frequency governor; several, separated by commas, if the CPUs differ.
    pub governor: Option<String>,
    /// True if the time stamp counter (x86) runs at a constant rate in all states of the CPU.
    pub constant_tsc: bool,
    /// Memory usable by the kernel, in bytes.
    pub memory_bytes: Option<u64>,
    /// Huge page pools.
    pub hugepages: Vec<HugepagePool>,
    /// Hypervisor that this machine runs under; `yes` if it is virtual but the hypervisor is
    /// unknown.
    pub virtualization: Option<String>,
    /// The `mitigations=` boot parameter.
    pub mitigations: Option<String>,
}

/// All caches of one level, kind and size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cache {
    /// Cache level; 1 is nearest to the CPU.
    pub level: u32,
    /// Kind of content, in the kernel's words: `data`, `instruction` or `unified`.
    pub kind: String,
    /// Size of each cache, in bytes.
    pub bytes: u64,
    /// For each cache, the CPUs that share it, as ranges.
    pub shared_by: Vec<String>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HugepagePool {
    /// Size of each page, in bytes.
    pub size_bytes: u64,
    /// Number of reserved pages.
    pub total: u64,
    /// Number of reserved pages that are unused.
    pub free: u64,
}
