//! An engine's state: folders in memory, inside the "host" alone.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, move_mount, open_tree, unmount,
};

use crate::namespace::Init;

/// What an engine writes is in here.
pub(super) const FOLDER: &str = "/run/engine";

/// The machine's control groups, which the "host" sees no more once it has a `/sys` of its own.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Puts memory in place of the folders where engines keep sockets, locks and what they know of their
/// containers, and shows the control groups. `shared` stays as it is.
pub(super) fn hide(host: &Init, shared: &Path) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let groups = open_tree(CWD, CONTROL_GROUPS, flags | OpenTreeFlags::AT_RECURSIVE)?;
    let kept = open_tree(CWD, shared, flags)?;
    host.enter(|| {
        for folder in ["/run", "/dev/shm"] {
            mount("tmpfs", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
        }
        for folder in [Path::new(FOLDER), shared] {
            fs::create_dir_all(folder)?;
        }
        for (tree, folder) in [(&kept, shared), (&groups, Path::new(CONTROL_GROUPS))] {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(tree.as_fd(), "", CWD, folder, flags)?;
        }
        // crun refuses a host that has both versions; where this folder is, containers are in version 1.
        match unmount(Path::new(CONTROL_GROUPS).join("unified"), UnmountFlags::DETACH) {
            Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            result => Ok(result?),
        }
    })
}
