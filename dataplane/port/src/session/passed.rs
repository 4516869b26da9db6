//! Descriptors that another program has opened and passed, for example in a network namespace that
//! this process may not enter. They are checked before use.

use std::os::fd::{AsFd, OwnedFd};

use dray_socket::{Access, BoundSocket, Own, Place, SocketFile, SocketName};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::{AddressFamily, SocketType, getpeername, sockopt};

use crate::session::peers::{PeerSource, Peers};
use crate::session::snapshot::Parts;
use crate::uri::failed::{Failed, refused};

/// Checks that there is one descriptor: of a socket of type `kind` that listens or is connected,
/// or, with `in_directory`, of the directory in which the peer creates the socket of this name.
pub(crate) fn check(
    descriptors: Vec<OwnedFd>,
    kind: SocketType,
    in_directory: Option<&SocketName>,
) -> Result<Peers, Failed> {
    let descriptor = one(descriptors)?;
    let expected = match (in_directory, kind) {
        (Some(_), _) => "a directory, opened with O_PATH, in which the peer creates its socket",
        (None, SocketType::SEQPACKET) => "a Unix packet socket that listens or is connected",
        (None, _) => "a Unix stream socket that listens or is connected",
    };
    let wrong = || refused(format!("it is {}; give {expected}", describe(&descriptor)));
    let file = FileType::from_raw_mode(fstat(&descriptor).map_err(failed)?.st_mode);
    if let Some(name) = in_directory {
        return match file {
            FileType::Directory => PeerSource::within(descriptor, name).map(Peers::of),
            _ => Err(wrong()),
        };
    }
    if file != FileType::Socket || !is_unix(&descriptor, kind) {
        return Err(wrong());
    }
    if sockopt::socket_acceptconn(&descriptor) == Ok(true) {
        // Another program with the same socket may accept the peer first.
        set_nonblocking(&descriptor, true)?;
        return Ok(Peers::of(PeerSource::Listener(descriptor.into())));
    }
    if getpeername(&descriptor).is_err() {
        return Err(wrong());
    }
    set_nonblocking(&descriptor, false)?;
    Ok(Peers::connected(vec![descriptor.into()]))
}

/// Checks the descriptors that another process hands over for a port at the socket `name`: the
/// source of peers, which is a listening socket of type `kind` or, if `in_directory`, a directory;
/// and the connection to a peer.
pub(crate) fn resume(
    parts: Parts,
    name: &SocketName,
    kind: SocketType,
    in_directory: bool,
) -> Result<Peers, Failed> {
    let Parts { origin, own, peer, past: status, .. } = parts;
    let mut peers = Peers { status, ..Peers::default() };
    if let Some(origin) = origin {
        let source = check(vec![origin], kind, in_directory.then_some(name))?.source;
        let connected = || refused("it is connected, and does not listen".to_owned());
        let source = source.ok_or_else(connected)?;
        peers.source = Some(if own { inherit(source, name) } else { source });
    }
    if let Some(peer) = peer {
        // The peer may have disconnected meanwhile.
        if !is_unix(&peer, kind) || sockopt::socket_acceptconn(&peer) != Ok(false) {
            return Err(refused(format!("it is {}, not a peer's", describe(&peer))));
        }
        set_nonblocking(&peer, false)?;
        peers.first.push(peer.into());
    }
    Ok(peers)
}

fn is_unix(socket: &OwnedFd, kind: SocketType) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(kind)
}

/// Takes over the file of the listening socket at `name`, which the old process has bound. If a
/// peer has removed or replaced the file, the port continues with its present peers, as it did in
/// the old process.
fn inherit(mut source: PeerSource, name: &SocketName) -> PeerSource {
    if let PeerSource::Listener(listener) = &mut source {
        match name {
            SocketName::File(path) => {
                let file = Place::shared(path).and_then(|place| SocketFile::inherit(&place));
                listener.file = file.ok();
            }
            SocketName::Abstract(name) => listener.name = Some(Own::inherit(name)),
        }
    }
    source
}

