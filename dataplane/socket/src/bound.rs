//! Bound Unix sockets: their directory, their rights and their end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, Stat, chownat, fchmod, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};
use rustix::process::umask;

use crate::FOLDER;
use crate::access::{Access, Rights};
use crate::name::SocketName;
use crate::own::{self, Identity, Own};
use crate::place::{Place, path_of};

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
    /// File of the socket, unless the socket is abstract or another program has created the file.
    pub file: Option<SocketFile>,
    /// Abstract name of the socket, if this process has bound it.
    pub name: Option<Own>,
}

/// A socket's file, which is removed on drop.
#[derive(Debug)]
pub struct SocketFile {
    /// An open directory would outlive the sandbox's change of the root directory, and lead out of
    /// it.
    path: PathBuf,
    /// Identity of the file, so that no other program's file is ever removed.
    own: Own,
}

impl BoundSocket {
    /// Binds a port's socket to `name`. A socket's file has the rights of `access` before a peer
    /// can connect, replaces the socket of a dead program, and gets missing directories below
    /// [`FOLDER`].
    pub fn bind(name: &SocketName, kind: SocketType, access: &Access) -> io::Result<Self> {
        match name {
            SocketName::File(path) => {
                let place = match may_make_folder(path) {
                    true => Place::shared_making(path),
                    false => Place::shared(path),
                };
                Self::bind_at(&place.map_err(|error| missing_folder(path, error))?, kind, access)
            }
            SocketName::Abstract(text) => {
                let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
                match bind(&socket, &name.address()?) {
                    Err(Errno::ADDRINUSE) => return Err(in_use("name")),
                    bound => bound?,
                }
                let name = Some(Own::note(Identity::Abstract(text.clone())));
                Self { socket, file: None, name }.listening(kind)
            }
        }
    }

    /// Binds a socket to the file at `place`, as [`bind`](Self::bind) does.
    pub fn bind_at(place: &Place, kind: SocketType, access: &Access) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let file = Some(SocketFile::bind(place, &socket, kind, access)?);
        Self { socket, file, name: None }.listening(kind)
    }

    fn listening(self, kind: SocketType) -> io::Result<Self> {
        if kind != SocketType::DGRAM {
            listen(&self.socket, BACKLOG)?;
        }
        Ok(self)
    }

    /// Accepts a connection.
    pub fn accept(&self) -> io::Result<UnixStream> {
        Ok(accept_with(&self.socket, SocketFlags::CLOEXEC)?.into())
    }
}

impl From<OwnedFd> for BoundSocket {
    /// Takes a listening socket that another program has created, with its file if there is one.
    fn from(socket: OwnedFd) -> Self {
        Self { socket, file: None, name: None }
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl SocketFile {
    /// Takes the file of a socket that another process has bound, and hands over. A peer that may
    /// write in the directory can have put a socket of its own there, which is then removed on
    /// drop.
    pub fn inherit(place: &Place) -> io::Result<Self> {
        let stat = place.stat()?;
        check_socket(&stat)?;
        let own = Own::note(Identity::from(&stat));
        Ok(Self { path: place.path().to_owned(), own })
    }

    fn bind(
        place: &Place,
        socket: &OwnedFd,
        kind: SocketType,
        access: &Access,
    ) -> io::Result<Self> {
        let rights = access.rights()?;
        remove_stale(place, kind)?;
        let address = SocketAddrUnix::new(place.address())?;
        bind_with(socket, &address, rights.map(|rights| rights.mode))?;
        let file = place.open_path()?;
        let stat = fstat(&file)?;
        // A peer that may write in the directory can have put another file there meanwhile. A
        // socket of its own harms that peer alone: it gets the owner and the group, and is
        // removed on drop.
        check_socket(&stat)?;
        let own = Own::note(Identity::from(&stat));
        let bound = Self { path: place.path().to_owned(), own };
        // The socket does not listen yet, so no peer connects before its file has its owner.
        if let Some(rights) = rights {
            rights.give(&file, access)?;
        }
        Ok(bound)
    }
}

/// Checks that a file is that of a socket.
fn check_socket(file: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(file.st_mode) {
        FileType::Socket => Ok(()),
        _ => Err(io::Error::other("another program has replaced the socket's file")),
    }
}

/// Binds a socket whose file has this mode, or that of the umask, from the start: by its path it
/// could belong to another file a moment later.
fn bind_with(socket: &OwnedFd, address: &SocketAddrUnix, mode: Option<u32>) -> io::Result<()> {
    static UMASK: Mutex<()> = Mutex::new(());
    let _one = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mode) = mode else { return Ok(bind(socket, address)?) };
    // The file gets the mode of the socket, less the umask, which is the whole process's: what
    // other threads create at this moment must have a mode of its own.
    fchmod(socket, Mode::from_raw_mode(mode))?;
    let before = umask(Mode::empty());
    let bound = bind(socket, address);
    umask(before);
    Ok(bound?)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if BORROWED.load(Ordering::Relaxed) {
            return;
        }
        let Ok(place) = Place::of(&self.path) else { return };
        if place.stat().is_ok_and(|stat| Identity::from(&stat) == *self.own.identity()) {
            let _ = place.unlink(place.name());
        }
    }
}

