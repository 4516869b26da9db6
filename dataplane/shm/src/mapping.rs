//! A memory file in our address space.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};

use crate::MemoryFile;
use crate::guard::{Guard, Share};

/// Mapped bytes of a [`MemoryFile`], readable and writable. They stay mapped as long as this value
/// lives; other processes may change their content at any time.
#[derive(Debug)]
pub struct Mapping {
    /// Requested range; inside the mapped pages.
    start: NonNull<u8>,
    len: usize,
    pages: NonNull<libc::c_void>,
    pages_len: usize,
    /// Set for a peer's file. Dropped before the pages are unmapped.
    guard: Option<Guard>,
    /// Set for a peer's file.
    _share: Option<Share>,
}

// SAFETY: a mapping is an address range that any thread may use; there is no other state.
unsafe impl Send for Mapping {}
// SAFETY: as above; this type hands out no references to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on. Both may have any value: a range outside the
    /// file is refused.
    pub fn new(file: &MemoryFile, offset: u64, len: u64) -> io::Result<Self> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let end = offset.checked_add(len).filter(|end| len > 0 && *end <= file.len());
        let Some(end) = end else {
            let size = file.len();
            return Err(invalid(format!(
                "{len} bytes at offset {offset} do not fit the file of {size} bytes"
            )));
        };
        let page = page_size(file)?;
        // mmap needs whole pages; a peer's region may begin inside one.
        let first = offset / page * page;
        let as_usize = |n: u64| {
            usize::try_from(n).map_err(|_| invalid(format!("{n} bytes exceed the address space")))
        };
        let pages_len = as_usize((end - first).next_multiple_of(page))?;
        let lead = as_usize(offset - first)?;
        let first = libc::off_t::try_from(first)
            .map_err(|_| invalid(format!("file offset {first} is too large")))?;
        let share = match file.is_from_peer() {
            true => Some(Share::of(pages_len as u64)?),
            false => None,
        };
        // The process that first maps huge pages reserves them: those of a peer are the peer's to
        // reserve. The guard catches an access to one that cannot be allocated.
        let reserve = if file.is_from_peer() { libc::MAP_NORESERVE } else { 0 };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                pages_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | reserve,
                file.as_fd().as_raw_fd(),
                first,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pages = NonNull::new(pages).expect("mmap gives an address or fails");
        // SAFETY: `lead` is less than a page, and there is at least one.
        let start = unsafe { pages.cast::<u8>().add(lead) };
        let mut mapping =
            Self { start, len: as_usize(len)?, pages, pages_len, guard: None, _share: share };
        if file.is_from_peer() {
            mapping.guard = Some(Guard::new(pages.as_ptr() as usize, pages_len)?);
        }
        Ok(mapping)
    }

    /// Makes the kernel allocate the file's pages on a NUMA node from now on, as long as that has
    /// free memory (set_mempolicy(2), `MPOL_PREFERRED`). This holds for all processes that map the
    /// file.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        const NODES: usize = 1024;
        const BITS: usize = libc::c_ulong::BITS as usize;
        let mut mask: [libc::c_ulong; NODES / BITS] = [0; NODES / BITS];
        let Some(word) = mask.get_mut(node as usize / BITS) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        *word = 1 << (node as usize % BITS);
        // SAFETY: the kernel reads the mask, and changes where it takes pages of the range from.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.pages.as_ptr(),
                self.pages_len,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                // The kernel leaves out the last bit that is given.
                NODES + 1,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns a pointer to the first mapped byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of mapped bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false: a mapping has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns true if pages of a peer's file were missing, and zeroes have replaced the whole
    /// mapping.
    pub fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_lost)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: the range was mapped by `new` and is not used any more: pointers into it are only
        // used while this value lives.
        unsafe { libc::munmap(self.pages.as_ptr(), self.pages_len) };
    }
}

