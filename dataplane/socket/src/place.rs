//! Files in an open directory, found on a way that no other user can change.
//!
//! A path is resolved once, component by component, and everything else happens relative to the
//! directory that was found. A symbolic link on the way is followed only if it belongs to root or
//! this process's user, in a directory of one of them that no other user may write to, or whose
//! entries only their owners can replace (sticky bit). The way to a socket that is
//! [shared](Place::shared) with a peer is narrower: the peer may be root in a container that has a
//! part of the way mounted.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, mkdirat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::walk::{Found, Links, Walk, Way, foreign, is_private};

/// A name in an open directory. There need not be a file of this name.
#[derive(Debug)]
pub struct Place {
    directory: OwnedFd,
    name: OsString,
    /// The path that led here.
    path: PathBuf,
    /// True if no other user can change where the path leads, except for the last component.
    is_fixed: bool,
    /// True if the name is that of a link of `/proc`, which is followed.
    is_magic: bool,
}

impl Place {
    /// Suffix of the file that [`replace`](Self::replace) writes, and leaves if it is killed.
    pub const UNFINISHED: &'static str = ".new";

    fn find(path: &Path, way: Way) -> io::Result<Self> {
        let Found { directory, name, path, is_fixed, is_magic } = Walk::new(path, way)?.finish()?;
        Ok(Self { directory, name, path, is_fixed, is_magic })
    }

    /// Finds the directory of the file `path`, which only the operator chooses.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::find(path, Way::USUAL)
    }

    /// Like [`of`](Self::of); a link in the last place is followed as well.
    pub fn target(path: &Path) -> io::Result<Self> {
        Self::find(path, Way { follows_last: true, ..Way::USUAL })
    }

    /// Like [`of`](Self::of), for a socket that a peer connects to, or makes.
    pub fn shared(path: &Path) -> io::Result<Self> {
        Self::find(path, Way { links: Links::Top, ..Way::USUAL })
    }

    /// Like [`of`](Self::of); missing directories are created.
    pub fn making(path: &Path) -> io::Result<Self> {
        Self::find(path, Way { makes: true, ..Way::USUAL })
    }

    /// Like [`shared`](Self::shared); missing directories are created.
    pub(crate) fn shared_making(path: &Path) -> io::Result<Self> {
        Self::find(path, Way { links: Links::Top, makes: true, ..Way::USUAL })
    }

    /// Returns the file `name` in an open directory.
    pub fn within(directory: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let mut parts = Path::new(name).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(_)), None) => {
                let (name, path) = (name.to_owned(), PathBuf::from(name));
                Ok(Self { directory, name, path, is_fixed: false, is_magic: false })
            }
            _ => {
                let what = format!("{}: give the name of a file", name.display());
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
        }
    }

    /// Returns the directory.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Returns the directory.
    pub fn into_directory(self) -> OwnedFd {
        self.directory
    }

    /// Returns the path that led here.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path for system calls that take no directory.
    pub(crate) fn address(&self) -> PathBuf {
        if self.is_fixed {
            return self.path.clone();
        }
        path_of(&self.directory).join(&self.name)
    }

    /// Returns the state of the file of this name.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Returns true if the directory itself has been removed.
    pub fn is_removed(&self) -> bool {
        fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Opens the file of this name, without access to its content; a link is not followed.
    pub(crate) fn open_path(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.directory, &self.name, flags, Mode::empty())?)
    }

    /// Opens or creates a file.
    pub(crate) fn open(&self, flags: OFlags, mode: u32) -> io::Result<File> {
        let mut flags = flags | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !self.is_magic);
        Ok(openat(&self.directory, &self.name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Creates a file with `mode` for writing. An existing one is replaced, so that no other
    /// process has it open, but for pipes, devices and files that a link of `/proc` leads to.
    /// In a directory that others may write to, a file of another user, or with a second name,
    /// is refused.
    pub fn create(&self, mode: u32) -> io::Result<File> {
        let create = || self.open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode);
        let file = match create() {
            // Opening a pipe must not wait for a reader.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.open(OFlags::WRONLY | OFlags::NONBLOCK, 0).map_err(without_reader)?
            }
            created => return created,
        };
        let stat = fstat(&file)?;
        let is_own = stat.st_uid == geteuid().as_raw() && stat.st_nlink == 1;
        if !is_own && !is_private(&fstat(&self.directory)?) {
            let what = "it belongs to another user, or has a second name, where others may write; \
                        give another name";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let flags = fcntl_getfl(&file)?;
            fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
            return Ok(file);
        }
        if self.is_magic {
            file.set_len(0)?;
            return Ok(file);
        }
        self.unlink(&self.name)?;
        create()
    }

    /// Writes a file at once: a reader finds the old content or the new one. The caller takes care
    /// that no other process does so meanwhile.
    pub fn replace(&self, bytes: &[u8], mode: u32) -> io::Result<()> {
        let new = self.unfinished();
        // A process that was killed may have left this file; if others may write here, it may be a
        // link.
        self.unlink(&new)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.directory, &new, flags, Mode::from_raw_mode(mode))?;
        File::from(file).write_all(bytes)?;
        Ok(renameat(&self.directory, &new, &self.directory, &self.name)?)
    }

    /// Removes the file, and the unfinished one that [`replace`](Self::replace) may have left, if
    /// they exist.
    pub fn remove(&self) -> io::Result<()> {
        self.unlink(&self.name)?;
        self.unlink(&self.unfinished())
    }

    pub(crate) fn unlink(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    fn unfinished(&self) -> OsString {
        let mut name = self.name.clone();
        name.push(Self::UNFINISHED);
        name
    }
}

