//! TAP interfaces (Documentation/networking/tuntap.rst of the kernel), by ioctl on their device.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::interface::request_for;

/// Attaches an open `/dev/net/tun` to the TAP interface `name`: whole frames, one for each read and
/// write, without a header. If the interface does not exist, it is created in the thread's network
/// namespace, under a name that the kernel chooses if `name` is empty; it is removed when the
/// device is closed. The device of a macvtap interface always belongs to that interface, and is set
/// to the same format.
pub fn attach_tap(device: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = request_for(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the kernel reads and writes one ifreq.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
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
