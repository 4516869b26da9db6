//! Open vSwitch between network interfaces.

use std::path::Path;
use std::time::Instant;

use dray_wire::MacAddr;

use super::{BRIDGE, Ovs, POLLING_THREAD, Start, mask};
use crate::peer::adapter::{Adapter, Installed, RunningSwitch};
use crate::peer::program::{Program, housekeeping_cpu};
use crate::peer::{Needs, PeerDir, PortCounters};
use crate::process::command;
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
        version_arguments: &["--version"],
        version: |output| {
            let (_, version) = output.lines().next()?.split_once("(Open vSwitch) ")?;
            Some(format!("Open vSwitch {version}"))
        },
    }),
    learns: true,
    protocols: &[],
    queues_max: 0,
    // `PeerSwitch::start_bridge` starts it instead.
    start: |_| Err(LabError::peer("ovs", "its ports are interfaces, not sockets")),
};

/// Component that forwards frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// The kernel, in soft interrupts.
    Kernel,
    /// One thread over packet sockets, which sleeps while idle.
    Userspace,
    /// One thread over AF_XDP sockets, which always polls.
    Afxdp,
}

/// Settings of an Open vSwitch bridge.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// Component that forwards frames.
    pub datapath: Datapath,
    /// CPU of the forwarding thread, if there is one.
    pub cpu: usize,
    /// Ports of the bridge.
    pub ports: Vec<BridgePort>,
}

/// A port of a bridge.
#[derive(Clone, Debug)]
pub struct BridgePort {
    /// Name of the interface, in the network namespace of the peers' directory.
    pub interface: String,
    /// Station behind the port, as a permanent entry.
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
            // Other threads handle the flows that are new to the kernel's datapath, and old ones.
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
            home.add_port(index, &port.interface, 1, &[kind])?;
            let station = port.station.to_string();
            home.appctl(&["fdb/add", BRIDGE, &port.interface, "0", &station])?;
        }
        Ok(())
    }
}

impl RunningSwitch for RunningBridge {
    fn program(&self) -> &Program {
        &self.0.switch
    }

    fn started(&self) -> Instant {
        self.0.database.started()
    }

    /// Always `None`: the kernel counts at each interface.
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