/// Creates the directory `path` with `mode`, unless it exists, and directories above it. Opens it,
/// if it belongs to this process's user, or root, and no other user can write to it or replace it.
pub fn own_directory(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let way = Way { makes: true, is_strict: true, ..Way::USUAL };
    let place = Place::find(path, way)?;
    match mkdirat(&place.directory, &place.name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => {}
        made => made?,
    }
    place.own()
}

/// Opens the directory `path` like [`own_directory`]; `None` if it does not exist.
pub fn find_own_directory(path: &Path) -> io::Result<Option<OwnedFd>> {
    let way = Way { is_strict: true, ..Way::USUAL };
    let found = Place::find(path, way).and_then(|place| place.own());
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

impl Place {
    /// Opens the directory of this name, if no other user can write to it.
    fn own(&self) -> io::Result<OwnedFd> {
        let file = self.open_path()?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            let what = format!("{} is not a directory; remove it", self.path.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
        }
        if is_private(&stat) { Ok(file) } else { Err(foreign(&self.path, &stat)) }
    }
}

/// Names the error of a pipe that no process reads.
fn without_reader(error: io::Error) -> io::Error {
    match error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
        true => io::Error::other("no process reads this pipe; start the reader first"),
        false => error,
    }
}

/// Returns a path that leads to an open file, even if the file's name changes.
pub fn path_of(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;
    use crate::new_folder;

    /// A user who is neither root nor the one of this process.
    const STRANGER: u32 = 5555;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn why<T>(result: io::Result<T>) -> String {
        result.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn links_are_followed_only_where_no_other_user_can_make_them() {
        let folder = new_folder();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        set_mode(&at("real"), 0o755);
        symlink("real", at("link")).unwrap();
        symlink(at("link"), at("chain")).unwrap();
        let file = at("chain/file");
        Place::of(&file).unwrap().replace(b"1", 0o600).unwrap();
        assert_eq!(fs::read(at("real/file")).unwrap(), b"1");
        // A peer may be root in a container that has the directory mounted.
        assert!(why(Place::shared(&file)).contains("/chain: a symbolic link on the way"));
        // In a directory that all users may write to, the sticky bit keeps our link.
        set_mode(folder.path(), 0o1777);
        Place::of(&file).unwrap();
        set_mode(folder.path(), 0o777);
        let error = why(Place::of(&file));
        assert!(error.contains("/chain: a symbolic link in a directory of owner"), "{error}");
        assert!(error.contains("mode 0777, where another user can replace it"), "{error}");
        if geteuid().is_root() {
            set_mode(folder.path(), 0o1777);
            lchown(at("chain"), Some(STRANGER), None).unwrap();
            assert!(why(Place::of(&file)).contains("/chain: a symbolic link of user 5555"));
        }
    }

    #[test]
    fn link_in_last_place_is_followed_only_if_asked() {
        let folder = new_folder();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        symlink("file", at("link")).unwrap();
        assert!(Place::of(&at("link")).unwrap().create(0o600).is_err());
        Place::target(&at("link")).unwrap().create(0o600).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(at("file")).unwrap(), b"new");
        Place::of(&at("link")).unwrap().replace(b"own", 0o600).unwrap();
        assert!(!at("link").is_symlink() && fs::read(at("file")).unwrap() == b"new");
        // A link of /proc leads to a file that a process has open, as /dev/stdout does.
        let file = File::create(at("open")).unwrap();
        let open = path_of(&file);
        Place::target(&open).unwrap().create(0o600).unwrap().write_all(b"x").unwrap();
        assert_eq!(fs::read(at("open")).unwrap(), b"x");
        symlink("loop", at("loop")).unwrap();
        assert!(Place::target(&at("loop")).is_err());
    }

    #[test]
    fn existing_file_is_replaced_and_gets_the_mode() {
        use std::io::Read;
        let folder = new_folder();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        set_mode(&path, 0o644);
        // A process that has opened the file before sees nothing of the new one.
        let mut reader = File::open(&path).unwrap();
        Place::target(&path).unwrap().create(0o600).unwrap().write_all(b"new").unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!((read.as_str(), fs::read(&path).unwrap()), ("old", b"new".to_vec()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn pipe_without_reader_is_an_error_at_once() {
        use rustix::fs::{CWD, mknodat};
        let folder = new_folder();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        let place = Place::target(&pipe).unwrap();
        std::thread::spawn(move || done.send(why(place.create(0o600))));
        let error = is_done.recv_timeout(std::time::Duration::from_secs(10)).expect("no wait");
        assert_eq!(error, "no process reads this pipe; start the reader first");
        let _reader = File::options().read(true).write(true).open(&pipe).unwrap();
        let file = Place::target(&pipe).unwrap().create(0o600).unwrap();
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK), "a write waits for room");
    }

    #[test]
    fn content_goes_to_no_pipe_of_another_user() {
        use rustix::fs::{CWD, mknodat};
        let folder = new_folder();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _reader = File::options().read(true).write(true).open(&pipe).unwrap();
        set_mode(folder.path(), 0o1777);
        Place::target(&pipe).unwrap().create(0o600).unwrap();
        if geteuid().is_root() {
            chown(&pipe, Some(STRANGER), None).unwrap();
            assert!(why(Place::target(&pipe).unwrap().create(0o600)).contains("another user"));
        }
    }

    #[test]
    fn written_file_replaces_what_others_left() {
        let folder = new_folder();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("important"), "root's").unwrap();
        symlink("important", at("file.new")).unwrap();
        let place = Place::of(&at("file")).unwrap();
        place.replace(b"new", 0o640).unwrap();
        assert_eq!(fs::read(at("important")).unwrap(), b"root's");
        assert_eq!(fs::metadata(at("file")).unwrap().permissions().mode() & 0o137, 0);
        fs::write(at("file.new"), "").unwrap();
        place.remove().unwrap();
        place.remove().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn directory_that_another_user_can_change_is_refused() {
        let folder = new_folder();
        let at = |name: &str| folder.path().join(name);
        let (above, own) = (at("above"), at("above/own"));
        assert!(find_own_directory(&own).unwrap().is_none());
        own_directory(&own, 0o700).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        find_own_directory(&own).unwrap().unwrap();
        for (path, mode, is_right) in [
            (&own, 0o770, false),
            (&own, 0o1777, false),
            (&own, 0o755, true),
            (&above, 0o777, false),
            (&above, 0o1777, true),
        ] {
            set_mode(path, mode);
            assert_eq!(own_directory(&own, 0o700).is_ok(), is_right, "{path:?} {mode:o}");
            assert_eq!(find_own_directory(&own).is_ok(), is_right, "{path:?} {mode:o}");
        }
        if geteuid().is_root() {
            for path in [&own, &above] {
                chown(path, Some(STRANGER), None).unwrap();
                let why = why(own_directory(&own, 0o700));
                assert!(why.contains("owner 5555, mode"), "{why}");
                chown(path, Some(0), None).unwrap();
            }
        }
        fs::remove_dir(&own).unwrap();
        symlink(folder.path(), &own).unwrap();
        assert!(why(own_directory(&own, 0o700)).contains("is not a directory"));
    }

    #[test]
    fn name_leads_nowhere_else() {
        for path in ["/", "..", "a/..", ""] {
            assert!(why(Place::of(path.as_ref())).contains("give the path of a file"), "{path}");
        }
        let folder = new_folder();
        let path = folder.path().join("none/file");
        assert_eq!(Place::of(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        Place::making(&path).unwrap().create(0o600).unwrap();
        assert!(path.exists());
        assert_eq!(Place::of(&path.join("x")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }
}
