//! The well-behaved port that a hostile peer's port is paired with. It sends frames to the
//! connected driver and receives every frame.

use std::path::Path;
use std::time::{Duration, Instant};

use dray_port::{Port, PortUri, Scratch, Wait, scratch};
use dray_wire::Flow;
use dray_wire::test_frame::{self, Stamp, Verdict};

use super::{HostileDriver, HostilePeer, PATIENCE};

/// Number of frames exchanged with a hostile peer's successor, in each direction.
const EXCHANGED: u64 = 64;
/// Streams of the frames for the hostile peer (`FOR_HOSTILE`) and of the exchange (`FORTH`,
/// `BACK`).
const FOR_HOSTILE: u16 = 9;
const FORTH: u16 = 10;
const BACK: u16 = 11;

pub struct Partner {
    port: Port,
    scratch: Scratch,
}

impl Partner {
    /// Opens the port, which starts to connect.
    pub fn open(path: &Path) -> Self {
        Self::open_uri(&HostileDriver::conforming(path))
    }

    fn open_uri(uri: &str) -> Self {
        let mut port = uri.parse::<PortUri>().expect("a URI").open().expect("a port");
        port.rx[0].set_wait(Wait::Poll { pause_us: 0 });
        Self { port, scratch: scratch() }
    }

    /// Sends and receives a few frames.
    pub fn play(&mut self) {
        for _ in 0..4 {
            self.send(FOR_HOSTILE, 0);
        }
        self.receive(FOR_HOSTILE, &mut 0);
    }

    fn send(&mut self, stream: u16, sequence: u64) -> bool {
        let mut frame = test_frame::build(&Flow::default(), 200);
        test_frame::stamp(&mut frame, Stamp { stream, sequence, ticks: 0 });
        self.port.tx[0].transmit(&[frame.as_slice().into()]).expect("a port") == 1
    }

    /// Receives frames and counts those of `stream` that are in sequence.
    fn receive(&mut self, stream: u16, next: &mut u64) {
        let scratch = &mut self.scratch;
        let mut take = |frames: &[dray_port::Frame<'_>]| {
            for frame in frames {
                if let Verdict::Intact(stamp) = test_frame::read(frame.bytes(scratch))
                    && (stamp.stream, stamp.sequence) == (stream, *next)
                {
                    *next += 1;
                }
            }
            frames.len()
        };
        self.port.rx[0].receive(&mut take).expect("a port");
    }

    /// Returns true if a well-behaved driver at the hostile peer's socket and this port receive
    /// frames from each other within `patience`, through a switch that may drop frames.
    pub fn meets(&mut self, peers: &Path, patience: Duration) -> bool {
        let mut other = Self::open(peers);
        let (mut forth, mut back) = (0, 0);
        let start = Instant::now();
        while start.elapsed() < patience {
            self.send(FORTH, forth);
            other.send(BACK, back);
            std::thread::sleep(Duration::from_millis(1));
            other.receive(FORTH, &mut forth);
            self.receive(BACK, &mut back);
            if forth > 0 && back > 0 {
                return true;
            }
        }
        false
    }

    /// Returns true if a well-behaved peer with this URI and this port receive all of each other's
    /// frames.
    pub fn exchange(&mut self, uri: &str) -> bool {
        let mut other = Self::open_uri(uri);
        let (mut forth, mut back) = ((0, 0), (0, 0));
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if forth.0 < EXCHANGED && self.send(FORTH, forth.0) {
                forth.0 += 1;
            }
            if back.0 < EXCHANGED && other.send(BACK, back.0) {
                back.0 += 1;
            }
            other.receive(FORTH, &mut forth.1);
            self.receive(BACK, &mut back.1);
            if (forth.1, back.1) == (EXCHANGED, EXCHANGED) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }
}
