//! What ports with Unix sockets share: the path in their URIs, connecting and listening.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::query::{Query, UriError};

/// The longest path of a Unix socket: `sun_path` holds 108 bytes, one of them its end.
pub(crate) const PATH_MAX: usize = 107;

pub(crate) fn parse_path(scheme: &str, body: &str, query: &Query<'_>) -> Result<PathBuf, UriError> {
    match body.len() {
        0 => Err(query.error(format!(
            "\"\" is no socket; {scheme}: takes the path of a Unix socket, \
             for example {scheme}:/run/dray/a.sock"
        ))),
        1..=PATH_MAX => Ok(body.into()),
        len => Err(query.error(format!(
            "the socket's path has {len} bytes; a Unix socket's has at most {PATH_MAX}"
        ))),
    }
}

/// Connects to the socket at `path`. One of packets is handled like a stream, a packet a call. Fails
/// with `WouldBlock` where more wait there than the listener allows: it may never accept any.
pub(crate) fn connect(path: &Path, kind: SocketType) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Listens at `path`. A socket that a process left behind when it died is replaced; one on which
/// somebody listens is not.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        result => return result,
    }
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file of that name"));
    }
    match connect(path, SocketType::STREAM) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there")),
    }
    std::fs::remove_file(path)?;
    UnixListener::bind(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// What `work` returns, which must not wait for anybody.
    fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || done.send(work()));
        is_done.recv_timeout(Duration::from_secs(10)).expect("it waits")
    }

    /// Whoever listens and accepts nobody holds up neither a port that connects nor one that would
    /// listen there.
    #[test]
    fn listener_with_a_full_backlog_holds_nobody_up() {
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
            let error = at_once(move || listen(&path)).unwrap_err();
            assert_eq!(error.to_string(), "somebody listens there");
            drop(socket);
        }
        // A connection that was made is an ordinary one.
        let path = folder.path().join("a");
        let listener = listen(&path).unwrap();
        let stream = connect(&path, SocketType::STREAM).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        drop(listener);
        assert!(listen(&path).is_ok(), "left behind");
    }
}
