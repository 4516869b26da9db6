//! A switch that runs as a program: ours, or somebody else's.

use std::env;
use std::fmt::Debug;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::dray::Dray;
use super::ovs::{self, Bridge, RunningBridge, VhostUser};
use super::port::check;
use super::process::command;
use super::program::Program;
use super::snabb::{self, Snabb};
use super::testpmd::{self, Testpmd};
use super::vpp::{self, Vpp};
use super::{CpuTime, Memory, Needs, PeerDir, PeerPort, PortCounters, Protocol};
use crate::doctor::programs;
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

/// An installed program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub program: PathBuf,
    /// Its version, as it says it.
    pub version: String,
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
    /// Its name in tables and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Testpmd => "testpmd",
            Self::OvsDpdk => "ovs-dpdk",
            Self::Ovs => "ovs",
            Self::Vpp => "vpp",
            Self::Snabb => "snabb",
            Self::Dray => "dray",
        }
    }

    /// The installed program, or why there is none and what to do.
    pub fn find(self) -> Result<Found, String> {
        let (program, remedy, whose) = match self {
            Self::Testpmd => (testpmd::PROGRAM, "apt install dpdk-dev", "DPDK's"),
            Self::OvsDpdk => {
                let remedy = "apt install openvswitch-switch-dpdk";
                (ovs::PROGRAM_DPDK, remedy, "Open vSwitch with DPDK")
            }
            Self::Ovs => (ovs::PROGRAM, "apt install openvswitch-switch", "Open vSwitch"),
            Self::Vpp => (vpp::PROGRAM, "Debian has no package, see fd.io", "VPP"),
            Self::Snabb => {
                let remedy = "Debian has no package, see github.com/snabbco/snabb";
                (snabb::PROGRAM, remedy, "Snabb")
            }
            Self::Dray => {
                let program = env::current_exe().map_err(|error| format!("dray: {error}"))?;
                return Ok(Found { program, version: env!("CARGO_PKG_VERSION").to_owned() });
            }
        };
        let mut path = programs::search_path(env::var_os("PATH"));
        if self == Self::OvsDpdk {
            // Debian's name for it, which is not on anybody's PATH.
            path.insert(0, ovs::DEBIAN_FOLDER.into());
        }
        let missing = || format!("{program} is not installed; {remedy}");
        let program = programs::find(program, &path).ok_or_else(missing)?;
        let mut command = match self {
            Self::Snabb => snabb::private(&program),
            _ => command(&program),
        };
        // testpmd says its version only on the way to something else; its help is harmless.
        let arguments: &[&str] = match self {
            Self::Testpmd => &["-v", "-h"],
            _ => &["--version"],
        };
        let shown = program.display();
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{shown}: {error}"))?;
        let said = [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
        let version = said.iter().find_map(|text| version(self, text));
        let version = version.ok_or_else(|| format!("{shown} does not say that it is {whose}"))?;
        Ok(Found { program, version })
    }
}

impl SwitchKind {
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

/// Finds the version in what a program says of itself.
fn version(kind: SwitchKind, text: &str) -> Option<String> {
    match kind {
        SwitchKind::Testpmd => {
            let (_, rest) = text.split_once("RTE Version: '")?;
            Some(rest.split_once('\'')?.0.to_owned())
        }
        SwitchKind::OvsDpdk => {
            let ovs = text.lines().next()?.rsplit(' ').next()?;
            let dpdk = text.lines().find(|line| line.starts_with("DPDK "))?;
            Some(format!("Open vSwitch {ovs}, {dpdk}"))
        }
        SwitchKind::Ovs => {
            let (_, version) = text.lines().next()?.split_once("(Open vSwitch) ")?;
            Some(format!("Open vSwitch {version}"))
        }
        // It has no such option, complains in its own way, and says its version when it runs.
        SwitchKind::Vpp => text.contains("vlib_plugin_config").then(|| "VPP".to_owned()),
        SwitchKind::Snabb => {
            let line = text.lines().next()?.strip_prefix("snabb ")?;
            Some(format!("Snabb {line}"))
        }
        // It is not asked.
        SwitchKind::Dray => None,
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
        let SwitchSettings { kind, cpu, wiring, ports, .. } = settings;
        let name = kind.name();
        let sockets = ports.iter().map(|port| (port.socket.as_path(), port.queues));
        check(name, sockets, *wiring == Wiring::Pairs)?;
        let learns = !matches!(kind, SwitchKind::Testpmd | SwitchKind::Snabb);
        if *wiring == Wiring::Learning && !learns {
            let what = "it does not learn addresses; wire its ports in pairs";
            return Err(LabError::peer(name, what));
        }
        let foreign = ports.iter().find(|port| port.protocol == Protocol::Memif);
        if let Some(port) = foreign.filter(|_| *kind != SwitchKind::Vpp) {
            let what = format!("socket {}: it does not speak memif", port.socket.display());
            return Err(LabError::peer(name, what));
        }
        Placement::of(&[*cpu])?;
        for port in ports.iter().filter(|port| port.server) {
            remove_old_socket(&port.socket)?;
        }
        let running: Box<dyn Running> = match kind {
            SwitchKind::Testpmd => Box::new(Testpmd::start_switch(dir, program, settings, cancel)?),
            SwitchKind::OvsDpdk => Box::new(VhostUser::start(dir, program, settings, cancel)?),
            SwitchKind::Ovs => {
                return Err(LabError::peer(name, "its ports are interfaces, not sockets"));
            }
            SwitchKind::Vpp => Box::new(Vpp::start(dir, program, settings, cancel)?),
            SwitchKind::Snabb => Box::new(Snabb::start(dir, program, settings, cancel)?),
            SwitchKind::Dray => Box::new(Dray::start(dir, program, settings, cancel)?),
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let testpmd = "EAL: Detected NUMA nodes: 1\nEAL: RTE Version: 'DPDK 22.11.11'\n";
        assert_eq!(version(SwitchKind::Testpmd, testpmd).as_deref(), Some("DPDK 22.11.11"));
        let ovs = "ovs-vswitchd (Open vSwitch) 3.1.0\nDPDK 22.11.11\n";
        let said = version(SwitchKind::OvsDpdk, ovs);
        assert_eq!(said.as_deref(), Some("Open vSwitch 3.1.0, DPDK 22.11.11"));
        // Built without DPDK it is another switch.
        assert_eq!(version(SwitchKind::OvsDpdk, "ovs-vswitchd (Open vSwitch) 3.1.0\n"), None);
        let ovs = "ovs-vswitchd (Open vSwitch) 3.1.0\n";
        assert_eq!(version(SwitchKind::Ovs, ovs).as_deref(), Some("Open vSwitch 3.1.0"));
        assert_eq!(version(SwitchKind::Testpmd, ""), None);
        let vpp = "vlib_plugin_config: unknown input '--version'";
        assert_eq!(version(SwitchKind::Vpp, vpp).as_deref(), Some("VPP"));
        assert_eq!(version(SwitchKind::Vpp, "vpp 1.0\n"), None);
        let snabb = "snabb 2022.07\nCopyright (C) 2012-2017 Snabb authors\n";
        assert_eq!(version(SwitchKind::Snabb, snabb).as_deref(), Some("Snabb 2022.07"));
        assert_eq!(version(SwitchKind::Snabb, "1.0\n"), None);
    }
}
