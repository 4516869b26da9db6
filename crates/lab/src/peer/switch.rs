//! A switch that runs as a program: ours, or somebody else's.

use std::fmt::Debug;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::adapter::{Adapter, Found, Launch};
use super::ovs::{self, Bridge, RunningBridge};
use super::program::Program;
use super::{CpuTime, Memory, Needs, PeerDir, PeerPort, PortCounters, dray, snabb, testpmd, vpp};
use crate::{Cancel, Holdings, LabError, Placement};

/// Whose switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwitchKind {
    /// DPDK's testpmd between ports of its vhost driver.
    Testpmd,
    /// Open vSwitch with DPDK's user-space datapath.
    OvsDpdk,
    /// Open vSwitch between network interfaces.
    Ovs,
    /// FD.io's Vector Packet Processor.
    Vpp,
    /// Snabb.
    Snabb,
    /// Our own.
    Dray,
}

/// Which frames go where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wiring {
    /// Between ports 0 and 1, 2 and 3 and so on, whatever they are.
    Pairs,
    /// By destination address, which the switch learns.
    Learning,
}

/// How a switch is started.
#[derive(Clone, Debug)]
pub struct SwitchSettings {
    /// Whose.
    pub kind: SwitchKind,
    /// The CPU of its forwarding thread, which it should have for itself.
    pub cpu: usize,
    /// Which frames go where.
    pub wiring: Wiring,
    /// Where its memory comes from, as far as it lets one choose.
    pub memory: Memory,
    /// Its ports.
    pub ports: Vec<PeerPort>,
}

/// A running switch. It dies with this value, and with the thread that started it.
#[derive(Debug)]
pub struct PeerSwitch {
    running: Box<dyn Running>,
    ready_after: Duration,
}

/// What is asked of a switch once it runs.
pub(super) trait Running: Debug {
    /// The program that forwards.
    fn program(&self) -> &Program;

    /// Since when its first process runs.
    fn started(&self) -> Instant {
        self.program().process.started()
    }

    /// What went through each port; `None` where it does not count.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError>;

    /// How long its forwarding thread has had frames to move so far; `None` where it does not say.
    fn work_time(&self) -> Result<Option<Duration>, LabError> {
        Ok(None)
    }
}

impl SwitchKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Testpmd, Self::OvsDpdk, Self::Ovs, Self::Vpp, Self::Snabb, Self::Dray];

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

    /// Its name in tables and results.
    pub fn name(self) -> &'static str {
        self.adapter().name
    }

    /// The installed program, or why there is none that will do and what to do.
    pub fn find(self) -> Result<Found, String> {
        self.adapter().find()
    }

    /// The installed program, for `name`, which is about to be started in `dir`.
    pub(super) fn find_for(self, dir: &PeerDir, name: &str) -> Result<Found, LabError> {
        let found = self.find().map_err(|why| LabError::peer(name, why))?;
        // Results name our own version anyway, and VPP says its own later.
        if !matches!(self, Self::Dray | Self::Vpp) {
            dir.note_program(&found);
        }
        Ok(found)
    }
}

impl PeerSwitch {
    /// Starts a switch and waits until it forwards: its sockets exist, and whoever connects to them
    /// is served.
    pub fn start(
        dir: &PeerDir,
        settings: &SwitchSettings,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let found = settings.kind.find_for(dir, settings.kind.name())?;
        Self::run(dir, &found.program, settings, cancel)
    }

    /// The same with a given program.
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

    /// Starts Open vSwitch between interfaces and waits until it forwards. The directory's network
    /// namespace is theirs.
    pub(crate) fn start_bridge(
        dir: &PeerDir,
        bridge: &Bridge,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let name = SwitchKind::Ovs.name();
        let found = SwitchKind::Ovs.find_for(dir, name)?;
        Placement::of(&[bridge.cpu])?;
        let running = RunningBridge::start(dir, (name, &found.program), bridge, cancel)?;
        Ok(Self::ready(Box::new(running)))
    }

    fn ready(running: Box<dyn Running>) -> Self {
        let ready_after = running.started().elapsed();
        Self { running, ready_after }
    }

    /// How long it took from the start of its first process until it forwarded.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// What went through each port; `None` where the switch does not count.
    pub fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        self.running.counters()
    }

    /// CPU time of its forwarding thread.
    pub fn cpu_time(&self) -> Result<CpuTime, LabError> {
        self.running.program().cpu_time()
    }

    /// CPU time of all its other threads.
    pub fn control_cpu_time(&self) -> Result<CpuTime, LabError> {
        self.running.program().control_cpu_time()
    }

    /// How long its forwarding thread has had frames to move so far; `None` where it does not say.
    pub fn work_time(&self) -> Result<Option<Duration>, LabError> {
        self.running.work_time()
    }

    /// Becomes readable when there is a reason to [`check`](Self::check).
    pub(crate) fn sign(&self) -> BorrowedFd<'_> {
        self.running.program().process.sign()
    }

    /// Fails where it has ended.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        self.running.program().process.check()
    }

    /// What its process holds.
    pub fn holdings(&self) -> Result<Holdings, LabError> {
        let process = &self.running.program().process;
        let doing = LabError::doing(format!("what {} holds", process.name()));
        Holdings::of(process.pid()).map_err(doing)
    }

    /// What it had to be given.
    pub fn needs(&self) -> Needs {
        self.running.program().needs
    }
}

/// A switch that was killed leaves its socket, and the next cannot listen there then.
fn remove_old_socket(path: &Path) -> Result<(), LabError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() || meta.is_symlink() => fs::remove_file(path)
            .map_err(LabError::doing(format!("removing the old socket {}", path.display()))),
        _ => Ok(()),
    }
}
