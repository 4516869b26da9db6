//! A third-party endpoint: DPDK's testpmd.

use std::path::Path;

use dray_wire::MacAddr;

use super::port::check;
use super::settings::SwitchKind;
use super::testpmd::{Device, Settings, Testpmd, same_queues, vhost_device};
use super::{CpuTime, Driver, EndpointPort, Memory, PeerDir, PortCounters};
use crate::modules::Modules;
use crate::{Attachment, Cancel, LabError, NetworkNamespace, Placement};

/// Device of the kernel's thread that passes frames between a TAP interface and shared memory.
pub const VHOST_NET: &str = "/dev/vhost-net";

/// Role of an endpoint once its traffic is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointRole {
    /// Sends UDP frames through every port as fast as it can.
    Sender {
        /// Bytes from destination MAC to the end of the payload.
        frame_size: u16,
    },
    /// Receives and drops. It first sends 32 frames, so that a learning switch learns its address.
    Receiver,
    /// Passes frames unchanged between ports 0 and 1, 2 and 3 and so on.
    Forwarder,
    /// Passes frames between ports like [`Forwarder`](Self::Forwarder), and addresses them to the
    /// station behind the output port.
    MacForwarder,
    /// Sends frames back through their input port, with their MAC addresses swapped.
    Echo,
    /// Forwarder that first sends frames through every port, and addresses forwarded frames to the
    /// station behind the output port: between two ports of a switch, frames circulate both ways
    /// endlessly. One thread both sends and receives, so its rings do not overflow; frames that the
    /// switch drops are missing until the traffic is restarted.
    Loop {
        /// Frame size, as for a sender.
        frame_size: u16,
        /// Number of bursts of 32 frames that are first sent through every port.
        bursts: u16,
    },
}

impl EndpointRole {
    /// Returns true if frames pass between two ports each; false if each port is independent.
    fn is_paired(self) -> bool {
        matches!(self, Self::Forwarder | Self::MacForwarder | Self::Loop { .. })
    }
}

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Name, unique among the peers of its directory.
    pub name: String,
    /// Role of the endpoint.
    pub role: EndpointRole,
    /// CPU of its polling thread and of all its other threads.
    pub cpu: usize,
    /// Kind of memory it uses.
    pub memory: Memory,
    /// Ports of the program.
    pub ports: Vec<EndpointPort>,
}

/// Settings of an endpoint with ports at a container's interfaces, through DPDK's AF_XDP driver, at
/// TAP interfaces, through vhost-net, or at virtual functions, through DPDK's driver of the card.
/// An XDP program that it attaches stays when it ends.
#[derive(Clone, Debug)]
pub struct AtLinks<'a> {
    /// Name, unique among the peers of its directory.
    pub name: &'a str,
    /// Role of the endpoint.
    pub role: EndpointRole,
    /// CPU of its polling thread and of all its other threads.
    pub cpu: usize,
    /// Network namespace of the container.
    pub namespace: &'a NetworkNamespace,
    /// Interfaces or TAP interfaces there, or functions.
    pub attachments: Vec<&'a Attachment>,
    /// Destination of the frames that leave by each port.
    pub peer_macs: Vec<MacAddr>,
}

/// A running endpoint. It is killed when this value is dropped or the thread that started it ends.
#[derive(Debug)]
pub struct PeerEndpoint {
    testpmd: Testpmd,
    role: EndpointRole,
    /// True if its ports are to receive only what is addressed to them.
    addressed: bool,
}

