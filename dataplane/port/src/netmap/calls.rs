//! System calls on `/dev/netmap`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use super::layout::{OFFSET_BITS, OFFSETS, Offsets, REGISTER, Register, Request, VERSION};

/// The device through which programs reach netmap.
pub(super) const DEVICE: &str = "/dev/netmap";

/// `NIOCCTRL`: `_IOWR('i', 151, struct nmreq_header)`.
const NIOCCTRL: libc::Ioctl =
    (3 << 30 | (size_of::<Request>() << 16) as libc::c_ulong | 0x69 << 8 | 151) as libc::Ioctl;
/// `NIOCTXSYNC` and `NIOCRXSYNC`: `_IO('i', 148)` and `_IO('i', 149)`.
const NIOCTXSYNC: libc::Ioctl = 0x69 << 8 | 148;
const NIOCRXSYNC: libc::Ioctl = 0x69 << 8 | 149;

/// A direction of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Transmit,
    Receive,
}

/// Opens the device.
pub(super) fn open_device() -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open(DEVICE);
    device.map(OwnedFd::from).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let what = "not found: load netmap's kernel module (modprobe netmap)";
            io::Error::new(io::ErrorKind::NotFound, what)
        }
        io::ErrorKind::PermissionDenied => {
            let what =
                "permission denied: only root may use it, unless you change its owner or mode";
            io::Error::new(io::ErrorKind::PermissionDenied, what)
        }
        _ => error,
    })
}

/// Binds the descriptor of the device to rings of the port `name`, and completes `register`. With
/// an `offset`, each slot says where in its buffer a frame begins: in the port's own, that far
/// behind the start.
pub(super) fn register(
    device: BorrowedFd<'_>,
    name: &str,
    offset: Option<u32>,
    register: &mut Register,
) -> io::Result<()> {
    let mut padded = [0; 64];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    let mut offsets = Offsets {
        kind: OFFSETS,
        max: offset.unwrap_or(0).into(),
        initial: offset.unwrap_or(0).into(),
        bits: OFFSET_BITS,
        ..Offsets::default()
    };
    let options = offset.map_or(0, |_| ptr::from_mut(&mut offsets) as u64);
    let mut request = Request {
        version: VERSION,
        kind: REGISTER,
        reserved: 0,
        name: padded,
        options,
        body: ptr::from_mut(register) as u64,
    };
    // SAFETY: the kernel reads and writes the request, its body and its option, all of which have
    // the layout that it expects and outlive the call.
    check(unsafe { libc::ioctl(device.as_raw_fd(), NIOCCTRL, ptr::from_mut(&mut request)) })
}

/// Exchanges the rings' indices with the kernel: it takes the slots that the program has released,
/// and gives the program others.
#[inline]
pub(super) fn sync(device: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
    let request = match direction {
        Direction::Transmit => NIOCTXSYNC,
        Direction::Receive => NIOCRXSYNC,
    };
    // SAFETY: the call takes no argument. It changes slots that belong to the kernel, and indices
    // that are atomic.
    match check(unsafe { libc::ioctl(device.as_raw_fd(), request) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other,
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Memory of a region, mapped. It stays mapped as long as this value lives.
pub(super) struct Pages {
    pub(super) start: ptr::NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: an address range that any thread may use; there is no other state.
unsafe impl Send for Pages {}
// SAFETY: as above; this type hands out no references to the memory.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps the first `len` bytes of `device`.
    pub(super) fn map(device: &impl AsFd, len: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, device, 0) }?;
        let start = ptr::NonNull::new(start.cast()).expect("mmap gives an address or fails");
        Ok(Self { start, len })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped by `map`, and no pointer into them is in use.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