impl Rights {
    /// Gives a socket's file to its owner and group.
    fn give(self, file: &OwnedFd, access: &Access) -> io::Result<()> {
        let Self { mode: _, owner, group } = self;
        if owner.is_none() && group.is_none() {
            return Ok(());
        }
        chownat(file, "", owner, group, AtFlags::EMPTY_PATH).map_err(|errno| {
            let given = access.pairs().filter(|(key, _)| *key != "mode");
            let given: Vec<_> = given.map(|(key, value)| format!("{key}={value}")).collect();
            let what = match errno {
                Errno::PERM => "root may set any until it enters its sandbox, so give such a port \
                                when the program starts; other users may set a group that they are in"
                    .to_owned(),
                errno => errno.to_string(),
            };
            io::Error::new(errno.kind(), format!("{}: {what}", given.join(", ")))
        })
    }
}

/// Returns the directory that a socket is in.
pub fn folder_of(path: &Path) -> &Path {
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

/// Returns the error for a socket whose directory was not found.
pub fn missing_folder(path: &Path, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let what = format!("no such directory: {}", folder_of(path).display());
            io::Error::new(io::ErrorKind::NotFound, what)
        }
        _ => error,
    }
}

impl Place {
    /// Opens the file of a peer's socket, for its address; refuses any other file, and, in a
    /// daemon, a socket of this process.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        let file = self.open_path()?;
        let stat = fstat(&file)?;
        let what = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => {
                own::check(&Identity::from(&stat), stat.st_nlink)?;
                return Ok(file);
            }
            // A peer can make a link at any time.
            FileType::Symlink => {
                let what = "is a symbolic link, which is not followed";
                return Err(io::Error::other(format!("{} {what}", self.path().display())));
            }
            FileType::RegularFile => "a regular file",
            FileType::Directory => "a directory",
            FileType::Fifo => "a pipe",
            _ => "a device",
        };
        let what = format!("{} is not a socket but {what}", self.path().display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

/// Checks the name of a peer's abstract socket: a daemon refuses one of its own.
pub fn check_abstract(name: &str) -> io::Result<()> {
    own::check(&Identity::Abstract(name.to_owned()), 1)
}

/// Returns the address to connect to of a socket's file, which [`Place::socket`] has opened.
pub fn address_of(file: &OwnedFd) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(path_of(file))?)
}

/// Removes the socket of a dead program.
fn remove_stale(place: &Place, kind: SocketType) -> io::Result<()> {
    let file = match place.open_path() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        let what = "this path exists and is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    // Connecting to a live process with a full backlog must not block.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    match connect(&probe, &address_of(&file)?) {
        Err(Errno::CONNREFUSED) => place.unlink(place.name()),
        Err(Errno::ACCESS) => Err(Errno::ACCESS.into()),
        // It accepts, its backlog is full, or it is a socket of another type.
        _ => Err(in_use("path")),
    }
}

fn in_use(what: &str) -> io::Error {
    let what = format!("another program uses this socket; give a different {what}");
    io::Error::new(io::ErrorKind::AddrInUse, what)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    use super::*;
    use crate::new_folder;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn socket_has_requested_mode_and_group() {
        let dir = new_folder();
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

    /// Another user who may write in the socket's directory replaces it with a link at once.
    #[test]
    fn mode_of_socket_reaches_no_other_file() {
        use std::os::unix::fs::symlink;
        let dir = new_folder();
        let at = |name: &str| dir.path().join(name);
        let (socket, link, secret) = (at("a"), at("link"), at("secret"));
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let _ = symlink(&secret, &link);
                    if fs::symlink_metadata(&socket).is_ok_and(|it| it.file_type().is_socket()) {
                        let _ = fs::rename(&link, &socket);
                    }
                }
            });
            let access = Access { mode: Some(0o666), ..Access::default() };
            for _ in 0..1000 {
                let name = socket.clone().into();
                drop(BoundSocket::bind(&name, SocketType::STREAM, &access));
                let _ = fs::remove_file(&socket);
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(mode_of(&secret), 0o600);
    }

    #[test]
    fn failed_bind_leaves_no_file() {
        let dir = new_folder();
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
        let dir = new_folder();
        let path = dir.path().join("no/a.sock");
        let bound = BoundSocket::bind(&path.into(), SocketType::STREAM, &Access::default());
        let error = bound.unwrap_err().to_string();
        assert!(error.starts_with("no such directory: ") && error.ends_with("/no"), "{error}");
    }

    #[test]
    fn used_socket_and_plain_file_are_not_replaced() {
        let dir = new_folder();
        let bind = |name: &str, kind| {
            BoundSocket::bind(&dir.path().join(name).into(), kind, &Access::default())
        };
        for (name, kind) in [("s", SocketType::STREAM), ("d", SocketType::DGRAM)] {
            let bound = bind(name, kind).unwrap();
            let error = bind(name, kind).unwrap_err();
            assert!(error.to_string().contains("another program uses this socket"), "{error}");
            // The file of a dead program is replaced.
            let BoundSocket { socket, file, .. } = bound;
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
