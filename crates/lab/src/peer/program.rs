//! A peer's process, with what it was given.

use std::process::Command;

use super::hugepages::Hugepages;
use super::process::Process;
use super::{CpuTime, Needs, PeerDir};
use crate::{LabError, placement};

/// Why a peer with huge pages has to be started by root.
pub(super) const FOR_HUGEPAGES: &str = "root, to reserve huge pages";

/// A running program with what it was given. Its fields are dropped in order: the pages are given
/// back last.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) process: Process,
    pub(super) needs: Needs,
    forwarding_thread: &'static str,
    _hugepages: Option<Hugepages>,
}

impl Program {
    /// Reserves the huge pages that it needs and starts it. The name of its forwarding thread begins
    /// with `forwarding_thread`.
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

    /// Of all threads but that one.
    pub(super) fn control_cpu_time(&self) -> Result<CpuTime, LabError> {
        self.process.cpu_time_but(self.forwarding_thread)
    }
}

/// A CPU for the threads of a switch that do not forward: another than `forwarding` where there is one.
pub(super) fn housekeeping_cpu(forwarding: usize) -> usize {
    placement::allowed().into_iter().find(|&other| other != forwarding).unwrap_or(forwarding)
}
