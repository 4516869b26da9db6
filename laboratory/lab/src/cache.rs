//! Cache partitions: reserves part of the last-level cache for given CPUs through the kernel's
//! resctrl file system (Documentation/filesystems/resctrl.rst), which drives Intel's Cache
//! Allocation Technology and its equivalents.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::{LabError, cgroup, placement};

/// Usual mount point of the resctrl file system.
const MOUNT: &str = "/sys/fs/resctrl";

/// A divided cache: one part for the CPU of a noisy program, the rest for the CPUs of others.
/// Dropping it returns both parts.
///
/// Everything else on the machine may still use the whole cache. Group names identify their owner,
/// so that the next start removes the groups of a killed process.
#[derive(Debug)]
pub struct DividedCache {
    groups: Vec<PathBuf>,
    /// Our own mount, on machines without one. It is unmounted, and its groups removed, on drop.
    _mount: Option<OwnedFd>,
}

impl DividedCache {
    /// Gives `noisy` the smallest part of the cache that the CPU allows, and `others` the rest.
    pub fn new(noisy: usize, others: &[usize]) -> Result<Self, LabError> {
        let (root, mount) = root().map_err(|errno| match errno {
            // The kernel returns one of these when it or the CPU has no cache allocation.
            Errno::NODEV | Errno::NOSYS => LabError::NotInKernel {
                what: "cache allocation".to_owned(),
                remedy: "it needs a CPU with CAT (rdt_a and cat_l3 in /proc/cpuinfo) and a kernel \
                         with CONFIG_X86_CPU_RESCTRL"
                    .to_owned(),
            },
            errno => doing("mount")(errno.into()),
        })?;
        let mut divided = Self { groups: Vec::new(), _mount: mount };
        let cache = Cache::read(&root).map_err(doing("reading the cache's properties"))?;
        let (part, rest) = cache.divide();
        for (name, mask, cpus) in [("noisy", part, vec![noisy]), ("others", rest, others.to_vec())]
        {
            let group = root.join(format!("{}-{name}", cgroup::new_name()));
            fs::create_dir(&group).map_err(doing("group"))?;
            divided.groups.push(group.clone());
            let write = |file: &str, text: String| fs::write(group.join(file), text);
            write("schemata", cache.schemata(mask)).map_err(doing("schemata"))?;
            write("cpus_list", placement::ranges(&cpus)).map_err(doing("CPUs"))?;
        }
        Ok(divided)
    }
}

impl Drop for DividedCache {
    fn drop(&mut self) {
        for group in &self.groups {
            if let Err(error) = fs::remove_dir(group) {
                let group = group.display();
                eprintln!("dray: {group} could not be removed: {error}; try `dray lab clean`");
            }
        }
    }
}

fn doing(what: &str) -> impl FnOnce(io::Error) -> LabError + use<> {
    LabError::doing(format!("cache allocation (resctrl): {what}"))
}

/// Returns the root of the file system: the machine's mount if it has one, otherwise a private
/// mount.
fn root() -> Result<(PathBuf, Option<OwnedFd>), Errno> {
    let mounted = Path::new(MOUNT);
    if mounted.join("info").exists() {
        return Ok((mounted.to_owned(), None));
    }
    let context = fsopen("resctrl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())), Some(mount)))
}

/// Removes the groups whose owner is gone and returns their names.
pub(crate) fn remove_stale() -> io::Result<Vec<String>> {
    let mut removed = Vec::new();
    for group in fs::read_dir(MOUNT).into_iter().flatten().flatten() {
        let name = group.file_name().to_string_lossy().into_owned();
        if name.rsplit_once('-').is_some_and(|(owner, _)| cgroup::is_stale(owner)) {
            fs::remove_dir(group.path())?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// The last-level caches, as the resctrl file system describes them.
#[derive(Debug, PartialEq, Eq)]
struct Cache {
    /// One bit for each part.
    mask: u64,
    /// Minimum number of parts in a group. The parts of a group are contiguous.
    least: u32,
    /// IDs of the last-level caches.
    numbers: Vec<u32>,
}

impl Cache {
    fn read(root: &Path) -> io::Result<Self> {
        let read = |file: &str| {
            let text = fs::read_to_string(root.join(file));
            text.map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))
        };
        let wrong = |file: &str, text: &str| io::Error::other(format!("{file}: {:?}", text.trim()));
        let (mask_text, least_text) = (read("info/L3/cbm_mask")?, read("info/L3/min_cbm_bits")?);
        let mask = u64::from_str_radix(mask_text.trim(), 16).ok().filter(|mask| *mask != 0);
        let schemata = read("schemata")?;
        let cache = Self {
            mask: mask.ok_or_else(|| wrong("info/L3/cbm_mask", &mask_text))?,
            least: least_text
                .trim()
                .parse()
                .map_err(|_| wrong("info/L3/min_cbm_bits", &least_text))?,
            numbers: numbers(&schemata).ok_or_else(|| wrong("schemata", &schemata))?,
        };
        if cache.mask.count_ones() < 2 * cache.least.max(1) {
            return Err(wrong("info/L3/cbm_mask", &mask_text));
        }
        Ok(cache)
    }

    /// Splits the mask into the smallest part, at the low end, and the rest.
    fn divide(&self) -> (u64, u64) {
        let part = ((1 << self.least.max(1)) - 1) << self.mask.trailing_zeros();
        (part, self.mask & !part)
    }

    /// The `schemata` line of a group, with the same mask for all caches.
    fn schemata(&self, mask: u64) -> String {
        let of = |number: &u32| format!("{number}={mask:x}");
        format!("L3:{}\n", self.numbers.iter().map(of).collect::<Vec<_>>().join(";"))
    }
}

/// Parses the cache IDs from a line such as `L3:0=fffff;1=fffff`.
fn numbers(schemata: &str) -> Option<Vec<u32>> {
    let caches = schemata.lines().find_map(|line| line.trim().strip_prefix("L3:"))?;
    let number = |cache: &str| cache.split_once('=')?.0.trim().parse().ok();
    caches.split(';').map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_division_follows_resctrl_limits() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("info/L3")).unwrap();
        let write = |file: &str, text: &str| fs::write(root.join(file), text).unwrap();
        write("info/L3/cbm_mask", "fffff\n");
        write("info/L3/min_cbm_bits", "2\n");
        write("schemata", "    MB:0=100;1=100\n    L3:0=fffff;1=fffff\n");
        let cache = Cache::read(root).unwrap();
        let (part, rest) = cache.divide();
        assert_eq!((part, rest), (0b11, 0xffffc));
        assert_eq!(cache.schemata(part), "L3:0=3;1=3\n");
        assert_eq!(cache.schemata(rest), "L3:0=ffffc;1=ffffc\n");
        // Bits outside the mask belong to neither part.
        assert_eq!(Cache { mask: 0xff0, least: 1, numbers: vec![] }.divide(), (0x10, 0xfe0));

        for (file, text) in [
            ("info/L3/cbm_mask", "0"),
            ("info/L3/cbm_mask", "7"),
            ("info/L3/cbm_mask", "-"),
            ("info/L3/min_cbm_bits", "many"),
            ("schemata", "L3CODE:0=f;1=f"),
            ("schemata", "L3:0"),
        ] {
            let before = fs::read_to_string(root.join(file)).unwrap();
            write(file, text);
            let error = Cache::read(root).unwrap_err().to_string();
            assert!(error.contains(file) && error.contains(text), "{error}");
            write(file, &before);
        }
        fs::remove_file(root.join("schemata")).unwrap();
        assert!(Cache::read(root).unwrap_err().to_string().starts_with("schemata: "));
    }
}
