//! The XDP programs of this process: one for each interface, shared by the ports on its queues.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dray_netdev::Interface;
use dray_xdp::{Mode, SocketsProgram};

use super::deferral::Deferral;
use super::socket::Socket;
use super::vlan_tags::VlanTags;
use super::{AfxdpUri, CopyMode};

/// The program of an interface. It is detached when the last one who holds it lets go.
pub(super) struct Program {
    interface: Arc<Interface>,
    // Undone while the program is attached, so that nobody else is at it at that time.
    _deferral: Option<Deferral>,
    _vlan_tags: Option<VlanTags>,
    program: Mutex<SocketsProgram>,
    mode: Mode,
    /// The UDP ports that it distinguishes.
    udp: Vec<u16>,
    /// The deferral of the interface's interrupts that was asked for, which whoever undoes the program
    /// undoes as well.
    defer: Option<u16>,
    /// Those that it gives frames to.
    sockets: Mutex<Vec<Weak<Socket>>>,
}

/// An interface: the network namespace and the index in it.
type Place = (u64, u32);

/// The program of `interface`, as the port `uri` wants it.
pub(super) fn get(interface: Arc<Interface>, uri: &AfxdpUri) -> io::Result<Arc<Program>> {
    static PROGRAMS: Mutex<Option<HashMap<Place, Weak<Program>>>> = Mutex::new(None);
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
                "another port on this interface has one for another xdp= or udp=, or another defer=",
            ));
        }
        return Ok(program);
    }
    let modes = match (uri.xdp, uri.mode) {
        (Some(mode), _) => vec![mode],
        // Without the driver's help everything is copied.
        (None, CopyMode::ZeroCopy) => vec![Mode::Native],
        (None, _) => vec![Mode::Native, Mode::Generic],
    };
    let program =
        SocketsProgram::attach(interface.index(), &modes, &uri.udp).map_err(io::Error::other)?;
    let mode = program.mode();
    let deferral = match uri.defer {
        Some(time) => {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("defer: {error}"));
            Some(Deferral::new(&interface, time).map_err(named)?)
        }
        None => {
            // Who may not write it may not have left it.
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

    /// Gives what arrives at `queue` to `socket`.
    pub(super) fn give(&self, queue: u32, socket: &Arc<Socket>) -> io::Result<()> {
        lock(&self.program).give(queue, socket.as_fd()).map_err(io::Error::other)?;
        let mut sockets = lock(&self.sockets);
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(socket));
        Ok(())
    }

    /// Whether the interface is still there: ports may outlive it, and another have its index.
    fn is_attached(&self) -> bool {
        let sockets: Vec<_> = lock(&self.sockets).iter().filter_map(Weak::upgrade).collect();
        !sockets.iter().any(|socket| socket.is_gone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in there is right at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
