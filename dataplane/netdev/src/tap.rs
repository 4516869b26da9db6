//! TAP interfaces (Documentation/networking/tuntap.rst of the kernel), by ioctl on their device.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::interface::request_for;

/// How frames pass through the device of a TAP interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapFormat {
    /// True for a virtio-net header of 10 bytes before each frame.
    pub has_header: bool,
    /// True if several devices are attached to one interface, each a queue of it.
    pub is_multi_queue: bool,
}

/// Attaches an open `/dev/net/tun` to the TAP interface `name`: whole frames, one for each read and
/// write. If the interface does not exist, it is created in the thread's network namespace, under a
/// name that the kernel chooses if `name` is empty; it is removed when the device is closed. The
/// device of a macvtap interface always belongs to that interface, and is set to the same format.
pub fn attach_tap(device: BorrowedFd<'_>, name: &str, format: TapFormat) -> io::Result<()> {
    let mut request = request_for(name);
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
    if format.has_header {
        flags |= libc::IFF_VNET_HDR;
    }
    if format.is_multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the kernel reads and writes one ifreq.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
}

/// Segmentation that the kernel leaves to the reader of a TAP device, besides that of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapOffloads {
    /// None, nor that of TCP, nor checksums.
    Nothing,
    /// Checksums, and segmentation of TCP.
    Tcp,
    /// The same, and segmentation of UDP (Linux 6.2).
    TcpAndUdp,
}

/// Sets what the kernel leaves to the reader of an attached device, which has a header.
pub fn set_tap_offloads(device: BorrowedFd<'_>, offloads: TapOffloads) -> io::Result<()> {
    const TCP: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let bits: u32 = match offloads {
        TapOffloads::Nothing => 0,
        TapOffloads::Tcp => TCP,
        TapOffloads::TcpAndUdp => TCP | libc::TUN_F_USO4 | libc::TUN_F_USO6,
    };
    // SAFETY: the argument is a number.
    check(unsafe {
        libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(bits))
    })
}

/// Keeps the interface of an attached device when the device is closed.
pub fn keep_tap(device: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_ulong = 1;
    // SAFETY: the argument is a number.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETPERSIST, on) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
