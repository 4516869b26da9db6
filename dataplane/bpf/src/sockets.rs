//! The program that passes frames to AF_XDP sockets.

use std::os::fd::{AsRawFd, BorrowedFd};

use aya::maps::{MapData, XskMap};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};

use crate::attach::{Attached, Mode, XdpError, load_error, map_error, system_error};

/// Maximum number of UDP ports that a program distinguishes.
pub const PORTS_MAX: usize = 8;

/// The attached program of one interface.
pub struct SocketsProgram {
    mode: Mode,
    _attached: Vec<Attached>,
    sockets: XskMap<MapData>,
    /// Keeps the program loaded.
    _ebpf: Ebpf,
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
        let sockets = XskMap::try_from(sockets).map_err(map_error)?;
        let program = ebpf.program_mut("dray_sockets").expect("the object has it");
        let program: &mut Xdp = program.try_into().expect("of this type");
        program.load().map_err(|error| XdpError::Load(system_error(error)))?;
        let attached = Attached::to_all(program, &[interface], modes)?;
        let mode = attached[0].mode();
        Ok(Self { mode, _attached: attached, sockets, _ebpf: ebpf })
    }

    /// Returns the mode in which the program runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Passes frames received on `queue` to `socket`, until the socket is closed.
    pub fn give(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        self.sockets.set(queue, socket.as_raw_fd(), 0).map_err(map_error)
    }
}
