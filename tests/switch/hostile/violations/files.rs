//! Invalid file descriptors.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{OFlags, SealFlags, fcntl_add_seals, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt::set_socket_linger;

use crate::hostile::Expect::{self, Harmless, Refused};
use crate::hostile::memory::LEN;
use crate::hostile::message::{GET_FEATURES, PLAIN, Region, SET_VRING_CALL, SET_VRING_KICK, words};
use crate::hostile::ring::{FRAME, WRITE, buffer};
use crate::hostile::{HostileDriver, Violation, violation, wait_until};

const NO_MEMORY: Expect = Refused("allowed is a memfd");
const NO_EVENT: Expect = Refused("is not an eventfd");

fn share(driver: &mut HostileDriver, fd: BorrowedFd<'_>) {
    driver.negotiate(PLAIN);
    driver.share(&[Region::ALL], &[fd]);
}

fn pipe() -> OwnedFd {
    rustix::pipe::pipe().expect("a pipe").0
}

/// Keeps frames moving in both directions; returned buffers are posted again.
pub(super) fn be_busy(driver: &mut HostileDriver) {
    let (mut tx, kick) = (driver.tx(), driver.kicks[1].try_clone().expect("a descriptor"));
    let mut rx = driver.rx();
    for index in 0..256 {
        tx.descriptor(index, (buffer(), FRAME, 0, 0));
        rx.descriptor(index, (buffer() + 4096, 2048, WRITE, 0));
    }
    let (mut sent, mut offered) = (0u16, 0u16);
    driver.meanwhile(move || {
        while sent.wrapping_sub(tx.used()) < 256 {
            tx.post(sent % 256);
            sent = sent.wrapping_add(1);
        }
        while offered.wrapping_sub(rx.used()) < 256 {
            rx.post(offered % 256);
            offered = offered.wrapping_add(1);
        }
        let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        std::thread::sleep(Duration::from_micros(50));
    });
}

