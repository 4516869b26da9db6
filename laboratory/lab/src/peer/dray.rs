//! Our own switch, run as a program like third-party switches.

use std::path::PathBuf;
use std::time::Duration;

use dray_switch::client::Client;

use super::adapter::{Adapter, Launch, RunningSwitch};
use super::program::Program;
use super::{Needs, PortCounters, Protocol, Wiring};
use crate::LabError;

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

/// Prefix of the worker's thread name.
const FORWARDING_THREAD: &str = "dray-worker";

/// A running switch.
#[derive(Debug)]
struct Dray {
    program: Program,
    control: PathBuf,
}

impl Dray {
    fn start(launch: &Launch<'_>) -> Result<Self, LabError> {
        let Launch { dir, settings, .. } = launch;
        let control = dir.join(CONTROL);
        let mut command = launch.command();
        // It busy-polls forever, as third-party switches do.
        command.args(["switch", "--idle", "never", "--cpus", &settings.cpu.to_string()]);
        command.args(match settings.wiring {
            Wiring::Pairs => ["--mode", "patch", "--flow", "backpressure"],
            Wiring::Learning => ["--mode", "learning", "--flow", "drop"],
        });
        command.arg("--control").arg(&control);
        if dray_sandbox::landlock_version().is_err() {
            // The results record the command line.
            command.args(["--sandbox", "off"]);
        }
        for (index, port) in settings.ports.iter().enumerate() {
            let (socket, queues) = (port.socket.display(), port.queues);
            let client = if port.server { "" } else { "&client=1" };
            let port = format!("p{index}=vhost:{socket}?queues={queues}{client}");
            command.args(["--port", &port]);
        }
        let program = launch.start(&mut command, FORWARDING_THREAD, Needs::NOTHING)?;
        let mut dray = Self { program, control };
        let client = Client::new(&dray.control);
        // Its control socket replies once its ports are open.
        let answers = |_: &_| client.status().is_ok();
        dray.program.process.wait_until(launch.cancel, "its control socket", answers)?;
        Ok(dray)
    }
}

impl RunningSwitch for Dray {
    fn program(&self) -> &Program {
        &self.program
    }

    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        let stats = Client::new(&self.control).stats();
        let stats = stats.map_err(|error| self.program.process.failed(&error.to_string()))?;
        let of = |port: &dray_switch::PortStats| PortCounters {
            received_frames: port.counters.rx_frames,
            received_bytes: port.counters.rx_bytes,
            sent_frames: port.counters.tx_frames,
            sent_bytes: port.counters.tx_bytes,
        };
        Ok(Some(stats.iter().map(of).collect()))
    }

    fn work_time(&self) -> Result<Option<Duration>, LabError> {
        let status = Client::new(&self.control).status();
        let status = status.map_err(|error| self.program.process.failed(&error.to_string()))?;
        let work_s = status.workers.iter().map(|worker| worker.work_s).sum();
        Ok(Duration::try_from_secs_f64(work_s).ok())
    }
}
