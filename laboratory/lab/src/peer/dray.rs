//! Our own switch, run as a program like third-party switches.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dray_switch::PortStatus;
use dray_switch::client::Client;

use super::adapter::{Adapter, Launch, RunningSwitch};
use super::program::Program;
use super::{Needs, PeerDir, PeerPort, PortCounters, Protocol, Wiring};
use crate::process::command;
use crate::{Cancel, LabError};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "dray",
    installed: None,
    learns: true,
    protocols: &[Protocol::VhostUser],
    queues_max: u16::MAX,
    start: |launch| Ok(Box::new(Dray::start(launch)?)),
};

/// Control socket of the switch, in the directory of the peers.
pub(crate) const CONTROL: &str = "dray.ctl";

/// Prefixes of the names of ports at ends of links, and of others.
pub(crate) const END_PORT: &str = "p";
const BETWEEN: &str = "between";

/// Prefix of the worker's thread name.
const FORWARDING_THREAD: &str = "dray-worker";

/// A running switch.
#[derive(Debug)]
struct Dray {
    program: Program,
    control: PathBuf,
}

/// Settings of a switch with ports of any kind.
#[derive(Clone, Debug)]
pub(crate) struct OwnSwitch {
    /// CPU of the forwarding thread.
    pub(crate) cpu: usize,
    /// Forwarding rule.
    pub(crate) wiring: Wiring,
    /// True if the worker sleeps while it is idle, and leaves the CPU to others.
    pub(crate) sleeps: bool,
    /// First ports of the switch, in order.
    pub(crate) ports: Vec<OwnPort>,
}

/// A port of our switch.
#[derive(Clone, Debug)]
pub(crate) struct OwnPort {
    pub(crate) uri: String,
    /// VLAN to which the port belongs, if the switch has several.
    pub(crate) vlan: Option<u16>,
    /// True if the port is that of a link's end, so that its counters count.
    pub(crate) is_end: bool,
}

/// Starts the switch `program` with ports of any kind, and waits until it forwards.
pub(super) fn start_own(
    dir: &PeerDir,
    program: &Path,
    own: &OwnSwitch,
    cancel: &Cancel,
) -> Result<Box<dyn RunningSwitch>, LabError> {
    const NEEDS: Needs =
        Needs { privileges: "CAP_NET_ADMIN and CAP_SYS_ADMIN, at its start", ..Needs::NOTHING };
    Ok(Box::new(Dray::run(dir, command(program), own, NEEDS, cancel)?))
}

impl Dray {
    fn start(launch: &Launch<'_>) -> Result<Self, LabError> {
        let Launch { dir, settings, .. } = launch;
        let has_segments = settings.wiring == Wiring::Learning
            && settings.ports.iter().any(|port| port.segment > 1);
        let port = |port: &PeerPort| {
            let (socket, queues) = (port.socket.display(), port.queues);
            let client = if port.server { "" } else { "&client=1" };
            let uri = format!("vhost:{socket}?queues={queues}{client}");
            OwnPort { uri, vlan: Some(port.segment).filter(|_| has_segments), is_end: true }
        };
        let ports = settings.ports.iter().map(port).collect();
        let (cpu, sleeps, wiring) = (settings.cpu, settings.sleeps, settings.wiring);
        let own = OwnSwitch { cpu, wiring, sleeps, ports };
        Self::run(dir, launch.command(), &own, Needs::NOTHING, launch.cancel)
    }

    /// Starts the switch, by a command without arguments.
    fn run(
        dir: &PeerDir,
        mut command: Command,
        own: &OwnSwitch,
        needs: Needs,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let control = dir.join(CONTROL);
        command.args(["switch", "--cpus", &own.cpu.to_string()]);
        if !own.sleeps {
            // It busy-polls forever, as third-party switches do.
            command.args(["--idle", "never"]);
        }
        command.args(match own.wiring {
            Wiring::Pairs => ["--mode", "patch", "--flow", "backpressure"],
            Wiring::Learning => ["--mode", "learning", "--flow", "drop"],
        });
        command.arg("--control").arg(&control);
        // The switch's peers are root's programs, and the directory too.
        command.args(["--user", "root"]);
        if dray_sandbox::landlock_version().is_err() {
            // The results record the command line.
            command.args(["--sandbox", "off"]);
        }
        for (index, OwnPort { uri, vlan, is_end }) in own.ports.iter().enumerate() {
            let name = if *is_end { END_PORT } else { BETWEEN };
            let vlan = vlan.map_or(String::new(), |vlan| format!(",vlan={vlan}"));
            command.args(["--port", &format!("{name}{index}={uri}{vlan}")]);
        }
        let program = Program::start(dir, ADAPTER.name, command, FORWARDING_THREAD, needs)?;
        let mut dray = Self { program, control };
        let client = Client::new(&dray.control);
        // The control socket replies once the switch's ports are open.
        let answers = |_: &_| client.status().is_ok();
        dray.program.process.wait_until(cancel, "its control socket", answers)?;
        Ok(dray)
    }
}

impl RunningSwitch for Dray {
    fn programs(&self) -> Vec<&Program> {
        vec![&self.program]
    }

    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        let stats = Client::new(&self.control).stats();
        let stats = stats.map_err(|error| self.program.process.unanswered(&error))?;
        let of = |port: &dray_switch::PortStats| PortCounters {
            received_frames: port.counters.rx_frames,
            received_bytes: port.counters.rx_bytes,
            sent_frames: port.counters.tx_frames,
            sent_bytes: port.counters.tx_bytes,
        };
        let ends = stats.iter().filter(|port| port.name.as_str().starts_with(END_PORT));
        Ok(Some(ends.map(of).collect()))
    }

    fn bypassed(&self) -> Result<Option<f64>, LabError> {
        let ports = Client::new(&self.control).ports();
        let ports = ports.map_err(|error| self.program.process.unanswered(&error))?;
        let of = |port: &PortStatus| Some((port.bypass?.rx_frames, port.counters.rx_frames));
        let sum = ports.iter().filter_map(of).reduce(|a, b| (a.0 + b.0, a.1 + b.1));
        Ok(sum.map(|(bypassed, all)| bypassed as f64 / all.max(1) as f64))
    }

    fn work_time(&self) -> Result<Option<Duration>, LabError> {
        let status = Client::new(&self.control).status();
        let status = status.map_err(|error| self.program.process.unanswered(&error))?;
        let work_s = status.workers.iter().map(|worker| worker.work_s).sum();
        Ok(Duration::try_from_secs_f64(work_s).ok())
    }
}
