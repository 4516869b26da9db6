//! Deferring interrupts (Documentation/networking/napi.rst): frames that arrive do not each have the
//! kernel look at the queue at once, but a timer.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use dray_netdev::{DeferralSettings, Interface, Napi, Netdev};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// How often in a row the timer may find nothing before interrupts are no longer deferred.
const FRUITLESS: u32 = 100;
/// Nanoseconds that the timer runs beyond whole microseconds: who finds such a setting finds what one of
/// us left who was killed.
const MARK_NS: u64 = 397;

/// The deferral of an interface's interrupts, undone when this is dropped.
///
/// What a process leaves that is killed is known by its mark: whoever is next does not put it back, nor
/// go on with it.
pub(super) struct Deferral {
    place: Place,
    /// What was set there.
    before: Vec<DeferralSettings>,
}

/// Where it is set.
enum Place {
    /// At what polls the interface's queues: NAPI instances, by their numbers. Those of a veth go with
    /// its XDP program.
    Napis(Netdev, Vec<u32>),
    /// At the interface as a whole, before Linux 6.13 and where nothing polls at present.
    Interface { irqs: File, timeout: File },
}

impl Deferral {
    /// Defers the interrupts of an interface of this network namespace by `microseconds`.
    pub(super) fn new(interface: &Interface, microseconds: u16) -> io::Result<Self> {
        let ours = DeferralSettings {
            defer_hard_irqs: FRUITLESS,
            gro_flush_timeout_ns: u64::from(microseconds) * 1000 + MARK_NS,
        };
        let (place, found) = Place::find(interface)?;
        let new = Self { place, before: found.into_iter().map(unless_ours).collect() };
        // Where it fails half way it is undone.
        (0..new.before.len()).try_for_each(|index| new.place.set(index, ours))?;
        Ok(new)
    }

    /// Undoes what a dead one has left.
    pub(super) fn clear(interface: &Interface) -> io::Result<()> {
        let (place, found) = Place::find(interface)?;
        for (index, settings) in found.into_iter().enumerate() {
            let before = unless_ours(settings);
            if before != settings {
                place.set(index, before)?;
            }
        }
        Ok(())
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        for (index, settings) in self.before.iter().enumerate() {
            // The interface, or what polls it, may be gone, and its settings with it.
            let _ = self.place.set(index, *settings);
        }
    }
}

impl Place {
    /// The place, and what is set there.
    fn find(interface: &Interface) -> io::Result<(Self, Vec<DeferralSettings>)> {
        if let Some(netdev) = Netdev::open()? {
            let napis = netdev.napis(interface.index())?;
            if !napis.is_empty() {
                let (ids, found) = napis.iter().map(|napi| (napi.id, napi.deferral)).unzip();
                return Ok((Self::Napis(netdev, ids), found));
            }
        }
        let sysfs = sysfs()?;
        let open = |name: &str| -> io::Result<(File, u64)> {
            let path = format!("class/net/{}/{name}", interface.name());
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            let mut file: File = openat(&sysfs, path, flags, Mode::empty())?.into();
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok((file, text.trim().parse().map_err(io::Error::other)?))
        };
        let (irqs, count) = open("napi_defer_hard_irqs")?;
        let (timeout, gro_flush_timeout_ns) = open("gro_flush_timeout")?;
        let found = DeferralSettings { defer_hard_irqs: count as u32, gro_flush_timeout_ns };
        Ok((Self::Interface { irqs, timeout }, vec![found]))
    }

    fn set(&self, index: usize, deferral: DeferralSettings) -> io::Result<()> {
        match self {
            Self::Napis(netdev, ids) => netdev.set(Napi { id: ids[index], deferral }),
            Self::Interface { irqs, timeout } => {
                let (mut irqs, mut timeout) = (irqs, timeout);
                irqs.write_all(deferral.defer_hard_irqs.to_string().as_bytes())?;
                timeout.write_all(deferral.gro_flush_timeout_ns.to_string().as_bytes())
            }
        }
    }
}

/// What settings were before: a dead one's hide it, so it is what the kernel begins with.
fn unless_ours(found: DeferralSettings) -> DeferralSettings {
    let is_marked = found.gro_flush_timeout_ns % 1000 == MARK_NS;
    if is_marked && found.defer_hard_irqs == FRUITLESS {
        DeferralSettings::default()
    } else {
        found
    }
}

/// The sysfs of this network namespace; the one that is mounted may be another's.
fn sysfs() -> io::Result<OwnedFd> {
    let fs = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&fs)?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
