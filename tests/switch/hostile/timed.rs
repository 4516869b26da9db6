//! Two well-behaved ports that exchange one frame at a time, and measure how long each takes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dray_port::{Port, PortUri, scratch};
use dray_wire::Flow;
use dray_wire::test_frame::{self, Stamp, Verdict};

use super::PATIENCE;

const STREAM: u16 = 12;
/// Pause between two frames: long enough for the worker to go to sleep.
const PAUSE: Duration = Duration::from_micros(200);

pub struct Timed {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Duration>, String>>,
}

impl Timed {
    /// Starts a thread that sends frames from one socket's port to the other's.
    pub fn start(from: &Path, to: &Path) -> Self {
        let [mut from, mut to] = [from, to].map(|path| {
            let uri: PortUri =
                format!("virtio:{}?hugepages=0", path.display()).parse().expect("a URI");
            uri.open().expect("a port")
        });
        let stop = Arc::<AtomicBool>::default();
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || {
            // Wait until both are connected.
            let start = Instant::now();
            let mut sequence = 0;
            while send(&mut from, &mut to, sequence, PATIENCE / 100).is_none() {
                if start.elapsed() > PATIENCE {
                    return Err("no frames arrive".to_owned());
                }
                sequence += 1;
            }
            let mut times = Vec::new();
            while !stopping.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                sequence += 1;
                let time = send(&mut from, &mut to, sequence, PATIENCE);
                times.push(time.ok_or_else(|| format!("frame {sequence} was lost"))?);
            }
            Ok(times)
        });
        Self { stop, thread }
    }

    /// Returns the times of all frames in ascending order, or the frame that was lost.
    pub fn finish(self) -> Result<Vec<Duration>, String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().expect("the sender")?;
        times.sort_unstable();
        Ok(times)
    }
}

/// Sends a frame and returns how long it took; `None` if longer than `patience`.
fn send(from: &mut Port, to: &mut Port, sequence: u64, patience: Duration) -> Option<Duration> {
    let mut frame = test_frame::build(&Flow::default(), 200);
    test_frame::stamp(&mut frame, Stamp { stream: STREAM, sequence, ticks: 0 });
    let mut room = scratch();
    let start = Instant::now();
    let mut sent = false;
    let mut arrived = false;
    while !arrived {
        if start.elapsed() > patience {
            return None;
        }
        if !sent {
            sent = from.tx[0].transmit(&[frame.as_slice().into()]).expect("a port") == 1;
        }
        let take = &mut |frames: &[dray_port::Frame<'_>]| {
            arrived |= frames.iter().any(|frame| {
                let verdict = test_frame::read(frame.bytes(&mut room));
                matches!(verdict, Verdict::Intact(stamp)
                    if (stamp.stream, stamp.sequence) == (STREAM, sequence))
            });
            frames.len()
        };
        to.rx[0].receive(take).expect("a port");
    }
    Some(start.elapsed())
}
