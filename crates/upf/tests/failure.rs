//! A thread that ends before it was told to is seen, with the reason.

mod ends;

use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use dray_port::memory::Peer;
use dray_port::{Receive, Take, Wait};
use dray_upf::{Running, Upf, UpfConfig};
use ends::{INTERFACES, plain_session};

type Outcome = fn() -> io::Result<usize>;

/// A port that fails in its way.
struct Failing(Outcome);

impl Receive for Failing {
    fn receive(&mut self, _: &mut Take<'_>) -> io::Result<usize> {
        (self.0)()
    }

    fn dropped(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn set_wait(&mut self, _: Wait) {}
}

#[test]
fn a_thread_that_fails_is_seen_with_its_reason() {
    let cases: [(Outcome, &str); 3] = [
        (|| panic!("as a test has it"), "thread upf-uplink panicked: as a test has it"),
        (|| panic!("number {}", 7), "thread upf-uplink panicked: number 7"),
        (|| Err(io::Error::other("gone")), "a port failed: gone"),
    ];
    for (how, expected) in cases {
        let config = UpfConfig::from_toml(&format!("{INTERFACES}{}", plain_session(1))).unwrap();
        let (n3, n6) = (Peer::default(), Peer::default());
        let mut port = n3.port();
        port.rx = vec![Box::new(Failing(how))];
        let (upf, directions) = Upf::with_workers(&config, port, n6.port(), 1).unwrap();
        // Two CPUs or one: only the names of the threads differ, so each direction has one of its own.
        let cpus: Vec<usize> = (0..2).collect();
        let running = Running::start(upf, directions, &cpus, None).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while running.failure().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(running.failure().as_deref(), Some(expected));
    }
}
