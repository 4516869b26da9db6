//! Deferring an interface's interrupts (Documentation/networking/napi.rst): frames that arrive do not
//! each have the kernel look at the queue at once, but a timer.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// How often in a row the timer may find nothing before interrupts are no longer deferred.
const FRUITLESS: &str = "100";

/// The deferral of an interface's interrupts, undone when this is dropped.
///
/// A process that is killed leaves it behind; it does nothing until frames arrive, and is replaced by
/// whoever defers next.
pub(super) struct Deferral {
    /// Files of the interface, and what stood there.
    before: Vec<(File, String)>,
}

impl Deferral {
    /// Defers the interrupts of an interface of this network namespace by `microseconds`.
    pub(super) fn new(interface: &str, microseconds: u16) -> io::Result<Self> {
        let sysfs = sysfs()?;
        let mut new = Self { before: Vec::new() };
        let nanoseconds = (u32::from(microseconds) * 1000).to_string();
        let settings =
            [("napi_defer_hard_irqs", FRUITLESS), ("gro_flush_timeout", nanoseconds.as_str())];
        for (name, value) in settings {
            let path = format!("class/net/{interface}/{name}");
            let mut file: File =
                openat(&sysfs, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?.into();
            let mut before = String::new();
            file.read_to_string(&mut before)?;
            file.write_all(value.as_bytes())?;
            new.before.push((file, before));
        }
        Ok(new)
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        for (file, before) in &mut self.before {
            // The interface may be gone, and its settings with it.
            let _ = file.write_all(before.trim().as_bytes());
        }
    }
}

/// The sysfs of this network namespace; the one that is mounted may be another's.
fn sysfs() -> io::Result<OwnedFd> {
    let fs = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&fs)?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
