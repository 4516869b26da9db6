//! Deferral of interrupts (Documentation/networking/napi.rst): the kernel polls the queue when a
//! timer fires, instead of at each interrupt.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use dray_netdev::{DeferralSettings, Interface, Napi, Netdev};
use dray_socket::borrows_files;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Number of consecutive polls without a frame after which the kernel ends the deferral.
const EMPTY_POLLS: u32 = 100;
/// Mark of a setting of this program: nanoseconds that are added to whole microseconds. A killed
/// process leaves such settings.
const MARK_NS: u64 = 397;

/// Deferral of an interface's interrupts. Dropping it restores the original settings, unless
/// another process continues. Settings of a killed process are recognized by their mark, and are
/// not taken for original ones.
pub(super) struct Deferral {
    place: Location,
    /// The original settings.
    original: Vec<DeferralSettings>,
}

/// Location of the settings that defer interrupts.
enum Location {
    /// The NAPI instances that poll the interface's queues, by their ids. A veth has them only with
    /// an XDP program.
    Napis(Netdev, Vec<u32>),
    /// The whole interface: before Linux 6.13, and without NAPI instances at present.
    Interface { irqs: File, timeout: File },
}

impl Deferral {
    /// Defers the interrupts of an interface of this network namespace by `microseconds`. `past`
    /// are the original settings by place, if another process has deferred the interrupts.
    pub(super) fn new(
        interface: &Interface,
        microseconds: u16,
        past: &[(u32, DeferralSettings)],
    ) -> io::Result<Self> {
        let ours = DeferralSettings {
            defer_hard_irqs: EMPTY_POLLS,
            gro_flush_timeout_ns: u64::from(microseconds) * 1000 + MARK_NS,
        };
        let (place, found) = Location::find(interface)?;
        let original = |(index, found)| {
            let past = past.iter().find(|(id, _)| *id == place.id(index));
            past.map_or_else(|| original(found), |(_, original)| *original)
        };
        let original = found.into_iter().enumerate().map(original).collect();
        let new = Self { place, original };
        // After a failure, dropping `new` restores the settings.
        (0..new.original.len()).try_for_each(|index| new.place.set(index, ours))?;
        Ok(new)
    }

    /// Returns the original settings by place.
    pub(super) fn original(&self) -> impl Iterator<Item = (u32, DeferralSettings)> {
        (0..).zip(&self.original).map(|(index, settings)| (self.place.id(index), *settings))
    }

    /// Restores settings that a killed process has left.
    pub(super) fn clear(interface: &Interface) -> io::Result<()> {
        let (place, found) = Location::find(interface)?;
        for (index, settings) in found.into_iter().enumerate() {
            let original = original(settings);
            if original != settings {
                place.set(index, original)?;
            }
        }
        Ok(())
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        if borrows_files() {
            return;
        }
        for (index, settings) in self.original.iter().enumerate() {
            // If this fails, the interface or its NAPI instance, and so the setting, no longer
            // exists.
            let _ = self.place.set(index, *settings);
        }
    }
}

impl Location {
    /// Returns the place, and the settings found there.
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

    /// Returns the number of a place.
    fn id(&self, index: usize) -> u32 {
        match self {
            Self::Napis(_, ids) => ids[index],
            Self::Interface { .. } => u32::MAX,
        }
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

/// Returns the settings to restore: those found, or the kernel's defaults if a killed process has
/// left them, since the original ones are unknown.
fn original(found: DeferralSettings) -> DeferralSettings {
    let is_marked = found.gro_flush_timeout_ns % 1000 == MARK_NS;
    if is_marked && found.defer_hard_irqs == EMPTY_POLLS {
        DeferralSettings::default()
    } else {
        found
    }
}

/// Opens the sysfs of this network namespace; the mounted one may belong to another namespace.
fn sysfs() -> io::Result<OwnedFd> {
    let fs = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&fs)?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
