//! A root directory of the process's own, for a process of root.
//!
//! Neither Landlock nor dropped capabilities keep a process of user 0 from connecting to the
//! sockets of root's other services, and from changing the rights of root's files. It gets a mount
//! namespace in which only the directories exist that it needs, at their usual paths: other sockets
//! and files have no name there.

use std::collections::{BTreeSet, VecDeque};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, mkdirat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::open_directories::OpenDirectories;

/// Symbolic links in a path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Directories and links of the new root directory.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    /// Directories that are mounted; none is below another.
    mounted: BTreeSet<PathBuf>,
    /// Empty directories, parents first.
    folders: BTreeSet<PathBuf>,
    /// Symbolic links in the paths of directories, and where each leads.
    links: BTreeSet<(PathBuf, PathBuf)>,
}

/// Makes the root directory of the calling thread, and of threads that it starts later, one in
/// which only `directories` exist, at their paths, and the process itself in `/proc/self`. Returns
/// why it could not, if the process may not, or its present root directory is not that of a mount
/// (chroot, initramfs): then all directories stay where they were.
pub(crate) fn confine(directories: &[&Path]) -> io::Result<Option<String>> {
    let current = env::current_dir()?;
    let plan = Plan::of(directories, &current)?;
    if plan.mounted.contains(Path::new("/")) {
        return Err(io::Error::other(
            "a socket in the root directory brings all others into reach",
        ));
    }
    // SAFETY: the thread gets a file system of its own, which it and later threads use; no open
    // descriptor is affected.
    if let Err(errno) = unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
        return refused("a mount namespace", errno);
    }
    let from_outside = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    if let Err(errno) = mount_change("/", from_outside) {
        return refused("a change of mounts", errno);
    }
    let tree = |path: &Path| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        open_tree(CWD, path, flags).map_err(|errno| named(path, errno))
    };
    let trees: Vec<_> = plan
        .mounted
        .iter()
        .map(|path| Ok((path.as_path(), tree(path)?)))
        .collect::<io::Result<_>>()?;
    // Without /proc, nothing can be found by a descriptor either.
    let directories = OpenDirectories::now().ok();
    let process = match tree(Path::new("/proc/self")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        process => Some(process?),
    };
    let root = empty_folder()?;
    // It must be attached somewhere before it can become the root directory.
    let anywhere = plan.mounted.first().map_or(Path::new("/proc"), PathBuf::as_path);
    attach(&root, CWD, anywhere)?;
    let filled = fill(&root, &plan, &trees, process.as_ref());
    // The old root directory is mounted over the new one, and then let go of (pivot_root(2)).
    let pivoted = filled.map(|()| fchdir(&root).and_then(|()| pivot_root(".", ".")));
    if !matches!(pivoted, Ok(Ok(()))) {
        // It hides what is there. The seccomp filters of container runtimes have no pivot_root.
        unmount(anywhere, UnmountFlags::DETACH)
            .and_then(|()| chdir(&current))
            .map_err(|errno| io::Error::other(format!("{pivoted:?}, and then: {errno}")))?;
    }
    if let Err(errno) = pivoted? {
        return refused("pivot_root", errno);
    }
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    chdir(&current)?;
    directories.map_or(Ok(()), OpenDirectories::reopen)?;
    Ok(None)
}

/// Returns why the root directory stays, or the error if that has another cause.
fn refused(what: &str, errno: Errno) -> io::Result<Option<String>> {
    match errno {
        Errno::PERM | Errno::ACCESS | Errno::INVAL => Ok(Some(format!("{what}: {errno}"))),
        errno => Err(io::Error::new(errno.kind(), format!("{what}: {errno}"))),
    }
}

/// Makes what is planned in the new root directory.
fn fill(
    root: &OwnedFd,
    plan: &Plan,
    trees: &[(&Path, OwnedFd)],
    process: Option<&OwnedFd>,
) -> io::Result<()> {
    for path in &plan.folders {
        make_folder(root, path)?;
    }
    for (path, target) in &plan.links {
        symlinkat(target, root, relative(path)).map_err(|errno| named(path, errno))?;
    }
    for (path, tree) in trees {
        attach(tree, root, relative(path))?;
    }
    if let Some(process) = process {
        for path in ["/proc", "/proc/self"] {
            make_folder(root, Path::new(path))?;
        }
        attach(process, root, Path::new("proc/self"))?;
    }
    Ok(())
}

