//! XDP programs of this process: one per interface, shared by the ports on its queues.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dray_bpf::{Mode, SocketsProgram, XdpError};
use dray_netdev::Interface;

use super::deferral::Deferral;
use super::socket::Socket;
use super::vlan_tags::VlanTags;
use super::{AfxdpUri, CopyMode};

/// XDP program of an interface. It is detached when the last holder drops it.
pub(super) struct Program {
    interface: Arc<Interface>,
    // Undone while the program is still attached, so that no one else changes these settings
    // meanwhile.
    _deferral: Option<Deferral>,
    _vlan_tags: Option<VlanTags>,
    program: Mutex<SocketsProgram>,
    mode: Mode,
    /// The UDP ports that the program selects.
    udp: Vec<u16>,
    /// The requested deferral of the interface's interrupts, which is undone together with the
    /// program.
    defer: Option<u16>,
    /// The sockets that it delivers frames to.
    sockets: Mutex<Vec<Weak<Socket>>>,
}

/// An interface: its network namespace and its index there.
type InterfaceId = (u64, u32);

/// Returns the program of `interface`, as the port `uri` needs it.
pub(super) fn get(interface: Arc<Interface>, uri: &AfxdpUri) -> io::Result<Arc<Program>> {
    static PROGRAMS: Mutex<Option<HashMap<InterfaceId, Weak<Program>>>> = Mutex::new(None);
    let namespace = rustix::fs::stat("/proc/thread-self/ns/net")?.st_ino;
    let mut programs = lock(&PROGRAMS);
    let programs = programs.get_or_insert_default();
    programs.retain(|_, program| program.strong_count() > 0);
    let place = (namespace, interface.index());
    let program = programs.get(&place).and_then(Weak::upgrade);
    if let Some(program) = program.filter(|program| program.is_attached()) {
        if uri.xdp.is_some_and(|mode| mode != program.mode)
            || uri.udp != program.udp
            || uri.defer != program.defer
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "another port on this interface uses one with different xdp=, udp= or defer=",
            ));
        }
        return Ok(program);
    }
    let modes = match (uri.xdp, uri.mode) {
        (Some(mode), _) => vec![mode],
        // Without the driver's support every frame is copied.
        (None, CopyMode::ZeroCopy) => vec![Mode::Native],
        (None, _) => vec![Mode::Native, Mode::Generic],
    };
    let program =
        SocketsProgram::attach(interface.index(), &modes, &uri.udp).map_err(denied_or_other)?;
    let mode = program.mode();
    let deferral = match uri.defer {
        Some(time) => {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("defer: {error}"));
            Some(Deferral::new(&interface, time).map_err(named)?)
        }
        None => {
            // A process that may not write the setting cannot have left it changed.
            let _ = Deferral::clear(&interface);
            None
        }
    };
    let program = Program {
        _deferral: deferral,
        _vlan_tags: VlanTags::keep(&interface),
        interface,
        program: Mutex::new(program),
        mode,
        udp: uri.udp.clone(),
        defer: uri.defer,
        sockets: Mutex::default(),
    };
    let program = Arc::new(program);
    programs.insert(place, Arc::downgrade(&program));
    Ok(program)
}

impl Program {
    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Delivers frames that arrive at `queue` to `socket`.
    pub(super) fn give(&self, queue: u32, socket: &Arc<Socket>) -> io::Result<()> {
        lock(&self.program).give(queue, socket.as_fd()).map_err(io::Error::other)?;
        let mut sockets = lock(&self.sockets);
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(socket));
        Ok(())
    }

    /// Returns true if the interface still exists: ports may outlive it, and another may get its
    /// index.
    fn is_attached(&self) -> bool {
        let sockets: Vec<_> = lock(&self.sockets).iter().filter_map(Weak::upgrade).collect();
        !sockets.iter().any(|socket| socket.is_gone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent at any time, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the kernel's own error if a privilege is missing: the port says which.
fn denied_or_other(error: XdpError) -> io::Error {
    match error {
        XdpError::Load(error) | XdpError::Attach(error) | XdpError::Map(error)
            if error.raw_os_error() == Some(libc::EPERM) =>
        {
            error
        }
        other => io::Error::other(other),
    }
}
