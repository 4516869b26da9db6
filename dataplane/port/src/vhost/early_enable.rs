//! A message that QEMU sends too early.
//!
//! The `vhost` crate accepts SET_VRING_ENABLE only after SET_FEATURES negotiated protocol features,
//! as the specification requires. QEMU's network card says which of its queues are in use as soon
//! as it is reset, before the guest's driver has chosen any features.

use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use vhost::vhost_user::{Result, VhostUserBackendReqHandlerMut};

use super::backend::Backend;

const SET_VRING_ENABLE: u32 = 18;
/// Version 1, and not a reply; bit 3 says whether a reply is wanted.
const REQUEST: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;
const REPLY: u32 = 1 | 1 << 2;
/// Length of the message: request, flags and length; index and whether to enable.
const LEN: usize = 20;

/// Handles an early SET_VRING_ENABLE and removes it from the socket; returns true if it did. All
/// other messages, and invalid ones, are left for the `vhost` crate.
pub(super) fn handle(socket: BorrowedFd<'_>, backend: &mut Backend) -> Result<bool> {
    if backend.has_features() {
        return Ok(false);
    }
    let mut bytes = [0; LEN];
    let flags = RecvFlags::DONTWAIT;
    if !matches!(recv(socket, &mut bytes, flags | RecvFlags::PEEK), Ok((LEN, _))) {
        return Ok(false);
    }
    let mut words = bytes.chunks_exact(4).map(|word| {
        let [a, b, c, d] = *word else { unreachable!("chunks of four") };
        u32::from_ne_bytes([a, b, c, d])
    });
    let mut word = || words.next().unwrap_or_default();
    let (request, flags, len, index, on) = (word(), word(), word(), word(), word());
    if request != SET_VRING_ENABLE || flags & !NEED_REPLY != REQUEST || len != 8 || on > 1 {
        return Ok(false);
    }
    // All of it is there, as checked above.
    let _ = recv(socket, &mut bytes, RecvFlags::DONTWAIT);
    backend.set_vring_enable(index, on == 1)?;
    if flags & NEED_REPLY != 0 {
        let reply = [SET_VRING_ENABLE, REPLY, 8, 0, 0].map(u32::to_ne_bytes);
        // A driver that does not read its reply has disconnected, or waits for it in vain.
        let _ = send(socket, reply.as_flattened(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    Ok(true)
}
