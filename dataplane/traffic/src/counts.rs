//! Counting of frames by verdict.

use dray_port::Frame;
use dray_wire::test_frame::{Burst, Stamp, Verdict};

use crate::sequence::Tracker;
use crate::{Arrivals, ReceiveReport, Sample, StreamReport};

/// Counters so far.
#[derive(Default)]
pub(crate) struct Counts {
    /// Tick at which the sender began: frames that were due before it come from an earlier sender.
    /// They were held up on the way, and their sequence numbers are not the sender's.
    pub(crate) began: u64,
    earlier: u64,
    pub(crate) received: u64,
    pub(crate) bytes: u64,
    corrupt: u64,
    foreign: u64,
    /// By stream number, up to the highest one seen.
    streams: Vec<Stream>,
}

#[derive(Default)]
struct Stream {
    tracker: Tracker,
    corrupt: u64,
}

impl Counts {
    /// Counts frames of a sender that began at the tick `began`.
    pub(crate) fn since(began: u64) -> Self {
        Self { began, ..Self::default() }
    }

    /// Counts frames without checking them.
    pub(crate) fn count(&mut self, frames: &[Frame<'_>]) {
        self.received += frames.len() as u64;
        self.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }

    /// Counts a frame by its verdict.
    pub(crate) fn record(&mut self, verdict: Verdict, len: usize) {
        match verdict {
            Verdict::Intact(stamp) => self.record_intact(stamp, 1, len),
            Verdict::Corrupt(stream) => {
                self.corrupt += 1;
                if let Some(stream) = stream {
                    self.stream(stream).corrupt += 1;
                }
            }
            Verdict::Foreign => self.foreign += 1,
        }
    }

    /// Counts the frames of a burst together: updating a stream's counters frame by frame would
    /// take longer than everything else.
    #[inline]
    pub(crate) fn record_burst(&mut self, burst: &Burst) {
        if burst.count() > 0 {
            self.record_intact(burst.first(), burst.count(), burst.len());
        }
    }

    #[inline]
    fn record_intact(&mut self, first: Stamp, count: u64, len: usize) {
        if first.ticks < self.began {
            self.earlier += count;
            return;
        }
        let tracker = &mut self.stream(first.stream).tracker;
        let before = tracker.received;
        tracker.record_run(first.sequence, count);
        let fresh = tracker.received - before;
        self.received += fresh;
        self.bytes += fresh * len as u64;
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
        // A hostile sender's sequence numbers may be anything.
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
            earlier: self.earlier,
            dropped,
            arrivals: Arrivals::default(),
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
    use dray_wire::{Flow, test_frame};

    use super::*;

    #[test]
    fn every_frame_is_counted_exactly_once() {
        let mut frame = test_frame::build(&Flow::default(), 100);
        let mut counts = Counts::default();
        for (stream, sequence) in [(0, 0), (0, 1), (7, 1), (7, 0), (0, 1), (0, 4)] {
            test_frame::stamp(&mut frame, Stamp { stream, sequence, ticks: 0 });
            counts.record(test_frame::read(&frame), frame.len());
        }
        counts.began = 5;
        for (sequence, ticks) in [(5, 4), (5, 5), (0, 4)] {
            test_frame::stamp(&mut frame, Stamp { stream: 0, sequence, ticks });
            counts.record(test_frame::read(&frame), frame.len());
        }
        test_frame::stamp(&mut frame, Stamp { stream: 7, sequence: 2, ticks: 0 });
        frame[80] ^= 1;
        counts.record(test_frame::read(&frame), frame.len());
        counts.record(test_frame::read(&[0; 64]), 64);
        let report = counts.into_report(3, Vec::new());
        assert_eq!((report.received, report.lost, report.duplicated), (6, 2, 1));
        assert_eq!((report.reordered, report.corrupt, report.foreign), (1, 1, 1));
        assert_eq!((report.earlier, report.dropped, report.bytes), (2, 3, 600));
        let streams: Vec<_> =
            report.streams.iter().map(|s| (s.stream, s.received, s.lost, s.corrupt)).collect();
        assert_eq!(streams, [(0, 4, 2, 0), (7, 2, 0, 1)]);
    }
}
