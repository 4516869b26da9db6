//! Memory and huge pages.

use super::finding::{Finding, State, size};
use dray_results::{HostFacts, HugepagePool};

use crate::host::read;

const GROUP: &str = "memory";

/// Bytes that DPDK, Open vSwitch and VPP together need to run comfortably.
const HUGE_WANTED: u64 = 1 << 30;

pub(super) fn examine(host: &HostFacts) -> Vec<Finding> {
    vec![
        total(host),
        hugepages(&host.hugepages, host.memory_bytes),
        mount(&read("/proc/mounts").unwrap_or_default()),
    ]
}

fn total(host: &HostFacts) -> Finding {
    match host.memory_bytes {
        Some(bytes) => Finding::new(GROUP, "memory", State::Ok, size(bytes)),
        None => Finding::new(GROUP, "memory", State::Unknown, "not reported by the kernel"),
    }
}

fn hugepages(pools: &[HugepagePool], memory: Option<u64>) -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "huge pages", state, detail);
    let cost = "DPDK, VPP and Open vSwitch with DPDK do not start without special options, and \
                address translation slows shared memory";
    let Some(smallest) = pools.first() else {
        return finding(State::Missing, "not supported by this kernel")
            .advise(format!("{cost}; boot a kernel with CONFIG_HUGETLBFS"));
    };
    let reserved: Vec<_> = pools.iter().filter(|pool| pool.total > 0).collect();
    if reserved.is_empty() {
        let sizes: Vec<_> = pools.iter().map(|pool| size(pool.size_bytes)).collect();
        // A small machine can spare at most an eighth of its memory.
        let bytes = memory.map_or(HUGE_WANTED, |memory| HUGE_WANTED.min(memory / 8));
        let pages = (bytes / smallest.size_bytes).max(1);
        return finding(State::Missing, &format!("none reserved (sizes: {})", sizes.join(" or ")))
            .advise(format!("{cost}; sysctl vm.nr_hugepages={pages}"));
    }
    let pools: Vec<_> = reserved
        .iter()
        .map(|pool| format!("{} of {}, {} free", pool.total, size(pool.size_bytes), pool.free))
        .collect();
    finding(State::Ok, &pools.join("; "))
}

fn mount(mounts: &str) -> Finding {
    let points: Vec<_> = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (point, kind) = (fields.next()?, fields.next()?);
            (kind == "hugetlbfs").then_some(point)
        })
        .collect();
    if points.is_empty() {
        return Finding::new(GROUP, "hugetlbfs", State::Missing, "not mounted").advise(
            "DPDK programs cannot share their memory with another process through files; mkdir -p \
             /dev/hugepages; mount -t hugetlbfs none /dev/hugepages",
        );
    }
    Finding::new(GROUP, "hugetlbfs", State::Ok, points.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hugepage_advice_scales_with_memory() {
        let pool = |size_bytes, total| HugepagePool { size_bytes, total, free: total };
        let none = [pool(2 << 20, 0), pool(1 << 30, 0)];
        let advice = |memory| hugepages(&none, memory).advice.unwrap();
        assert!(advice(Some(64 << 30)).ends_with("vm.nr_hugepages=512"));
        assert!(advice(Some(2 << 30)).ends_with("vm.nr_hugepages=128"));
        assert!(advice(None).ends_with("vm.nr_hugepages=512"));
        assert!(hugepages(&[], None).advice.unwrap().contains("CONFIG_HUGETLBFS"));

        let some = hugepages(&[pool(2 << 20, 0), pool(1 << 30, 4)], None);
        assert_eq!((some.state, some.detail.as_str()), (State::Ok, "4 of 1 GiB, 4 free"));
    }

    #[test]
    fn finds_hugetlbfs_mount() {
        let mounts = "proc /proc proc rw 0 0\nnone /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n";
        assert_eq!(mount(mounts).detail, "/dev/hugepages");
        assert_eq!(mount("proc /proc proc rw 0 0\nx\n").state, State::Missing);
    }
}
