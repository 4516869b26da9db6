//! The sender: test frames at a given rate, size and burst, or as many as possible.

use std::time::Duration;

use dray_port::{BATCH_MAX, Batch, PortUri, Transmit, clock};
use dray_wire::test_frame::{self, Stamp};

use crate::pacer::{Pacer, wait_until};
use crate::sample::{Sampler, monotonic_ns};
use crate::{OnSample, Phase, RoleError, SendJob, SendReport, Signal};

/// A sender with its ports open and its frames built.
pub struct Sender {
    job: SendJob,
    lanes: Vec<OpenLane>,
}

/// The ring of frames built for one port. Frame number `n` of the lane lies in slot
/// `n % slots`, belongs to stream `n % flows` and is number `n / flows` of it.
struct OpenLane {
    uri: PortUri,
    tx: Box<dyn Transmit>,
    frames: Vec<Vec<u8>>,
    first_stream: u16,
    flows: u64,
    sent: u64,
}

impl Sender {
    /// Opens the ports and builds every frame.
    pub fn open(job: SendJob) -> Result<Self, RoleError> {
        let lanes = job.lanes.iter().enumerate();
        let lanes =
            lanes.map(|(index, _)| OpenLane::open(&job, index)).collect::<Result<_, _>>()?;
        Ok(Self { job, lanes })
    }

    /// Sends until the job is done or `signal` ends it.
    pub fn run(
        mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<SendReport, RoleError> {
        let SendJob { rate, duration, burst, yielding, .. } = self.job;
        while monotonic_ns() < self.job.start_at_ns {
            std::thread::sleep(Duration::from_millis(1));
        }
        let offered = rate.map(|rate| (rate * duration.as_secs_f64()) as u64);
        let start = clock::ticks();
        let deadline = start + clock::to_ticks(duration);
        let pacer = rate.map(|rate| Pacer::new(start, rate));
        let mut sampler = Sampler::new(self.job.interval, on_sample);
        let (mut sent, mut refused, mut turn) = (0, 0, 0);
        let size = self.job.size as u64;

        loop {
            let mut now = clock::ticks();
            let due = pacer.map_or(now, |pacer| pacer.due(sent));
            if now < due {
                now = wait_until(due.min(deadline), dray_port::PATIENCE, yielding);
            }
            sampler.poll(now, sent, sent * size);
            let rest = offered.map_or(u64::MAX, |offered| offered - sent);
            if rest == 0 || now >= deadline || signal.phase() != Phase::Run {
                break;
            }
            if now < due {
                continue;
            }
            let count = burst.min(usize::try_from(rest).unwrap_or(usize::MAX));
            let lane = &mut self.lanes[turn];
            turn = (turn + 1) % self.job.lanes.len();
            let taken = lane.send(count, due)?;
            sent += taken as u64;
            if taken < count {
                refused += (count - taken) as u64;
                if yielding {
                    std::thread::yield_now();
                }
            }
        }
        let elapsed = clock::ticks() - start;
        Ok(SendReport {
            offered,
            sent,
            bytes: sent * size,
            refused,
            streams: self.lanes.iter().flat_map(OpenLane::sent_by_stream).collect(),
            elapsed_ns: (u128::from(elapsed) * 1_000_000_000
                / u128::from(clock::ticks_per_second())) as u64,
            samples: sampler.finish(sent, sent * size),
        })
    }
}

impl OpenLane {
    fn open(job: &SendJob, index: usize) -> Result<Self, RoleError> {
        let lane = &job.lanes[index];
        let tx = lane.port.open()?.tx;
        if job.size > tx.frame_max() {
            return Err(RoleError::FrameTooLong {
                size: job.size,
                max: tx.frame_max(),
                port: lane.port.to_string(),
            });
        }
        // Whole rounds of the flows, and enough that a burst never meets itself.
        let flows = usize::from(job.flows);
        let slots = job.burst.clamp(1, BATCH_MAX).div_ceil(flows) * flows;
        let frames = (0..slots)
            .map(|slot| test_frame::build(&lane.flow.nth((slot % flows) as u16), job.size))
            .collect();
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
        for offset in 0..count {
            let number = self.sent + offset as u64;
            let stamp = Stamp {
                stream: self.first_stream + (number % self.flows) as u16,
                sequence: number / self.flows,
                ticks,
            };
            test_frame::stamp(&mut self.frames[(first + offset) % slots], stamp);
        }
        let burst: Batch<'_> =
            (0..count).map(|offset| self.frames[(first + offset) % slots].as_slice()).collect();
        let taken = self.tx.transmit(&burst).map_err(RoleError::port(&self.uri))?;
        self.sent += taken as u64;
        Ok(taken)
    }

    /// Frames taken in each of the lane's streams, in their order.
    fn sent_by_stream(&self) -> impl Iterator<Item = u64> + '_ {
        let (rounds, rest) = (self.sent / self.flows, self.sent % self.flows);
        (0..self.flows).map(move |flow| rounds + u64::from(flow < rest))
    }
}
