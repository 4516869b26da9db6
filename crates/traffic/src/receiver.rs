//! The receiver: counts what arrives, by stream.

use std::time::{Duration, Instant};

use dray_port::{BATCH_MAX, Batch, Frame, PortUri, Scratch, Transmit, clock};
use dray_wire::test_frame::{self, FRAME_MIN, Stamp, Verdict};

use crate::intake::{Intake, Progress};
use crate::links::Links;
use crate::sample::ticks_at;
use crate::sequence::Tracker;
use crate::users::{self, TUNNEL_LEN};
use crate::{
    Check, Latency, OnSample, Phase, ReceiveJob, ReceiveReport, RoleError, Sample, Signal,
    StreamReport,
};

/// How long a port that is full is waited for before stations that were not announced stay so: a
/// switch will flood what is meant for them.
const ANNOUNCED: Duration = Duration::from_secs(1);

/// A receiver with its ports open.
pub struct Receiver {
    intake: Intake,
    pub(crate) links: Links,
    announcements: Vec<Announcement>,
    check: Check,
    tunnelled: bool,
    timed: Option<Duration>,
    interval: Duration,
}

/// What a port sends first, so that a switch that learns knows who is there.
struct Announcement {
    uri: PortUri,
    tx: Box<dyn Transmit>,
    frames: Vec<Vec<u8>>,
}

impl Receiver {
    /// Opens the ports.
    pub fn open(job: &ReceiveJob) -> Result<Self, RoleError> {
        let (mut ports, mut announcements) = (Vec::new(), Vec::new());
        let mut links = Links::default();
        for uri in &job.ports {
            let port = uri.open()?;
            links.add(uri, &port);
            if !job.announce.is_empty() {
                let tx = port.tx.into_iter().next().expect("a port has a queue");
                let frames = job.announce.iter().map(|flow| test_frame::build(flow, FRAME_MIN));
                announcements.push(Announcement { uri: uri.clone(), tx, frames: frames.collect() });
            }
            ports.push((uri.clone(), port.rx));
        }
        let intake = Intake::new(ports, job.yielding);
        let &ReceiveJob { check, tunnelled, timed, interval, .. } = job;
        Ok(Self { intake, links, announcements, check, tunnelled, timed, interval })
    }

    /// Tells whoever learns addresses where this is, once every role is ready: a kernel that does not
    /// expect the frame yet would answer it.
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

    /// Receives until `signal` ends it.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ReceiveReport, RoleError> {
        self.announce(signal)?;
        let mut counts = Counts::default();
        let mut scratch = dray_port::scratch();
        let (check, tunnelled, mut unchecked) = (self.check, self.tunnelled, 0);
        let mut timer = self.timed.map(|warm_up| Timer::new(signal, warm_up));
        let samples = self.intake.serve(self.interval, signal, on_sample, |intake| {
            let mut worked = false;
            for index in 0..intake.len() {
                let lent = intake.receive(index, &mut |frames| {
                    let mut read = |frame: &Frame<'_>| match tunnelled {
                        true => read_tunnelled(frame),
                        false => (read(check, &mut unchecked, frame, &mut scratch), frame.len()),
                    };
                    match &mut timer {
                        _ if check == Check::None => counts.count(frames),
                        _ if check == Check::Fetched => {
                            dray_port::ahead(frames).for_each(fetch);
                            counts.count(frames);
                        }
                        None => counts.record(dray_port::ahead(frames).map(read)),
                        Some(timer) => {
                            let now = timer.now();
                            counts.record(dray_port::ahead(frames).map(|frame| {
                                let (verdict, len) = read(frame);
                                timer.note(now, verdict);
                                (verdict, len)
                            }));
                        }
                    }
                    frames.len()
                })?;
                worked |= lent > 0;
            }
            Ok(Progress { frames: counts.received, bytes: counts.bytes, worked })
        })?;
        let report = counts.into_report(self.intake.dropped()?, samples);
        Ok(ReceiveReport { latency: timer.map(|timer| timer.latency), ..report })
    }
}

