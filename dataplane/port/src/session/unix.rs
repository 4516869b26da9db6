//! Code shared by ports with Unix sockets: the name in the URI, connecting and listening.

use std::io;
use std::os::unix::net::UnixStream;

use dray_socket::{Access, Place, SocketName, folder_of, missing_folder};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::uri::query::{Query, UriError};

pub(crate) fn parse_name(
    scheme: &str,
    body: &str,
    query: &Query<'_>,
) -> Result<SocketName, UriError> {
    SocketName::parse(body).map_err(|what| {
        query.error(match body {
            "" | "@" => format!(
                "missing path; {scheme}: takes the path of a Unix socket, for example \
                 {scheme}:/run/dray/a.sock, or @ and the name of an abstract one"
            ),
            _ => what,
        })
    })
}

/// Connects to the socket `name` of a peer. Does not follow a symbolic link that the peer may have
/// put there. A packet socket is used like a stream, with one packet per call. Fails with
/// `WouldBlock` if the listener's backlog is full: it may never accept a connection.
pub(crate) fn connect(name: &SocketName, kind: SocketType) -> io::Result<UnixStream> {
    match name {
        SocketName::File(path) => connect_at(&Place::shared(path)?, kind),
        SocketName::Abstract(text) => {
            dray_socket::check_abstract(text)?;
            connect_to(&name.address()?, kind)
        }
    }
}

/// Connects to the peer's socket at `place`.
pub(crate) fn connect_at(place: &Place, kind: SocketType) -> io::Result<UnixStream> {
    let file = place.socket()?;
    connect_to(&dray_socket::address_of(&file)?, kind)
}

fn connect_to(address: &SocketAddrUnix, kind: SocketType) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    net::connect(&socket, address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Takes the keys for the rights of the file of the socket `name`; `listens` is false if the port
/// connects to a socket of its peer.
pub(crate) fn parse_access(
    query: &mut Query<'_>,
    name: &SocketName,
    listens: bool,
) -> Result<Access, UriError> {
    let access = Access {
        mode: query.take("mode", Access::MODES, Access::parse_mode)?,
        owner: query.take("owner", Access::OWNERS, |text| text.parse().ok())?,
        group: query.take("group", Access::GROUPS, |text| text.parse().ok())?,
    };
    match access.pairs().next() {
        Some((key, _)) if !listens => Err(query.error(format!(
            "{key}: only for a port that creates its socket; this one connects to its peer's"
        ))),
        Some((key, _)) if name.path().is_none() => Err(query.error(format!(
            "{key}: {name} is an abstract socket, without permissions: every process in its \
             network namespace can connect; only a path can have {key}"
        ))),
        _ => Ok(access),
    }
}

const BACKLOG_FULL: &str = "its queue of connections is full";

/// Returns the reason for which connecting to the socket `name` has failed with `error`.
///
/// # Errors
/// If retrying would not help.
pub(crate) fn why_unreachable(name: &SocketName, error: io::Error) -> io::Result<String> {
    let path = match (name, error.kind()) {
        (SocketName::File(path), _) => path,
        (_, io::ErrorKind::ConnectionRefused) => {
            return Ok("no such socket in this network namespace".to_owned());
        }
        (_, io::ErrorKind::WouldBlock) => return Ok(BACKLOG_FULL.to_owned()),
        (_, io::ErrorKind::PermissionDenied) => return Err(error),
        _ => return Ok(error.to_string()),
    };
    match error.kind() {
        io::ErrorKind::NotFound if folder_of(path).is_dir() => Ok("no such socket".to_owned()),
        // The program that creates the socket also creates this directory.
        io::ErrorKind::NotFound if dray_socket::may_make_folder(path) => {
            Ok("no such socket".to_owned())
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Err(missing_folder(path, io::ErrorKind::NotFound.into()))
        }
        io::ErrorKind::ConnectionRefused => Ok("nothing listens there".to_owned()),
        io::ErrorKind::WouldBlock => Ok(BACKLOG_FULL.to_owned()),
        io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_socket::BoundSocket;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Runs `work`, which must not wait, and returns its result.
    fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || done.send(work()));
        is_done.recv_timeout(Duration::from_secs(10)).expect("it waits")
    }

    #[test]
    fn only_a_missing_socket_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let named = |name: &str| SocketName::from(at(name));
        let why = |name: &str| {
            let name = named(name);
            let error = connect(&name, SocketType::STREAM).unwrap_err();
            why_unreachable(&name, error).map_err(|error| error.to_string())
        };
        assert_eq!(why("a"), Ok("no such socket".to_owned()));
        drop(UnixListener::bind(at("left")).unwrap());
        assert_eq!(why("left"), Ok("nothing listens there".to_owned()));
        std::fs::write(at("file"), "").unwrap();
        assert!(why("file").unwrap_err().ends_with("/file is not a socket but a regular file"));
        assert!(why("none/a").unwrap_err().starts_with("no such directory: "));
        assert!(why("file/a").unwrap_err().ends_with("/file"));
        // A peer may make a link at any time, and remove it.
        symlink(at("file"), at("link")).unwrap();
        assert!(why("link").unwrap().ends_with("/link is a symbolic link, which is not followed"));
        symlink(folder.path(), at("here")).unwrap();
        assert!(why("here/a").unwrap().contains("/here: a symbolic link on the way to a socket"));
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        assert!(why_unreachable(&named("a"), denied).is_err());
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let ours = |text: &str| why_unreachable(&SocketName::File(text.into()), gone()).is_ok();
        assert!(ours("/run/dray/nosuch/a") && !ours("/run/dray/../nosuch/a"));
    }

    #[test]
    fn missing_abstract_socket_is_waited_for() {
        let name = SocketName::Abstract(format!("dray-test-missing-{}", std::process::id()));
        let error = connect(&name, SocketType::STREAM).unwrap_err();
        let why = why_unreachable(&name, error).unwrap();
        assert_eq!(why, "no such socket in this network namespace");
        let bound = BoundSocket::bind(&name, SocketType::STREAM, &Access::default()).unwrap();
        connect(&name, SocketType::STREAM).unwrap();
        drop(bound);
        assert!(connect(&name, SocketType::STREAM).is_err());
    }

    /// A listener that accepts no connection holds up neither a port that connects to it nor a port
    /// that tries to listen at its path.
    #[test]
    fn full_listen_backlog_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let path = SocketName::from(folder.path().join(format!("{kind:?}")));
            let socket =
                socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            net::bind(&socket, &path.address().unwrap()).unwrap();
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
        let stream = connect(&path.into(), SocketType::STREAM).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        drop(listener);
    }
}