/// Returns a socket whose last close() blocks for a thousand seconds, until its peer reads.
fn lingering() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
    let (other, _) = listener.accept().expect("loopback");
    socket.set_nonblocking(true).expect("a socket");
    while socket.write(&[0; 65_536]).is_ok() {}
    socket.set_nonblocking(false).expect("a socket");
    set_socket_linger(&socket, Some(Duration::from_secs(1000))).expect("a socket");
    // Never read, and never closed.
    std::mem::forget(other);
    socket
}

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("a pipe as memory", Refused("pipe:"), |driver| share(driver, pipe().as_fd())),
    violation("a socket as memory", Refused("socket:"), |driver| {
        share(driver, UnixStream::pair().expect("sockets").0.as_fd());
    }),
    violation("a lingering socket as memory", NO_MEMORY, |driver| {
        let socket = lingering();
        share(driver, socket.as_fd());
        // Dropped here, so that the switch closes the last descriptor.
        drop(socket);
    }),
    violation("/dev/null as memory", Refused("/dev/null"), |driver| {
        share(driver, File::open("/dev/null").expect("/dev/null").as_fd());
    }),
    violation("a directory as memory", NO_MEMORY, |driver| {
        share(driver, File::open("/").expect("/").as_fd());
    }),
    violation("a file on disk as memory", NO_MEMORY, |driver| {
        let program = std::env::current_exe().expect("this program");
        share(driver, File::open(program).expect("this program").as_fd());
    }),
    violation("an eventfd as memory", Refused("anon_inode:[eventfd]"), |driver| {
        let event = driver.kicks[0].try_clone().expect("a descriptor");
        share(driver, event.as_fd());
    }),
    violation("read-only memory", Refused("Permission denied"), |driver| {
        let path = format!("/proc/self/fd/{}", driver.memory.file().as_raw_fd());
        share(driver, File::open(path).expect("the memory").as_fd());
    }),
    violation("memory sealed against writing", Refused("Operation not permitted"), |driver| {
        fcntl_add_seals(driver.memory.file(), SealFlags::WRITE).expect("a memfd");
        let memory = driver.memory.file().try_clone().expect("a descriptor");
        share(driver, memory.as_fd());
    }),
    violation("a pipe as kick", NO_EVENT, |driver| driver.fd(SET_VRING_KICK, 1, pipe().as_fd())),
    violation("a memory file as kick", NO_EVENT, |driver| {
        driver.fd(SET_VRING_KICK, 1, driver.memory.as_fd());
    }),
    violation("a socket as call", NO_EVENT, |driver| {
        driver.fd(SET_VRING_CALL, 0, UnixStream::pair().expect("sockets").0.as_fd());
    }),
    violation("/dev/zero as call", NO_EVENT, |driver| {
        driver.fd(SET_VRING_CALL, 0, File::open("/dev/zero").expect("/dev/zero").as_fd());
    }),
    violation(
        "a kick that claims a missing file descriptor",
        Refused("one file descriptor or bit 8"),
        |driver| driver.send(SET_VRING_KICK, &1u64.to_ne_bytes(), &[]),
    ),
    violation(
        "a kick with two file descriptors",
        Refused("one file descriptor or bit 8"),
        |driver| {
            let fds = [driver.kicks[0].as_fd(), driver.kicks[1].as_fd()];
            driver.send(SET_VRING_KICK, &1u64.to_ne_bytes(), &fds);
        },
    ),
    violation(
        "file descriptors with a message that allows none",
        Refused("GET_FEATURES of 0 bytes with 3 file descriptors"),
        |driver| driver.send(GET_FEATURES, &[], &[driver.memory.as_fd(); 3]),
    ),
    violation(
        "64 file descriptors with half a header",
        Refused("more than 32 file descriptors"),
        |driver| driver.raw(&words(&[GET_FEATURES]), &[driver.memory.as_fd(); 64]),
    ),
    violation("a full, blocking eventfd as call", Harmless, |driver| {
        driver.start(PLAIN);
        let calls = driver.calls.each_ref().map(|call| call.try_clone().expect("a descriptor"));
        let fill = move || {
            for call in &calls {
                // The eventfd is full and blocking: the next write to it blocks.
                let flags = fcntl_getfl(call).expect("an eventfd");
                fcntl_setfl(call, flags | OFlags::NONBLOCK).expect("an eventfd");
                let _ = rustix::io::read(call, &mut [0; 8]);
                let _ = rustix::io::write(call, &(u64::MAX - 1).to_ne_bytes());
                fcntl_setfl(call, flags - OFlags::NONBLOCK).expect("an eventfd");
            }
            std::thread::sleep(Duration::from_micros(100));
        };
        driver.meanwhile(fill);
        be_busy(driver);
        let (tx, rx) = (driver.tx(), driver.rx());
        wait_until(|| tx.used() > 1000 && rx.used() > 100 || driver.is_hung_up());
    }),
    violation("a kick that the driver drains itself", Harmless, |driver| {
        driver.start(PLAIN);
        be_busy(driver);
        let kick = driver.kicks[1].try_clone().expect("a descriptor");
        driver.meanwhile(move || {
            let _ = rustix::io::read(&kick, &mut [0; 8]);
        });
    }),
    violation("endless kicks with an empty ring", Harmless, |driver| {
        driver.start(PLAIN);
        let kick = driver.kicks[1].try_clone().expect("a descriptor");
        driver.meanwhile(move || {
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        });
    }),
    violation("one eventfd as all kicks and calls", Harmless, |driver| {
        driver.negotiate(PLAIN);
        driver.share_all();
        (0..2).for_each(|index| driver.set_up(index));
        for index in 0..2 {
            driver.fd(SET_VRING_CALL, index, driver.kicks[1].as_fd());
            driver.fd(SET_VRING_KICK, index, driver.kicks[1].as_fd());
        }
        (0..2).for_each(|index| driver.enable(index));
        driver.sync();
        be_busy(driver);
    }),
    violation("a memory file that grows", Harmless, |driver| {
        driver.start(PLAIN);
        be_busy(driver);
        (1..50).for_each(|times| driver.memory.truncate(times * LEN));
    }),
];
