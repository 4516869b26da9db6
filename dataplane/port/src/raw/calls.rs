//! System calls of packet sockets that rustix does not offer.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use dray_wire::offload::{Offloads, VIRTIO_NET_LEN};

use crate::socket::{get_option, set_option};

/// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h.
pub(super) const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// `PACKET_VNET_HDR_SZ` of linux/if_packet.h.
const PACKET_VNET_HDR_SZ: libc::c_int = 24;

/// Binds a packet socket to one interface and one Ethertype.
pub(super) fn bind(socket: BorrowedFd<'_>, index: u32, ethertype: u16) -> io::Result<()> {
    // SAFETY: an all-zero sockaddr_ll is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = index.cast_signed();
    // SAFETY: the kernel reads one sockaddr_ll.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            ptr::from_ref(&address).cast(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    })
}

/// Returns true if a packet socket is bound to an interface that is still there.
pub(super) fn is_bound(socket: BorrowedFd<'_>) -> bool {
    // SAFETY: an all-zero sockaddr_ll is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut length = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel writes at most one sockaddr_ll, and its length.
    let result = unsafe {
        libc::getsockname(
            socket.as_raw_fd(),
            ptr::from_mut(&mut address).cast(),
            ptr::from_mut(&mut length),
        )
    };
    check(result).is_ok() && address.sll_ifindex > 0
}

/// Keeps the interface promiscuous for as long as the socket is open.
pub(super) fn set_promiscuous(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)
}

/// Blocks all incoming frames (`true`), or accepts them again.
pub(super) fn deafen(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    if !on {
        return set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0 as libc::c_int);
    }
    // BPF_RET | BPF_K: accept `k` bytes of each frame.
    let mut nothing = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Makes a bound socket a member of the fanout group of this number, or of a new one, whose sockets
/// share the frames by a hash of their flow. Returns the group's number.
pub(super) fn join(socket: BorrowedFd<'_>, group: Option<u16>) -> io::Result<u16> {
    let unique = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
    let mode = libc::PACKET_FANOUT_HASH | unique;
    let value = mode << 16 | u32::from(group.unwrap_or_default());
    set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, value)?;
    let value: u32 = get_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
    Ok(value as u16)
}

/// Makes the kernel put a virtio-net header in front of each received frame, and expect one in
/// front of each transmitted one. Returns the offloads that it leaves to the reader, and takes
/// itself.
pub(super) fn leave_offloads(socket: BorrowedFd<'_>) -> io::Result<Offloads> {
    let len = VIRTIO_NET_LEN as libc::c_int;
    // Kernels that know this option (Linux 6.4) also segment UDP (6.2).
    if set_option(socket, libc::SOL_PACKET, PACKET_VNET_HDR_SZ, len).is_ok() {
        return Ok(Offloads::ALL);
    }
    set_option(socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1 as libc::c_int)?;
    Ok(Offloads::TCP)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
