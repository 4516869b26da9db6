//! Invalid file descriptors.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{OFlags, SealFlags, fcntl_add_seals, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt::set_socket_linger;

use crate::liar::Expect::{self, Harmless, Refused};
use crate::liar::memory::LEN;
use crate::liar::message::{GET_FEATURES, PLAIN, Region, SET_VRING_CALL, SET_VRING_KICK, words};
use crate::liar::ring::{FRAME, WRITE, buffer};
use crate::liar::{Liar, Lie, lie, wait_until};

const NO_MEMORY: Expect = Refused("allowed is a memfd");
const NO_EVENT: Expect = Refused("is not an eventfd");

fn share(liar: &mut Liar, fd: BorrowedFd<'_>) {
    liar.negotiate(PLAIN);
    liar.share(&[Region::ALL], &[fd]);
}

fn pipe() -> OwnedFd {
    rustix::pipe::pipe().expect("a pipe").0
}

/// Keeps frames moving in both directions; returned buffers are posted again.
pub(super) fn be_busy(liar: &mut Liar) {
    let (mut tx, kick) = (liar.tx(), liar.kicks[1].try_clone().expect("a descriptor"));
    let mut rx = liar.rx();
    for index in 0..256 {
        tx.descriptor(index, (buffer(), FRAME, 0, 0));
        rx.descriptor(index, (buffer() + 4096, 2048, WRITE, 0));
    }
    let (mut sent, mut offered) = (0u16, 0u16);
    liar.meanwhile(move || {
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

pub(super) const LIES: &[Lie] = &[
    lie("a pipe as memory", Refused("pipe:"), |liar| share(liar, pipe().as_fd())),
    lie("a socket as memory", Refused("socket:"), |liar| {
        share(liar, UnixStream::pair().expect("sockets").0.as_fd());
    }),
    lie("a lingering socket as memory", NO_MEMORY, |liar| {
        let socket = lingering();
        share(liar, socket.as_fd());
        // Dropped here, so that the switch closes the last descriptor.
        drop(socket);
    }),
    lie("/dev/null as memory", Refused("/dev/null"), |liar| {
        share(liar, File::open("/dev/null").expect("/dev/null").as_fd());
    }),
    lie("a directory as memory", NO_MEMORY, |liar| {
        share(liar, File::open("/").expect("/").as_fd());
    }),
    lie("a file on disk as memory", NO_MEMORY, |liar| {
        let program = std::env::current_exe().expect("this program");
        share(liar, File::open(program).expect("this program").as_fd());
    }),
    lie("an eventfd as memory", Refused("anon_inode:[eventfd]"), |liar| {
        let event = liar.kicks[0].try_clone().expect("a descriptor");
        share(liar, event.as_fd());
    }),
    lie("read-only memory", Refused("Permission denied"), |liar| {
        let path = format!("/proc/self/fd/{}", liar.memory.file().as_raw_fd());
        share(liar, File::open(path).expect("the memory").as_fd());
    }),
    lie("memory sealed against writing", Refused("Operation not permitted"), |liar| {
        fcntl_add_seals(liar.memory.file(), SealFlags::WRITE).expect("a memfd");
        let memory = liar.memory.file().try_clone().expect("a descriptor");
        share(liar, memory.as_fd());
    }),
    lie("a pipe as kick", NO_EVENT, |liar| liar.fd(SET_VRING_KICK, 1, pipe().as_fd())),
    lie("a memory file as kick", NO_EVENT, |liar| liar.fd(SET_VRING_KICK, 1, liar.memory.as_fd())),
    lie("a socket as call", NO_EVENT, |liar| {
        liar.fd(SET_VRING_CALL, 0, UnixStream::pair().expect("sockets").0.as_fd());
    }),
    lie("/dev/zero as call", NO_EVENT, |liar| {
        liar.fd(SET_VRING_CALL, 0, File::open("/dev/zero").expect("/dev/zero").as_fd());
    }),
    lie(
        "a kick that claims a missing file descriptor",
        Refused("one file descriptor or bit 8"),
        |liar| liar.send(SET_VRING_KICK, &1u64.to_ne_bytes(), &[]),
    ),
    lie("a kick with two file descriptors", Refused("one file descriptor or bit 8"), |liar| {
        let fds = [liar.kicks[0].as_fd(), liar.kicks[1].as_fd()];
        liar.send(SET_VRING_KICK, &1u64.to_ne_bytes(), &fds);
    }),
    lie(
        "file descriptors with a message that allows none",
        Refused("GET_FEATURES of 0 bytes with 3 file descriptors"),
        |liar| liar.send(GET_FEATURES, &[], &[liar.memory.as_fd(); 3]),
    ),
    lie(
        "64 file descriptors with half a header",
        Refused("more than 32 file descriptors"),
        |liar| liar.raw(&words(&[GET_FEATURES]), &[liar.memory.as_fd(); 64]),
    ),
    lie("a full, blocking eventfd as call", Harmless, |liar| {
        liar.start(PLAIN);
        let calls = liar.calls.each_ref().map(|call| call.try_clone().expect("a descriptor"));
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
        liar.meanwhile(fill);
        be_busy(liar);
        let (tx, rx) = (liar.tx(), liar.rx());
        wait_until(|| tx.used() > 1000 && rx.used() > 100 || liar.is_hung_up());
    }),
    lie("a kick that the driver drains itself", Harmless, |liar| {
        liar.start(PLAIN);
        be_busy(liar);
        let kick = liar.kicks[1].try_clone().expect("a descriptor");
        liar.meanwhile(move || {
            let _ = rustix::io::read(&kick, &mut [0; 8]);
        });
    }),
    lie("endless kicks with an empty ring", Harmless, |liar| {
        liar.start(PLAIN);
        let kick = liar.kicks[1].try_clone().expect("a descriptor");
        liar.meanwhile(move || {
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        });
    }),
    lie("one eventfd as all kicks and calls", Harmless, |liar| {
        liar.negotiate(PLAIN);
        liar.share_all();
        (0..2).for_each(|index| liar.set_up(index));
        for index in 0..2 {
            liar.fd(SET_VRING_CALL, index, liar.kicks[1].as_fd());
            liar.fd(SET_VRING_KICK, index, liar.kicks[1].as_fd());
        }
        (0..2).for_each(|index| liar.enable(index));
        liar.sync();
        be_busy(liar);
    }),
    lie("a memory file that grows", Harmless, |liar| {
        liar.start(PLAIN);
        be_busy(liar);
        (1..50).for_each(|times| liar.memory.truncate(times * LEN));
    }),
];
