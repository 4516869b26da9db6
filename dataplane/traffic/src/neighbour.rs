//! The neighbour: moves no frames, but pollutes the caches that it shares with roles that do.

use std::time::Duration;

use dray_port::clock;

use crate::sample::{Sampler, monotonic_ns};
use crate::{NeighbourJob, NeighbourReport, OnSample, Phase, RoleError, Signal};

/// Bytes per cache line.
const LINE: usize = 64;
/// Lines written between two reads of the clock.
const ROUND: u64 = 4096;

/// A neighbour and its memory.
pub struct Neighbour {
    interval: Duration,
    /// One number of each line is written.
    memory: Vec<[u64; LINE / 8]>,
}

impl Neighbour {
    /// Allocates the memory and fills it.
    pub fn open(job: &NeighbourJob) -> Result<Self, RoleError> {
        let lines = job.memory_bytes / LINE;
        let mut memory = Vec::new();
        if lines == 0 || memory.try_reserve_exact(lines).is_err() {
            return Err(RoleError::Memory { bytes: job.memory_bytes });
        }
        memory.resize(lines, [1; LINE / 8]);
        Ok(Self { interval: job.interval, memory })
    }

    /// Writes to lines in pseudo-random order until `signal` ends it.
    pub fn run(&mut self, signal: &Signal, on_sample: Option<OnSample>) -> NeighbourReport {
        let began = monotonic_ns();
        let mut sampler = Sampler::new(self.interval, on_sample);
        let (mut written, mut state) = (0, 1);
        loop {
            for _ in 0..ROUND {
                let line = index(next(&mut state), self.memory.len());
                self.memory[line][0] = self.memory[line][0].wrapping_add(state);
            }
            written += ROUND;
            sampler.poll(clock::ticks(), written, written * LINE as u64);
            if signal.phase() != Phase::Run {
                break;
            }
        }
        std::hint::black_box(&self.memory);
        NeighbourReport {
            written_bytes: written * LINE as u64,
            elapsed_ns: monotonic_ns() - began,
            samples: sampler.finish(written, written * LINE as u64),
        }
    }
}

/// Returns a pseudo-random number that a prefetcher cannot predict: xorshift (Marsaglia 2003, 64
/// bits).
#[inline]
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Spreads `number` over `0..len` without a division.
#[inline]
fn index(number: u64, len: usize) -> usize {
    ((u128::from(number) * len as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn neighbour_writes_all_its_memory() {
        let job = NeighbourJob { memory_bytes: 64 * LINE, interval: Duration::from_millis(1) };
        let mut neighbour = Neighbour::open(&job).unwrap();
        let signal = Signal::default();
        let report = thread::scope(|scope| {
            let role = scope.spawn(|| neighbour.run(&signal, None));
            signal.drain();
            role.join().unwrap()
        });
        assert!(report.written_bytes >= ROUND * LINE as u64 && report.elapsed_ns > 0);
        assert!(neighbour.memory.iter().all(|line| line[0] != 1), "each line");
        for wrong in [LINE - 1, usize::MAX / 2] {
            let job = NeighbourJob { memory_bytes: wrong, ..job.clone() };
            let Err(error) = Neighbour::open(&job) else { panic!("{wrong}") };
            assert!(error.to_string().contains(&wrong.to_string()), "{error}");
        }
    }
}
