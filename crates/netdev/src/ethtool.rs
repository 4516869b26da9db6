//! What `ethtool` would be run for.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;

/// Has the kernel compute checksums of what `interface` of this network namespace transmits, and not
/// leave them to hardware.
pub(crate) fn compute_checksums(interface: &str) -> io::Result<()> {
    /// `ETHTOOL_STXCSUM` of linux/ethtool.h.
    const SET_TX_CHECKSUM: u32 = 0x17;
    set_value(interface, SET_TX_CHECKSUM, 0)
}

/// `SIOCETHTOOL` with a `struct ethtool_value`.
fn set_value(interface: &str, command: u32, value: u32) -> io::Result<()> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    let mut request_value = [command, value];
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = ptr::from_mut(&mut request_value).cast();
    // SAFETY: the kernel reads the name and the two words.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
