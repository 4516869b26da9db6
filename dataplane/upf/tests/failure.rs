//! A thread that ends unexpectedly is detected, with the reason. (A panic ends the process.)

use dray_datapath::Idle;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use dray_port::memory::Peer;
use dray_port::{Receive, Take};
use dray_upf::{RunningUpf, Upf, UpfConfig};

use crate::ends::{INTERFACES, plain_session};

/// A port that fails.
struct Failing;

impl Receive for Failing {
    fn receive(&mut self, _: &mut Take<'_>) -> io::Result<usize> {
        Err(io::Error::other("gone"))
    }
}

#[test]
fn port_failure_is_reported_with_reason() {
    let config = UpfConfig::from_toml(&format!("{INTERFACES}{}", plain_session(1))).unwrap();
    let (n3, n6) = (Peer::default(), Peer::default());
    let mut port = n3.port();
    port.rx = vec![Box::new(Failing)];
    let (upf, workers) = Upf::create(&config, [port, n6.port()], 1, None, &|| ()).unwrap();
    let running = RunningUpf::start(upf, workers, &[0], Idle::Never).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while running.failure().is_none() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.failure().as_deref(), Some("a port failed: gone"));
}
