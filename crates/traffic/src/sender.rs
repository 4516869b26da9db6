//! The sender: test frames at a given rate, size and burst, or as many as possible.

use std::time::Duration;

use dray_port::{BATCH_MAX, Batch, Frame, PortUri, Transmit, clock};
use dray_wire::test_frame::{self, Stamp};

use crate::links::Links;
use crate::pacer::{Pacer, wait_until};
use crate::sample::{Sampler, monotonic_ns};
use crate::{OnSample, Phase, RoleError, SendJob, SendReport, Signal};

// What a stamp changes, and what tells flows apart, are in the part in which a series may differ.
const _: () = assert!(dray_wire::FRAME_MIN <= dray_port::SERIES_HEAD);

/// A sender with its ports open and its frames built.
pub struct Sender {
    job: SendJob,
    lanes: Vec<OpenLane>,
    pub(crate) links: Links,
}

/// The ring of frames built for one port. Frame number `n` of the lane lies in slot
/// `n % slots`, belongs to stream `n % flows` and is number `n / flows` of it.
struct OpenLane {
    uri: PortUri,
    /// The port's first queue: so every flow stays in order.
    tx: Box<dyn Transmit>,
    frames: Vec<Vec<u8>>,
    first_stream: u16,
    flows: u64,
    sent: u64,
}

impl Sender {
    /// Opens the ports and builds every frame.
    pub fn open(job: SendJob) -> Result<Self, RoleError> {
        let mut links = Links::default();
        let lanes = 0..job.lanes.len();
        let lanes = lanes.map(|index| OpenLane::open(&job, index, &mut links));
        Ok(Self { lanes: lanes.collect::<Result<_, _>>()?, job, links })
    }

    /// Sends until the job is done or `signal` ends it.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<SendReport, RoleError> {
        let SendJob { rate, duration, burst, turn, .. } = self.job;
        while monotonic_ns() < signal.start_at_ns() && signal.phase() == Phase::Run {
            std::thread::sleep(Duration::from_millis(1));
        }
        let offered = rate.map(|rate| (rate * duration.as_secs_f64()) as u64);
        let start = clock::ticks();
        let deadline = start + clock::to_ticks(duration);
        let pacer = rate.map(|rate| Pacer::new(start, rate));
        let mut sampler = Sampler::new(self.job.interval, on_sample);
        let (mut sent, mut refused, mut lane, mut turn_left) = (0, 0, 0, turn);
        let size = self.job.size as u64;

        loop {
            let mut now = clock::ticks();
            let rest = offered.map_or(u64::MAX, |offered| offered - sent);
            // Having sent everything, stay to the end, so that every sample is taken.
            let due = if rest == 0 { deadline } else { pacer.map_or(now, |p| p.due(sent)) };
            if now < due {
                now = wait_until(due.min(deadline), dray_port::PATIENCE, turn.is_some());
            }
            sampler.poll(now, sent, sent * size);
            if now >= deadline || signal.phase() != Phase::Run {
                break;
            }
            if now < due {
                continue;
            }
            let count = burst.min(usize::try_from(rest).unwrap_or(usize::MAX));
            let taken = self.lanes[lane].send(count, due)?;
            lane = (lane + 1) % self.lanes.len();
            sent += taken as u64;
            refused += (count - taken) as u64;
            // Who shares this CPU may be the one who receives all this.
            if let Some(left) = &mut turn_left {
                *left = left.saturating_sub(taken);
                if taken < count || *left == 0 {
                    std::thread::yield_now();
                    turn_left = turn;
                }
            }
        }
        let elapsed = clock::ticks() - start;
        let elapsed_s = elapsed as f64 / clock::ticks_per_second() as f64;
        // Who was ended early was offered less.
        let so_far = rate.map(|rate| (rate * elapsed_s) as u64);
        Ok(SendReport {
            offered: offered.min(so_far),
            sent,
            bytes: sent * size,
            refused,
            streams: self.lanes.iter().flat_map(OpenLane::sent_by_stream).collect(),
            elapsed_ns: (elapsed_s * 1e9) as u64,
            samples: sampler.finish(sent, sent * size),
        })
    }
}

impl Sender {
    /// What it transmits through.
    pub(crate) fn lanes(&mut self) -> impl Iterator<Item = &mut dyn Transmit> {
        self.lanes.iter_mut().map(|lane| &mut *lane.tx as &mut dyn Transmit)
    }
}

impl OpenLane {
    fn open(job: &SendJob, index: usize, links: &mut Links) -> Result<Self, RoleError> {
        let lane = &job.lanes[index];
        RoleError::check_transmits(&lane.port)?;
        let flows = job.flows.max(job.stations);
        if flows > 1 && lane.port.is_one_flow() {
            return Err(RoleError::OneFlow { port: lane.port.to_string(), flows });
        }
        let port = lane.port.open()?;
        links.add(&lane.port, &port);
        let tx = port.tx.into_iter().next().expect("a port has a queue");
        RoleError::check_fits(job.size, &*tx, &lane.port)?;
        // Whole rounds of the flows or stations, and enough that a burst never meets itself.
        let (flows, stations) = (usize::from(job.flows), usize::from(job.stations));
        let slots = job.burst.clamp(1, BATCH_MAX).next_multiple_of(flows * stations);
        let build = |slot| {
            let flow = lane.flow.nth((slot % flows) as u16);
            test_frame::build(&flow.between_others((slot % stations) as u16), job.size)
        };
        let frames = (0..slots).map(build).collect();
        Ok(Self {
            uri: lane.port.clone(),
            tx,
            frames,
            first_stream: (index * flows) as u16,
            flows: flows as u64,
            sent: 0,
        })
    }

