//! The system calls that neither the standard library nor rustix offers.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The part of `union bpf_attr` that BPF_MAP_CREATE needs; the kernel takes the rest as zero.
#[repr(C)]
struct BpfMapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_TYPE_ARRAY: u32 = 2;

/// Makes a BPF array of one number (bpf(2)), which is gone when the descriptor is closed.
pub(super) fn create_bpf_array() -> io::Result<OwnedFd> {
    let attributes = BpfMapCreate {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: mem::size_of::<u32>() as u32,
        value_size: mem::size_of::<u32>() as u32,
        max_entries: 1,
    };
    let len = mem::size_of_val(&attributes);
    // SAFETY: the kernel reads `len` bytes of `attributes`, which outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, &raw const attributes, len) };
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Makes `device`, an open /dev/net/tun, a TAP interface of the thread's network namespace with a
/// name that the kernel chooses. It is gone when `device` is closed.
pub(super) fn make_tap(device: &File) -> io::Result<()> {
    // SAFETY: an all-zero ifreq is a valid value, with an empty name.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the kernel reads and writes one ifreq.
    match unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