/// Times frames from when they were due until the batch in which they lie was received.
struct Timer<'s> {
    signal: &'s Signal,
    warm_up: Duration,
    /// Frames that were due before this tick are not timed; not known before the sender's start is.
    from: Option<u64>,
    latency: Latency,
}

impl<'s> Timer<'s> {
    fn new(signal: &'s Signal, warm_up: Duration) -> Self {
        Self { signal, warm_up, from: None, latency: Latency::default() }
    }

    /// The present tick, at the start of a batch.
    #[inline]
    fn now(&mut self) -> u64 {
        if self.from.is_none() && self.signal.begun() {
            let warm = self.signal.start_at_ns() + self.warm_up.as_nanos() as u64;
            self.from = Some(ticks_at(warm));
        }
        clock::ticks()
    }

    #[inline]
    fn note(&mut self, now: u64, verdict: Verdict) {
        let Verdict::Intact(Stamp { ticks, .. }) = verdict else { return };
        if self.from.is_some_and(|from| ticks >= from) {
            self.latency.record_ns(clock::nanoseconds(now.saturating_sub(ticks)), 1);
        }
    }
}

/// Waits until the beginning of a frame is there.
#[inline]
fn fetch(frame: &Frame<'_>) {
    std::hint::black_box(frame.first::<8>());
}

/// Looks at a frame as closely as `check` says; `unchecked` counts frames since the last whole one.
#[inline]
fn read(check: Check, unchecked: &mut u32, frame: &Frame<'_>, scratch: &mut Scratch) -> Verdict {
    let may_skip = check == Check::Sampled && *unchecked < Check::SAMPLE - 1;
    // A head may be all of the frame.
    if may_skip || frame.len() <= FRAME_MIN {
        *unchecked += u32::from(may_skip);
        return match frame.first() {
            Some(head) => test_frame::read_head(&head, frame.len()),
            None => Verdict::Foreign,
        };
    }
    *unchecked = 0;
    test_frame::read(frame.bytes(scratch))
}

/// Looks at the headers of a frame that came through a tunnel, and says how long it was before.
#[inline]
fn read_tunnelled(frame: &Frame<'_>) -> (Verdict, usize) {
    let Some(inner) = frame.first().and_then(|head| users::unwrap(&head)) else {
        return (Verdict::Foreign, frame.len());
    };
    let len = frame.len() - TUNNEL_LEN;
    (test_frame::read_head(&inner, len), len)
}

/// What has been counted so far.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    bytes: u64,
    corrupt: u64,
    foreign: u64,
    /// By stream number, as long as the highest one seen.
    streams: Vec<Stream>,
}

#[derive(Default)]
struct Stream {
    tracker: Tracker,
    corrupt: u64,
}

/// Frames of one length and one stream that came one after the other. They are counted together:
/// frame by frame, the counters of a stream would take longer than all the rest.
#[derive(Clone, Copy, Default)]
struct Run {
    stream: u16,
    /// Number of the first in its stream.
    first: u64,
    count: u64,
    len: usize,
}

impl Run {
    /// Counts a frame that continues the run; `false` where it does not.
    #[inline]
    fn extend(&mut self, verdict: Verdict, len: usize) -> bool {
        let Verdict::Intact(Stamp { stream, sequence, .. }) = verdict else { return false };
        let next = self.first.wrapping_add(self.count);
        let continues = stream == self.stream && sequence == next && len == self.len;
        self.count += u64::from(continues);
        continues
    }
}

