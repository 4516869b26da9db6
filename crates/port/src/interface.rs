//! Network interfaces of this namespace: what a port on one needs to know.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::query::{Query, UriError};

/// `IFNAMSIZ` without the terminating zero.
const NAME_MAX: usize = 15;

/// The interface that the body of a URI names.
pub(crate) fn parse(body: &str, query: &Query<'_>, scheme: &str) -> Result<String, UriError> {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b'?';
    if body.is_empty() || body.len() > NAME_MAX || !body.bytes().all(plain) {
        return Err(query.error(format!(
            "{body:?} is not an interface: give a name of 1 to {NAME_MAX} characters, for example \
             {scheme}:eth0"
        )));
    }
    Ok(body.to_owned())
}

/// The interface's MTU, in bytes.
pub(crate) fn mtu(socket: BorrowedFd<'_>, interface: &str) -> io::Result<usize> {
    let mut request = request(interface);
    // SAFETY: SIOCGIFMTU reads the name and writes the MTU of this ifreq.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })?;
    // SAFETY: SIOCGIFMTU has just set this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(io::Error::other)
}

/// How many queues the interface has, where its driver says so.
pub(crate) fn queues(socket: BorrowedFd<'_>, interface: &str) -> Option<u32> {
    /// `struct ethtool_channels` of linux/ethtool.h.
    #[repr(C)]
    #[derive(Default)]
    struct Channels {
        command: u32,
        max: [u32; 4],
        rx: u32,
        tx: u32,
        other: u32,
        combined: u32,
    }
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut request = request(interface);
    request.ifr_ifru.ifru_data = ptr::from_mut(&mut channels).cast();
    // SAFETY: the kernel reads the name and the command, and writes the rest of this struct.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) }).ok()?;
    Some(channels.combined + channels.rx.max(channels.tx))
}

fn request(interface: &str) -> libc::ifreq {
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
