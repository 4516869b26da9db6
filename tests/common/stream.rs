//! The rate of TCP connections between two network namespaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use dray_lab::NetworkNamespace;

/// Rate of connections together, in bits per second.
#[derive(Debug)]
pub struct Measured {
    /// From the second second on.
    pub mean: f64,
    /// The most that came in any second, as the receiver's interface counts it, without its
    /// Ethernet headers.
    pub most: f64,
}

/// Sends from one namespace to an address of the other for `time`, on several connections.
pub fn measure(
    [from, to]: [&NetworkNamespace; 2],
    address: SocketAddr,
    connections: usize,
    time: Duration,
) -> Measured {
    let listener = to.enter(|| TcpListener::bind(address)).unwrap();
    let limit = Duration::from_secs(20);
    let connect = || {
        let sender = from.enter(|| TcpStream::connect_timeout(&address, limit)).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.set_write_timeout(Some(limit)).unwrap();
        receiver.set_read_timeout(Some(limit)).unwrap();
        (sender, receiver)
    };
    let pairs: Vec<_> = (0..connections).map(|_| connect()).collect();
    let stop = AtomicBool::new(false);
    let mut samples = Vec::new();
    thread::scope(|scope| {
        for (mut sender, mut receiver) in pairs {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Relaxed) && sender.write_all(&[7; 1 << 16]).is_ok() {}
                let _ = sender.shutdown(std::net::Shutdown::Both);
            });
            scope.spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while receiver.read(&mut bytes).is_ok_and(|len| len > 0) {}
            });
        }
        let began = Instant::now();
        while began.elapsed() < time {
            let before = Instant::now();
            let bytes = to.enter(received).unwrap();
            samples.push((before, bytes, Instant::now()));
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Relaxed);
    });
    let bits = |from: usize, to: usize| (samples[to].1 - samples[from].1) as f64 * 8.0;
    let second = Duration::from_secs(1);
    let last = samples.len() - 1;
    let settled = samples.partition_point(|sample| sample.0 < samples[0].0 + second);
    let mean = bits(settled, last) / (samples[last].2 - samples[settled].0).as_secs_f64();
    let mut most: f64 = 0.0;
    for from in 0..last {
        // A sample is taken between two looks at the clock: no window is longer than a second.
        let to = samples.partition_point(|sample| sample.2 <= samples[from].0 + second) - 1;
        if to > from {
            most = most.max(bits(from, to));
        }
    }
    Measured { mean, most }
}

/// Returns what `eth0` of this thread's namespace has received, in bytes of IP packets.
fn received() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
    let numbers: Vec<u64> =
        line.unwrap_or("").split_whitespace().filter_map(|number| number.parse().ok()).collect();
    Ok(numbers[0] - 14 * numbers[1])
}

/// Asserts that connections get at least 0.9 of a rate, or of what the machine `can` carry, and at
/// most 1.05 of the rate in any second. A busy machine may hold up a sender, or a worker, whose
/// packets then leave late: what it has disturbed is measured again, and what it can carry just
/// after it.
#[track_caller]
pub fn assert_rate(
    what: &str,
    rate: f64,
    mut can: impl FnMut() -> f64,
    mut measured: impl FnMut() -> Measured,
) {
    let mut seen = Vec::new();
    let is_right = (0..3).any(|_| {
        let Measured { mean, most } = measured();
        seen.push((mean / rate, most / rate));
        most <= 1.05 * rate && (mean >= 0.9 * rate || mean >= 0.9 * can())
    });
    println!("{what}: mean and most in a second, of the rate: {seen:.3?}");
    assert!(is_right, "{what}: {seen:.3?} of the rate, in the mean and at most in a second");
}
