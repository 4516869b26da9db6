//! Errors of the library: a code, and a message that the thread keeps.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Errors: what a function returns if it fails. `dray_error` has the message.
#[repr(C)]
#[expect(non_camel_case_types, reason = "names of the C interface")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum dray_code {
    /// An argument that must not be NULL is NULL.
    DRAY_ERR_NULL = -1,
    /// An argument is out of its range.
    DRAY_ERR_ARGUMENT = -2,
    /// The URI is wrong.
    DRAY_ERR_URI = -3,
    /// The port cannot be opened.
    DRAY_ERR_OPEN = -4,
    /// The port is not open: closed before, or never opened.
    DRAY_ERR_HANDLE = -5,
    /// Another thread opened the port.
    DRAY_ERR_THREAD = -6,
    /// The port is in use by the call that lends its frames.
    DRAY_ERR_BUSY = -7,
    /// The port can no longer receive or transmit: its interface is gone, for example.
    DRAY_ERR_IO = -8,
    /// A defect of the library. Close the port.
    DRAY_ERR_INTERNAL = -9,
}

/// A failed call.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: dray_code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: dray_code, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::new(dray_code::DRAY_ERR_NULL, format!("{what} is NULL: pass its address"))
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function of the interface: no panic leaves it.
#[inline]
pub(crate) fn boundary(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => fail(failure),
        Err(panic) => fail(Failure::new(dray_code::DRAY_ERR_INTERNAL, panicked(&*panic))),
    }
}

#[cold]
fn fail(Failure { code, message }: Failure) -> c_int {
    let text = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
    // At the end of a thread there is no message any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    code as c_int
}

fn panicked(panic: &dyn Any) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a defect of libdray, please report it: {}", text.unwrap_or("panic"))
}

/// Returns the message of the last call that failed on this thread; it stays valid until the next
/// one fails. Empty if none has failed.
#[unsafe(no_mangle)]
pub extern "C" fn dray_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn panic_becomes_a_code_and_a_message() {
        assert_eq!(boundary(|| Ok(7)), 7);
        assert_eq!(boundary(|| panic!("text {}", 1)), dray_code::DRAY_ERR_INTERNAL as c_int);
        // SAFETY: a string that is valid until the next failure.
        let message = unsafe { CStr::from_ptr(dray_error()) }.to_str().unwrap();
        assert!(message.contains("libdray") && message.ends_with("text 1"), "{message}");
    }
}
