//! A peer's process, with its resources.

use std::process::Command;

use super::hugepages::Hugepages;
use super::{CpuTime, Needs, PeerDir};
use crate::process::Process;
use crate::{LabError, placement};

/// Privilege that a peer with huge pages needs.
pub(super) const FOR_HUGEPAGES: &str = "root, to reserve huge pages";

/// A running program with its resources. Fields are dropped in order: the pages are given back
/// last.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) process: Process,
    pub(super) needs: Needs,
    forwarding_thread: &'static str,
    _hugepages: Option<Hugepages>,
}

impl Program {
    /// Reserves the huge pages that the program needs, and starts it. The name of its forwarding
    /// thread begins with `forwarding_thread`.
    pub(super) fn start(
        dir: &PeerDir,
        name: &str,
        command: &mut Command,
        forwarding_thread: &'static str,
        needs: Needs,
    ) -> Result<Self, LabError> {
        let hugepages = match needs.hugepages_mib {
            0 => None,
            mib => Some(Hugepages::reserve(dir.path(), mib)?),
        };
        let process = Process::start(dir, name, command)?;
        Ok(Self { process, needs, forwarding_thread, _hugepages: hugepages })
    }

    pub(super) fn cpu_time(&self) -> Result<CpuTime, LabError> {
        self.process.cpu_time(self.forwarding_thread)
    }

    /// CPU time of all threads except the forwarding thread.
    pub(super) fn control_cpu_time(&self) -> Result<CpuTime, LabError> {
        self.process.cpu_time_but(self.forwarding_thread)
    }
}

/// A CPU for the threads of a switch that do not forward: different from `forwarding` if there is
/// another.
pub(super) fn housekeeping_cpu(forwarding: usize) -> usize {
    placement::allowed().into_iter().find(|&other| other != forwarding).unwrap_or(forwarding)
}
