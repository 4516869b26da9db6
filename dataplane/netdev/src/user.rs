//! The user at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the user that connected to a Unix socket, or listens there: its number in this process's
/// user namespace. Unlike `rustix`, this allows for a process that has no number here.
pub fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of the structure.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(credentials.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn own_user_is_at_the_other_end() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(&ours).unwrap(), rustix::process::geteuid().as_raw());
    }
}
