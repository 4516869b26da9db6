//! Open vSwitch between network interfaces.

use std::path::Path;
use std::time::Instant;

use dray_wire::MacAddr;

use super::{BRIDGE, Ovs, POLLING_THREAD, Start, mask};
use crate::peer::adapter::{Adapter, Installed};
use crate::peer::process::command;
use crate::peer::program::{Program, housekeeping_cpu};
use crate::peer::switch::Running;
use crate::peer::{Needs, PeerDir, PortCounters};
use crate::{Cancel, LabError};

pub(in crate::peer) static ADAPTER: Adapter = Adapter {
    name: "ovs",
    installed: Some(Installed {
        program: "ovs-vswitchd",
        folder: None,
        whose: "Open vSwitch",
        remedy: "apt install openvswitch-switch",
        minimum: "3.1",
        command: |program| command(program),
        ask: &["--version"],
        version: |said| {
            let (_, version) = said.lines().next()?.split_once("(Open vSwitch) ")?;
            Some(format!("Open vSwitch {version}"))
        },
    }),
    learns: true,
    protocols: &[],
    queues_max: 0,
    // It is started by another call.
    start: |_| Err(LabError::peer("ovs", "its ports are interfaces, not sockets")),
};

/// What passes frames on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// The kernel, in soft interrupts.
    Kernel,
    /// One thread, which sleeps while there is nothing to do, by packet sockets.
    Userspace,
    /// One thread, which polls for good, by AF_XDP sockets.
    Afxdp,
}

/// How it is started.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// What passes frames on.
    pub datapath: Datapath,
    /// The CPU of the thread that forwards, where there is one.
    pub cpu: usize,
    /// Its ports.
    pub ports: Vec<BridgePort>,
}

/// A port.
#[derive(Clone, Debug)]
pub struct BridgePort {
    /// The interface, in the network namespace of the peers' directory.
    pub interface: String,
    /// Who is behind it, for good.
    pub station: MacAddr,
}

/// A running switch.
#[derive(Debug)]
pub(in crate::peer) struct RunningBridge(Ovs);

impl RunningBridge {
    pub(in crate::peer) fn start(
        dir: &PeerDir,
        (name, program): (&str, &Path),
        bridge: &Bridge,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let Bridge { datapath, cpu, .. } = *bridge;
        let (cpu, config, forwarding_thread) = match datapath {
            // What is new to the kernel's datapath, and what is old, is seen to by other threads.
            Datapath::Kernel => (None, Vec::new(), ""),
            Datapath::Userspace => (Some(cpu), Vec::new(), ""),
            Datapath::Afxdp => {
                let polling = format!("pmd-cpu-mask={}", mask(cpu));
                (Some(housekeeping_cpu(cpu)), vec![polling], POLLING_THREAD)
            }
        };
        let needs = datapath.needs();
        let start = Start { name, program, config: &config, cpu, forwarding_thread, needs };
        let switch = Self(Ovs::start(dir, &start, cancel)?);
        switch.add_ports(bridge).map_err(|error| switch.0.failed(&error))?;
        Ok(switch)
    }

    fn add_ports(&self, bridge: &Bridge) -> Result<(), LabError> {
        let home = &self.0.home;
        let (datapath, kind) = match bridge.datapath {
            Datapath::Kernel => ("system", "type=system"),
            Datapath::Userspace => ("netdev", "type=system"),
            Datapath::Afxdp => ("netdev", "type=afxdp"),
        };
        home.add_bridge(datapath)?;
        for (index, port) in bridge.ports.iter().enumerate() {
            home.add_port(index, &port.interface, &[kind])?;
            let station = port.station.to_string();
            home.appctl(&["fdb/add", BRIDGE, &port.interface, "0", &station])?;
        }
        Ok(())
    }
}

impl Running for RunningBridge {
    fn program(&self) -> &Program {
        &self.0.switch
    }

    fn started(&self) -> Instant {
        self.0.database.started()
    }

    /// None: the kernel counts at each interface.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        Ok(None)
    }
}

impl Datapath {
    fn needs(self) -> Needs {
        let privileges = match self {
            Self::Kernel => "root, to configure the kernel's datapath",
            Self::Userspace => "root, for packet sockets and its bridge's TAP interface",
            Self::Afxdp => "root, for XDP programs and its bridge's TAP interface",
        };
        Needs { hugepages_mib: 0, privileges, others: &["a database server of its own"] }
    }
}
