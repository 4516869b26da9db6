//! `dpdk-testpmd`, DPDK's own test program, used as a switch and as every kind of endpoint.

use std::path::{Path, PathBuf};

use super::adapter::{Adapter, Installed, Launch, RunningSwitch};
use super::program::{FOR_HUGEPAGES, Program, housekeeping_cpu};
use super::telemetry::Telemetry;
use super::{Memory, Needs, PeerDir, PeerPort, PortCounters, Protocol};
use crate::process::command;
use crate::{Cancel, LabError};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "testpmd",
    installed: Some(Installed {
        program: "dpdk-testpmd",
        folder: None,
        whose: "DPDK",
        remedy: "apt install dpdk-dev",
        minimum: "22.11",
        command: |program| command(program),
        // testpmd prints its version only while doing something else; printing its help is
        // harmless.
        version_arguments: &["-v", "-h"],
        version: |output| {
            let (_, rest) = output.split_once("RTE Version: '")?;
            Some(rest.split_once('\'')?.0.to_owned())
        },
    }),
    learns: false,
    protocols: &[Protocol::VhostUser],
    queues_max: u16::MAX,
    start: |launch| Ok(Box::new(Testpmd::start_switch(launch)?)),
};

/// Minimum number of buffers. A small pool stays in the caches better.
const BUFFERS_MIN: usize = 8192;

/// Number of buffers for each port and queue: both rings, and bursts in flight.
const BUFFERS_PER_QUEUE: usize = 2048;

/// Bytes of a buffer with its headers, rounded up.
const BUFFER_BYTES: usize = 2560;

/// MiB that DPDK needs besides buffers, a generous estimate.
const OTHER_MIB: usize = 32;

/// Name of the forwarding thread. DPDK numbers its threads itself: 1 is the console, 2 forwards.
const FORWARDING_THREAD: &str = "rte-worker-2";

/// Settings to start testpmd with.
pub(super) struct Settings<'a> {
    pub(super) name: &'a str,
    pub(super) program: PathBuf,
    /// CPU of the forwarding thread.
    pub(super) cpu: usize,
    /// CPU of all other threads.
    pub(super) housekeeping_cpu: usize,
    pub(super) memory: Memory,
    /// Devices, in the order of the ports.
    pub(super) devices: Vec<Device>,
    pub(super) queues: u16,
    /// Options of testpmd itself.
    pub(super) options: Vec<String>,
}

/// Device of a port.
pub(super) enum Device {
    /// One that exists only in DPDK, with its arguments.
    Virtual(String),
    /// Bus address of a PCI function that `vfio-pci` has.
    Function(String),
}

/// A running testpmd.
#[derive(Debug)]
pub(super) struct Testpmd {
    pub(super) program: Program,
    ports: usize,
    telemetry: Option<Telemetry>,
    dir: PeerDir,
}

impl Testpmd {
    pub(super) fn start(dir: &PeerDir, settings: &Settings<'_>) -> Result<Self, LabError> {
        let ports = settings.devices.len();
        let buffers = BUFFERS_MIN.max(BUFFERS_PER_QUEUE * ports * usize::from(settings.queues));
        let mib = OTHER_MIB + (buffers * BUFFER_BYTES).div_ceil(1 << 20);
        let mut command = command(&settings.program);
        command
            .env("RUNTIME_DIRECTORY", dir.path())
            // An IOMMU translates addresses, or there is no device that uses any.
            .args(["--iova-mode=va", "--file-prefix", settings.name, "--lcores"])
            .arg(format!("1@{},2@{}", settings.housekeeping_cpu, settings.cpu));
        let needs = match settings.memory {
            Memory::HugePages => {
                // Single-file segments, because virtio-user can share at most eight files.
                command.args(["--in-memory", "--single-file-segments"]);
                Needs { hugepages_mib: mib as u32, privileges: FOR_HUGEPAGES, others: &[] }
            }
            Memory::OrdinaryPages => {
                command.args(["--no-huge", "--no-shconf", "-m", &mib.to_string()]);
                Needs::NOTHING
            }
        };
        for device in &settings.devices {
            match device {
                Device::Virtual(arguments) => command.args(["--vdev", arguments]),
                Device::Function(address) => command.args(["--allow", address]),
            };
        }
        if !settings.devices.iter().any(|device| matches!(device, Device::Function(_))) {
            command.arg("--no-pci");
        }
        let queues = settings.queues;
        command
            .args(["--", "--interactive", "--nb-cores=1"])
            .arg(format!("--total-num-mbufs={buffers}"))
            .args([format!("--rxq={queues}"), format!("--txq={queues}")])
            .args(&settings.options);
        let program = Program::start(dir, settings.name, command, FORWARDING_THREAD, needs)?;
        Ok(Self { program, ports, telemetry: None, dir: dir.clone() })
    }