/// Opens the descriptor that a port at the Unix socket `name` needs: the listening socket or, if
/// the peer creates the socket, its directory.
pub(crate) fn prepare(
    name: &SocketName,
    kind: SocketType,
    in_directory: bool,
) -> Result<Vec<OwnedFd>, Failed> {
    let descriptor = match (name, in_directory) {
        (SocketName::Abstract(_), false) => BoundSocket::bind(name, kind, &Access::default())
            .map(|bound| bound.socket)
            .map_err(|error| ("socket", error))?,
        (SocketName::File(path), true) => {
            let place = Place::shared(path).map_err(|error| ("directory", error))?;
            without_parent(place.into_directory())
        }
        (SocketName::File(_), false) => {
            let what = "a socket with a file is not one of a network namespace; give @NAME";
            return Err(refused(what.to_owned()));
        }
        (SocketName::Abstract(_), true) => {
            let what = "client=1: an abstract socket has no directory; give a path";
            return Err(refused(what.to_owned()));
        }
    };
    Ok(vec![descriptor])
}

/// Returns the directory as a mount of its own: by `..`, a process that gets it could otherwise
/// reach all directories above it in this process's mount namespace. Without the right to copy a
/// mount, returns the directory unchanged.
fn without_parent(directory: OwnedFd) -> OwnedFd {
    let flags = OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(&directory, "", flags).unwrap_or(directory)
}

/// Returns the only one of `descriptors`.
fn one(descriptors: Vec<OwnedFd>) -> Result<OwnedFd, Failed> {
    match <[OwnedFd; 1]>::try_from(descriptors) {
        Ok([descriptor]) => Ok(descriptor),
        Err(several) => Err(refused(format!("there are {}; give one", several.len()))),
    }
}

fn failed(errno: Errno) -> Failed {
    ("file descriptor", errno.into())
}

/// Sets or clears `O_NONBLOCK`.
pub(crate) fn set_nonblocking(descriptor: &OwnedFd, on: bool) -> Result<(), Failed> {
    let mut flags = fcntl_getfl(descriptor).map_err(failed)?;
    flags.set(OFlags::NONBLOCK, on);
    fcntl_setfl(descriptor, flags).map_err(failed)
}

/// Describes the type of a descriptor's file in a few words.
pub(crate) fn describe(descriptor: impl AsFd) -> String {
    let Ok(stat) = fstat(&descriptor) else { return "an unknown file".to_owned() };
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => return describe_socket(descriptor),
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "an anonymous file, such as an eventfd",
    };
    what.to_owned()
}

