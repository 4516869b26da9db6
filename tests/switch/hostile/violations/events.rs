//! Valid eventfds that are used to do harm.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::files::be_busy;
use crate::hostile::Expect::{Harmless, Left, Refused};
use crate::hostile::message::{PLAIN, SET_VRING_CALL, SET_VRING_KICK};
use crate::hostile::{HostileDriver, Violation, violation, wait_until};

/// Number of watchers of an eventfd: each signal wakes all of them.
const WATCHERS: usize = 100_000;

/// Creates epolls that watch `event` [`WATCHERS`] times in all. An epoll watches a file once for
/// each descriptor number, and continues after that number is closed.
fn watchers(driver: &HostileDriver, event: BorrowedFd<'_>) -> Vec<OwnedFd> {
    const EACH: usize = 500;
    // This takes seconds on a slow machine, and the switch does not wait long for a first message.
    driver.sync();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("a limit");
    let epolls: Vec<_> = (0..WATCHERS / EACH)
        .map(|_| epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll"))
        .collect();
    let mut first = 5000;
    for _ in 0..EACH {
        let copy = fcntl_dupfd_cloexec(event, first).expect("a descriptor");
        first = std::os::fd::AsRawFd::as_raw_fd(&copy) + 1;
        for epoll in &epolls {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(epoll, &copy, epoll::EventData::new_u64(0), flags).expect("a watch");
        }
    }
    epolls
}

fn event(flags: EventfdFlags) -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | flags).expect("an eventfd")
}

/// Exchanges a few thousand frames in both directions.
fn exchange(driver: &mut HostileDriver) {
    let (tx, rx) = (driver.tx(), driver.rx());
    be_busy(driver);
    wait_until(|| tx.used() > 2000 && rx.used() > 20 || driver.is_hung_up());
}

fn named(name: &str) -> OwnedFd {
    memfd_create(name, MemfdFlags::CLOEXEC).expect("a memfd")
}

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("a call with 100,000 watchers", Harmless, |driver| {
        let epolls = watchers(driver, driver.calls[1].as_fd());
        driver.keep((epolls, watchers(driver, driver.calls[0].as_fd())));
        driver.start(PLAIN);
        exchange(driver);
    }),
    violation(
        "a call with 100,000 watchers, endlessly signalled by the driver",
        Harmless,
        |driver| {
            let epolls = watchers(driver, driver.calls[1].as_fd());
            driver.keep(epolls);
            driver.start(PLAIN);
            let call = driver.calls[1].try_clone().expect("a descriptor");
            driver.meanwhile(move || {
                let _ = rustix::io::write(&call, &1u64.to_ne_bytes());
            });
            exchange(driver);
        },
    ),
    violation("a call with 100,000 watchers, replaced repeatedly", Harmless, |driver| {
        let epolls = watchers(driver, driver.calls[1].as_fd());
        driver.keep(epolls);
        driver.start(PLAIN);
        be_busy(driver);
        (0..50).for_each(|_| driver.fd(SET_VRING_CALL, 1, driver.calls[1].as_fd()));
        driver.sync();
    }),
    violation("a call with 100,000 watchers, last closed by the switch", Left, |driver| {
        let call = event(EventfdFlags::empty());
        driver.keep(watchers(driver, call.as_fd()));
        driver.start(PLAIN);
        driver.fd(SET_VRING_CALL, 1, call.as_fd());
        drop(call);
        driver.sync();
        driver.hang_up();
    }),
    violation("a kick with 100,000 watchers", Harmless, |driver| {
        let epolls = watchers(driver, driver.kicks[1].as_fd());
        driver.keep(epolls);
        driver.start(PLAIN);
        exchange(driver);
    }),
    violation("semaphore eventfds as kicks and calls", Harmless, |driver| {
        driver.kicks = [(); 2].map(|()| event(EventfdFlags::SEMAPHORE));
        driver.calls = [(); 2].map(|()| event(EventfdFlags::SEMAPHORE));
        driver.start(PLAIN);
        exchange(driver);
    }),
    violation("a full, blocking eventfd as kick", Harmless, |driver| {
        driver.start(PLAIN);
        let kick = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        rustix::io::write(&kick, &(u64::MAX - 1).to_ne_bytes()).expect("room");
        driver.fd(SET_VRING_KICK, 1, kick.as_fd());
        exchange(driver);
    }),
    violation(
        "a memory file as kick, with terminal escapes in its name",
        Refused("/memfd:\\u{1b}]0;x\\u{7}\\u{1b}[31m (deleted) is not an eventfd"),
        |driver| driver.fd(SET_VRING_KICK, 1, named("\x1b]0;x\x07\x1b[31m").as_fd()),
    ),
    violation(
        "a memory file as call, with a line break in its name",
        Refused("/memfd:x\\ny\\u{202e}z (deleted) is not an eventfd"),
        |driver| driver.fd(SET_VRING_CALL, 1, named("x\ny\u{202e}z").as_fd()),
    ),
    violation(
        "a memory file as call, with a name of 249 letters",
        Refused("xxx... is not an eventfd"),
        |driver| driver.fd(SET_VRING_CALL, 1, named(&"x".repeat(249)).as_fd()),
    ),
    violation("a kick that is replaced repeatedly", Harmless, |driver| {
        driver.start(PLAIN);
        be_busy(driver);
        for _ in 0..300 {
            driver.fd(SET_VRING_KICK, 1, event(EventfdFlags::empty()).as_fd());
        }
        driver.sync();
    }),
];
