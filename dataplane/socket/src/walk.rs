//! Resolution of a path, component by component, without links of other users.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, fstatfs, mkdirat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Symbolic links on one way, as in the kernel.
const LINKS_MAX: u32 = 40;
/// `PROC_SUPER_MAGIC` of linux/magic.h. Links there lead to what a process has open.
const PROC: i64 = 0x9fa0;
/// Mode of directories that are created on the way.
const MODE_ABOVE: u32 = 0o755;

/// Links that are followed, unless another user can have made them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    All,
    /// Links in `/` and in directories of `/`, such as `/var/run`: no container has these mounted.
    Top,
}

/// How a path is resolved.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) links: Links,
    /// True if the last component may be a link, too.
    pub(crate) follows_last: bool,
    /// True if missing directories are created.
    pub(crate) makes: bool,
    /// True if other users may write to no directory on the way, or only with the sticky bit.
    pub(crate) is_strict: bool,
}

impl Way {
    pub(crate) const USUAL: Self =
        Self { links: Links::All, follows_last: false, makes: false, is_strict: false };
}

/// Directory that a path leads to, and the name there.
pub(crate) struct Found {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
    /// The path.
    pub(crate) path: PathBuf,
    /// True if no other user can change where the path leads, except for the last component.
    pub(crate) is_fixed: bool,
    /// True if the name is that of a link of `/proc`, which is followed.
    pub(crate) is_magic: bool,
}

/// Resolution of a path.
pub(crate) struct Walk {
    way: Way,
    /// The directory so far, and its path.
    directory: OwnedFd,
    done: PathBuf,
    /// Number of directories below `/`; `None`: below another one.
    depth: Option<usize>,
    /// Rest of the path, in reverse.
    rest: Vec<OsString>,
    links: u32,
    is_fixed: bool,
    path: PathBuf,
}

