//! Bound Unix sockets: their directory, their rights and their end.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, chmod, chownat, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::access::{Access, Rights};
use crate::name::SocketName;
use crate::socket::FOLDER;

const BACKLOG: i32 = 128;

/// True while the files of sockets are another process's.
static BORROWED: AtomicBool = AtomicBool::new(false);

/// Sets whether the files of all sockets are another process's, so that this one does not remove
/// them.
pub fn borrow_files(on: bool) {
    BORROWED.store(on, Ordering::Relaxed);
}

/// Returns true if the files of all sockets are another process's.
pub fn borrows_files() -> bool {
    BORROWED.load(Ordering::Relaxed)
}

/// A bound socket, which listens if its type has connections.
#[derive(Debug)]
pub struct BoundSocket {
    /// The socket.
    pub socket: OwnedFd,
    /// Its file, unless it is abstract or another program has created it.
    pub file: Option<SocketFile>,
}

/// A socket's file, which is removed on drop.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, so that no other program's file is ever removed.
    id: (u64, u64),
}

impl BoundSocket {
    /// Binds a socket to `name`. That of a file has the rights of `access` before a peer can
    /// connect, replaces the socket of a dead program, and gets missing directories below [`FOLDER`].
    pub fn bind(name: &SocketName, kind: SocketType, access: &Access) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let file = match name {
            SocketName::File(path) => Some(SocketFile::bind(path, &socket, kind, access)?),
            SocketName::Abstract(_) => match bind(&socket, &name.address()?) {
                Err(Errno::ADDRINUSE) => return Err(in_use("name")),
                bound => bound.map(|()| None)?,
            },
        };
        if kind != SocketType::DGRAM {
            listen(&socket, BACKLOG)?;
        }
        Ok(Self { socket, file })
    }

    /// Accepts a connection.
    pub fn accept(&self) -> io::Result<UnixStream> {
        Ok(accept_with(&self.socket, SocketFlags::CLOEXEC)?.into())
    }
}

impl From<OwnedFd> for BoundSocket {
    /// Takes a listening socket that another program has created, with its file if there is one.
    fn from(socket: OwnedFd) -> Self {
        Self { socket, file: None }
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl SocketFile {
    /// Takes the file of a socket that another process has bound, and hands over.
    pub fn inherit(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: identity(path)? })
    }

    fn bind(path: &Path, socket: &OwnedFd, kind: SocketType, access: &Access) -> io::Result<Self> {
        let rights = access.rights()?;
        make_folder(path)?;
        remove_stale(path, kind)?;
        if rights.is_some() {
            // The file gets the mode of the socket, less the umask: until its owner and mode are
            // set, only a privileged process can connect.
            fchmod(socket, Mode::empty())?;
        }
        bind(socket, &SocketAddrUnix::new(path)?)?;
        let file = Self { path: path.to_owned(), id: identity(path)? };
        if let Some(rights) = rights {
            rights.apply(path, access)?;
        }
        Ok(file)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = !BORROWED.load(Ordering::Relaxed);
        if is_own && identity(&self.path).is_ok_and(|id| id == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Rights {
    /// Sets owner and group before the mode: the mode is meant for them.
    fn apply(self, path: &Path, access: &Access) -> io::Result<()> {
        let Self { mode, owner, group } = self;
        if owner.is_some() || group.is_some() {
            chownat(CWD, path, owner, group, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| {
                let given = access.pairs().filter(|(key, _)| *key != "mode");
                let given: Vec<_> = given.map(|(key, value)| format!("{key}={value}")).collect();
                let what = match errno {
                    Errno::PERM => {
                        "root may set any until it enters its sandbox, so give such a port when \
                         the program starts; other users may set a group that they are in"
                            .to_owned()
                    }
                    errno => errno.to_string(),
                };
                io::Error::new(errno.kind(), format!("{}: {what}", given.join(", ")))
            })?;
        }
        Ok(chmod(path, Mode::from_raw_mode(mode))?)
    }
}

/// Returns the directory that a socket is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns true if a missing directory for a socket at `path` is created.
pub fn may_make_folder(path: &Path) -> bool {
    let folder = folder_of(path);
    folder.starts_with(FOLDER) && !folder.components().any(|part| part == Component::ParentDir)
}

/// Creates the directory of a socket below [`FOLDER`], writable to its owner only: in a directory
/// that others may write to, they could replace the socket.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let folder = folder_of(path);
    if folder.is_dir() {
        return Ok(());
    }
    if !may_make_folder(path) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no such directory: {}", folder.display()),
        ));
    }
    DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