/// Creates an empty, detached file system.
fn empty_folder() -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("size", "64k"), ("mode", "0755")] {
        fsconfig_set_string(context.as_fd(), key, value)?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Attaches a detached tree at `path`, relative to `folder`.
fn attach(tree: &OwnedFd, folder: impl AsFd, path: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tree, "", folder, path, flags).map_err(|errno| named(path, errno))
}

fn make_folder(root: &OwnedFd, path: &Path) -> io::Result<()> {
    match mkdirat(root, relative(path), Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(named(path, errno)),
    }
}

/// Returns an absolute path relative to the root directory.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn named(path: &Path, errno: Errno) -> io::Error {
    io::Error::new(errno.kind(), format!("{}: {errno}", path.display()))
}

impl Plan {
    /// Plans a root directory with `directories`, which must exist, and an empty `current`, to
    /// which paths are relative.
    fn of(directories: &[&Path], current: &Path) -> io::Result<Self> {
        let mut plan = Self::default();
        let real = directories.iter().map(|path| {
            fs::canonicalize(current.join(path)).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        });
        // Sorted, so that a directory comes before those below it.
        for path in real.collect::<io::Result<BTreeSet<_>>>()? {
            if !plan.contains(&path) {
                plan.mounted.insert(path);
            }
        }
        for path in directories {
            plan.add_path(&current.join(path))?;
        }
        plan.add_path(current)?;
        let places = plan.mounted.iter().flat_map(|path| path.ancestors());
        plan.folders.extend(places.map(Path::to_owned));
        plan.folders.remove(Path::new("/"));
        Ok(plan)
    }

    /// Returns true if `path` is in a directory that is mounted.
    fn contains(&self, path: &Path) -> bool {
        self.mounted.iter().any(|mounted| path.starts_with(mounted))
    }

    /// Adds the directories and links along an absolute path, so that it leads where it does now.
    fn add_path(&mut self, path: &Path) -> io::Result<()> {
        let parts = |path: &Path| -> VecDeque<OsString> {
            path.components().map(|part| part.as_os_str().to_owned()).collect()
        };
        let (mut at, mut rest, mut links) = (PathBuf::from("/"), parts(path), 0);
        while let Some(part) = rest.pop_front() {
            match Path::new(&part).components().next() {
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::ParentDir) => {
                    at.pop();
                }
                Some(Component::Normal(_)) => at.push(&part),
                _ => {}
            }
            // A mounted file system has its own directories and links.
            let is_there = self.contains(&at);
            if fs::symlink_metadata(&at)?.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(named(path, Errno::LOOP));
                }
                let target = fs::read_link(&at)?;
                if !is_there {
                    self.links.insert((at.clone(), target.clone()));
                }
                at.pop();
                let mut next = parts(&target);
                next.append(&mut rest);
                rest = next;
            } else if !is_there {
                self.folders.insert(at.clone());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn plan_keeps_paths_and_their_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["real/sockets/below", "cwd"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink("real", at("link")).unwrap();
        symlink(at("link"), at("far")).unwrap();
        let [sockets, below, far] = ["real/sockets", "far/sockets/below", "far/sockets"].map(at);
        let relative = Path::new("../real/sockets");
        let plan = Plan::of(&[&below, &far, relative, &sockets], &at("cwd")).unwrap();
        assert_eq!(plan.mounted, BTreeSet::from([sockets]));
        assert_eq!(
            plan.links,
            BTreeSet::from([(at("far"), at("link")), (at("link"), PathBuf::from("real"))])
        );
        for path in [at("cwd"), at("real"), at("real/sockets"), folder.path().to_owned()] {
            assert!(plan.folders.contains(&path), "{path:?}");
        }
        assert!(!plan.folders.contains(&at("real/sockets/below")));
    }

    #[test]
    fn endless_links_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        symlink("loop", folder.path().join("loop")).unwrap();
        assert!(Plan::of(&[&folder.path().join("loop")], Path::new("/")).is_err());
    }
}
