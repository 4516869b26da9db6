//! Huge pages, reserved while a peer runs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use super::dir::PARENT;
use crate::LabError;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const SURPLUS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages";
const PAGE_MIB: u32 = 2;

/// Records of reservations are called so, each with its number of pages inside.
const RECORD: &str = "hugepages-";

/// Pages added to the kernel's pool; dropping it takes them out again. A record in the peers'
/// directory does so for a run that was killed.
#[derive(Debug)]
pub(super) struct Hugepages {
    record: PathBuf,
}

impl Hugepages {
    /// Adds pages for `mib` MiB, besides those that are free: these may be wanted by others.
    pub(super) fn reserve(dir: &Path, mib: u32) -> Result<Self, LabError> {
        static RECORDS: AtomicU32 = AtomicU32::new(0);
        let doing = || LabError::doing(format!("reserving {mib} MiB of huge pages in {POOL}"));
        let wanted = u64::from(mib.div_ceil(PAGE_MIB));
        let lock = lock().map_err(doing())?;
        let before = pool().map_err(doing())?;
        fs::write(POOL, (before + wanted).to_string()).map_err(doing())?;
        let added = pool().map_err(doing())?.saturating_sub(before);
        let number = RECORDS.fetch_add(1, Ordering::Relaxed);
        let record = dir.join(format!("{RECORD}{number}"));
        let result = fs::write(&record, added.to_string());
        let pages = Self { record };
        match result {
            Ok(()) if added == wanted => Ok(pages),
            Ok(()) => {
                // Dropping the pages takes the lock as well.
                drop(lock);
                drop(pages);
                let what = format!("reserving {mib} MiB of huge pages in {POOL}");
                let found = u64::from(PAGE_MIB) * added;
                let error =
                    format!("only {found} MiB of memory are in one piece; free some memory");
                Err(LabError::System { what, error: io::Error::other(error) })
            }
            Err(error) => {
                let _ = shrink(added);
                Err(doing()(error))
            }
        }
    }
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        if let Err(error) = release(&self.record) {
            eprintln!("dray: huge pages could not be given back: {error}; see {POOL}");
        }
    }
}

/// Gives back what the records in a directory say.
pub(super) fn release_all(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(RECORD) {
            release(&entry.path())?;
        }
    }
    Ok(())
}

fn release(record: &Path) -> io::Result<()> {
    let _lock = lock()?;
    let text = match fs::read_to_string(record) {
        // Somebody else has cleaned up.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result?,
    };
    shrink(text.trim().parse().map_err(io::Error::other)?)?;
    fs::remove_file(record)
}

fn shrink(pages: u64) -> io::Result<()> {
    fs::write(POOL, pool()?.saturating_sub(pages).to_string())
}

/// The number that was last written. Pages that a dying process still uses are counted on top of it,
/// as surplus, when it is lowered.
fn pool() -> io::Result<u64> {
    let read = |path: &str| -> io::Result<u64> {
        fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
    };
    Ok(read(POOL)?.saturating_sub(read(SURPLUS)?))
}

/// Lets one process at a time change the pool; until the file is closed.
fn lock() -> io::Result<File> {
    fs::create_dir_all(PARENT)?;
    let file = File::create(Path::new(PARENT).join("lock"))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
