//! Transmission without the kernel's copy (`MSG_ZEROCOPY`,
//! Documentation/networking/msg_zerocopy.rst of Linux): payloads stay in slots of the port until
//! the kernel reports, in the socket's error queue, that it no longer reads them. It numbers
//! messages, and reports ranges of numbers.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::calls::{self, Messages};
use super::slots::SLOT_LEN;
use crate::BATCH_MAX;
use crate::frame::Frame;

/// Number of messages that may be unfinished: a power of two, so that numbers may wrap.
const SLOTS: usize = 1024;

/// `SO_EE_ORIGIN_ZEROCOPY` of linux/errqueue.h.
const ORIGIN_ZEROCOPY: u8 = 5;

const ZEROCOPY: SendFlags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32);

/// The messages of a socket that the kernel still reads.
pub(crate) struct Unfinished {
    socket: Arc<OwnedFd>,
    is_read: [AtomicBool; SLOTS],
}

/// The one control message of a report: `sock_extended_err` and the address that follows it.
#[repr(C)]
struct Report {
    header: libc::cmsghdr,
    error: libc::sock_extended_err,
    address: libc::sockaddr_in,
}

impl Unfinished {
    /// Makes the kernel accept such messages on a socket.
    pub(crate) fn new(socket: Arc<OwnedFd>) -> io::Result<Self> {
        let on: libc::c_int = 1;
        calls::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, on)?;
        Ok(Self { socket, is_read: [const { AtomicBool::new(false) }; SLOTS] })
    }

    /// Frees the slots of messages that the kernel has finished. Both halves of a port call it, or
    /// a full error queue would wake the receiving one again and again.
    pub(crate) fn free(&self) {
        while let Some((first, last)) = self.report() {
            // A range has no more numbers than there are slots.
            for number in 0..=last.wrapping_sub(first).min(SLOTS as u32 - 1) {
                let slot = first.wrapping_add(number) as usize % SLOTS;
                self.is_read[slot].store(false, Ordering::Release);
            }
        }
    }

    /// Returns the first and last number of the next report.
    fn report(&self) -> Option<(u32, u32)> {
        // SAFETY: both consist of integers and pointers, for which zeros are valid.
        let (mut report, mut message) =
            unsafe { (mem::zeroed::<Report>(), mem::zeroed::<libc::msghdr>()) };
        message.msg_control = ptr::from_mut(&mut report).cast();
        message.msg_controllen = size_of::<Report>();
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the kernel writes at most one report, which outlives the call.
        let read = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) };
        let is_report = message.msg_controllen >= size_of::<libc::cmsghdr>()
            && report.error.ee_origin == ORIGIN_ZEROCOPY;
        (read >= 0 && is_report).then_some((report.error.ee_info, report.error.ee_data))
    }
}

/// Payloads that are transmitted without a copy by the kernel.
pub(super) struct ZeroCopy {
    unfinished: Arc<Unfinished>,
    slots: Box<[u8]>,
    /// The kernel's number of the next message.
    next: u32,
}

impl ZeroCopy {
    pub(super) fn new(unfinished: Arc<Unfinished>) -> Self {
        Self { unfinished, slots: vec![0; SLOTS * SLOT_LEN].into_boxed_slice(), next: 0 }
    }

    /// Transmits the payloads of `frames`, as many as there are messages and free slots; returns
    /// their number, which is not 0.
    pub(super) fn send(
        &mut self,
        messages: &mut Messages,
        frames: &[Frame<'_>],
        most: usize,
        flags: SendFlags,
    ) -> io::Result<usize> {
        if self.unfinished.is_read[self.next as usize % SLOTS].load(Ordering::Acquire) {
            self.unfinished.free();
        }
        let mut lens: ArrayVec<usize, BATCH_MAX> = ArrayVec::new();
        for frame in frames.iter().take(most) {
            let number = self.next.wrapping_add(lens.len() as u32) as usize % SLOTS;
            if self.unfinished.is_read[number].load(Ordering::Acquire) {
                break;
            }
            let payload = frame.udp_payload().unwrap_or_default();
            if payload.len() > SLOT_LEN {
                if lens.is_empty() {
                    return Err(Errno::MSGSIZE.into());
                }
                break;
            }
            let slot = &mut self.slots[number * SLOT_LEN..][..payload.len()];
            lens.push(frame.copy_from(payload.start, slot));
        }
        if lens.is_empty() {
            return Err(Errno::AGAIN.into());
        }
        // The kernel numbers no empty messages.
        let (count, flags) = match lens.iter().position(|len| *len == 0) {
            Some(0) => (1, flags),
            first => (first.unwrap_or(lens.len()), flags | ZEROCOPY),
        };
        let payload = |(ahead, len): (u32, &usize)| {
            let number = self.next.wrapping_add(ahead) as usize % SLOTS;
            Frame::from(&self.slots[number * SLOT_LEN..][..*len]).parts(0..*len)
        };
        let payloads = (0..).zip(&lens[..count]).map(payload);
        let is_numbered = flags.contains(ZEROCOPY);
        // The other half may see a report before the call returns.
        self.mark(0..count, is_numbered);
        let sent = messages.send(self.unfinished.socket.as_fd(), None, payloads, flags);
        let taken = *sent.as_ref().unwrap_or(&0);
        self.mark(taken..count, false);
        if is_numbered {
            self.next = self.next.wrapping_add(taken as u32);
        }
        self.unfinished.free();
        sent
    }

    /// Sets whether the kernel reads the slots of these messages, counted from the next one.
    fn mark(&self, messages: Range<usize>, is_read: bool) {
        for ahead in messages {
            let slot = self.next.wrapping_add(ahead as u32) as usize % SLOTS;
            self.unfinished.is_read[slot].store(is_read, Ordering::Release);
        }
    }
}

impl Drop for ZeroCopy {
    fn drop(&mut self) {
        self.unfinished.free();
        if self.unfinished.is_read.iter().any(|is_read| is_read.load(Ordering::Acquire)) {
            // What is written there next would be transmitted.
            mem::forget(mem::take(&mut self.slots));
        }
    }
}