    /// Starts a testpmd that forwards between ports of its vhost driver, and waits until it does.
    fn start_switch(launch: &Launch<'_>) -> Result<Self, LabError> {
        let Launch { dir, settings, .. } = launch;
        let (name, ports) = (ADAPTER.name, &settings.ports);
        let device = |(index, port): (usize, &PeerPort)| {
            Device::Virtual(vhost_device(index, &port.socket, port.server, port.queues))
        };
        let mut testpmd = Self::start(
            dir,
            &Settings {
                name,
                program: launch.program.to_owned(),
                cpu: settings.cpu,
                housekeeping_cpu: housekeeping_cpu(settings.cpu),
                memory: settings.memory,
                devices: ports.iter().enumerate().map(device).collect(),
                queues: same_queues(name, ports.iter().map(|port| port.queues))?,
                options: vec!["--auto-start".into(), "--forward-mode=io".into()],
            },
        )?;
        testpmd.wait_until_ready(launch.cancel)?;
        Ok(testpmd)
    }

    /// Waits for the prompt: all ports are up then and, with `--auto-start`, frames are forwarded.
    pub(super) fn wait_until_ready(&mut self, cancel: &Cancel) -> Result<(), LabError> {
        if self.telemetry.is_none() {
            self.program.wait_until_ready(|process| {
                process.wait_until_logged(cancel, "its prompt", "testpmd> ")
            })?;
            let process = &self.program.process;
            let connected = Telemetry::connect(self.dir.path(), process.name());
            let failed = |error| process.failed(&format!("telemetry: {error}"));
            self.telemetry = Some(connected.map_err(failed)?);
        }
        Ok(())
    }

    pub(super) fn port_counters(&self) -> Result<Vec<PortCounters>, LabError> {
        let failed = |error| self.program.process.failed(&format!("counters: {error}"));
        let Some(telemetry) = &self.telemetry else {
            return Err(failed(std::io::Error::other("not ready")));
        };
        (0..self.ports).map(|port| telemetry.counters(port).map_err(failed)).collect()
    }

    pub(super) fn command(&mut self, line: &str) -> Result<(), LabError> {
        self.program.process.write_line(line)
    }
}

impl RunningSwitch for Testpmd {
    fn programs(&self) -> Vec<&Program> {
        vec![&self.program]
    }

    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        self.port_counters().map(Some)
    }
}

/// Number of queues of each port, the same for all: testpmd supports only one number.
pub(super) fn same_queues(
    name: &str,
    mut queues: impl Iterator<Item = u16>,
) -> Result<u16, LabError> {
    let first = queues.next().expect("ports have been checked");
    match queues.find(|&other| other != first) {
        Some(other) => {
            let what = format!(
                "ports with {first} and {other} queues; testpmd needs the same number at every port"
            );
            Err(LabError::peer(name, what))
        }
        None => Ok(first),
    }
}

/// Arguments of a vhost back end.
pub(super) fn vhost_device(index: usize, socket: &Path, server: bool, queues: u16) -> String {
    let client = u8::from(!server);
    format!("net_vhost{index},iface={},queues={queues},client={client}", socket.display())
}