impl Walk {
    pub(crate) fn new(path: &Path, way: Way) -> io::Result<Self> {
        if path.file_name().is_none() {
            let what = format!("{}: give the path of a file", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let start = if path.is_absolute() { "/" } else { "." };
        Ok(Self {
            way,
            directory: open_directory(CWD, OsStr::new(start))?,
            done: PathBuf::from(start),
            depth: path.is_absolute().then_some(0),
            rest: parts(path),
            links: 0,
            is_fixed: true,
            path: path.to_owned(),
        })
    }

    pub(crate) fn finish(mut self) -> io::Result<Found> {
        let mut is_magic = false;
        let name = loop {
            let Some(part) = self.rest.pop() else {
                let what = format!("{} is a directory", self.path.display());
                return Err(io::Error::new(io::ErrorKind::IsADirectory, what));
            };
            let is_last = self.rest.is_empty();
            if is_last && (!self.way.follows_last || part == "..") {
                break part;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match openat(&self.directory, &part, flags, Mode::empty()) {
                Err(Errno::NOENT) if is_last => break part,
                Err(Errno::NOENT) if self.way.makes => self.make(&part)?,
                opened => opened?,
            };
            let stat = fstat(&file)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink if is_last && self.is_in_proc() => {
                    self.check_link(&part, &stat)?;
                    is_magic = true;
                    break part;
                }
                FileType::Symlink => self.follow(&file, &part, &stat)?,
                _ if is_last => break part,
                FileType::Directory => self.enter(file, &part)?,
                _ => return Err(Errno::NOTDIR.into()),
            }
        };
        if self.way.is_strict {
            self.check_directory()?;
        }
        let Self { directory, path, is_fixed, .. } = self;
        Ok(Found { directory, name, path, is_fixed, is_magic })
    }

    fn make(&self, part: &OsStr) -> io::Result<OwnedFd> {
        match mkdirat(&self.directory, part, Mode::from_raw_mode(MODE_ABOVE)) {
            // Another process makes the same directory.
            Err(Errno::EXIST) => {}
            made => made?,
        }
        open_directory(&self.directory, part)
    }

    /// Goes into a directory.
    fn enter(&mut self, directory: OwnedFd, part: &OsStr) -> io::Result<()> {
        if self.way.is_strict {
            self.check_directory()?;
        }
        self.is_fixed &= is_safe(&fstat(&self.directory)?);
        // A peer that is root in a container may have a directory further down mounted.
        let is_top = self.depth.is_some_and(|depth| depth <= 1);
        self.is_fixed &= self.way.links == Links::All || is_top;
        self.directory = directory;
        self.done.push(part);
        self.depth = match part == ".." {
            true => self.depth.map(|depth| depth.saturating_sub(1)),
            false => self.depth.map(|depth| depth + 1),
        };
        Ok(())
    }

    fn check_directory(&self) -> io::Result<()> {
        let stat = fstat(&self.directory)?;
        if is_safe(&stat) { Ok(()) } else { Err(foreign(&self.done, &stat)) }
    }

    /// Goes on with the target of a link.
    fn follow(&mut self, link: &OwnedFd, part: &OsStr, stat: &Stat) -> io::Result<()> {
        self.check_link(part, stat)?;
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        if self.is_in_proc() {
            // A link of /proc need not lead where its text says.
            let directory = open_directory_at(&self.directory, part, OFlags::empty())?;
            return self.enter(directory, part);
        }
        let target =
            PathBuf::from(OsString::from_vec(readlinkat(link, "", Vec::new())?.into_bytes()));
        if target.is_absolute() {
            self.directory = open_directory(CWD, OsStr::new("/"))?;
            (self.done, self.depth) = (PathBuf::from("/"), Some(0));
        }
        self.rest.extend(parts(&target));
        Ok(())
    }

    fn check_link(&self, part: &OsStr, link: &Stat) -> io::Result<()> {
        let directory = fstat(&self.directory)?;
        let named =
            |what: String| io::Error::other(format!("{}: {what}", self.done.join(part).display()));
        if !is_ours(link) {
            let owner = link.st_uid;
            return Err(named(format!(
                "a symbolic link of user {owner} is not followed; give the path without it"
            )));
        }
        if !is_safe(&directory) {
            let (owner, mode) = (directory.st_uid, directory.st_mode & 0o7777);
            return Err(named(format!(
                "a symbolic link in a directory of owner {owner}, mode {mode:04o}, where another user \
                 can replace it, is not followed; give the path without it, or take away that right"
            )));
        }
        if self.way.links == Links::Top && self.depth.is_none_or(|depth| depth > 1) {
            return Err(named(
                "a symbolic link on the way to a socket that is shared with a peer is followed only \
                 in / and in directories of /; give the path without it"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn is_in_proc(&self) -> bool {
        fstatfs(&self.directory).is_ok_and(|system| system.f_type == PROC)
    }
}

/// Returns the components of a path, in reverse.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.collect()
}

fn open_directory(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    open_directory_at(at, name, OFlags::NOFOLLOW)
}

fn open_directory_at(at: impl AsFd, name: &OsStr, follow: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
    Ok(openat(at, name, flags, Mode::empty())?)
}

fn is_ours(file: &Stat) -> bool {
    file.st_uid == 0 || file.st_uid == geteuid().as_raw()
}

/// Returns true if no other user can write to a directory.
pub(crate) fn is_private(directory: &Stat) -> bool {
    is_ours(directory) && directory.st_mode & 0o022 == 0
}

/// Returns true if no other user can replace an entry of a directory that is not that user's.
fn is_safe(directory: &Stat) -> bool {
    is_ours(directory) && (directory.st_mode & 0o022 == 0 || directory.st_mode & 0o1000 != 0)
}

pub(crate) fn foreign(path: &Path, directory: &Stat) -> io::Error {
    let (owner, mode) = (directory.st_uid, directory.st_mode & 0o7777);
    let what = format!(
        "directory {}: owner {owner}, mode {mode:04o}; it must belong to root or this process's user, \
         and no other user may write to it: remove it, or change that",
        path.display()
    );
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}
