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
    attach(device, name, format, 0)
}

/// Like [`attach_tap`], and creates the interface, with an index of the namespace that is free. It
/// stays when the device is closed. An interface of this name is an error (`EBUSY`).
pub fn create_tap(
    device: BorrowedFd<'_>,
    name: &str,
    index: u32,
    format: TapFormat,
) -> io::Result<()> {
    let index = libc::c_int::try_from(index).map_err(io::Error::other)?;
    // SAFETY: the kernel reads one int.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFINDEX, &raw const index) })?;
    attach(device, name, format, libc::IFF_TUN_EXCL)?;
    keep_tap(device)
}

fn attach(
    device: BorrowedFd<'_>,
    name: &str,
    format: TapFormat,
    more: libc::c_int,
) -> io::Result<()> {
    let mut request = request_for(name);
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | more;
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

/// Length of the header of a device with [`TapFormat::has_header`], in bytes.
const HEADER_LEN: libc::c_int = 10;

/// Returns the name of the TAP interface that an open device is attached to, and how frames pass
/// through it.
///
/// # Errors
/// `ENOTTY` or another error of the kernel if it is no attached device; `InvalidInput` if frames
/// pass in a way that [`TapFormat`] does not describe.
pub fn attached_tap(device: BorrowedFd<'_>) -> io::Result<(String, TapFormat)> {
    let mut request = request_for("");
    // SAFETY: the kernel writes one ifreq.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
    // SAFETY: TUNGETIFF has just set this member of the union.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if flags & libc::IFF_TAP == 0 {
        return wrong("a TUN interface, without Ethernet headers");
    }
    if flags & libc::IFF_NO_PI == 0 {
        return wrong("a TAP interface with packet information; set IFF_NO_PI");
    }
    let has_header = flags & libc::IFF_VNET_HDR != 0;
    if has_header {
        let mut len: libc::c_int = 0;
        // SAFETY: the kernel writes one int.
        check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNGETVNETHDRSZ, &raw mut len) })?;
        if len != HEADER_LEN {
            return wrong(
                "a TAP interface with a long virtio-net header; set TUNSETVNETHDRSZ to 10",
            );
        }
    }
    let name = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    let name = String::from_utf8(name).map_err(io::Error::other)?;
    Ok((name, TapFormat { has_header, is_multi_queue: flags & libc::IFF_MULTI_QUEUE != 0 }))
}

/// Segmentation that the kernel leaves to the reader of a TAP device, besides that of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapOffloads {
    /// Neither checksums nor segmentation.
    Nothing,
    /// Checksums, and segmentation of TCP, with ECN too.
    Tcp,
    /// Checksums, and segmentation of TCP and UDP (Linux 6.2).
    TcpAndUdp,
}

/// Sets what the kernel leaves to the reader of an attached device, which has a header.
pub fn set_tap_offloads(device: BorrowedFd<'_>, offloads: TapOffloads) -> io::Result<()> {
    const TCP: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
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
