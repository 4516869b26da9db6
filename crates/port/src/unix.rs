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

/// Connects to the socket at `path`. One of packets is handled like a stream, a packet a call.
pub(crate) fn connect(path: &Path, kind: SocketType) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
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
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there")),
    }
    std::fs::remove_file(path)?;
    UnixListener::bind(path)
}
