//! The receiver: counts received frames, by stream.

use std::time::{Duration, Instant};

use dray_port::{BATCH_MAX, Batch, Frame, PortUri, Scratch, Transmit, clock};
use dray_wire::test_frame::{self, Burst, FRAME_MIN, Verdict, Words};

use crate::counts::Counts;
use crate::links::{Links, OpenPort};
use crate::receive_queues::{Progress, ReceiveQueues};
use crate::users::{self, TUNNEL_LEN};
use crate::{Check, Latency, OnSample, Phase, ReceiveJob, ReceiveReport, RoleError, Signal};

/// Time to wait for a full port before giving up announcing the remaining stations; a switch will
/// flood their frames.
const ANNOUNCED: Duration = Duration::from_secs(1);

/// A receiver with its ports open.
pub struct Receiver {
    rx_queues: ReceiveQueues,
    pub(crate) links: Links,
    announcements: Vec<Announcement>,
    check: Check,
    tunnelled: bool,
    timed: Option<Duration>,
    count: Option<u64>,
    interval: Duration,
}

/// Frames that a port sends first, so that a learning switch learns its stations.
struct Announcement {
    uri: PortUri,
    tx: Box<dyn Transmit>,
    frames: Vec<Vec<u8>>,
}

impl Receiver {
    /// Opens the ports.
    pub fn open(job: &ReceiveJob, open: &OpenPort<'_>) -> Result<Self, RoleError> {
        let (mut ports, mut announcements) = (Vec::new(), Vec::new());
        let mut links = Links::default();
        for (number, uri) in job.ports.iter().enumerate() {
            let port = links.open(uri, open)?;
            if let Some(first) = job.announce.get(number) {
                let tx = port.tx.into_iter().next().expect("a port has a queue");
                let flows = (0..job.stations).map(|index| first.between_others(index));
                let frames = flows.map(|flow| test_frame::build(&flow, FRAME_MIN));
                announcements.push(Announcement { uri: uri.clone(), tx, frames: frames.collect() });
            }
            ports.push((uri.clone(), port.rx));
        }
        let rx_queues = ReceiveQueues::new(ports, job.yielding);
        let &ReceiveJob { check, tunnelled, timed, count, interval, .. } = job;
        Ok(Self { rx_queues, links, announcements, check, tunnelled, timed, count, interval })
    }

    /// Announces the port's addresses to a learning switch, once every role is ready: a kernel that
    /// does not expect the frames yet would answer them.
    fn announce(&mut self, signal: &Signal) -> Result<(), RoleError> {
        if self.announcements.is_empty() {
            return Ok(());
        }
        while !signal.begun() && signal.phase() == Phase::Run {
            std::thread::sleep(Duration::from_millis(1));
        }
        for Announcement { uri, mut tx, frames } in self.announcements.drain(..) {
            let deadline = Instant::now() + ANNOUNCED;
            let mut rest = &frames[..];
            while !rest.is_empty() && Instant::now() < deadline {
                let batch: Batch<'_> =
                    rest.iter().take(BATCH_MAX).map(|frame| Frame::from(&frame[..])).collect();
                let taken = tx.transmit(&batch).map_err(RoleError::port(&uri))?;
                rest = &rest[taken..];
                if taken == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        Ok(())
    }

    /// Receives until `signal` ends it, or until the job's number of frames has come.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ReceiveReport, RoleError> {
        self.announce(signal)?;
        let mut counts = Counts::since(signal.start_tick());
        let enough = self.count.unwrap_or(u64::MAX);
        let mut frame_check = FrameCheck::new(self.check, self.tunnelled);
        let mut timer = self.timed.map(Timer::new);
        let (samples, arrivals) =
            self.rx_queues.serve(self.interval, signal, on_sample, |rx_queues| {
                let mut worked = false;
                if counts.began == u64::MAX {
                    counts.began = signal.start_tick();
                }
                for index in 0..rx_queues.len() {
                    let lent = rx_queues.receive(index, &mut |frames| {
                        // More than enough stay in the port.
                        let left = usize::try_from(enough - counts.received).unwrap_or(usize::MAX);
                        let frames = &frames[..frames.len().min(left)];
                        match frame_check.check {
                            Check::None => counts.count(frames),
                            Check::Fetched => {
                                dray_port::ahead(frames).for_each(fetch);
                                counts.count(frames);
                            }
                            Check::Whole | Check::Sampled => {
                                let now = timer.as_ref().map(|_| clock::ticks());
                                let (counts, timer) = (&mut counts, &mut timer);
                                frame_check.record(frames, &mut BatchCounts { counts, timer, now });
                            }
                        }
                        frames.len()
                    })?;
                    worked |= lent > 0;
                }
                if counts.received >= enough {
                    signal.stop();
                }
                Ok(Progress { frames: counts.received, bytes: counts.bytes, worked })
            })?;
        let report = counts.into_report(self.rx_queues.dropped()?, samples);
        Ok(ReceiveReport { arrivals, latency: timer.map(|timer| timer.latency), ..report })
    }
}

/// Measures the time from when a frame was due until its batch was received.
struct Timer {
    /// Ticks from the sender's start in which frames are not timed.
    warm_up: u64,
    latency: Latency,
}

impl Timer {
    fn new(warm_up: Duration) -> Self {
        Self { warm_up: clock::to_ticks(warm_up), latency: Latency::default() }
    }