/// Returns the size of the file's pages in bytes: that of huge pages for a file of huge pages.
fn page_size(file: &MemoryFile) -> io::Result<u64> {
    let block = rustix::fs::fstatfs(file)?;
    let normal = rustix::param::page_size() as u64;
    const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
    if block.f_type as u64 & 0xffff_ffff == HUGETLBFS_MAGIC {
        return Ok(u64::try_from(block.f_bsize).unwrap_or(normal).max(normal));
    }
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageSize;
    use crate::guard::{GUARDED_IN_ALL, limit_guarded};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::OwnedFd;

    fn unsealed(len: u64) -> (MemoryFile, OwnedFd) {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, len).unwrap();
        let theirs = fd.try_clone().unwrap();
        (MemoryFile::from_peer(fd).unwrap(), theirs)
    }

    fn read(mapping: &Mapping, at: usize) -> u8 {
        assert!(at < mapping.len());
        // SAFETY: inside the mapping, by the assertion.
        unsafe { mapping.start().add(at).read_volatile() }
    }

    fn write(mapping: &Mapping, at: usize, byte: u8) {
        assert!(at < mapping.len());
        // SAFETY: inside the mapping, by the assertion.
        unsafe { mapping.start().add(at).write_volatile(byte) }
    }

    #[test]
    fn two_mappings_show_the_same_bytes() {
        let file = MemoryFile::create("test", 3 * 4096, PageSize::Normal).unwrap();
        let all = Mapping::new(&file, 0, 3 * 4096).unwrap();
        let part = Mapping::new(&file, 5000, 100).unwrap();
        write(&all, 5007, 42);
        assert_eq!(read(&part, 7), 42);
        assert_eq!(part.len(), 100);
    }

    #[test]
    fn mapping_outside_the_file_is_refused() {
        let file = MemoryFile::create("test", 8192, PageSize::Normal).unwrap();
        for (offset, len) in [(0, 0), (0, 8193), (8192, 1), (1, 8192), (u64::MAX, 2), (2, u64::MAX)]
        {
            let error = Mapping::new(&file, offset, len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{offset} {len}");
        }
    }

    #[test]
    fn truncated_file_reads_as_zeroes() {
        let (file, theirs) = unsealed(16 * 4096);
        let (mapping, other) = (Mapping::new(&file, 0, 16 * 4096).unwrap(), unsealed(4096));
        let other = Mapping::new(&other.0, 0, 4096).unwrap();
        (0..16).for_each(|page| write(&mapping, page * 4096, 7));
        write(&other, 0, 9);
        ftruncate(&theirs, 4096).unwrap();
        assert_eq!(
            (read(&mapping, 0), mapping.is_lost()),
            (7, false),
            "the page is still in the file"
        );
        assert_eq!(read(&mapping, 15 * 4096), 0);
        assert!(mapping.is_lost());
        assert_eq!(read(&mapping, 0), 0, "all of it is replaced");
        write(&mapping, 5 * 4096, 1);
        assert_eq!((read(&other, 0), other.is_lost()), (9, false), "other mappings are unaffected");
    }

    #[test]
    fn copy_survives_truncation() {
        for _ in 0..50 {
            let len = 1 << 20;
            let (file, theirs) = unsealed(len as u64);
            let mapping = Mapping::new(&file, 0, len as u64).unwrap();
            let mut copy = vec![0u8; len];
            std::thread::scope(|scope| {
                scope.spawn(|| ftruncate(&theirs, 0).unwrap());
                while !mapping.is_lost() {
                    // SAFETY: `len` bytes are mapped and `copy` is as long.
                    unsafe {
                        ptr::copy_nonoverlapping(mapping.start().as_ptr(), copy.as_mut_ptr(), len);
                    }
                }
            });
        }
    }

    #[test]
    fn guard_slots_are_reused() {
        let (file, _theirs) = unsealed(4096);
        for _ in 0..2 * crate::guard::GUARDS_MAX {
            Mapping::new(&file, 0, 4096).unwrap();
        }
    }

    fn huge_pages(which: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find(|line| line.starts_with(which)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Raises the number of huge pages for as long as it lives; needs root.
    struct HugePages(i64);

    impl HugePages {
        fn add(count: i64) -> Option<Self> {
            change_pool(count).ok()?;
            let pages = Self(count);
            (huge_pages("HugePages_Free") >= count as u64).then_some(pages)
        }
    }

    impl Drop for HugePages {
        fn drop(&mut self) {
            let _ = change_pool(-self.0);
        }
    }

    /// Adds pages to the machine's pool, which other programs change too.
    fn change_pool(pages: i64) -> std::io::Result<()> {
        const PATH: &str = "/proc/sys/vm/nr_hugepages";
        let number = std::fs::read_to_string(PATH)?.trim().parse::<i64>();
        let number = number.map_err(std::io::Error::other)?;
        std::fs::write(PATH, (number + pages).to_string())
    }

    /// Only one test at a time may take huge pages.
    static TAKING: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn huge_pages_of_a_peer_are_not_reserved() {
        let _guard = TAKING.lock().unwrap();
        let Some(_pages) = HugePages::add(4) else {
            eprintln!("skipped: no huge pages can be reserved");
            return;
        };
        let size = 1024 * huge_pages("Hugepagesize");
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB).unwrap();
        ftruncate(&fd, 4 * size).unwrap();
        let file = MemoryFile::from_peer(fd).unwrap();
        let reserved = huge_pages("HugePages_Rsvd");
        let mapping = Mapping::new(&file, 0, 4 * size).unwrap();
        assert_eq!(huge_pages("HugePages_Rsvd"), reserved);
        write(&mapping, 5, 7);
        assert_eq!((read(&mapping, 5), mapping.is_lost()), (7, false), "a huge page is available");
    }

    #[test]
    fn unallocatable_huge_page_marks_mapping_lost() {
        let _guard = TAKING.lock().unwrap();
        let size = 1024 * huge_pages("Hugepagesize");
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB).unwrap();
        // More huge pages than exist.
        let count = huge_pages("HugePages_Total") + 16;
        ftruncate(&fd, count * size).unwrap();
        let file = MemoryFile::from_peer(fd).unwrap();
        let mapping = Mapping::new(&file, 0, count * size).unwrap();
        for page in 0..count {
            write(&mapping, (page * size) as usize, 1);
        }
        assert!(mapping.is_lost());
    }

    #[test]
    fn total_bytes_shared_by_peers_are_bounded() {
        const LEN: u64 = 7 << 40;
        let (file, _theirs) = unsealed(LEN);
        for limit in [20 << 40, GUARDED_IN_ALL] {
            limit_guarded(limit);
            let mut mappings = Vec::new();
            let error = loop {
                match Mapping::new(&file, 0, LEN) {
                    Ok(mapping) => mappings.push(mapping),
                    Err(error) => break error.to_string(),
                }
                assert!(mappings.len() < 16, "128 TiB");
            };
            assert!(error.contains(&format!("at most {limit}")), "{error}");
            // The other tests share little.
            assert_eq!(mappings.len() as u64, limit / LEN);
            mappings.pop();
            Mapping::new(&file, 0, LEN).expect("room for one");
        }
    }
}
