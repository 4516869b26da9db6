//! State of an engine: folders in memory, visible only inside the "host".

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

/// Folder for everything that an engine writes.
pub(super) const FOLDER: &str = "/run/engine";

/// The machine's control groups, hidden from the "host" once it has its own `/sys`.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Mounts tmpfs over the folders where engines keep sockets, locks and the state of their
/// containers, and makes the control groups visible. `shared` is left in place.
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
        // crun refuses a host with both cgroup versions. Where this folder exists, containers are
        // in version 1.
        match unmount(Path::new(CONTROL_GROUPS).join("unified"), UnmountFlags::DETACH) {
            Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            result => Ok(result?),
        }
    })
}
