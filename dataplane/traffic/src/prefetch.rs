//! The choice that ports make of prefetches for writing ([`Copier`]), found out without ports.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use dray_port::clock;
use dray_shm::cache::{Copier, Copy};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Lines in a batch.
const LINES: usize = 256;
/// Maximum duration, on CPUs that other programs keep busy.
const PATIENCE: Duration = Duration::from_millis(500);

/// Returns true if prefetching for writing is faster for a port on CPU `here` that copies to memory
/// which CPU `there` uses in turn, or if neither way is faster and the processor's vendor decides
/// so. Takes up to 50 ms on idle CPUs. Returns `None` if both are one CPU, or if other programs
/// keep one of them busy.
///
/// # Errors
/// If this process may not use one of the CPUs.
pub fn choice(here: usize, there: usize) -> io::Result<Option<bool>> {
    if here == there {
        return Ok(None);
    }
    let from = vec![0u8; LINES * 64];
    let to: Vec<CachePadded<[AtomicU64; 8]>> = (0..LINES).map(|_| CachePadded::default()).collect();
    // Even: the copier's turn. Odd: the other CPU's.
    let turn = CachePadded::new(AtomicU64::new(0));
    let pin = |cpu: usize| {
        let mut only = CpuSet::new();
        only.set(cpu);
        // Affects only this thread, which ends here.
        sched_setaffinity(None, &only)
    };
    let end = clock::ticks() + clock::to_ticks(PATIENCE);
    let wait = |own: u64| {
        while turn.load(Ordering::Acquire) != own {
            if clock::ticks() > end {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    };
    let batches = u64::from(Copier::BEFORE);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(there)?;
            for batch in 0..batches {
                if !wait(2 * batch + 1) {
                    break;
                }
                for line in &to {
                    line[0].store(line[1].load(Ordering::Relaxed), Ordering::Relaxed);
                }
                turn.store(2 * batch + 2, Ordering::Release);
            }
            io::Result::Ok(())
        });
        let copier = scope.spawn(|| {
            pin(here)?;
            let mut copier = Copier::new();
            let copies: Vec<Copy> = from
                .chunks_exact(64)
                .zip(&to)
                .map(|(from, to)| Copy {
                    from: from.as_ptr(),
                    to: to.as_ptr().cast_mut().cast(),
                    len: 64,
                })
                .collect();
            for batch in 0..batches {
                if !wait(2 * batch) {
                    return Ok(None);
                }
                // SAFETY: each line has 64 bytes in cells, and the other thread waits for its turn.
                unsafe { copier.copy_each(&copies) };
                turn.store(2 * batch + 1, Ordering::Release);
            }
            io::Result::Ok(Some(copier.prefetches()))
        });
        let choice = copier.join().map_err(|_| io::Error::other("a thread panicked"))??;
        other.join().map_err(|_| io::Error::other("a thread panicked"))??;
        Ok(choice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_has_no_answer() {
        assert_eq!(choice(0, 0).unwrap(), None);
    }

    #[test]
    fn missing_cpu_is_an_error() {
        assert!(choice(CpuSet::MAX_CPU - 1, 0).is_err());
    }
}
