//! A neighbour that uses up the caches that the roles also need.

use std::time::Duration;

use dray_lab::{ContainerId, DividedCache, Lab, LabError, host};
use dray_results::{HostFacts, Neighbour};
use dray_traffic::agent::Request;
use dray_traffic::{Job, NeighbourJob, Report};

/// Maximum time for the neighbour to start and to stop.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Memory of a neighbour in bytes if the host does not report its caches.
const MEMORY: usize = 64 << 20;
/// A neighbour uses at most one part in `SHARE` of the host's memory.
const SHARE: u64 = 4;

/// A running neighbour, in a container of its own.
pub(crate) struct Present {
    container: ContainerId,
    cpu: usize,
}

impl Present {
    /// Starts the neighbour's container.
    pub(crate) fn new(lab: &mut Lab, cpu: usize) -> Result<Self, LabError> {
        let container = lab.start_container("neighbour", &[cpu])?;
        lab.wait_until_up()?;
        Ok(Self { container, cpu })
    }

    /// Runs `work` while the neighbour, which shares the cache with roles on the CPUs `others`,
    /// behaves as `neighbour` describes. Also returns the bytes per second that the neighbour
    /// wrote.
    pub(crate) fn during<T>(
        &self,
        lab: &mut Lab,
        neighbour: Neighbour,
        others: &[usize],
        work: impl FnOnce(&mut Lab) -> Result<T, LabError>,
    ) -> Result<(T, f64), LabError> {
        if neighbour == Neighbour::Quiet {
            return Ok((work(lab)?, 0.0));
        }
        let _divided = match neighbour {
            Neighbour::Confined => Some(DividedCache::new(self.cpu, others)?),
            _ => None,
        };
        let memory_bytes = memory_bytes(&host::facts());
        let job = NeighbourJob { memory_bytes, interval: Duration::from_secs(1) };
        lab[self.container].request(&Request::Start(Box::new(Job::Neighbour(job))))?;
        lab.wait_until_ready(self.container)?;
        let done = work(lab)?;
        lab[self.container].request(&Request::Drain)?;
        let report = lab.wait_until_done(self.container, TIMEOUT)?;
        let Report::Neighbour(report) = report else {
            let what = format!("unexpected report {report:?}");
            return Err(LabError::Container { container: "neighbour".to_owned(), what });
        };
        let rate = report.written_bytes as f64 * 1e9 / report.elapsed_ns.max(1) as f64;
        Ok((done, rate))
    }
}

/// Twice the size of the largest cache, limited to a share of the host's memory.
fn memory_bytes(host: &HostFacts) -> usize {
    let largest = host.caches.iter().map(|cache| cache.bytes).max();
    let wanted = largest.map_or(MEMORY as u64, |bytes| 2 * bytes);
    let most = host.memory_bytes.map_or(u64::MAX, |bytes| bytes / SHARE);
    usize::try_from(wanted.min(most)).unwrap_or(MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_results::Cache;

    #[test]
    fn neighbour_memory_exceeds_cache_within_limit() {
        let mut host = host::facts();
        let cache = |level, bytes| Cache {
            level,
            kind: "unified".to_owned(),
            bytes,
            shared_by: vec!["0-3".to_owned()],
        };
        host.caches = vec![cache(2, 1 << 20), cache(3, 32 << 20)];
        host.memory_bytes = Some(16 << 30);
        assert_eq!(memory_bytes(&host), 64 << 20);
        host.memory_bytes = Some(128 << 20);
        assert_eq!(memory_bytes(&host), 32 << 20);
        host.caches.clear();
        host.memory_bytes = None;
        assert_eq!(memory_bytes(&host), MEMORY);
    }
}
