//! The control socket as a file: creating, protecting and removing it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::lock::Lock;

/// Default directory of dray's sockets.
pub const FOLDER: &str = "/run/dray";
/// Maximum length of a Unix socket's path: `sun_path` holds 108 bytes, the last of them zero.
pub const SOCKET_PATH_MAX: usize = 107;

/// Environment variable that replaces [`FOLDER`] in the default paths of control sockets. A lab sets
/// it for the commands in its containers.
pub const CONTROL_DIR: &str = "DRAY_CONTROL_DIR";

const BACKLOG: i32 = 128;

/// A listening socket, and its file, which is removed on drop.
#[derive(Debug)]
pub struct ControlSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode, so that no other program's file is ever removed.
    id: (u64, u64),
}

/// The control socket cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("control socket {}: {what}", path.display())]
pub struct SocketError {
    path: PathBuf,
    what: String,
}

impl ControlSocket {
    /// Listens at `path`, accessible to the owner and the group. Replaces the socket of a dead
    /// program.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let error = |what: String| SocketError { path: path.to_owned(), what };
        check_socket_path(path).map_err(error)?;
        let (listener, id) = make(path).map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => {
                error("another program listens there; give a different path".to_owned())
            }
            io::ErrorKind::AlreadyExists => error("the path exists and is not a socket".to_owned()),
            _ => error(e.to_string()),
        })?;
        Ok(Self { listener, path: path.to_owned(), id })
    }

    /// Makes the thread that accepts connections return.
    pub(crate) fn close(&self) {
        // On Linux, shutdown of a listening socket makes accept return; nothing else can go wrong.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|id| id == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn make(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let folder = folder_of(path);
    if folder == Path::new(FOLDER) {
        fs::create_dir_all(folder)?;
    }
    // Without the lock, two programs that start at once could each take the other's socket for a
    // dead one.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let _lock = Lock::take(&folder.join(name))?;
    remove_stale(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Set before any client can connect.
    fs::set_permissions(path, Permissions::from_mode(0o660))?;
    listen(&socket, BACKLOG)?;
    Ok((socket.into(), identity(path)?))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(_) => {}
    }
    // Connecting to a live process with a full backlog must not block.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Err(io::ErrorKind::AddrInUse.into()),
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(errno) => Err(errno.into()),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Checks that a Unix socket can be created at `path`; the error says why not. The [`FOLDER`] need
/// not exist: it is created.
pub fn check_socket_path(path: &Path) -> Result<(), String> {
    use rustix::fs::{Access, access};
    let length = path.as_os_str().as_bytes().len();
    if length > SOCKET_PATH_MAX {
        return Err(format!(
            "path of {length} bytes is too long; at most {SOCKET_PATH_MAX} are allowed"
        ));
    }
    if path.file_name().is_none() || path.to_str().is_none_or(|text| text.contains('\0')) {
        return Err("give the path of a socket, in UTF-8".to_owned());
    }
    let folder = folder_of(path);
    if !folder.exists() && folder == Path::new(FOLDER) {
        return Ok(());
    }
    if !folder.is_dir() {
        return Err(format!("no such directory: {folder:?}"));
    }
    access(folder, Access::WRITE_OK).map_err(|error| format!("cannot write in {folder:?}: {error}"))
}

/// Returns the path of a control socket that a program uses if none is given: `usual`, or the file of
/// that name in the directory that [`CONTROL_DIR`] names.
pub fn default_control(usual: &str) -> PathBuf {
    match (std::env::var_os(CONTROL_DIR), Path::new(usual).file_name()) {
        (Some(folder), Some(name)) if !folder.is_empty() => Path::new(&folder).join(name),
        _ => usual.into(),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
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
        std::thread::spawn(move || done.send(ControlSocket::bind(&path)));
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
        let error = ControlSocket::bind(&path).unwrap_err().to_string();
        assert!(error.contains("another program listens"), "{error}");
    }

    #[test]
    fn socket_path_below_a_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let message = check_socket_path(&file.path().join("x")).unwrap_err();
        assert!(message.contains("no such directory"), "{message}");
        assert_eq!(check_socket_path("x".as_ref()), Ok(()));
    }
}
