//! Errors of ports while they are opened.

use std::io;

/// The part of a port that failed, and why.
pub(crate) type Failed = (&'static str, io::Error);

/// Returns the error for descriptors that the port cannot use.
pub(crate) fn refused(what: String) -> Failed {
    ("file descriptor", io::Error::new(io::ErrorKind::InvalidInput, what))
}
