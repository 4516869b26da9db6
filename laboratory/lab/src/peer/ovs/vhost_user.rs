//! Open vSwitch with its user-space datapath on DPDK, between vhost-user sockets.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use super::{BRIDGE, Home, Ovs, POLLING_THREAD, Start, mask, port_number};
use crate::LabError;
use crate::peer::adapter::{Adapter, Installed, Launch, RunningSwitch};
use crate::peer::program::{Program, housekeeping_cpu};
use crate::peer::{Needs, PortCounters, Protocol, SwitchSettings, Wiring};
use crate::process::command;

pub(in crate::peer) static ADAPTER: Adapter = Adapter {
    name: "ovs-dpdk",
    installed: Some(Installed {
        program: "ovs-vswitchd-dpdk",
        // Debian's folder.
        folder: Some("/usr/lib/openvswitch-switch-dpdk"),
        whose: "Open vSwitch with DPDK",
        remedy: "apt install openvswitch-switch-dpdk",
        minimum: "3.1",
        command: |program| command(program),
        version_arguments: &["--version"],
        version,
    }),
    learns: true,
    protocols: &[Protocol::VhostUser],
    queues_max: u16::MAX,
    start: |launch| Ok(Box::new(VhostUser::start(launch)?)),
};

/// Memory for buffers, 752 MiB when the first driver connects, and for each port. With less, Open
/// vSwitch takes all the memory, finds it insufficient and asks for half as many buffers; a driver
/// that connects meanwhile is disconnected for lack of memory.
const MEMORY_MIB: u32 = 800;

const NEEDS: Needs = Needs {
    // It does not start if a single page is missing.
    hugepages_mib: MEMORY_MIB + 16,
    privileges: "root, to reserve huge pages and for its bridge's TAP interface",
    others: &["a database server of its own", "a network namespace of its own"],
};

/// A running switch.
#[derive(Debug)]
struct VhostUser {
    ovs: Ovs,
    /// Requested sockets of the ports: other names of the sockets that the switch made.
    links: Vec<PathBuf>,
}

impl VhostUser {
    fn start(launch: &Launch<'_>) -> Result<Self, LabError> {
        let Launch { dir, settings, .. } = launch;
        let start = Start {
            name: ADAPTER.name,
            program: launch.program,
            config: &config(settings.cpu),
            // DPDK moves its threads itself.
            cpu: None,
            forwarding_thread: POLLING_THREAD,
            needs: NEEDS,
        };
        let mut switch = Self { ovs: Ovs::start(dir, &start, launch.cancel)?, links: Vec::new() };
        let done = switch.add_ports(settings);
        done.map_err(|error| switch.ovs.failed(error))?;
        Ok(switch)
    }

    fn add_ports(&mut self, settings: &SwitchSettings) -> Result<(), LabError> {
        let home = &self.ovs.home;
        home.add_bridge(BRIDGE, "netdev", &[])?;
        for (index, port) in settings.ports.iter().enumerate() {
            let name = port_name(index);
            let server = format!("options:vhost-server-path={}", port.socket.display());
            if !port.server {
                let settings = ["type=dpdkvhostuserclient", &server];
                home.add_port(index, &name, port.segment, &settings)?;
                continue;
            }
            home.add_port(index, &name, port.segment, &["type=dpdkvhostuser"])?;
            // Open vSwitch listens in a folder of its own choice, which containers do not see: the
            // socket gets another name where they do.
            let doing = LabError::doing(format!("socket {}", port.socket.display()));
            fs::hard_link(home.path.join(&name), &port.socket).map_err(doing)?;
            self.links.push(port.socket.clone());
        }
        match settings.wiring {
            Wiring::Pairs => pair_ports(home, settings.ports.len()),
            Wiring::Learning => Ok(()),
        }
    }
}

impl RunningSwitch for VhostUser {
    fn programs(&self) -> Vec<&Program> {
        vec![&self.ovs.switch]
    }

    fn started(&self) -> Instant {
        self.ovs.database.started()
    }