    /// Records frames with the same due time, which arrived at `now` from a sender that began at
    /// `began`.
    #[inline]
    fn record(&mut self, began: u64, now: u64, burst: &Burst) {
        let due = burst.first().ticks;
        if due >= began.saturating_add(self.warm_up) {
            let late = clock::nanoseconds(now.saturating_sub(due));
            self.latency.record_ns(late, burst.count());
        }
    }
}

/// Waits until the beginning of a frame is in the cache.
#[inline]
fn fetch(frame: &Frame<'_>) {
    std::hint::black_box(frame.first::<8>());
}

/// Checks of frames.
struct FrameCheck {
    check: Check,
    tunnelled: bool,
    /// Frames since the last one that was checked whole.
    unchecked: u32,
    scratch: Scratch,
}

impl FrameCheck {
    fn new(check: Check, tunnelled: bool) -> Self {
        Self { check, tunnelled, unchecked: 0, scratch: dray_port::scratch() }
    }

    /// Checks frames and counts them in `batch`.
    fn record(&mut self, frames: &[Frame<'_>], batch: &mut BatchCounts<'_>) {
        // The loop is short so that its data stays in registers: everything except the next frame
        // of a burst is handled in another function.
        let mut burst = Burst::default();
        for frame in dray_port::ahead(frames) {
            let head_only = self.head_is_enough(frame.len());
            let goes_on =
                head_only && self.words(frame).is_some_and(|(words, len)| burst.take(&words, len));
            if !goes_on {
                burst = self.inspect(frame, head_only, burst, batch);
            }
        }
        batch.record(&burst);
    }

    /// Checks a frame that may continue `burst` or begin another one; returns the frame's burst.
    #[inline(never)]
    fn inspect(
        &mut self,
        frame: &Frame<'_>,
        head_only: bool,
        mut burst: Burst,
        batch: &mut BatchCounts<'_>,
    ) -> Burst {
        let (head, len, verdict) = if head_only {
            let Some((head, len)) = self.head(frame) else {
                batch.counts.record(Verdict::Foreign, frame.len());
                return burst;
            };
            (head, len, test_frame::read_head(&head, len))
        } else {
            let bytes = frame.bytes(&mut self.scratch);
            let head = bytes.first_chunk().copied().unwrap_or([0; FRAME_MIN]);
            (head, bytes.len(), test_frame::read(bytes))
        };
        match verdict {
            Verdict::Intact(_) if burst.take(&test_frame::words_of(&head), len) => {}
            Verdict::Intact(stamp) => {
                batch.record(&burst);
                burst = Burst::from(&head, len, stamp);
            }
            Verdict::Corrupt(_) | Verdict::Foreign => batch.counts.record(verdict, len),
        }
        burst
    }

    /// Returns true if a frame's head is enough for this check.
    #[inline(always)]
    fn head_is_enough(&mut self, len: usize) -> bool {
        // The head may be all of the frame.
        if len <= FRAME_MIN || self.tunnelled {
            return true;
        }
        let head_only = self.check == Check::Sampled && self.unchecked < Check::SAMPLE - 1;
        self.unchecked = if head_only { self.unchecked + 1 } else { 0 };
        head_only
    }

    /// Returns the words of a frame's head and the frame's length, both without a tunnel. `None` if
    /// the frame has no head, or may not be contiguous in memory.
    #[inline(always)]
    fn words(&self, frame: &Frame<'_>) -> Option<(Words, usize)> {
        if self.tunnelled {
            return self.head(frame).map(|(head, len)| (test_frame::words_of(&head), len));
        }
        Some((frame.first_words()?, frame.len()))
    }

    /// Returns a copy of a frame's head and the frame's length, both without a tunnel. `None` if
    /// the frame has no head.
    fn head(&self, frame: &Frame<'_>) -> Option<([u8; FRAME_MIN], usize)> {
        if self.tunnelled {
            let head = users::unwrap(&frame.first()?)?;
            return Some((head, frame.len() - TUNNEL_LEN));
        }
        Some((frame.first()?, frame.len()))
    }
}

/// Counters for a batch of frames, with timing if `now`, the time of its reception, is known.
struct BatchCounts<'a> {
    counts: &'a mut Counts,
    timer: &'a mut Option<Timer>,
    now: Option<u64>,
}

impl BatchCounts<'_> {
    /// Counts a burst.
    fn record(&mut self, burst: &Burst) {
        if let (Some(timer), Some(now)) = (&mut *self.timer, self.now) {
            timer.record(self.counts.began, now, burst);
        }
        self.counts.record_burst(burst);
    }
}
