//! Mapped files of a peer that are read, written, truncated and unmapped in any order, by two
//! threads: access to a truncated file continues, and other files are unaffected.
#![no_main]

use std::os::fd::OwnedFd;

use dray_shm::{Mapping, MemoryFile};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod bytes;

use bytes::Bytes;

const PAGE: u64 = 4096;
const PAGES_MAX: u64 = 64;
const FILES: usize = 8;

/// A mapped file and its expected contents.
struct File {
    mapping: Mapping,
    theirs: OwnedFd,
    /// Pages that were never truncated, each with the last byte written to it.
    pages: Vec<Option<u8>>,
}

impl File {
    fn new(pages: u64) -> Self {
        let fd = memfd_create("guard", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&fd, pages * PAGE).expect("a sparse file");
        let theirs = fd.try_clone().expect("a descriptor");
        let file = MemoryFile::from_peer(fd).expect("memory");
        let mapping = Mapping::new(&file, 0, pages * PAGE).expect("a mapping");
        Self { mapping, theirs, pages: vec![Some(0); pages as usize] }
    }

    fn truncate(&mut self, pages: u64) {
        ftruncate(&self.theirs, pages * PAGE).expect("not sealed");
        self.pages.iter_mut().skip(pages as usize).for_each(|page| *page = None);
    }

    fn touch(&mut self, page: usize, write: Option<u8>) {
        let page = page % self.pages.len();
        let byte = self.mapping.start().as_ptr().wrapping_add(page * PAGE as usize);
        // SAFETY: inside the mapping.
        let read = unsafe { byte.read_volatile() };
        if !self.mapping.is_lost() {
            assert!(
                self.pages[page].is_none_or(|expected| expected == read),
                "page {page}: {read}"
            );
        } else {
            assert!(self.pages.contains(&None), "lost, and never truncated");
        }
        if let Some(value) = write {
            // SAFETY: as above.
            unsafe { byte.write_volatile(value) };
            if let Some(page) = &mut self.pages[page] {
                *page = value;
            }
        }
    }
}

/// Applies the operations in `bytes` to this thread's own files.
fn run(bytes: &mut Bytes<'_>) {
    let mut files: [Option<File>; FILES] = [const { None }; FILES];
    while !bytes.is_empty() {
        let slot = &mut files[usize::from(bytes.byte()) % FILES];
        let Some(file) = slot else {
            *slot = Some(File::new(1 + u64::from(bytes.byte()) % PAGES_MAX));
            continue;
        };
        match bytes.byte() % 8 {
            0 => *slot = None,
            // The file may also grow again: its former contents are gone.
            1 => file.truncate(u64::from(bytes.byte()) % PAGES_MAX),
            2..=4 => file.touch(bytes.byte().into(), None),
            _ => file.touch(bytes.byte().into(), Some(bytes.byte())),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let (first, second) = input.split_at(input.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(&mut Bytes(first)));
        run(&mut Bytes(second));
        // The scope waits for the closure only; what the thread still owns then looks like a leak.
        other.join().expect("no panic");
    });
});
