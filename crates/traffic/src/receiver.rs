//! The receiver: counts what arrives, by stream.

use std::time::Duration;

use dray_port::PortUri;
use dray_wire::test_frame::{self, Verdict};

use crate::intake::{Intake, Progress};
use crate::sequence::Tracker;
use crate::{OnSample, ReceiveJob, ReceiveReport, RoleError, Sample, Signal, StreamReport};

/// A receiver with its ports open.
pub struct Receiver {
    intake: Intake,
    interval: Duration,
}

impl Receiver {
    /// Opens the ports.
    pub fn open(job: &ReceiveJob) -> Result<Self, RoleError> {
        let open = |uri: &PortUri| Ok((uri.clone(), uri.open()?.rx));
        let ports = job.ports.iter().map(open).collect::<Result<_, RoleError>>()?;
        Ok(Self { intake: Intake::new(ports, job.yielding), interval: job.interval })
    }

    /// Receives until `signal` ends it.
    pub fn run(
        mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ReceiveReport, RoleError> {
        let mut counts = Counts::default();
        let mut scratch = dray_port::scratch();
        let samples = self.intake.serve(self.interval, signal, on_sample, |intake| {
            let mut worked = false;
            for index in 0..intake.len() {
                let lent = intake.receive(index, &mut |frames| {
                    frames.iter().for_each(|frame| counts.record(frame.bytes(&mut scratch)));
                    frames.len()
                })?;
                worked |= lent > 0;
            }
            Ok(Progress { frames: counts.received, bytes: counts.bytes, worked })
        })?;
        Ok(counts.into_report(self.intake.dropped()?, samples))
    }
}

/// What has been counted so far.
#[derive(Default)]
struct Counts {
    received: u64,
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

impl Counts {
    #[inline]
    fn record(&mut self, frame: &[u8]) {
        match test_frame::read(frame) {
            Verdict::Intact(stamp) => {
                let tracker = &mut self.stream(stamp.stream).tracker;
                let before = tracker.received;
                tracker.record(stamp.sequence);
                let fresh = tracker.received - before;
                self.received += fresh;
                self.bytes += frame.len() as u64;
            }
            Verdict::Corrupt(stream) => {
                self.corrupt += 1;
                if let Some(stream) = stream {
                    self.stream(stream).corrupt += 1;
                }
            }
            Verdict::Foreign => self.foreign += 1,
        }
    }

    #[inline]
    fn stream(&mut self, stream: u16) -> &mut Stream {
        let stream = usize::from(stream);
        if stream >= self.streams.len() {
            self.streams.resize_with(stream + 1, Stream::default);
        }
        &mut self.streams[stream]
    }

    fn into_report(self, dropped: u64, samples: Vec<Sample>) -> ReceiveReport {
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
    use dray_wire::test_frame::Stamp;

    #[test]
    fn every_frame_is_counted_under_one_word() {
        let mut frame = test_frame::build(&Flow::default(), 100);
        let mut counts = Counts::default();
        for (stream, sequence) in [(0, 0), (0, 1), (7, 1), (7, 0), (0, 1), (0, 4)] {
            test_frame::stamp(&mut frame, Stamp { stream, sequence, ticks: 0 });
            counts.record(&frame);
        }
        test_frame::stamp(&mut frame, Stamp { stream: 7, sequence: 2, ticks: 0 });
        frame[80] ^= 1;
        counts.record(&frame);
        counts.record(&[0; 64]);
        let report = counts.into_report(3, Vec::new());
        assert_eq!((report.received, report.lost, report.duplicated), (5, 2, 1));
        assert_eq!((report.reordered, report.corrupt, report.foreign), (1, 1, 1));
        assert_eq!((report.dropped, report.bytes), (3, 600));
        let streams: Vec<_> =
            report.streams.iter().map(|s| (s.stream, s.received, s.lost, s.corrupt)).collect();
        assert_eq!(streams, [(0, 3, 2, 0), (7, 2, 0, 1)]);
    }
}
