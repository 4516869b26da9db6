//! A peer's process, with its resources.

use std::process::Command;

use super::hugepages::{Hugepages, lock_retry};
use super::{CpuTime, Needs, PeerDir};
use crate::process::Process;
use crate::{LabError, placement};

/// Number of starts before a lack of huge pages is an error.
const ATTEMPTS: u32 = 3;

/// Words in the logs of Open vSwitch and testpmd that lack huge pages when they start; they end
/// then.
const NO_PAGES: [&str; 2] = ["Cannot init memory", "Creation of mbuf pool"];

/// Privilege that a peer with huge pages needs.
pub(super) const FOR_HUGEPAGES: &str = "root, to reserve huge pages";

/// A running program with its resources. Fields are dropped in order: the pages are given back
/// last.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) process: Process,
    pub(super) needs: Needs,
    forwarding_thread: &'static str,
    dir: PeerDir,
    command: Command,
    hugepages: Option<Hugepages>,
}

impl Program {
    /// Reserves the huge pages that the program needs, and starts it. The name of its forwarding
    /// thread begins with `forwarding_thread`.
    pub(super) fn start(
        dir: &PeerDir,
        name: &str,
        mut command: Command,
        forwarding_thread: &'static str,
        needs: Needs,
    ) -> Result<Self, LabError> {
        let hugepages = reserve(dir, needs)?;
        let process = Process::start(dir, name, &mut command)?;
        let dir = dir.clone();
        Ok(Self { process, needs, forwarding_thread, dir, command, hugepages })
    }

    /// Waits with `wait` until the program is ready. A program with DPDK that ends because it lacks
    /// its huge pages is started again: any program can take free pages before DPDK has those added
    /// for it.
    pub(super) fn wait_until_ready(
        &mut self,
        wait: impl Fn(&mut Process) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let mut retry = None;
        for _ in 1..ATTEMPTS {
            let result = wait(&mut self.process);
            let log = self.process.log();
            let lacks_pages = || NO_PAGES.iter().any(|words| log.contains(words));
            if result.is_ok() || self.hugepages.is_none() || !lacks_pages() {
                return result;
            }
            self.hugepages = None;
            if retry.is_none() {
                retry = Some(lock_retry()?);
            }
            self.hugepages = reserve(&self.dir, self.needs)?;
            let name = self.process.name().to_owned();
            self.process = Process::start(&self.dir, &name, &mut self.command)?;
        }
        wait(&mut self.process)
    }

    pub(super) fn cpu_time(&self) -> Result<CpuTime, LabError> {
        self.process.cpu_time(self.forwarding_thread)
    }

    /// CPU time of all threads except the forwarding thread.
    pub(super) fn control_cpu_time(&self) -> Result<CpuTime, LabError> {
        self.process.cpu_time_but(self.forwarding_thread)
    }
}

fn reserve(dir: &PeerDir, needs: Needs) -> Result<Option<Hugepages>, LabError> {
    match needs.hugepages_mib {
        0 => Ok(None),
        mib => Hugepages::reserve(dir.path(), mib).map(Some),
    }
}

/// A CPU for the threads of a switch that do not forward: different from `forwarding` if there is
/// another.
pub(super) fn housekeeping_cpu(forwarding: usize) -> usize {
    placement::allowed().into_iter().find(|&other| other != forwarding).unwrap_or(forwarding)
}
