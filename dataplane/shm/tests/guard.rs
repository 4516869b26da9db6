//! Files that are truncated while they are mapped, unmapped and read, in a separate process.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dray_shm::{Mapping, MemoryFile};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};

const LEN: u64 = 64 * 4096;

fn mapped(len: u64) -> (Mapping, OwnedFd) {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&fd, len).expect("a sparse file");
    let theirs = fd.try_clone().expect("a descriptor");
    let file = MemoryFile::from_peer(fd).expect("memory");
    (Mapping::new(&file, 0, len).expect("a mapping"), theirs)
}

fn touch(mapping: &Mapping, at: usize) -> u8 {
    assert!(at < mapping.len());
    let byte = mapping.start().as_ptr().wrapping_add(at);
    // SAFETY: inside the mapping, by the assertion.
    unsafe {
        byte.write_volatile(byte.read_volatile().wrapping_add(1));
        byte.read_volatile()
    }
}

/// Runs the ignored test `name` in a separate process, which must survive.
fn survives(name: &str) {
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .args(["--exact", name, "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .expect("this program");
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && output.contains("1 passed"),
        "{name}: {:?}, signal {:?}: {output}{}",
        child.status,
        child.status.signal(),
        String::from_utf8_lossy(&child.stderr),
    );
}

#[test]
fn lost_mapping_is_replaced_at_data_limit() {
    survives("truncation_at_data_limit");
}

#[test]
#[ignore = "run by another test"]
fn truncation_at_data_limit() {
    let (mapping, theirs) = mapped(LEN);
    let (before, _) = (mapped(4096), mapped(4096));
    touch(&before.0, 0);
    let limit = getrlimit(Resource::Data);
    // The kernel makes an exception for a limit of zero.
    setrlimit(Resource::Data, Rlimit { current: Some(4096), ..limit }).expect("a lower limit");
    ftruncate(&theirs, 0).expect("not sealed");
    let read = touch(&mapping, 5 * 4096);
    setrlimit(Resource::Data, limit).expect("as it was");
    assert_eq!((read, mapping.is_lost()), (1, true));
}

#[test]
fn sent_sigbus_leaves_guards_in_place() {
    survives("truncation_after_sent_sigbus");
}

#[test]
#[ignore = "run by another test"]
fn truncation_after_sent_sigbus() {
    let (mapping, theirs) = mapped(LEN);
    kill_process(getpid(), Signal::BUS).expect("our own process");
    ftruncate(&theirs, 0).expect("not sealed");
    touch(&mapping, 0);
    assert!(mapping.is_lost());
}

#[test]
fn unguarded_sigbus_ends_the_process() {
    let program = std::env::current_exe().expect("this program");
    let arguments = ["--exact", "access_to_unguarded_memory", "--ignored"];
    let child = Command::new(program).args(arguments).output().expect("this program");
    assert_eq!(child.status.signal(), Some(7), "{child:?}");
}

#[test]
#[ignore = "run by another test"]
fn access_to_unguarded_memory() {
    let (_guarded, _theirs) = mapped(LEN);
    let file = MemoryFile::create("ours", 4096, dray_shm::PageSize::Normal).expect("memory");
    // Beyond the end of the file, so no guard covers it: mapped by hand.
    // SAFETY: a new mapping, whose first page is beyond the file's end.
    unsafe {
        use std::os::fd::{AsFd, AsRawFd};
        let start = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_fd().as_raw_fd(),
            4096,
        );
        start.cast::<u8>().read_volatile();
    }
}

/// Mappings are created and removed, at addresses that others had, while their files are truncated
/// during accesses.
#[test]
fn mappings_change_during_truncation() {
    let stop = AtomicBool::new(false);
    let end = Instant::now() + Duration::from_secs(3);
    let lost = std::thread::scope(|scope| {
        // Guards of any length, at any address, that are never lost.
        for pages in [1, 3, 200, 5000] {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let (mapping, _theirs) = mapped(pages * 4096);
                    assert_eq!(touch(&mapping, 0), 1);
                    assert!(!mapping.is_lost(), "no other mapping is lost");
                }
            });
        }
        let truncating = (0..3).map(|_| {
            scope.spawn(|| {
                let mut lost = 0u32;
                while Instant::now() < end {
                    let (mapping, theirs) = mapped(LEN);
                    std::thread::scope(|scope| {
                        scope.spawn(|| ftruncate(&theirs, 4096).expect("not sealed"));
                        for at in (0..LEN as usize).step_by(4096) {
                            touch(&mapping, at);
                        }
                    });
                    touch(&mapping, LEN as usize - 1);
                    assert!(mapping.is_lost());
                    lost += 1;
                }
                lost
            })
        });
        let lost: u32 =
            truncating.collect::<Vec<_>>().into_iter().map(|t| t.join().expect("no panic")).sum();
        stop.store(true, Ordering::Relaxed);
        lost
    });
    assert!(lost > 10, "{lost}");
}
