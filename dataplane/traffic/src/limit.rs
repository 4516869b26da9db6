//! The machine's limit: how fast two CPUs can forward payload with one copy.
//!
//! Two plain single-producer single-consumer rings of buffers, and a middle thread that copies from
//! one to the other. There are no descriptors, headers or checks, and all sides are trusted, so no
//! forwarder that copies once can be faster. The producer writes, and the consumer reads, one word
//! of each buffer: without that there would be no payload to forward.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use dray_port::clock;
use dray_shm::cache;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Number of buffers in each ring: as many as in the rings of dray's own ports.
const SLOTS: u64 = 512;
/// Maximum number of buffers between two reads of the other side's index.
const BATCH: u64 = 256;

/// Result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Number of buffers that arrived, each once and in order.
    pub frames: u64,
    /// Duration of the measurement.
    pub elapsed: Duration,
}

impl Limit {
    /// Returns the rate in buffers per second.
    pub fn pps(&self) -> f64 {
        self.frames as f64 / self.elapsed.as_secs_f64()
    }
}

/// Running indices of one ring, each on a cache line of its own.
#[derive(Default)]
struct Indices {
    filled: CachePadded<AtomicU64>,
    emptied: CachePadded<AtomicU64>,
}

struct Ring {
    indices: Indices,
    buffers: NonNull<u8>,
    stride: usize,
}

// SAFETY: by the indices, each buffer belongs to one side at a time.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(size: usize) -> Self {
        // An odd number of cache lines, so that the buffers' first lines spread over all sets of
        // the caches.
        let stride = (size.div_ceil(64) | 1) * 64;
        let layout = Self::layout(stride);
        // SAFETY: the layout is not empty.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(buffers) = NonNull::new(memory) else { std::alloc::handle_alloc_error(layout) };
        Self { indices: Indices::default(), buffers, stride }
    }

    fn layout(stride: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(SLOTS as usize * stride, 4096).expect("small")
    }

    /// Returns the buffer at the running index `index`.
    #[inline(always)]
    fn buffer(&self, index: u64) -> NonNull<u8> {
        // SAFETY: the slot number is below the number of slots.
        unsafe { self.buffers.add((index % SLOTS) as usize * self.stride) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { std::alloc::dealloc(self.buffers.as_ptr(), Self::layout(self.stride)) };
    }
}

/// Forwards buffers of `size` bytes for `duration`, with the middle thread on the CPU `middle` and
/// the end threads on the CPUs `ends`. If those are the same CPU, each end yields when it has
/// nothing to do.
///
/// # Errors
/// If a CPU does not exist, or a buffer did not arrive as it was sent.
pub fn measure(
    size: usize,
    duration: Duration,
    middle: usize,
    ends: (usize, usize),
) -> io::Result<Limit> {
    assert!(size >= 8, "a buffer holds a word");
    let (input, output) = (Ring::new(size), Ring::new(size));
    let stop = AtomicBool::new(false);
    let sharing = ends.0 == ends.1;
    let pin = |cpu: usize| {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)
    };
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin(ends.0)?;
            send(&input, &stop, sharing);
            io::Result::Ok(())
        });
        let copier = scope.spawn(|| {
            pin(middle)?;
            copy(&input, &output, size, &stop);
            io::Result::Ok(())
        });
        let receiver = scope.spawn(|| {
            pin(ends.1)?;
            receive(&output, &stop, sharing)
        });
        // The first tenth lets caches and clock frequencies settle.
        std::thread::sleep(duration / 10);
        let arrived = || output.indices.emptied.load(Ordering::Acquire);
        let (before, start) = (arrived(), clock::ticks());
        std::thread::sleep(duration);
        let (after, end) = (arrived(), clock::ticks());
        stop.store(true, Ordering::Release);
        for thread in [sender, copier, receiver] {
            thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
        }
        let seconds = (end - start) as f64 / clock::ticks_per_second() as f64;
        Ok(Limit { frames: after - before, elapsed: Duration::from_secs_f64(seconds) })
    })
}

fn send(ring: &Ring, stop: &AtomicBool, sharing: bool) {
    let (mut filled, mut emptied) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        if filled - emptied == SLOTS {
            emptied = ring.indices.emptied.load(Ordering::Acquire);
            if filled - emptied == SLOTS {
                rest(sharing);
                continue;
            }
        }
        let until = (filled + BATCH).min(emptied + SLOTS);
        for index in filled..until {
            if index + 16 < emptied + SLOTS {
                cache::prefetch_to_write(ring.buffer(index + 16).as_ptr());
            }
            // SAFETY: the buffer belongs to the sender and holds at least a word.
            unsafe { ring.buffer(index).cast::<u64>().write(index) };
        }
        filled = until;
        ring.indices.filled.store(filled, Ordering::Release);
    }
}

fn copy(input: &Ring, output: &Ring, size: usize, stop: &AtomicBool) {
    let (mut done, mut filled, mut emptied) = (0, 0, 0);
    while !stop.load(Ordering::Relaxed) {
        if filled == done {
            filled = input.indices.filled.load(Ordering::Acquire);
        }
        if done - emptied == SLOTS {
            emptied = output.indices.emptied.load(Ordering::Acquire);
        }
        let until = filled.min(emptied + SLOTS).min(done + BATCH);
        if until == done {
            std::hint::spin_loop();
            continue;
        }
        for index in done..until {
            if index + 8 < until {
                cache::prefetch_to_read(input.buffer(index + 8).as_ptr());
                cache::prefetch_to_write(output.buffer(index + 8).as_ptr());
            }
            let (from, to) = (input.buffer(index), output.buffer(index));
            // SAFETY: both buffers belong to the middle and hold `size` bytes.
            unsafe { cache::copy(from.as_ptr(), to.as_ptr(), size) };
            cache::demote(to.as_ptr());
        }
        done = until;
        output.indices.filled.store(done, Ordering::Release);
        input.indices.emptied.store(done, Ordering::Release);
    }
}

fn receive(ring: &Ring, stop: &AtomicBool, sharing: bool) -> io::Result<()> {
    let (mut filled, mut emptied) = (0, 0u64);
    while !stop.load(Ordering::Relaxed) {
        if filled == emptied {
            filled = ring.indices.filled.load(Ordering::Acquire);
            if filled == emptied {
                rest(sharing);
                continue;
            }
        }
        let until = filled.min(emptied + BATCH);
        let mut wrong = 0;
        for index in emptied..until {
            if index + 16 < filled {
                cache::prefetch_to_read(ring.buffer(index + 16).as_ptr());
            }
            // SAFETY: the buffer belongs to the receiver and holds at least a word.
            wrong |= index ^ unsafe { ring.buffer(index).cast::<u64>().read() };
        }
        if wrong != 0 {
            stop.store(true, Ordering::Release);
            return Err(io::Error::other("a buffer did not arrive as it was sent"));
        }
        emptied = until;
        ring.indices.emptied.store(emptied, Ordering::Release);
    }
    Ok(())
}

/// Called when there is nothing to do.
fn rest(sharing: bool) {
    if sharing {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_buffers_arrive_in_order() {
        for size in [8, 64, 1500] {
            // A busy machine may not schedule all three threads within a short time.
            let arrives = (0..10).any(|doubled| {
                let time = Duration::from_millis(20 << doubled);
                measure(size, time, 0, (0, 0)).unwrap().frames > 0
            });
            assert!(arrives, "{size}");
        }
        assert!(measure(64, Duration::from_millis(1), 1 << 9, (0, 0)).is_err());
    }
}
