//! System calls that neither the standard library nor rustix offers.

use std::io;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd};

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

/// Creates a BPF array with one entry (bpf(2)). The array is gone once the descriptor is closed.
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
    // SAFETY: the kernel has just returned this descriptor, and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
