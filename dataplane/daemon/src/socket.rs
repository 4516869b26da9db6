//! The control socket as a file: creating, protecting and removing it.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dray_socket::{
    Access, BoundSocket, Lock, Place, SocketFile, SocketName, address_of, folder_of,
    may_make_folder, missing_folder,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getsockname, socket_with,
};

/// Environment variable that replaces [`dray_socket::FOLDER`] in the default paths of control
/// sockets. A lab sets it for the commands in its containers.
pub const CONTROL_DIR: &str = "DRAY_CONTROL_DIR";

/// Path of a control socket, and the rights to connect to it:
/// `PATH?mode=0660&owner=NAME&group=NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlAddress {
    /// Path of the socket.
    pub path: PathBuf,
    /// Rights of the socket's file; without any of them, mode 0660.
    pub access: Access,
}

impl From<PathBuf> for ControlAddress {
    fn from(path: PathBuf) -> Self {
        Self { path, access: Access::default() }
    }
}

impl FromStr for ControlAddress {
    type Err = SocketError;

    fn from_str(text: &str) -> Result<Self, SocketError> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let path = PathBuf::from(path);
        let mut access = Access::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let error = |what: String| SocketError { path: path.clone(), what };
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (is_right, allowed) = match key {
                "mode" => {
                    access.mode = Access::parse_mode(value);
                    (access.mode.is_some(), Access::MODES)
                }
                "owner" => {
                    access.owner = value.parse().ok();
                    (access.owner.is_some(), Access::OWNERS)
                }
                "group" => {
                    access.group = value.parse().ok();
                    (access.group.is_some(), Access::GROUPS)
                }
                _ => {
                    let known = Access::KEYS.join(", ");
                    let hint = dray_text::hint(key, Access::KEYS);
                    return Err(error(format!("unknown key {key:?}{hint} a socket takes {known}")));
                }
            };
            if !is_right {
                return Err(error(format!("{key}={value}: allowed is {allowed}")));
            }
        }
        Ok(Self { path, access })
    }
}

