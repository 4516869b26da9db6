//! `bpf(2)` where `aya` does not reach: for links, whose descriptors another process may continue
//! with (that of a link of `aya` stays its own), and for programs by their number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Constants of linux/bpf.h.
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_XDP: u32 = 37;
const BPF_LINK_TYPE_XDP: u32 = 6;

/// `link_create` of `union bpf_attr`, as far as an XDP program needs it.
#[repr(C)]
struct LinkCreate {
    prog_fd: RawFd,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// `info` of `union bpf_attr`.
#[repr(C)]
struct GetInfo {
    bpf_fd: RawFd,
    info_len: u32,
    info: u64,
}

/// `struct bpf_link_info`, as far as that of an XDP program has it.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    prog_id: u32,
    padding: u32,
    ifindex: u32,
    rest: u32,
}

/// Attaches a loaded XDP program to an interface of this network namespace, until the link is
/// closed.
pub(crate) fn create_link(
    program: BorrowedFd<'_>,
    interface: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let create = LinkCreate {
        prog_fd: program.as_raw_fd(),
        target_ifindex: interface,
        attach_type: BPF_XDP,
        flags,
    };
    // SAFETY: the kernel reads as many bytes as the structure has.
    opened(unsafe {
        libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, &raw const create, size_of_val(&create))
    })
}

/// Opens a loaded program by its number.
pub(crate) fn program_of(id: u32) -> io::Result<OwnedFd> {
    // The number, the number after which to continue, and flags.
    let get = [id, 0, 0];
    // SAFETY: the kernel reads as many bytes as the array has.
    opened(unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_GET_FD_BY_ID, &raw const get, size_of_val(&get))
    })
}

/// Takes the descriptor that a system call has returned.
fn opened(result: libc::c_long) -> io::Result<OwnedFd> {
    let opened = RawFd::try_from(result).ok().filter(|descriptor| *descriptor >= 0);
    let opened = opened.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Returns the index of the interface that an XDP program is attached to by `link`; 0 if it was
/// removed.
pub(crate) fn interface_of(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = LinkInfo::default();
    let get = GetInfo {
        bpf_fd: link.as_raw_fd(),
        info_len: size_of_val(&info) as u32,
        info: (&raw mut info) as u64,
    };
    // SAFETY: the kernel reads `get`, and writes at most as many bytes of `info` as it has.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &raw const get, size_of_val(&get))
    };
    match (result, info.kind) {
        (0, BPF_LINK_TYPE_XDP) => Ok(info.ifindex),
        (0, _) => Err(io::Error::other("not the link of an XDP program")),
        _ => Err(io::Error::last_os_error()),
    }
}