/// Removes the socket of a dead program.
fn remove_stale(path: &Path, kind: SocketType) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            let what = "this path exists and is not a socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Ok(_) => {}
    }
    // Connecting to a live process with a full backlog must not block.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(Errno::ACCESS) => Err(Errno::ACCESS.into()),
        // It accepts, its backlog is full, or it is a socket of another type.
        _ => Err(in_use("path")),
    }
}

fn in_use(what: &str) -> io::Error {
    let what = format!("another program uses this socket; give a different {what}");
    io::Error::new(io::ErrorKind::AddrInUse, what)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn socket_has_requested_mode_and_group() {
        let dir = tempfile::tempdir().unwrap();
        let own = rustix::process::getegid();
        for kind in [SocketType::STREAM, SocketType::DGRAM] {
            let path = dir.path().join("a");
            let group = Some(own.as_raw().to_string().parse().unwrap());
            for (mode, expected) in [(Some(0o606), 0o606), (Some(0o777), 0o777), (None, 0o660)] {
                let access = Access { mode, owner: None, group: group.clone() };
                let bound = BoundSocket::bind(&path.clone().into(), kind, &access).unwrap();
                assert_eq!(mode_of(&path), expected);
                drop(bound);
                assert!(!path.exists());
            }
        }
    }

    #[test]
    fn failed_bind_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let access = Access { group: Some("nosuch".parse().unwrap()), ..Access::default() };
        assert!(BoundSocket::bind(&path.into(), SocketType::STREAM, &access).is_err());
        let too_long = dir.path().join("x".repeat(108));
        let bound = BoundSocket::bind(&too_long.into(), SocketType::STREAM, &Access::default());
        assert!(bound.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_directories_below_run_dray_are_made() {
        for (path, expected) in [
            ("/run/dray/a.sock", true),
            ("/run/dray/tenant/1/a.sock", true),
            ("/run/dray/../x/a.sock", false),
            ("/run/drayx/a.sock", false),
            ("a.sock", false),
        ] {
            assert_eq!(may_make_folder(Path::new(path)), expected, "{path}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("no/a.sock");
        let bound = BoundSocket::bind(&path.into(), SocketType::STREAM, &Access::default());
        let error = bound.unwrap_err().to_string();
        assert!(error.starts_with("no such directory: ") && error.ends_with("/no"), "{error}");
    }

    #[test]
    fn used_socket_and_plain_file_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let bind = |name: &str, kind| {
            BoundSocket::bind(&dir.path().join(name).into(), kind, &Access::default())
        };
        for (name, kind) in [("s", SocketType::STREAM), ("d", SocketType::DGRAM)] {
            let bound = bind(name, kind).unwrap();
            let error = bind(name, kind).unwrap_err();
            assert!(error.to_string().contains("another program uses this socket"), "{error}");
            // The file of a dead program is replaced.
            let BoundSocket { socket, file } = bound;
            drop(socket);
            std::mem::forget(file);
            drop(bind(name, kind).unwrap());
        }
        fs::write(dir.path().join("f"), "").unwrap();
        let error = bind("f", SocketType::STREAM).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
    }

    #[test]
    fn abstract_socket_is_free_again_once_closed() {
        let name = SocketName::Abstract(format!("dray-test-{}", std::process::id()));
        for kind in [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM] {
            let bind = || BoundSocket::bind(&name, kind, &Access::default());
            let bound = bind().unwrap();
            assert!(bound.file.is_none());
            let error = bind().unwrap_err().to_string();
            assert_eq!(error, "another program uses this socket; give a different name");
            drop(bound);
            drop(bind().unwrap());
        }
    }
}
