//! XDP programs of this process: one per interface, shared by the ports on its queues.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use dray_bpf::{Mode, SocketsProgram, XdpError};
use dray_netdev::{DeferralSettings, Interface};
use dray_shm::SharedWords;

use super::deferral::Deferral;
use super::vlan_tags::VlanTags;
use super::{AfxdpUri, CopyMode};

use crate::lock::lock;

/// XDP program of an interface. Dropping the last reference detaches it.
pub(super) struct Program {
    interface: Arc<Interface>,
    // Dropped while the program is still attached, so that no other process changes these settings
    // meanwhile.
    _deferral: Option<Deferral>,
    _vlan_tags: Option<VlanTags>,
    program: SocketsProgram,
    memory: Memory,
    /// The UDP ports that the program selects.
    udp: Vec<u16>,
    /// The requested deferral of the interface's interrupts, which is undone together with the
    /// program.
    defer: Option<u16>,
}

/// An interface: its network namespace and its index there.
type InterfaceId = (u64, u32);

/// Returns the program of `interface`, as the port `uri` needs it: one of this process, if it
/// `is_attached`, or the one that `make` makes.
fn shared(
    interface: &Interface,
    uri: &AfxdpUri,
    is_attached: impl Fn(&Program) -> bool,
    make: impl FnOnce() -> io::Result<Program>,
) -> io::Result<Arc<Program>> {
    static PROGRAMS: Mutex<Option<HashMap<InterfaceId, Weak<Program>>>> = Mutex::new(None);
    let namespace = rustix::fs::stat("/proc/thread-self/ns/net")?.st_ino;
    let mut programs = lock(&PROGRAMS);
    let programs = programs.get_or_insert_default();
    programs.retain(|_, program| program.strong_count() > 0);
    let place = (namespace, interface.index());
    let program = programs.get(&place).and_then(Weak::upgrade);
    if let Some(program) = program.filter(|program| is_attached(program)) {
        if uri.xdp.is_some_and(|mode| mode != program.mode())
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
    let program = Arc::new(make()?);
    programs.insert(place, Arc::downgrade(&program));
    Ok(program)
}

/// Returns the program of `interface`, as the port `uri` needs it. `is_attached` returns false if
/// the interface of a program was removed: ports may outlive it, and another may get its index.
pub(super) fn get(
    interface: Arc<Interface>,
    uri: &AfxdpUri,
    is_attached: impl Fn(&Program) -> bool,
) -> io::Result<Arc<Program>> {
    let modes = match (uri.xdp, uri.mode) {
        (Some(mode), _) => vec![mode],
        // Without the driver's support every frame is copied.
        (None, CopyMode::ZeroCopy) => vec![Mode::Native],
        (None, _) => vec![Mode::Native, Mode::Generic],
    };
    shared(&interface.clone(), uri, is_attached, || {
        let program =
            SocketsProgram::attach(interface.index(), &modes, &uri.udp).map_err(denied_or_other)?;
        let vlan_tags = VlanTags::disable_stripping(&interface);
        Program::new(interface, uri, program, vlan_tags, &[])
    })
}

/// Continues with the program that another process has attached to `interface`.
pub(super) fn resume(
    interface: Arc<Interface>,
    uri: &AfxdpUri,
    [link, map, memory]: [OwnedFd; 3],
    is_attached: impl Fn(&Program) -> bool,
) -> io::Result<Arc<Program>> {
    shared(&interface.clone(), uri, is_attached, || {
        let memory = Memory(SharedWords::of(memory)?);
        let program = SocketsProgram::resume(interface.index(), memory.mode(), link, map);
        let vlan_tags = memory.has_kept_vlan_tags().then(|| VlanTags::resume(&interface));
        let program = program.map_err(io::Error::other)?;
        Program::new(interface, uri, program, vlan_tags, &memory.deferral())
    })
}

/// Changes to an interface that are to be undone, in memory that outlives the process.
///
/// ```text
/// word 0      1: the program runs in generic mode
/// word 1      1: VLAN tags stay in frames because of it
/// word 2 ...  original deferral of interrupts: place, number of them, time; up to a place of 0
/// ```
struct Memory(SharedWords);

/// Maximum number of places at which interrupts are deferred.
const PLACES: usize = 256;

impl Memory {
    fn create(mode: Mode, vlan_tags: bool, deferral: Option<&Deferral>) -> io::Result<Self> {
        let memory = Self(SharedWords::create("dray-xdp", 2 + 3 * PLACES)?);
        let [generic, vlans, rest @ ..] = memory.0.words() else { unreachable!("two and more") };
        generic.store((mode == Mode::Generic).into(), Relaxed);
        vlans.store(vlan_tags.into(), Relaxed);
        let before = deferral.into_iter().flat_map(Deferral::original);
        for ([place, irqs, time], (id, before)) in rest.as_chunks().0.iter().zip(before) {
            place.store(id.into(), Relaxed);
            irqs.store(before.defer_hard_irqs.into(), Relaxed);
            time.store(before.gro_flush_timeout_ns, Relaxed);
        }
        Ok(memory)
    }

    fn word(&self, at: usize) -> u64 {
        self.0.words().get(at).map_or(0, |word| word.load(Relaxed))
    }

    fn mode(&self) -> Mode {
        if self.word(0) == 1 { Mode::Generic } else { Mode::Native }
    }

    fn has_kept_vlan_tags(&self) -> bool {
        self.word(1) == 1
    }

    fn deferral(&self) -> Vec<(u32, DeferralSettings)> {
        let words = self.0.words().get(2..).unwrap_or_default();
        let before = |words: &[AtomicU64; 3]| {
            let [place, irqs, gro_flush_timeout_ns] =
                words.each_ref().map(|word| word.load(Relaxed));
            let defer_hard_irqs = irqs as u32;
            (place as u32, DeferralSettings { defer_hard_irqs, gro_flush_timeout_ns })
        };
        words.as_chunks().0.iter().map(before).take_while(|(place, _)| *place != 0).collect()
    }
}

impl Program {
    fn new(
        interface: Arc<Interface>,
        uri: &AfxdpUri,
        program: SocketsProgram,
        vlan_tags: Option<VlanTags>,
        past: &[(u32, DeferralSettings)],
    ) -> io::Result<Self> {
        let deferral = match uri.defer {
            Some(time) => {
                let named =
                    |error: io::Error| io::Error::new(error.kind(), format!("defer: {error}"));
                Some(Deferral::new(&interface, time, past).map_err(named)?)
            }
            None => {
                // If this is not permitted, no process of this user can have changed the setting.
                let _ = Deferral::clear(&interface);
                None
            }
        };
        let memory = Memory::create(program.mode(), vlan_tags.is_some(), deferral.as_ref())?;
        Ok(Self {
            _deferral: deferral,
            _vlan_tags: vlan_tags,
            interface,
            program,
            memory,
            udp: uri.udp.clone(),
            defer: uri.defer,
        })
    }

    /// Returns the descriptors with which another process [continues](resume).
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.program.link(), self.program.map(), self.memory.0.as_fd()]
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(super) fn mode(&self) -> Mode {
        self.program.mode()
    }

    /// Returns true if frames of local kernels reach the interface with checksums that hardware
    /// should complete: a veth pair has no hardware, and a generic program gets frames as the
    /// kernel has them.
    pub(super) fn carries_partial_checksums(&self) -> bool {
        self.mode() == Mode::Generic || self.interface.driver().as_deref() == Some("veth")
    }

    /// Redirects frames that arrive at `queue` to `socket`.
    pub(super) fn redirect(&self, queue: u32, socket: impl AsFd) -> io::Result<()> {
        self.program.give(queue, socket.as_fd()).map_err(io::Error::other)
    }
}

/// Returns the kernel's error if a privilege is missing, so that the port can name the privilege.
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