impl PeerEndpoint {
    /// Starts an endpoint; it is not [ready](Self::wait_until_ready) yet.
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
        Ok(Self { testpmd, role: settings.role, addressed: false })
    }

    /// Starts an endpoint at the ends of links.
    pub fn start_at_links(dir: &PeerDir, settings: &AtLinks<'_>) -> Result<Self, LabError> {
        let &AtLinks { name, role, cpu, namespace, .. } = settings;
        let device = |(index, attachment): (usize, &&Attachment)| match attachment {
            Attachment::Function(address) => Device::Function(address.clone()),
            Attachment::Interface(name) => {
                Device::Virtual(format!("net_af_xdp{index},iface={name}"))
            }
            // The kernel's thread vhost-net is the device, and the interface is the TAP's.
            Attachment::Tap(name) => Device::Virtual(format!(
                "net_virtio_user{index},path={VHOST_NET},iface={name},queues=1,queue_size=1024"
            )),
            other => panic!("{other:?} belongs to other endpoints"),
        };
        let devices: Vec<_> = settings.attachments.iter().enumerate().map(device).collect();
        let any = |is: fn(&&Attachment) -> bool| settings.attachments.iter().any(is);
        let has_functions = any(|of| matches!(of, Attachment::Function(_)));
        let has_taps = any(|of| matches!(of, Attachment::Tap(_)));
        if has_taps && !Path::new(VHOST_NET).exists() {
            let remedy = Modules::of_running_kernel().remedy("vhost_net", "CONFIG_VHOST_NET");
            return Err(LabError::NotInKernel { what: "vhost_net".to_owned(), remedy });
        }
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
                memory: if has_functions || has_taps {
                    Memory::HugePages
                } else {
                    Memory::OrdinaryPages
                },
                devices,
                queues: 1,
                options: options(role, settings.peer_macs.iter().copied()),
            },
        )?;
        Ok(Self { testpmd, role, addressed: has_functions })
    }

    /// Waits until the endpoint's ports are up. A virtio-user port that listens waits for its peer.
    pub fn wait_until_ready(&mut self, cancel: &Cancel) -> Result<(), LabError> {
        self.testpmd.wait_until_ready(cancel)
    }

    /// Starts the role's traffic.
    pub fn start_traffic(&mut self) -> Result<(), LabError> {
        if self.addressed {
            // Functions of all links are in one segment.
            self.testpmd.command("set promisc all off")?;
        }
        let command = match self.role {
            EndpointRole::Loop { bursts, .. } => format!("start tx_first {bursts}"),
            EndpointRole::Receiver => "start tx_first 1".to_owned(),
            _ => "start".to_owned(),
        };
        self.testpmd.command(&command)
    }

    /// Stops the traffic soon afterwards. It can be started again.
    pub fn stop_traffic(&mut self) -> Result<(), LabError> {
        self.testpmd.command("stop")
    }

    /// Stops sending, but receives frames that are still in flight.
    pub fn drain_traffic(&mut self) -> Result<(), LabError> {
        ["stop", "set fwd rxonly", "start"].iter().try_for_each(|line| self.testpmd.command(line))
    }

    /// Counters of each port.
    pub fn counters(&self) -> Result<Vec<PortCounters>, LabError> {
        self.testpmd.port_counters()
    }

    /// CPU time of the polling thread.
    pub fn cpu_time(&self) -> Result<CpuTime, LabError> {
        self.testpmd.program.cpu_time()
    }
}

fn device(index: usize, port: &EndpointPort) -> Device {
    let (socket, queues) = (port.socket.display(), port.queues);
    Device::Virtual(match port.driver {
        Driver::Vhost => vhost_device(index, &port.socket, port.server, queues),
        Driver::Memif { queue_size } => {
            let role = if port.server { "server" } else { "client" };
            let (size, mac) = (queue_size.ilog2(), port.mac);
            format!(
                "net_memif{index},role={role},socket={socket},socket-abstract=no,rsize={size},\
                 mac={mac}"
            )
        }
        Driver::VirtioUser { packed, queue_size } => {
            let (packed, server, mac) = (u8::from(packed), u8::from(port.server), port.mac);
            format!(
                "net_virtio_user{index},path={socket},queues={queues},queue_size={queue_size},\
                 packed_vq={packed},server={server},mac={mac}"
            )
        }
    })
}

fn options(role: EndpointRole, peer_macs: impl Iterator<Item = MacAddr>) -> Vec<String> {
    let mode = match role {
        EndpointRole::Sender { .. } => "txonly",
        EndpointRole::Receiver => "rxonly",
        EndpointRole::Forwarder => "io",
        EndpointRole::MacForwarder | EndpointRole::Loop { .. } => "mac",
        EndpointRole::Echo => "macswap",
    };
    let mut options = vec![format!("--forward-mode={mode}")];
    if let EndpointRole::Sender { frame_size } | EndpointRole::Loop { frame_size, .. } = role {
        options.push(format!("--txpkts={frame_size}"));
    }
    if !role.is_paired() {
        options.push("--port-topology=loop".to_owned());
    }
    // testpmd takes the station behind a frame's output port.
    let stations = peer_macs.enumerate();
    options.extend(stations.map(|(index, mac)| format!("--eth-peer={index},{mac}")));
    options
}
