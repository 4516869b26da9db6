//! Code shared by ports with Unix sockets: the path in the URI, connecting and listening.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use dray_daemon::Access;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::query::{Query, UriError};

/// Length of the longest path of a Unix socket: `sun_path` holds 108 bytes, including the
/// terminator.
pub(crate) const PATH_MAX: usize = 107;

pub(crate) fn parse_path(scheme: &str, body: &str, query: &Query<'_>) -> Result<PathBuf, UriError> {
    match body.len() {
        0 => Err(query.error(format!(
            "missing path; {scheme}: takes the path of a Unix socket, \
             for example {scheme}:/run/dray/a.sock"
        ))),
        1..=PATH_MAX => Ok(body.into()),
        len => Err(query
            .error(format!("the socket's path has {len} bytes: at most {PATH_MAX} are allowed"))),
    }
}

/// Connects to the socket at `path`. A packet socket is used like a stream, with one packet per
/// call. Fails with `WouldBlock` if the listener's backlog is full: it may never accept a
/// connection.
pub(crate) fn connect(path: &Path, kind: SocketType) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Takes the keys for the rights of the socket's file; `listens` is false if the port connects to a
/// socket of its peer.
pub(crate) fn parse_access(query: &mut Query<'_>, listens: bool) -> Result<Access, UriError> {
    let access = Access {
        mode: query.take("mode", Access::MODES, Access::parse_mode)?,
        owner: query.take("owner", Access::OWNERS, |text| text.parse().ok())?,
        group: query.take("group", Access::GROUPS, |text| text.parse().ok())?,
    };
    match access.pairs().next() {
        Some((key, _)) if !listens => Err(query.error(format!(
            "{key}: only for a port that creates its socket; this one connects to its peer's"
        ))),
        _ => Ok(access),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_daemon::BoundSocket;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Runs `work`, which must not wait, and returns its result.
    fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || done.send(work()));
        is_done.recv_timeout(Duration::from_secs(10)).expect("it waits")
    }

    /// A listener that accepts no connection holds up neither a port that connects to it nor a port
    /// that tries to listen at its path.
    #[test]
    fn full_listen_backlog_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let path = folder.path().join(format!("{kind:?}"));
            let socket =
                socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            net::listen(&socket, 0).unwrap();
            let mut waiting = Vec::new();
            let error = loop {
                let path = path.clone();
                match at_once(move || connect(&path, kind)) {
                    Ok(stream) => waiting.push(stream),
                    Err(error) => break error,
                }
                assert!(waiting.len() < 100, "it is never full");
            };
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            let access = Access::default();
            let error = at_once(move || BoundSocket::bind(&path, kind, &access)).unwrap_err();
            assert!(error.to_string().contains("another program uses this socket"), "{error}");
            drop(socket);
        }
        // A connection that was established is an ordinary blocking one.
        let path = folder.path().join("a");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let stream = connect(&path, SocketType::STREAM).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        drop(listener);
    }
}
