//! The system call that takes a frame out of memory that others may write to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::frame::Part;

/// `write` of one frame.
pub(super) fn write(device: BorrowedFd<'_>, frame: Part<'_>) -> io::Result<()> {
    // SAFETY: the frame's bytes stay mapped for longer than the call, and the kernel only reads them.
    let written =
        unsafe { libc::write(device.as_raw_fd(), frame.start.as_ptr().cast(), frame.len) };
    if written >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
