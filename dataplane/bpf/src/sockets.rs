//! The program that passes frames to AF_XDP sockets.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use aya::EbpfLoader;
use aya::maps::{Map, MapData, XskMap};
use aya::programs::Xdp;

use crate::attach::{Attached, Mode, XdpError, load_error, map_error, system_error};

/// Maximum number of UDP ports that a program distinguishes.
pub const PORTS_MAX: usize = 8;

/// The attached program of one interface.
pub struct SocketsProgram {
    attached: Attached,
    sockets: Mutex<XskMap<MapData>>,
    /// A duplicate of the descriptor of these.
    map: OwnedFd,
}

impl SocketsProgram {
    /// Attaches the program to the interface with the index `interface` of this network namespace,
    /// in the first of `modes` that its driver supports. Only datagrams to `udp_ports` (at most
    /// [`PORTS_MAX`]) go to sockets; if the list is empty, every frame does.
    ///
    /// # Panics
    /// If there are more than [`PORTS_MAX`] ports.
    pub fn attach(interface: u32, modes: &[Mode], udp_ports: &[u16]) -> Result<Self, XdpError> {
        static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/sockets.o"));
        let mut ports = [0_u16; PORTS_MAX];
        ports[..udp_ports.len()].copy_from_slice(udp_ports);
        let count = udp_ports.len() as u32;
        let mut ebpf = EbpfLoader::new()
            .override_global("udp_port_count", &count, true)
            .override_global("udp_ports", &ports, true)
            .load(OBJECT)
            .map_err(load_error)?;
        let sockets = ebpf.take_map("sockets").expect("the program has it");
        let program = ebpf.program_mut("dray_sockets").expect("the object has it");
        let program: &mut Xdp = program.try_into().expect("of this type");
        program.load().map_err(|error| XdpError::Load(system_error(error)))?;
        let attached = Attached::to_all(program, &[interface], modes)?.remove(0);
        Self::new(attached, sockets)
    }

    /// Continues with the program that another process has attached to the interface, by the
    /// descriptors of its [`link`](Self::link) and its [`map`](Self::map).
    pub fn resume(
        interface: u32,
        mode: Mode,
        link: OwnedFd,
        map: OwnedFd,
    ) -> Result<Self, XdpError> {
        let attached = Attached::resume(interface, mode, link)?;
        let map = MapData::from_fd(map).and_then(Map::from_map_data).map_err(map_error)?;
        Self::new(attached, map)
    }

    /// The link keeps the program loaded.
    fn new(attached: Attached, sockets: Map) -> Result<Self, XdpError> {
        let map = match &sockets {
            Map::XskMap(map) => map.fd().as_fd().try_clone_to_owned().map_err(XdpError::Map)?,
            _ => return Err(XdpError::Map(std::io::Error::other("not a map of AF_XDP sockets"))),
        };
        let sockets = Mutex::new(XskMap::try_from(sockets).map_err(map_error)?);
        Ok(Self { attached, sockets, map })
    }

    /// Returns the mode in which the program runs.
    pub fn mode(&self) -> Mode {
        self.attached.mode()
    }

    /// Returns the descriptor of its link to the interface.
    pub fn link(&self) -> BorrowedFd<'_> {
        self.attached.link()
    }

    /// Returns the descriptor of its map of sockets.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Passes frames received on `queue` to `socket`, until the socket is closed.
    pub fn give(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.set(queue, socket.as_raw_fd(), 0).map_err(map_error)
    }
}
