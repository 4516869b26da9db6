//! Switches that run as programs, ours and third-party.

use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use super::adapter::{Adapter, Found, Launch, RunningSwitch};
use super::ovs::{self, Bridge, RunningBridges};
use super::program::Program;
use super::settings::{SwitchKind, SwitchSettings};
use super::{CpuTime, Needs, OwnSwitch, PeerDir, PortCounters, dray, snabb, testpmd, vpp};
use crate::{Cancel, Holdings, LabError, Placement};

/// A running switch. It is killed when this value is dropped or the thread that started it ends.
#[derive(Debug)]
pub struct PeerSwitch {
    running: Box<dyn RunningSwitch>,
    ready_after: Duration,
}

impl SwitchKind {
    pub(super) fn adapter(self) -> &'static Adapter {
        match self {
            Self::Testpmd => &testpmd::ADAPTER,
            Self::OvsDpdk => &ovs::DPDK_ADAPTER,
            Self::Ovs => &ovs::ADAPTER,
            Self::Vpp => &vpp::ADAPTER,
            Self::Snabb => &snabb::ADAPTER,
            Self::Dray => &dray::ADAPTER,
        }
    }

    /// Name of the switch in tables and results.
    pub fn name(self) -> &'static str {
        self.adapter().name
    }

    /// Finds the installed program; the error says why none is suitable and what to do. Each
    /// program prints its version once: some take a second.
    pub fn find(self) -> Result<Found, String> {
        static FOUND: [OnceLock<Result<Found, String>>; SwitchKind::ALL.len()] =
            [const { OnceLock::new() }; SwitchKind::ALL.len()];
        FOUND[self as usize].get_or_init(|| self.adapter().find()).clone()
    }

    /// Finds the installed program for `name`, which is about to be started in `dir`.
    pub(super) fn find_for(self, dir: &PeerDir, name: &str) -> Result<Found, LabError> {
        let found = self.find().map_err(|why| LabError::peer(name, why))?;
        // Results state our own version anyway, and VPP reports its version later.
        if !matches!(self, Self::Dray | Self::Vpp) {
            dir.note_version(&found.version);
        }
        Ok(found)
    }
}

impl PeerSwitch {
    /// Starts a switch and waits until it forwards: its sockets exist and it serves connections.
    pub fn start(
        dir: &PeerDir,
        settings: &SwitchSettings,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let found = settings.kind.find_for(dir, settings.kind.name())?;
        Self::run(dir, &found.program, settings, cancel)
    }

    /// Starts a switch like [`start`](Self::start), with a given program.
    pub(crate) fn run(
        dir: &PeerDir,
        program: &Path,
        settings: &SwitchSettings,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let adapter = settings.kind.adapter();
        adapter.check(settings)?;
        Placement::of(&[settings.cpu])?;
        for port in settings.ports.iter().filter(|port| port.server) {
            remove_old_socket(&port.socket)?;
        }
        let running = (adapter.start)(&Launch { adapter, dir, program, settings, cancel })?;
        Ok(Self::ready(running))
    }

    /// Starts Open vSwitch with a bridge on each of some hosts, and waits until all forward.
    pub(crate) fn start_bridges(bridges: &[Bridge<'_>], cancel: &Cancel) -> Result<Self, LabError> {
        let name = SwitchKind::Ovs.name();
        let found = SwitchKind::Ovs.find_for(&bridges[0].dir, name)?;
        for bridge in bridges {
            Placement::of(&[bridge.cpu])?;
        }
        let running = RunningBridges::start((name, &found.program), bridges, cancel)?;
        Ok(Self::ready(Box::new(running)))
    }

    /// Starts our own switch, `program`, with ports of any kind, and waits until it forwards.
    pub(crate) fn start_own(
        dir: &PeerDir,
        program: &Path,
        own: &OwnSwitch,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        Placement::of(&[own.cpu])?;
        Ok(Self::ready(dray::start_own(dir, program, own, cancel)?))
    }

    fn ready(running: Box<dyn RunningSwitch>) -> Self {
        let ready_after = running.started().elapsed();
        Self { running, ready_after }
    }

    /// Time from the start of the first process until the switch forwarded.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Counters of each port; `None` if the switch has none.
    pub fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        self.running.counters()
    }

    /// Share of the frames from the containers that bypassed the switch so far; `None` if none can.
    pub fn bypassed(&self) -> Result<Option<f64>, LabError> {
        self.running.bypassed()
    }

    /// CPU time of the forwarding threads.
    pub fn cpu_time(&self) -> Result<CpuTime, LabError> {
        self.running.programs().into_iter().map(Program::cpu_time).sum()
    }

    /// CPU time of all other threads.
    pub fn control_cpu_time(&self) -> Result<CpuTime, LabError> {
        self.running.programs().into_iter().map(Program::control_cpu_time).sum()
    }

    /// Time so far in which the forwarding thread had frames to move; `None` if the switch does not
    /// report it.
    pub fn work_time(&self) -> Result<Option<Duration>, LabError> {
        self.running.work_time()
    }

    /// Descriptors that become readable when [`check`](Self::check) should be called.
    pub(crate) fn signs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.running.programs().into_iter().map(|program| program.process.sign())
    }

    /// Fails if the switch has ended.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        self.running.programs().into_iter().try_for_each(|program| program.process.check())
    }

    /// Resources held by the switch's processes.
    pub fn holdings(&self) -> Result<Holdings, LabError> {
        let of = |program: &Program| {
            let process = &program.process;
            let doing = LabError::doing(format!("resources of {}", process.name()));
            Holdings::of(process.pid()).map_err(doing)
        };
        self.running.programs().into_iter().map(of).sum()
    }

    /// Resources and privileges that the switch had to be given.
    pub fn needs(&self) -> Needs {
        self.running.programs()[0].needs
    }
}

/// Removes the socket of a killed switch, which would keep the next one from listening there.
fn remove_old_socket(path: &Path) -> Result<(), LabError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() || meta.is_symlink() => fs::remove_file(path)
            .map_err(LabError::doing(format!("removing the old socket {}", path.display()))),
        _ => Ok(()),
    }
}