impl Counts {
    /// Counts frames at which nobody looks.
    fn count(&mut self, frames: &[Frame<'_>]) {
        self.received += frames.len() as u64;
        self.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }

    /// Counts what frames turned out to be, each with its length.
    #[inline]
    pub(crate) fn record(&mut self, frames: impl Iterator<Item = (Verdict, usize)>) {
        let mut run = Run::default();
        for (verdict, len) in frames {
            if !run.extend(verdict, len) {
                self.record_run(run);
                run = self.begin(verdict, len);
            }
        }
        self.record_run(run);
    }

    /// Counts a frame that did not continue a run: the run that it begins, or, where it is none of
    /// ours, an empty one.
    #[inline]
    fn begin(&mut self, verdict: Verdict, len: usize) -> Run {
        match verdict {
            Verdict::Intact(Stamp { stream, sequence, .. }) => {
                return Run { stream, first: sequence, count: 1, len };
            }
            Verdict::Corrupt(stream) => {
                self.corrupt += 1;
                if let Some(stream) = stream {
                    self.stream(stream).corrupt += 1;
                }
            }
            Verdict::Foreign => self.foreign += 1,
        }
        Run::default()
    }

    #[inline]
    fn record_run(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        let tracker = &mut self.stream(run.stream).tracker;
        let before = tracker.received;
        tracker.record_run(run.first, run.count);
        let fresh = tracker.received - before;
        self.received += fresh;
        self.bytes += fresh * run.len as u64;
    }

    #[inline]
    fn stream(&mut self, stream: u16) -> &mut Stream {
        let stream = usize::from(stream);
        if stream >= self.streams.len() {
            self.streams.resize_with(stream + 1, Stream::default);
        }
        &mut self.streams[stream]
    }

    pub(crate) fn into_report(self, dropped: u64, samples: Vec<Sample>) -> ReceiveReport {
        // A hostile sender's numbers may be anything.
        let sum = |field: fn(&Tracker) -> u64| {
            let values = self.streams.iter().map(|stream| field(&stream.tracker));
            values.fold(0, u64::saturating_add)
        };
        ReceiveReport {
            received: self.received,
            bytes: self.bytes,
            lost: sum(|tracker| tracker.lost),
            duplicated: sum(|tracker| tracker.duplicated),
            reordered: sum(|tracker| tracker.reordered),
            corrupt: self.corrupt,
            foreign: self.foreign,
            dropped,
            latency: None,
            streams: self
                .streams
                .iter()
                .enumerate()
                .filter(|(_, Stream { tracker, corrupt })| {
                    tracker.received + tracker.duplicated + corrupt > 0
                })
                .map(|(number, Stream { tracker, corrupt })| StreamReport {
                    stream: number as u16,
                    received: tracker.received,
                    lost: tracker.lost,
                    duplicated: tracker.duplicated,
                    reordered: tracker.reordered,
                    corrupt: *corrupt,
                    next: tracker.next,
                })
                .collect(),
            samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_wire::Flow;

    #[test]
    fn every_frame_is_counted_under_one_word() {
        let mut frame = test_frame::build(&Flow::default(), 100);
        let mut counts = Counts::default();
        for (stream, sequence) in [(0, 0), (0, 1), (7, 1), (7, 0), (0, 1), (0, 4)] {
            test_frame::stamp(&mut frame, Stamp { stream, sequence, ticks: 0 });
            counts.record([(test_frame::read(&frame), frame.len())].into_iter());
        }
        test_frame::stamp(&mut frame, Stamp { stream: 7, sequence: 2, ticks: 0 });
        frame[80] ^= 1;
        let damaged = (test_frame::read(&frame), frame.len());
        counts.record([damaged, (test_frame::read(&[0; 64]), 64)].into_iter());
        let report = counts.into_report(3, Vec::new());
        assert_eq!((report.received, report.lost, report.duplicated), (5, 2, 1));
        assert_eq!((report.reordered, report.corrupt, report.foreign), (1, 1, 1));
        assert_eq!((report.dropped, report.bytes), (3, 500));
        let streams: Vec<_> =
            report.streams.iter().map(|s| (s.stream, s.received, s.lost, s.corrupt)).collect();
        assert_eq!(streams, [(0, 3, 2, 0), (7, 2, 0, 1)]);
    }
}
