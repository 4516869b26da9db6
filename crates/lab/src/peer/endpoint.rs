//! An endpoint that is somebody else's: DPDK's testpmd.

use dray_wire::MacAddr;

use super::port::check;
use super::switch::{Running, SwitchKind};
use super::testpmd::{Settings, Testpmd, same_queues, vhost_device};
use super::{CpuTime, Driver, EndpointPort, Memory, PeerDir, PortCounters};
use crate::{Cancel, LabError, NetworkNamespace, Placement};

/// What an endpoint does once its traffic is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointRole {
    /// Sends UDP frames through every port as fast as it can.
    Sender {
        /// From destination MAC to the end of the payload, in bytes.
        frame_size: u16,
    },
    /// Receives and drops. It sends 32 frames first, so that a learning switch knows it.
    Receiver,
    /// Passes frames between ports 0 and 1, 2 and 3 and so on, as they are.
    Forwarder,
    /// Sends frames back through the port where they came in, with their MAC addresses swapped.
    Echo,
    /// A forwarder that puts frames into every port first, and addresses what it forwards to the station
    /// behind the port where it leaves: between two ports of a switch frames go round both ways without
    /// end. One thread is sender and receiver then, and its rings do not overflow; what the switch drops
    /// is missing from then on, until the traffic is started again.
    Loop {
        /// As for a sender.
        frame_size: u16,
        /// How many bursts of 32 frames are put into every port.
        bursts: u16,
    },
}

impl EndpointRole {
    /// Whether frames pass between two ports each, and not through each port by itself.
    fn is_paired(self) -> bool {
        matches!(self, Self::Forwarder | Self::Loop { .. })
    }
}

/// How an endpoint is started.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Unique among the peers of its directory.
    pub name: String,
    /// What it does.
    pub role: EndpointRole,
    /// Where its polling thread runs, with all its other threads.
    pub cpu: usize,
    /// Where its memory comes from.
    pub memory: Memory,
    /// Its ports.
    pub ports: Vec<EndpointPort>,
}

/// How an endpoint is started whose only port is an interface of a container, through DPDK's AF_XDP
/// driver. The XDP program that it attaches stays when it ends.
#[derive(Clone, Copy, Debug)]
pub struct OnInterface<'a> {
    /// Unique among the peers of its directory.
    pub name: &'a str,
    /// What it does.
    pub role: EndpointRole,
    /// Where its polling thread runs, with all its other threads.
    pub cpu: usize,
    /// The container's network.
    pub namespace: &'a NetworkNamespace,
    /// The interface there.
    pub interface: &'a str,
    /// Whom its frames are for.
    pub peer_mac: MacAddr,
}

/// A running endpoint. It dies with this value, and with the thread that started it.
#[derive(Debug)]
pub struct PeerEndpoint {
    testpmd: Testpmd,
    role: EndpointRole,
}

impl PeerEndpoint {
    /// Starts an endpoint, which is not [ready](Self::wait_until_ready) yet.
    pub fn start(dir: &PeerDir, settings: &EndpointSettings) -> Result<Self, LabError> {
        let (name, ports) = (&settings.name, &settings.ports);
        let found = SwitchKind::Testpmd.find_for(dir, name)?;
        let sockets = ports.iter().map(|port| (port.socket.as_path(), port.queues));
        check(name, sockets, settings.role.is_paired())?;
        Placement::of(&[settings.cpu])?;
        let devices = ports.iter().enumerate().map(|(index, port)| device(index, port)).collect();
        let testpmd = Testpmd::start(
            dir,
            &Settings {
                name,
                program: found.program,
                cpu: settings.cpu,
                housekeeping_cpu: settings.cpu,
                memory: settings.memory,
                devices,
                queues: same_queues(name, ports.iter().map(|port| port.queues))?,
                options: options(settings.role, ports.iter().map(|port| port.peer_mac)),
            },
        )?;
        Ok(Self { testpmd, role: settings.role })
    }

    /// Starts an endpoint on an interface of a container.
    pub fn start_on_interface(dir: &PeerDir, settings: &OnInterface<'_>) -> Result<Self, LabError> {
        let &OnInterface { name, role, cpu, namespace, interface, peer_mac } = settings;
        let found = SwitchKind::Testpmd.find_for(dir, name)?;
        Placement::of(&[cpu])?;
        let dir = dir.within(namespace).map_err(LabError::doing(name.to_owned()))?;
        let testpmd = Testpmd::start(
            &dir,
            &Settings {
                name,
                program: found.program,
                cpu,
                housekeeping_cpu: cpu,
                memory: Memory::OrdinaryPages,
                devices: vec![format!("net_af_xdp0,iface={interface}")],
                queues: 1,
                options: options(role, std::iter::once(peer_mac)),
            },
        )?;
        Ok(Self { testpmd, role })
    }

    /// Waits until its ports are up. One that listens as virtio-user waits for its peer.
    pub fn wait_until_ready(&mut self, cancel: &Cancel) -> Result<(), LabError> {
        self.testpmd.wait_until_ready(cancel)
    }

    /// Makes it send, receive or forward.
    pub fn start_traffic(&mut self) -> Result<(), LabError> {
        let command = match self.role {
            EndpointRole::Loop { bursts, .. } => format!("start tx_first {bursts}"),
            EndpointRole::Receiver => "start tx_first 1".to_owned(),
            _ => "start".to_owned(),
        };
        self.testpmd.tell(&command)
    }

    /// Makes it stop that, soon. It can be started again.
    pub fn stop_traffic(&mut self) -> Result<(), LabError> {
        self.testpmd.tell("stop")
    }

    /// Makes it receive what is still under way, and send nothing any more.
    pub fn drain_traffic(&mut self) -> Result<(), LabError> {
        ["stop", "set fwd rxonly", "start"].iter().try_for_each(|line| self.testpmd.tell(line))
    }

    /// What went through each port.
    pub fn counters(&self) -> Result<Vec<PortCounters>, LabError> {
        self.testpmd.port_counters()
    }

    /// CPU time of its polling thread.
    pub fn cpu_time(&self) -> Result<CpuTime, LabError> {
        self.testpmd.program().cpu_time()
    }
}

fn device(index: usize, port: &EndpointPort) -> String {
    let (socket, queues) = (port.socket.display(), port.queues);
    match port.driver {
        Driver::Vhost => vhost_device(index, &port.socket, port.server, queues),
        Driver::VirtioUser { packed, queue_size } => {
            let (packed, server, mac) = (u8::from(packed), u8::from(port.server), port.mac);
            format!(
                "net_virtio_user{index},path={socket},queues={queues},queue_size={queue_size},\
                 packed_vq={packed},server={server},mac={mac}"
            )
        }
    }
}

fn options(role: EndpointRole, peer_macs: impl Iterator<Item = MacAddr>) -> Vec<String> {
    let mode = match role {
        EndpointRole::Sender { .. } => "txonly",
        EndpointRole::Receiver => "rxonly",
        EndpointRole::Forwarder => "io",
        EndpointRole::Loop { .. } => "mac",
        EndpointRole::Echo => "macswap",
    };
    let mut options = vec![format!("--forward-mode={mode}")];
    if let EndpointRole::Sender { frame_size } | EndpointRole::Loop { frame_size, .. } = role {
        options.push(format!("--txpkts={frame_size}"));
    }
    if !role.is_paired() {
        options.push("--port-topology=loop".to_owned());
    }
    // testpmd asks for the station behind the port on which a frame leaves.
    let stations = peer_macs.enumerate();
    options.extend(stations.map(|(index, mac)| format!("--eth-peer={index},{mac}")));
    options
}
