//! Huge pages that are reserved while a peer runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dray_socket::Lock;

use crate::LabError;
use crate::process::PARENT;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const SURPLUS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Free pages that are promised to memory which has not been written yet.
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages";
const PAGE_MIB: u32 = 2;
/// Makes the kernel join free memory into larger pieces.
const COMPACT: &str = "/proc/sys/vm/compact_memory";

/// Time limit for pages to come back from a peer that has ended: files in flight over a socket are
/// closed later than the process.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which pages that have not come back are replaced.
const RETRY: Duration = Duration::from_millis(500);

/// Prefix of the names of reservation records, each of which contains its number of pages.
const RECORD: &str = "hugepages-";

/// Pages added to the kernel's pool; dropping them removes them again. For a killed run, a record
/// in the peers' directory has the same effect.
#[derive(Debug)]
pub(super) struct Hugepages {
    record: PathBuf,
}

impl Hugepages {
    /// Adds pages for `mib` MiB. Pages that are free already are left to others; if others take
    /// some of those that were added, more are added.
    pub(super) fn reserve(dir: &Path, mib: u32) -> Result<Self, LabError> {
        static RECORDS: AtomicU32 = AtomicU32::new(0);
        let what = format!("reserving {mib} MiB of huge pages in {POOL}");
        let doing = || LabError::doing(what.clone());
        let wanted = u64::from(mib.div_ceil(PAGE_MIB));
        let number = RECORDS.fetch_add(1, Ordering::Relaxed);
        let pages = Self { record: dir.join(format!("{RECORD}{number}")) };
        let (mut added, mut missing) = (0, wanted);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let grown = grow(&pages.record, added, missing).map_err(doing())?;
            added += grown;
            // Memory that is free, or the page cache's, may lie in pieces. A machine that is short
            // of memory gets back what it gave.
            let is_short = grown < missing && memory_left().map_err(doing())? < missing - grown;
            if grown < missing && !is_short {
                fs::write(COMPACT, "1").map_err(doing())?;
            }
            let again = Instant::now() + RETRY;
            loop {
                missing = wanted.saturating_sub(available().map_err(doing())?);
                if missing == 0 {
                    return Ok(pages);
                }
                if is_short || Instant::now() > deadline {
                    let found = u64::from(PAGE_MIB) * added.min(wanted - missing);
                    let error = format!("only {found} MiB are available; free some memory");
                    return Err(LabError::System { what, error: io::Error::other(error) });
                }
                if Instant::now() > again {
                    break;
                }
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Adds `pages` pages to the pool, and writes the pool's sizes before and after to the record.
/// Returns the number of pages added.
fn grow(record: &Path, before: u64, pages: u64) -> io::Result<u64> {
    let _lock = lock()?;
    let size = pool()?;
    fs::write(POOL, (size + pages).to_string())?;
    let added = pool()?.saturating_sub(size);
    if let Err(error) = fs::write(record, (before + added).to_string()) {
        let _ = shrink(added);
        return Err(error);
    }
    Ok(added)
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        if let Err(error) = release(&self.record) {
            eprintln!("dray: huge pages could not be released: {error}; see {POOL}");
        }
    }
}

/// Gives back the pages of the records in a directory.
pub(crate) fn release_all(dir: &Path) -> io::Result<()> {
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
        // Another process has cleaned up.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result?,
    };
    shrink(text.trim().parse().map_err(io::Error::other)?)?;
    fs::remove_file(record)
}

fn shrink(pages: u64) -> io::Result<()> {
    fs::write(POOL, pool()?.saturating_sub(pages).to_string())
}

/// Pool size as last written. After it is lowered, pages that a dying process still uses are
/// counted on top, as surplus.
fn pool() -> io::Result<u64> {
    difference(POOL, SURPLUS)
}

fn available() -> io::Result<u64> {
    difference(FREE, RESERVED)
}

/// Returns how much larger the number in `path` is than that in `part`. A page that a process takes
/// or gives back changes both at once, but the files are read one after the other.
fn difference(path: &str, part: &str) -> io::Result<u64> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let before = number_in(part)?;
        let number = number_in(path)?;
        if number_in(part)? == before {
            return Ok(number.saturating_sub(before));
        }
        if Instant::now() > deadline {
            let error = format!("{part} changed at each look for {TIMEOUT:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, error));
        }
    }
}

/// Returns the memory that programs could still get, in huge pages, if it lay in one piece.
fn memory_left() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| io::Error::other("/proc/meminfo: no MemAvailable in kB"))?;
    Ok(kib / 1024 / u64::from(PAGE_MIB))
}

fn number_in(path: &str) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

/// Takes the lock under which one process at a time changes the pool, which belongs to the whole
/// machine. The folder can be mounted where processes have a /run of their own.
fn lock() -> io::Result<Lock> {
    lock_named("hugepages.lock")
}

fn lock_named(name: &str) -> io::Result<Lock> {
    let folder = Path::new(PARENT).join("locks");
    fs::create_dir_all(&folder)?;
    Lock::take(&folder.join(name))
}

/// Takes the lock under which one program of the machine at a time starts again that lacked its
/// pages. Two would count the same free pages, and lack them again.
pub(super) fn lock_retry() -> Result<Lock, LabError> {
    let doing = LabError::doing("waiting for another start that lacked huge pages".to_owned());
    lock_named("hugepages-retry.lock").map_err(doing)
}
