//! The system call that transmits a frame from memory that others may write to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::frame::Part;
use crate::socket::vectors;

/// `writev` of one frame in `parts`, behind `header`.
pub(super) fn write(device: BorrowedFd<'_>, header: &[u8], parts: [Part<'_>; 2]) -> io::Result<()> {
    let [head, body] = vectors(parts);
    let header = libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() };
    let buffers = [header, head, body];
    // SAFETY: the bytes stay mapped for longer than the call, and the kernel only reads them.
    let written =
        unsafe { libc::writev(device.as_raw_fd(), buffers.as_ptr(), buffers.len() as libc::c_int) };
    if written >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