dray_text::serde_as_text!(ControlAddress);

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)?;
        for (number, (key, value)) in self.access.pairs().enumerate() {
            write!(f, "{}{key}={value}", if number == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// A listening control socket, and its file, which is removed on drop.
#[derive(Debug)]
pub struct ControlSocket(BoundSocket);

/// The control socket cannot be created.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("control socket {}: {what}", path.display())]
pub struct SocketError {
    path: PathBuf,
    what: String,
}

impl ControlSocket {
    /// Listens at `address`, by default accessible to the owner and the group. Replaces the socket
    /// of a dead program.
    pub fn bind(address: &ControlAddress) -> Result<Self, SocketError> {
        let path = &address.path;
        let error = |what: String| SocketError { path: path.clone(), what };
        check_socket_path(path).map_err(error)?;
        make(address).map(Self).map_err(|e| error(e.to_string()))
    }

    /// Takes the listening socket at `path` that another process hands over.
    pub fn inherit(path: &Path, socket: OwnedFd) -> Result<Self, SocketError> {
        let error =
            |error: io::Error| SocketError { path: path.to_owned(), what: error.to_string() };
        let file =
            Some(Place::of(path).and_then(|place| SocketFile::inherit(&place)).map_err(error)?);
        Ok(Self(BoundSocket { socket, file, name: None }))
    }

    /// Takes the socket that an ended process has `left`, if it is that of `address` and still has
    /// its file; otherwise listens there.
    pub fn inherit_or_bind(
        address: &ControlAddress,
        left: Option<OwnedFd>,
    ) -> Result<Self, SocketError> {
        let left = left.filter(|socket| is_bound_to(socket, &address.path));
        let inherited = left.and_then(|socket| Self::inherit(&address.path, socket).ok());
        inherited.map_or_else(|| Self::bind(address), Ok)
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns true if `socket`, which listens, is the one at `path`.
fn is_bound_to(socket: &OwnedFd, path: &Path) -> bool {
    let name = getsockname(socket).and_then(SocketAddrUnix::try_from);
    let name =
        name.ok().and_then(|name| Some(PathBuf::from(OsStr::from_bytes(name.path_bytes()?))));
    match name {
        Some(name) if name == path => true,
        // A socket that was bound relative to an open directory has that in its name. If a socket
        // at the path accepts, it is this one: otherwise another program uses the path.
        Some(name) if name.starts_with("/proc/self/fd") && name.file_name() == path.file_name() => {
            Place::of(path).is_ok_and(|place| accepts(&place))
        }
        _ => false,
    }
}

/// Returns true if a stream socket listens at `place`.
fn accepts(place: &Place) -> bool {
    let Ok(address) = place.socket().and_then(|file| Ok((address_of(&file)?, file))) else {
        return false;
    };
    // Clients may have filled the backlog while no process accepted them.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    probe.is_ok_and(|probe| matches!(connect(&probe, &address.0), Ok(()) | Err(Errno::AGAIN)))
}

fn make(address: &ControlAddress) -> io::Result<BoundSocket> {
    let ControlAddress { path, access } = address;
    let place = if may_make_folder(path) { Place::making(path) } else { Place::of(path) };
    let place = place.map_err(|error| missing_folder(path, error))?;
    // Without the lock, two programs that start at once could each take the other's socket for a
    // dead one.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let _lock = Lock::take(&folder_of(path).join(name))?;
    let usual = Access { mode: Some(0o660), ..Access::default() };
    let access = if *access == Access::default() { &usual } else { access };
    BoundSocket::bind_at(&place, SocketType::STREAM, access)
}

/// Checks that a control socket can be created at `path`; the error has the reason. Directories
/// below [`dray_socket::FOLDER`] need not exist: they are created.
pub fn check_socket_path(path: &Path) -> Result<(), String> {
    let length = path.as_os_str().as_bytes().len();
    let max = SocketName::LEN_MAX;
    if length > max {
        return Err(format!("path of {length} bytes is too long; at most {max} are allowed"));
    }
    if path.file_name().is_none() || path.to_str().is_none_or(|text| text.contains('\0')) {
        return Err("give the path of a socket, in UTF-8".to_owned());
    }
    let folder = folder_of(path);
    if !folder.exists() && may_make_folder(path) {
        // The first directory that exists must be writable.
        let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
        return access_to(there);
    }
    if !folder.is_dir() {
        return Err(format!("no such directory: {folder:?}"));
    }
    access_to(folder)
}

/// Checks that this process may create files in `folder`.
fn access_to(folder: &Path) -> Result<(), String> {
    use rustix::fs::{Access, access};
    access(folder, Access::WRITE_OK).map_err(|error| {
        format!("cannot write in {folder:?}: {error}; give another path with --control")
    })
}

/// Returns the path of a control socket that a program uses if none is given: `usual`, or the file
/// of that name in the directory that [`CONTROL_DIR`] names.
pub fn default_control(usual: &str) -> PathBuf {
    match (std::env::var_os(CONTROL_DIR), Path::new(usual).file_name()) {
        (Some(folder), Some(name)) if !folder.is_empty() => Path::new(&folder).join(name),
        _ => usual.into(),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{bind, listen};
    use std::fs;

    use super::*;

    /// Any user can open a directory that all may read, and lock it forever.
    #[test]
    fn locked_directory_does_not_block_bind() {
        use rustix::fs::{FlockOperation, flock};
        let dir = tempfile::tempdir().unwrap();
        let held = fs::File::open(dir.path()).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let path = dir.path().join("a.sock");
        let (done, made) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(ControlSocket::bind(&path.clone().into())));
        let socket = made
            .recv_timeout(std::time::Duration::from_secs(10))
            .expect("bind did not wait for the directory's lock");
        drop(socket.unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "bind left files behind");
    }

    #[test]
    fn listener_with_full_backlog_counts_as_running() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let error = ControlSocket::bind(&path.clone().into()).unwrap_err().to_string();
        assert!(error.contains("another program uses"), "{error}");
    }

    #[test]
    fn socket_that_was_left_is_taken_only_at_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
        let address = |path: &PathBuf| ControlAddress::from(path.clone());
        let left = ControlSocket::bind(&address(&old)).unwrap();
        let inode = |socket: &dyn AsFd| rustix::fs::fstat(socket.as_fd()).unwrap().st_ino;
        let own = inode(&left);
        let ControlSocket(BoundSocket { socket: left, file, .. }) = left;
        std::mem::forget(file);
        let copy = || Some(left.try_clone().unwrap());
        let moved = ControlSocket::inherit_or_bind(&address(&new), copy()).unwrap();
        assert_ne!(inode(&moved), own);
        let null = fs::File::open("/dev/null").unwrap();
        drop(moved);
        let other = ControlSocket::inherit_or_bind(&address(&new), Some(null.into())).unwrap();
        assert_ne!(inode(&other), own);
        assert!(old.exists(), "the file of a socket that is not taken stays");
        drop(ControlSocket::inherit_or_bind(&address(&old), copy()).unwrap());
        assert!(!old.exists(), "its file is taken with it");
        // A socket without a file cannot be reached.
        let again = ControlSocket::inherit_or_bind(&address(&old), copy()).unwrap();
        assert!(inode(&again) != own && old.exists());
    }

    /// The name of such a socket is that of an open directory.
    #[test]
    fn socket_that_was_left_where_others_may_write_is_taken() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("shared/below");
        fs::create_dir_all(&below).unwrap();
        fs::set_permissions(below.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        let address = ControlAddress::from(below.join("control"));
        let ControlSocket(BoundSocket { socket: left, file, .. }) =
            ControlSocket::bind(&address).unwrap();
        std::mem::forget(file);
        let inode = |socket: &dyn AsFd| rustix::fs::fstat(socket.as_fd()).unwrap().st_ino;
        let own = inode(&left);
        let copy = left.try_clone().unwrap();
        let taken = ControlSocket::inherit_or_bind(&address, Some(copy)).unwrap();
        assert_eq!(inode(&taken), own);
        drop(taken);
        assert!(!address.path.exists(), "its file is taken with it");
        let again = ControlSocket::inherit_or_bind(&address, Some(left)).unwrap();
        assert_ne!(inode(&again), own);
    }

    #[test]
    fn socket_path_below_a_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let message = check_socket_path(&file.path().join("x")).unwrap_err();
        assert!(message.contains("no such directory"), "{message}");
        assert_eq!(check_socket_path("x".as_ref()), Ok(()));
    }

    #[test]
    fn control_address_round_trips_and_names_errors() {
        for text in ["/run/a", "/run/a?mode=0600", "/a?mode=0660&owner=root&group=107"] {
            assert_eq!(text.parse::<ControlAddress>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("/a?mode=9", "mode=9: allowed is three or four octal digits"),
            ("/a?mode", "mode=: allowed is"),
            ("/a?group=a b", "group=a b: allowed is the name or number"),
            ("/a?owner=", "owner=: allowed is"),
            ("/a?user=x", "unknown key \"user\"; a socket takes mode, owner, group"),
        ] {
            let message = text.parse::<ControlAddress>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("/a: "), "{message}");
        }
    }

    #[test]
    fn control_socket_gets_mode_of_its_address() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for (query, expected) in [("", 0o660), ("?mode=0606", 0o606)] {
            let address = format!("{}{query}", path.display()).parse().unwrap();
            let _socket = ControlSocket::bind(&address).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, expected);
        }
    }
}
