//! Handling of a system call that is not on the list.

use std::io;
use std::mem;
use std::ptr;

use crate::calls;

/// Installs a handler that ends the process with a reason on such a call.
pub(crate) fn install() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value; the handler has the signature that SA_SIGINFO
    // requires, and makes only system calls.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_sigsys as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        match libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The start of `siginfo_t` for SIGSYS (sigaction(2)), which the libc crate does not name.
#[repr(C)]
struct Sigsys {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    _pad: libc::c_int,
    call_address: *mut libc::c_void,
    call: libc::c_int,
    arch: libc::c_uint,
}

const _: () = assert!(mem::offset_of!(Sigsys, call) == 24);

extern "C" fn on_sigsys(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    let mut name = [0u8; 16];
    // SAFETY: the kernel passes a siginfo_t of SIGSYS, which begins as above; PR_GET_NAME writes at
    // most 16 bytes.
    let call = unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        (*info.cast::<Sigsys>()).call
    };
    let mut line = Line { bytes: [0; 160], len: 0 };
    line.text(b"dray: sandbox: thread ");
    line.text(name.split(|byte| *byte == 0).next().unwrap_or_default());
    line.text(b" made system call ");
    line.number(call.unsigned_abs());
    if let Some(name) = calls::name(call.into()) {
        line.text(b" (");
        line.text(name.as_bytes());
        line.text(b")");
    }
    line.text(b", which is not allowed; --sandbox off runs without a sandbox\n");
    // SAFETY: the bytes are the line's own. Nothing of the process is used afterwards.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len);
        libc::_exit(1);
    }
}

/// A line that is built without allocating: the handler may have interrupted the allocator.
struct Line {
    bytes: [u8; 160],
    len: usize,
}

impl Line {
    fn text(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(free) = self.bytes.get_mut(self.len) {
                *free = *byte;
                self.len += 1;
            }
        }
    }

    fn number(&mut self, number: u32) {
        let mut digits = [0; 10];
        let mut rest = number;
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text(&digits[first..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 435, u32::MAX] {
            let mut line = Line { bytes: [0; 160], len: 0 };
            line.number(number);
            assert_eq!(&line.bytes[..line.len], number.to_string().as_bytes());
        }
    }
}
