//! Memory of the frames that wait for the rates of a switch's ports.
//!
//! A queue takes blocks while frames wait in it, and returns each as soon as its frames have left.
//! [`PORT_MAX`] bounds the blocks of one direction of a port over all its queues, [`SWITCH_MAX`]
//! those of all ports.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dray_datapath::lock;

use super::block::{BLOCK, Block};

/// Maximum memory of the frames that wait at all ports, in bytes.
const SWITCH_MAX: usize = 256 << 20;
/// Maximum memory of the frames that wait for one rate of a port, in bytes.
pub(super) const PORT_MAX: usize = 4 << 20;
/// Number of blocks that each queue may have if there are any: while its first frames leave the
/// oldest, it needs another.
const QUEUE_LEAST: usize = 2;
/// A port may use up to 1/`PART_OF_FREE` of the blocks left, besides those, so that others get
/// some.
const PART_OF_FREE: usize = SWITCH_MAX / PORT_MAX;
/// Number of blocks kept for queues that were just empty, so that short bursts allocate no memory.
const SPARE: usize = 32;

/// The blocks of a switch.
#[derive(Default)]
pub(super) struct Pool {
    used: AtomicUsize,
    spare: Mutex<Vec<Block>>,
}

/// The blocks of one rate of a port.
pub(super) struct Share {
    pool: Arc<Pool>,
    used: AtomicUsize,
    most: usize,
}

impl Pool {
    const MOST: usize = SWITCH_MAX / BLOCK;

    fn free(&self) -> usize {
        Self::MOST.saturating_sub(self.used.load(Relaxed))
    }
}

impl Share {
    /// Creates a share of `pool` for about `bytes` of frames.
    pub(super) fn new(pool: Arc<Pool>, bytes: u64) -> Self {
        let bytes = bytes.min(PORT_MAX as u64) as usize;
        // The first and the last block of a queue are not full.
        Self { pool, used: AtomicUsize::new(0), most: bytes.div_ceil(BLOCK) + 1 }
    }

    /// Returns a block for a queue that has `count`: the first ones of each queue if the switch has
    /// any left, others within the limit of the port.
    pub(super) fn take(&self, count: usize) -> Option<Block> {
        let most = match count {
            0..QUEUE_LEAST => usize::MAX,
            _ => self.most.min(self.pool.free() / PART_OF_FREE),
        };
        let more = |most| move |used| (used < most).then_some(used + 1);
        self.used.fetch_update(Relaxed, Relaxed, more(most)).ok()?;
        if self.pool.used.fetch_update(Relaxed, Relaxed, more(Pool::MOST)).is_err() {
            self.used.fetch_sub(1, Relaxed);
            return None;
        }
        let spare = lock(&self.pool.spare).pop();
        Some(spare.unwrap_or_else(Block::new))
    }

    /// Takes back a block that is empty.
    pub(super) fn give(&self, block: Block) {
        self.used.fetch_sub(1, Relaxed);
        self.pool.used.fetch_sub(1, Relaxed);
        let mut spare = lock(&self.pool.spare);
        if spare.len() < SPARE {
            spare.push(block);
        }
    }
}

#[cfg(test)]
impl Pool {
    /// Returns the bytes of all blocks, used or spare.
    pub(super) fn bytes(&self) -> usize {
        (self.used.load(Relaxed) + lock(&self.spare).len()) * BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 ports with four queues each, all as full as they get.
    #[test]
    fn memory_of_all_ports_is_bounded_and_given_back() {
        let pool = Arc::new(Pool::default());
        let shares: Vec<_> = (0..1000).map(|_| Share::new(pool.clone(), u64::MAX)).collect();
        let mut blocks: Vec<Vec<Block>> = Vec::new();
        for share in &shares {
            let mut of_port = Vec::new();
            for _ in 0..4 {
                let of_queue: Vec<_> = (0..).map_while(|count| share.take(count)).collect();
                of_port.extend(of_queue);
            }
            assert!(of_port.len() * BLOCK <= PORT_MAX + 7 * BLOCK, "{}", of_port.len());
            blocks.push(of_port);
        }
        assert!(pool.bytes() <= SWITCH_MAX, "{}", pool.bytes());
        // The first ports left memory for many others.
        let served = blocks.iter().filter(|blocks| !blocks.is_empty()).count();
        assert!(served > 100, "{served}");
        for (share, of_port) in shares.iter().zip(blocks) {
            of_port.into_iter().for_each(|block| share.give(block));
        }
        assert_eq!(pool.bytes(), SPARE * BLOCK);
        assert!(shares.iter().all(|share| share.used.load(Relaxed) == 0));
    }

    #[test]
    fn low_rate_takes_two_blocks_for_each_queue() {
        let share = Share::new(Arc::default(), 10_000);
        let blocks = [0, 1, 2, 0, 1, 2].map(|count| share.take(count).is_some());
        assert_eq!(blocks, [true, true, false, true, true, false]);
    }
}