fn describe_socket(socket: impl AsFd) -> String {
    let kind = match sockopt::socket_type(&socket) {
        Ok(SocketType::STREAM) => "stream",
        Ok(SocketType::SEQPACKET) => "packet",
        Ok(SocketType::DGRAM) => "datagram",
        Ok(_) => "raw",
        // It was opened with O_PATH.
        Err(_) => return "the file of a socket".to_owned(),
    };
    if sockopt::socket_domain(&socket) != Ok(AddressFamily::UNIX) {
        return format!("a {kind} socket, not of the Unix family");
    }
    let state = match (sockopt::socket_acceptconn(&socket), getpeername(&socket)) {
        (Ok(true), _) => "that listens",
        (_, Ok(_)) => "that is connected",
        _ => "that neither listens nor is connected",
    };
    format!("a Unix {kind} socket {state}")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;
    use std::net::TcpListener;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use rustix::net::{SocketFlags, socket_with};

    use super::*;

    fn name() -> SocketName {
        std::path::PathBuf::from("/run/s").into()
    }

    fn error(descriptors: Vec<OwnedFd>, in_directory: bool) -> String {
        match check(descriptors, SocketType::STREAM, in_directory.then_some(&name())) {
            Ok(_) => panic!("it is accepted"),
            Err((what, error)) => format!("{what}: {error}"),
        }
    }

    #[test]
    fn listening_and_connected_sockets_and_directories_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("a")).unwrap();
        let taken = check(vec![listener.into()], SocketType::STREAM, None).unwrap();
        assert!(matches!(taken.source, Some(PeerSource::Listener(_))));
        let (ours, _peer) = UnixStream::pair().unwrap();
        let taken = check(vec![ours.into()], SocketType::STREAM, None).unwrap();
        assert!(taken.source.is_none() && taken.first.len() == 1);
        let directory = File::open(folder.path()).unwrap();
        let taken = check(vec![directory.into()], SocketType::STREAM, Some(&name())).unwrap();
        assert!(matches!(taken.source, Some(PeerSource::Place(_))));
    }

    #[test]
    fn only_a_socket_in_the_directory_is_connected_to() {
        use std::ffi::OsStr;
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own"), folder.path().join("other"));
        std::fs::create_dir(&own).unwrap();
        let _other = UnixListener::bind(&other).unwrap();
        let directory = prepare(&own.join("s").into(), SocketType::STREAM, true).unwrap().remove(0);
        let place = |name: &str| Place::within(directory.try_clone().unwrap(), OsStr::new(name));
        let connect =
            |name: &str| crate::session::unix::connect_at(&place(name)?, SocketType::STREAM);
        assert_eq!(connect("s").unwrap_err().kind(), io::ErrorKind::NotFound);
        for target in [other.as_path(), "../other".as_ref(), "/dev/log".as_ref()] {
            symlink(target, own.join("s")).unwrap();
            let error = connect("s").unwrap_err().to_string();
            assert_eq!(error, "s is a symbolic link, which is not followed");
            std::fs::remove_file(own.join("s")).unwrap();
        }
        for path in ["../other", "..", ".", "/run/a", ""] {
            assert!(connect(path).unwrap_err().to_string().contains("give the name of a file"));
        }
        rustix::fs::mknodat(&directory, "s", FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert_eq!(connect("s").unwrap_err().to_string(), "s is not a socket but a pipe");
        std::fs::remove_file(own.join("s")).unwrap();
        let listener = UnixListener::bind(own.join("s")).unwrap();
        let _stream = connect("s").unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn directory_of_peer_has_no_parent() {
        use rustix::fs::{Mode, openat};
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s").into();
        let directory = prepare(&path, SocketType::STREAM, true).unwrap().remove(0);
        let above = openat(&directory, "..", OFlags::PATH, Mode::empty()).unwrap();
        let id = |file: &OwnedFd| fstat(file).map(|stat| (stat.st_dev, stat.st_ino)).unwrap();
        assert_eq!(id(&above), id(&directory));
    }

    #[test]
    fn descriptor_of_another_type_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let kind =
            |kind| socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        for (descriptor, part) in [
            (null(), "it is a character device; give a Unix stream socket that listens"),
            (tempfile::tempfile().unwrap().into(), "it is a regular file;"),
            (File::open(folder.path()).unwrap().into(), "it is a directory;"),
            (TcpListener::bind("127.0.0.1:0").unwrap().into(), "not of the Unix family;"),
            (UnixDatagram::unbound().unwrap().into(), "a Unix datagram socket that neither"),
            (kind(SocketType::STREAM), "a Unix stream socket that neither listens nor is"),
            (kind(SocketType::SEQPACKET), "a Unix packet socket that neither"),
            (rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap(), "eventfd"),
        ] {
            let message = error(vec![descriptor], false);
            assert!(
                message.starts_with("file descriptor: ") && message.contains(part),
                "{message}"
            );
        }
        let message = error(vec![null()], true);
        assert!(message.contains("it is a character device; give a directory"), "{message}");
        let message = error(vec![null(), null()], false);
        assert!(message.contains("there are 2; give one"), "{message}");
    }
}