    /// Stamps and transmits the lane's next `count` frames; how many the port took. The others keep
    /// their numbers and are stamped again next time.
    #[inline]
    fn send(&mut self, count: usize, ticks: u64) -> Result<usize, RoleError> {
        let slots = self.frames.len();
        let first = (self.sent % slots as u64) as usize;
        // Counted on, not divided again for every frame: a division takes as long as the rest.
        let (mut slot, mut flow) = (first, self.sent % self.flows);
        let mut sequence = self.sent / self.flows;
        for _ in 0..count {
            let stream = self.first_stream + flow as u16;
            test_frame::stamp(&mut self.frames[slot], Stamp { stream, sequence, ticks });
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
            flow += 1;
            if flow == self.flows {
                (flow, sequence) = (0, sequence + 1);
            }
        }
        let ring = self.frames[first..].iter().chain(&self.frames).take(count);
        let burst: Batch<'_> = ring.map(|frame| Frame::from(frame.as_slice())).collect();
        let taken = self.tx.transmit_series(&burst).map_err(RoleError::port(&self.uri))?;
        self.sent += taken as u64;
        Ok(taken)
    }

    /// Frames taken in each of the lane's streams, in their order.
    fn sent_by_stream(&self) -> impl Iterator<Item = u64> + '_ {
        let (rounds, rest) = (self.sent / self.flows, self.sent % self.flows);
        (0..self.flows).map(move |flow| rounds + u64::from(flow < rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lane;
    use dray_wire::Flow;

    fn job(rate: Option<f64>) -> SendJob {
        let lane = Lane { port: "null:".parse().unwrap(), flow: Flow::default() };
        SendJob {
            lanes: vec![lane.clone(), lane],
            flows: 3,
            stations: 1,
            size: 64,
            burst: 7,
            rate,
            duration: Duration::from_millis(50),
            turn: Some(SendJob::TURN),
            interval: Duration::from_millis(10),
        }
    }

    #[test]
    fn sends_what_was_offered_and_no_more() {
        let mut sender = Sender::open(job(Some(10_000.0))).unwrap();
        let report = sender.run(&Signal::default(), None).unwrap();
        assert_eq!(report.offered, Some(500));
        assert!(report.sent <= 500);
        assert_eq!(report.streams.len(), 6, "2 lanes of 3 flows");
        assert_eq!(report.streams.iter().sum::<u64>(), report.sent);
        assert_eq!(report.bytes, report.sent * 64);
        let frames: Vec<_> = report.samples.iter().map(|sample| sample.frames).collect();
        assert!(frames.is_sorted() && frames.last() == Some(&report.sent), "{frames:?}");
    }

    #[test]
    fn falling_short_is_said() {
        let mut sender = Sender::open(job(Some(1e12))).unwrap();
        let report = sender.run(&Signal::default(), None).unwrap();
        assert!(report.sent_less_than_offered());
        let unpaced = Sender::open(job(None)).unwrap().run(&Signal::default(), None).unwrap();
        assert!(unpaced.offered.is_none() && !unpaced.sent_less_than_offered());
    }

    #[test]
    fn a_signal_ends_it() {
        let signal = Signal::default();
        signal.stop();
        let forever = SendJob { duration: Duration::from_secs(3600), ..job(None) };
        assert_eq!(Sender::open(forever).unwrap().run(&signal, None).unwrap().sent, 0);
    }

    /// A lane's frames carry consecutive numbers of its own streams in turn, across the end of the
    /// ring and when a port takes only a part of a burst.
    #[test]
    fn every_stream_is_numbered_without_a_gap() {
        use dray_wire::test_frame::{Verdict, read};
        use std::sync::{Arc, Mutex};

        /// Takes at most two frames of each burst.
        struct Picky(Arc<Mutex<Vec<Stamp>>>);
        impl Transmit for Picky {
            fn transmit(&mut self, frames: &[dray_port::Frame<'_>]) -> std::io::Result<usize> {
                let taken = frames.iter().take(2);
                let mut scratch = dray_port::scratch();
                let mut read = |frame: &dray_port::Frame<'_>| read(frame.bytes(&mut scratch));
                self.0.lock().unwrap().extend(taken.map(|frame| match read(frame) {
                    Verdict::Intact(stamp) => stamp,
                    other => panic!("{other:?}"),
                }));
                Ok(frames.len().min(2))
            }
            fn frame_max(&self) -> usize {
                dray_wire::FRAME_MAX
            }
        }

        let taken = Arc::new(Mutex::new(Vec::new()));
        let mut lane = OpenLane::open(&job(None), 1, &mut Links::default()).unwrap();
        lane.tx = Box::new(Picky(taken.clone()));
        for _ in 0..20 {
            lane.send(7, 0).unwrap();
        }
        let taken = taken.lock().unwrap();
        assert_eq!(taken.len(), 40);
        for (number, stamp) in taken.iter().enumerate() {
            assert_eq!(usize::from(stamp.stream), 3 + number % 3);
            assert_eq!(stamp.sequence, number as u64 / 3);
        }
    }
}