    /// `None` if the switch has no counters: version 3.1 counts nothing at listening ports.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        let text = self.ovs.home.appctl(&["dpctl/show", "--statistics"])?;
        Ok((0..).map_while(|index| parse_counters(&text, &port_name(index))).collect())
    }
}

impl Drop for VhostUser {
    fn drop(&mut self) {
        for link in &self.links {
            // The link may have been removed with its directory.
            let _ = fs::remove_file(link);
        }
    }
}

/// Replaces the learning flow with flows between ports in pairs.
fn pair_ports(home: &Home, count: usize) -> Result<(), LabError> {
    home.ofctl(&["del-flows", BRIDGE])?;
    (0..count).try_for_each(|index| {
        let (input, output) = (port_number(index), port_number(index ^ 1));
        let flow = format!("in_port={input},actions=output:{output}");
        home.ofctl(&["add-flow", BRIDGE, &flow]).map(drop)
    })
}

fn config(cpu: usize) -> [String; 6] {
    [
        "dpdk-init=true".to_owned(),
        "dpdk-extra=--no-pci --in-memory --single-file-segments --iova-mode=va".to_owned(),
        format!("dpdk-socket-mem={MEMORY_MIB}"),
        format!("dpdk-socket-limit={MEMORY_MIB}"),
        format!("dpdk-lcore-mask={}", mask(housekeeping_cpu(cpu))),
        format!("pmd-cpu-mask={}", mask(cpu)),
    ]
}

/// Extracts the version. A build without DPDK is a different switch: its output lacks the DPDK
/// line.
fn version(output: &str) -> Option<String> {
    let ovs = output.lines().next()?.rsplit(' ').next()?;
    let dpdk = output.lines().find(|line| line.starts_with("DPDK "))?;
    Some(format!("Open vSwitch {ovs}, {dpdk}"))
}

/// Name of a port's interface in Open vSwitch.
fn port_name(index: usize) -> String {
    format!("p{}", port_number(index))
}

/// Parses a port's counters from the output of `dpctl/show --statistics`: `None` if the port is
/// missing; `Some(None)` if it has no counters.
fn parse_counters(text: &str, name: &str) -> Option<Option<PortCounters>> {
    let (_, rest) = text.split_once(&format!(": {name} ("))?;
    let section = rest.split("  port ").next()?;
    let count = |direction: &str, what: &str| -> Option<u64> {
        let (_, number) = section.split_once(&format!("{direction} {what}:"))?;
        number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let counters = || {
        Some(PortCounters {
            received_frames: count("RX", "packets")?,
            received_bytes: count("RX", "bytes")?,
            sent_frames: count("TX", "packets")?,
            sent_bytes: count("TX", "bytes")?,
        })
    };
    Some(counters())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "\
netdev@ovs-netdev:
  lookups: hit:17265855 missed:1 lost:0
  flows: 1
  port 1: br0 (tap)
    RX packets:9 errors:0 dropped:0 overruns:0 frame:0
    TX packets:9 errors:0 dropped:0 aborted:0 carrier:0
    collisions:0
    RX bytes:9  TX bytes:9
  port 2: p1 (dpdkvhostuserclient: configured_rx_queues=1, mtu=1500)
    RX packets:3 errors:0 dropped:? overruns:0 frame:0
    TX packets:1 errors:0 dropped:0 aborted:0 carrier:0
    collisions:0
    RX bytes:192 (1 KiB)  TX bytes:64
  port 3: p2 (dpdkvhostuser: configured_rx_queues=1, mtu=1500)
, could not retrieve stats (Protocol error)  port 4: p3 (dpdkvhostuserclient)
    RX packets:5
";

    #[test]
    fn parses_ovs_port_counters() {
        let counters = parse_counters(SHOWN, "p1").unwrap().unwrap();
        assert_eq!((counters.received_frames, counters.received_bytes), (3, 192));
        assert_eq!((counters.sent_frames, counters.sent_bytes), (1, 64));
        assert_eq!(parse_counters(SHOWN, "p2"), Some(None));
        assert_eq!(parse_counters(SHOWN, "p4"), None);
    }
}
