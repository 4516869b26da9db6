//! SET_VRING_ENABLE before SET_FEATURES, as QEMU sends it.
//!
//! The `vhost` crate accepts SET_VRING_ENABLE only after SET_FEATURES negotiated protocol features,
//! as the specification requires. QEMU's network card sends it when it is reset, before the guest's
//! driver has chosen any features.

use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use vhost::vhost_user::{Result, VhostUserBackendReqHandlerMut};

use super::backend::Backend;

const SET_VRING_ENABLE: u32 = 18;
/// Flags of a request of version 1, with or without `NEED_REPLY`.
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
    // All of it is available, as checked above.
    let _ = recv(socket, &mut bytes, RecvFlags::DONTWAIT);
    backend.set_vring_enable(index, on == 1)?;
    if flags & NEED_REPLY != 0 {
        let reply = [SET_VRING_ENABLE, REPLY, 8, 0, 0].map(u32::to_ne_bytes);
        // If this fails, the driver has disconnected or does not read its replies.
        let _ = send(socket, reply.as_flattened(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    Ok(true)
}
