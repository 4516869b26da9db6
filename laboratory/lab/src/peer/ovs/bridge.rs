//! Open vSwitch between network interfaces.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

use dray_wire::MacAddr;

use super::{BRIDGE, Home, Ovs, POLLING_THREAD, Start, mask};
use crate::netlink::Netlink;
use crate::peer::adapter::{Adapter, Installed, RunningSwitch};
use crate::peer::program::{Program, housekeeping_cpu};
use crate::peer::{Needs, PeerDir, PortCounters};
use crate::process::command;
use crate::{Cancel, LabError};

/// Bridge that leads to the network, and port of a tunnel.
const UNDERLAY: &str = "br-phy";
const TUNNEL: &str = "tunnel";

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
    // `PeerSwitch::start_bridges` starts it instead.
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
pub struct Bridge<'a> {
    /// Directory of the peers, with the network namespace of the bridge's host.
    pub dir: PeerDir,
    /// Component that forwards frames.
    pub datapath: Datapath,
    /// CPU of the forwarding thread, if there is one.
    pub cpu: usize,
    /// Ports of the bridge.
    pub ports: Vec<BridgePort>,
    /// Tunnel to the bridge of another host.
    pub tunnel: Option<Vxlan<'a>>,
}

/// A port of a bridge.
#[derive(Clone, Debug)]
pub struct BridgePort {
    /// Name of the interface, in the host's network namespace.
    pub interface: String,
    /// Station behind the port, as a permanent entry.
    pub station: MacAddr,
}

/// A VXLAN tunnel (RFC 7348) from a bridge to that of another host.
pub struct Vxlan<'a> {
    /// Netlink socket of the bridge's host.
    pub netlink: &'a Netlink,
    /// Network identifier.
    pub vni: u32,
    /// Network card of the host.
    pub card: String,
    /// Addresses of this host's card and of the other's.
    pub ends: [(MacAddr, Ipv4Addr); 2],
    /// Length of the prefix of their network.
    pub prefix_len: u8,
    /// Stations behind the other bridge, as permanent entries.
    pub stations: Vec<MacAddr>,
}

/// Switches that run on one or several hosts.
#[derive(Debug)]
pub(in crate::peer) struct RunningBridges(Vec<Ovs>);

impl RunningBridges {
    /// Starts a switch for each bridge; those after the first have a number in their names.
    pub(in crate::peer) fn start(
        (name, program): (&str, &Path),
        bridges: &[Bridge<'_>],
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let start = |(number, bridge): (usize, &Bridge<'_>)| -> Result<_, LabError> {
            let number = if number > 0 { (number + 1).to_string() } else { String::new() };
            let mut ovs = start(&format!("{name}{number}"), program, bridge, cancel)?;
            let added = ovs.add_ports(bridge, cancel);
            added.map_err(|error| ovs.failed(error))?;
            Ok(ovs)
        };
        Ok(Self(bridges.iter().enumerate().map(start).collect::<Result<_, _>>()?))
    }
}

/// Starts the switch of a bridge, without the bridge.
fn start(
    name: &str,
    program: &Path,
    bridge: &Bridge<'_>,
    cancel: &Cancel,
) -> Result<Ovs, LabError> {
    let Bridge { ref dir, datapath, cpu, .. } = *bridge;
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
    Ovs::start(dir, &start, cancel)
}

impl Ovs {
    fn add_ports(&mut self, bridge: &Bridge<'_>, cancel: &Cancel) -> Result<(), LabError> {
        let datapath = bridge.datapath;
        let home = &self.home;
        home.add_bridge(BRIDGE, datapath.of_bridge(), &[])?;
        for (index, port) in bridge.ports.iter().enumerate() {
            home.add_port(index, &port.interface, 1, &[datapath.of_port()])?;
            home.add_station(&port.interface, port.station)?;
        }
        let Some(tunnel) = &bridge.tunnel else { return Ok(()) };
        if datapath != Datapath::Kernel {
            self.add_underlay(tunnel, datapath, cancel)?;
        }
        let [(_, local), (_, remote)] = tunnel.ends;
        let settings = [
            "type=vxlan",
            &format!("options:key={}", tunnel.vni),
            &format!("options:local_ip={local}"),
            &format!("options:remote_ip={remote}"),
        ];
        let home = &self.home;
        home.add_port(bridge.ports.len(), TUNNEL, 1, &settings)?;
        tunnel.stations.iter().try_for_each(|&station| home.add_station(TUNNEL, station))
    }

    /// Adds a second bridge, through which a tunnel of a user-space datapath reaches the network:
    /// it has the host's card as a port, and the card's addresses.
    fn add_underlay(
        &mut self,
        tunnel: &Vxlan<'_>,
        datapath: Datapath,
        cancel: &Cancel,
    ) -> Result<(), LabError> {
        let Self { switch, home, .. } = self;
        let [(mac, local), (remote_mac, remote)] = tunnel.ends;
        let mac = format!("other-config:hwaddr=\"{mac}\"");
        home.add_bridge(UNDERLAY, datapath.of_bridge(), &[&mac])?;
        let card = &tunnel.card;
        let add = ["add-port", UNDERLAY, card, "--", "set", "interface", card, datapath.of_port()];
        home.vsctl(&add)?;
        let doing = || LabError::doing(format!("interface {UNDERLAY}"));
        let netlink = tunnel.netlink;
        let index = netlink.interface(UNDERLAY).map_err(doing())?.index;
        netlink.add_address(index, local, tunnel.prefix_len).map_err(doing())?;
        netlink.set_up(index).map_err(doing())?;
        // The switch learns addresses and routes from the kernel, later.
        let lookup = ["ovs/route/lookup", &remote.to_string()];
        let has_route = |_: &_| home.appctl(&lookup).is_ok_and(|route| route.contains(UNDERLAY));
        switch.process.wait_until(cancel, "the route of its tunnel", has_route)?;
        let neighbour = [UNDERLAY, &remote.to_string(), &remote_mac.to_string()];
        home.appctl(&[&["tnl/neigh/set"], &neighbour[..]].concat()).map(drop)
    }
}

impl Home {
    /// Adds a permanent entry for the station behind a port.
    fn add_station(&self, port: &str, station: MacAddr) -> Result<(), LabError> {
        self.appctl(&["fdb/add", BRIDGE, port, "0", &station.to_string()]).map(drop)
    }
}

impl RunningSwitch for RunningBridges {
    fn programs(&self) -> Vec<&Program> {
        self.0.iter().map(|ovs| &ovs.switch).collect()
    }

    fn started(&self) -> Instant {
        self.0[0].database.started()
    }

    /// Always `None`: the kernel counts at each interface.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        Ok(None)
    }
}

impl Datapath {
    /// Type of a bridge.
    fn of_bridge(self) -> &'static str {
        match self {
            Self::Kernel => "system",
            Self::Userspace | Self::Afxdp => "netdev",
        }
    }

    /// Setting of a port that is a network interface.
    fn of_port(self) -> &'static str {
        match self {
            Self::Kernel | Self::Userspace => "type=system",
            Self::Afxdp => "type=afxdp",
        }
    }

    fn needs(self) -> Needs {
        let privileges = match self {
            Self::Kernel => "root, to configure the kernel's datapath",
            Self::Userspace => "root, for packet sockets and its bridge's TAP interface",
            Self::Afxdp => "root, for XDP programs and its bridge's TAP interface",
        };
        Needs { hugepages_mib: 0, privileges, others: &["a database server of its own"] }
    }
}
