//! Snapshot of the session, for another process that continues it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use vhost::vhost_user::message::{FrontendReq, VhostUserProtocolFeatures};

use super::super::device::Session;
use super::super::message;
use super::{Addresses, Backend, UserRegion};
use crate::ends::slot::State;
use crate::session::queue_progress::PastProgress;
use crate::session::snapshot::SessionMessages;

/// Bit of SET_VRING_KICK: the message has no descriptor, and the ring is polled.
const NO_DESCRIPTOR: u64 = 1 << 8;

impl Session for Backend {
    /// Returns messages that lead to the present state.
    fn messages(&self) -> io::Result<SessionMessages> {
        let mut setup = Vec::new();
        let mut add = |request, body: &[u64], descriptors: &[BorrowedFd<'_>]| {
            let body: Vec<u8> = body.iter().flat_map(|word| word.to_ne_bytes()).collect();
            setup.push(message::with_descriptors(request, &body, descriptors)?);
            io::Result::Ok(())
        };
        if let Some(features) = self.protocol_features {
            add(FrontendReq::SET_PROTOCOL_FEATURES, &[features], &[])?;
        }
        if let Some(features) = self.features {
            add(FrontendReq::SET_FEATURES, &[features], &[])?;
        }
        let has_slots = VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS.bits();
        let words = |r: &UserRegion| [r.guest, r.len, r.user, r.offset];
        if self.protocol_features.is_some_and(|features| features & has_slots != 0) {
            for region in &self.regions {
                let [guest, len, user, offset] = words(region);
                let body = [0, guest, len, user, offset];
                add(FrontendReq::ADD_MEM_REG, &body, &[region.file.as_fd()])?;
            }
        } else if !self.regions.is_empty() {
            let count = std::iter::once(self.regions.len() as u64);
            let body: Vec<_> = count.chain(self.regions.iter().flat_map(words)).collect();
            let files: Vec<_> = self.regions.iter().map(|region| region.file.as_fd()).collect();
            add(FrontendReq::SET_MEM_TABLE, &body, &files)?;
        }
        let mut starts = Vec::new();
        for (index, vring) in self.vrings.iter().enumerate() {
            let number = index as u64;
            if let Some(size) = vring.size {
                add(FrontendReq::SET_VRING_NUM, &[pair(number, size.get().into())], &[])?;
            }
            if let Some(Addresses { descriptors, driver, device }) = vring.addresses {
                let body = [number, descriptors, device, driver, 0];
                add(FrontendReq::SET_VRING_ADDR, &body, &[])?;
            }
            let call = match &*self.device.slot(index).lock() {
                State::Running(queue) | State::Failed(_, queue) => Some(queue.call.clone()),
                State::Stopped => None,
            };
            if call.is_none() {
                // The position of a running queue is its progress.
                add(FrontendReq::SET_VRING_BASE, &[pair(number, vring.base.into())], &[])?;
            }
            if let Some(call) = call.as_ref().unwrap_or(&vring.call) {
                add(FrontendReq::SET_VRING_CALL, &[number], &[call.as_fd()])?;
            }
            if vring.enabled {
                add(FrontendReq::SET_VRING_ENABLE, &[pair(number, 1)], &[])?;
            }
            if vring.started {
                let kick: Vec<_> = vring.kick.iter().map(AsFd::as_fd).collect();
                let body = number | if kick.is_empty() { NO_DESCRIPTOR } else { 0 };
                starts.push(message::with_descriptors(
                    FrontendReq::SET_VRING_KICK,
                    &body.to_ne_bytes(),
                    &kick,
                )?);
            }
        }
        Ok(SessionMessages { setup, starts })
    }
}

impl Backend {
    /// Makes the queues start at the positions at which another process has stopped.
    pub(crate) fn set_progress(&mut self, progress: &PastProgress) {
        for (index, vring) in self.vrings.iter_mut().enumerate() {
            vring.progress = progress.progress(index);
        }
    }

    /// Signals all running queues: the old process may have used buffers without a signal.
    pub(crate) fn call_all(&self) {
        for index in 0..self.vrings.len() {
            let call = self.device.slot(index).inspect(|queue| queue.call.clone());
            if let Some(call) = call.flatten() {
                call.signal();
            }
        }
    }
}

/// Returns the words of a message of two 32-bit numbers.
fn pair(index: u64, number: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&(index as u32).to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}
