//! A ring of records of any length, from one writer, which never waits, to one reader in another
//! process. Neither trusts the other: the writer reads only the reader's position, and treats an
//! invalid one as a full ring; the reader checks the length of each record.
//!
//! ```text
//!     0   head u64                    (writer) bytes written so far
//!    64   tail u64                    (reader) bytes read so far
//!   128   missed u64 × 4096           (writer) records that found no room, by source
//! 32896   data: records of length u64 | bytes, each padded to a multiple of 8
//! ```
//!
//! A record may continue at the beginning of the data. Everything is in the machine's own byte
//! order.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use dray_shm::Mapping;

use crate::sync::{AtomicU64, Ordering};

/// Number of sources whose missed records are counted by themselves: numbers from 0 on.
pub const SOURCES: usize = 4096;

/// The part before the data.
#[repr(C, align(64))]
struct Header {
    head: AtomicU64,
    _line: [u8; 56],
    tail: AtomicU64,
    _tail_line: [u8; 56],
    missed: [AtomicU64; SOURCES],
}

const HEADER_LEN: usize = 128 + 8 * SOURCES;
const _: () = assert!(size_of::<Header>() == HEADER_LEN);

/// Length of the length.
const LENGTH: usize = 8;

/// The memory cannot contain a ring, or the writer has written an invalid record.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("ring of records: {0}")]
pub struct RecordsError(String);

/// The mapped memory of a ring.
#[derive(Clone)]
struct Place {
    header: NonNull<Header>,
    data: NonNull<u8>,
    /// Length of the data, a power of two.
    size: usize,
    /// Keeps the memory mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: the header consists of atomics; the data is only accessed by copies through raw pointers,
// in ranges that one side leaves to the other.
unsafe impl Send for Place {}

/// Returns the number of bytes that a ring with `size` bytes of data takes.
pub const fn len(size: usize) -> usize {
    HEADER_LEN + size
}

impl Place {
    fn new(mapping: &Arc<Mapping>, offset: usize, size: usize) -> Result<Self, RecordsError> {
        let fits = offset.checked_add(HEADER_LEN).and_then(|sum| sum.checked_add(size));
        let fits = fits.is_some_and(|end| end <= mapping.len());
        if !fits || !size.is_power_of_two() || size < LENGTH {
            let len = mapping.len();
            let what =
                format!("{size} bytes of data at {offset} of {len}: give a power of two that fits");
            return Err(RecordsError(what));
        }
        // SAFETY: within the mapping, by the check above.
        let start = unsafe { mapping.start().add(offset) };
        if start.addr().get() % align_of::<Header>() != 0 {
            return Err(RecordsError(format!("offset {offset}: give a multiple of 64")));
        }
        // SAFETY: as above.
        let data = unsafe { start.add(HEADER_LEN) };
        Ok(Self { header: start.cast(), data, size, _mapping: mapping.clone() })
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: mapped and aligned as `new` has checked, for as long as `_mapping` lives; all
        // fields are atomics.
        unsafe { self.header.as_ref() }
    }

    /// Copies `bytes` to the position `at`.
    #[inline]
    fn put(&self, at: u64, bytes: &[u8]) {
        let start = at as usize & (self.size - 1);
        let first = bytes.len().min(self.size - start);
        // SAFETY: both parts are within the data, since `bytes` is no longer than it.
        unsafe {
            assert!(bytes.len() <= self.size);
            let to = self.data.as_ptr();
            ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(start), first);
            ptr::copy_nonoverlapping(bytes.as_ptr().add(first), to, bytes.len() - first);
        }
    }

    /// Copies the bytes from the position `at` on to `bytes`.
    #[inline]
    fn get(&self, at: u64, bytes: &mut [u8]) {
        let start = at as usize & (self.size - 1);
        let first = bytes.len().min(self.size - start);
        // SAFETY: as in `put`.
        unsafe {
            assert!(bytes.len() <= self.size);
            let from = self.data.as_ptr();
            ptr::copy_nonoverlapping(from.add(start), bytes.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(from, bytes.as_mut_ptr().add(first), bytes.len() - first);
        }
    }
}

/// Returns the number of bytes that a record of `len` bytes takes.
#[inline]
fn room(len: usize) -> usize {
    (LENGTH + len).next_multiple_of(8)
}

/// The writing side.
pub struct RecordWriter {
    place: Place,
    head: u64,
    /// The reader's position when it was last read.
    tail: u64,
}

impl RecordWriter {
    /// Creates the writer of a new ring with `size` bytes of data at `offset` of `mapping`, all
    /// zero.
    pub fn new(mapping: &Arc<Mapping>, offset: usize, size: usize) -> Result<Self, RecordsError> {
        Ok(Self { place: Place::new(mapping, offset, size)?, head: 0, tail: 0 })
    }

    /// Writes a record that consists of `parts`; the reader sees it after
    /// [`publish`](Self::publish). Returns false if there is no room.
    #[inline]
    pub fn push(&mut self, parts: [&[u8]; 2]) -> bool {
        let len = parts[0].len() + parts[1].len();
        let room = room(len);
        if self.free() < room {
            self.tail = self.reader_position();
            if self.free() < room {
                return false;
            }
        }
        self.place.put(self.head, &(len as u64).to_ne_bytes());
        let at = self.head + LENGTH as u64;
        self.place.put(at, parts[0]);
        self.place.put(at + parts[0].len() as u64, parts[1]);
        self.head += room as u64;
        true
    }

    #[inline]
    fn free(&self) -> usize {
        self.place.size - (self.head - self.tail) as usize
    }

    /// Returns the reader's position; the last valid one if the present one is invalid.
    fn reader_position(&self) -> u64 {
        let tail = self.place.header().tail.load(Ordering::Acquire);
        if (self.tail..=self.head).contains(&tail) { tail } else { self.tail }
    }

    /// Makes all written records visible to the reader.
    #[inline]
    pub fn publish(&mut self) {
        self.place.header().head.store(self.head, Ordering::Release);
    }

    /// Counts records of `source` that found no room.
    pub fn miss(&mut self, source: usize, records: u64) {
        let missed = &self.place.header().missed[source.min(SOURCES - 1)];
        missed.store(missed.load(Ordering::Relaxed).wrapping_add(records), Ordering::Relaxed);
    }
}

/// The reading side.
pub struct RecordReader {
    place: Place,
    head: u64,
    tail: u64,
}

impl RecordReader {
    /// Creates the reader of the ring with `size` bytes of data at `offset` of `mapping`.
    pub fn new(mapping: &Arc<Mapping>, offset: usize, size: usize) -> Result<Self, RecordsError> {
        let place = Place::new(mapping, offset, size)?;
        let tail = place.header().tail.load(Ordering::Relaxed);
        Ok(Self { place, head: tail, tail })
    }

    /// Copies the next record to `record`; returns false if there is none.
    pub fn next(&mut self, record: &mut Vec<u8>) -> Result<bool, RecordsError> {
        if self.head == self.tail {
            self.head = self.place.header().head.load(Ordering::Acquire);
        }
        let there = self.head.wrapping_sub(self.tail);
        if there == 0 {
            return Ok(false);
        }
        let mut length = [0; LENGTH];
        let wrong = |what: &str| RecordsError(format!("{what} at {}", self.tail));
        if there > self.place.size as u64 || there < LENGTH as u64 {
            return Err(wrong("an impossible position of the writer"));
        }
        self.place.get(self.tail, &mut length);
        let len = u64::from_ne_bytes(length);
        if len > there - LENGTH as u64 || room(len as usize) as u64 > there {
            return Err(wrong("an impossible length of a record"));
        }
        record.resize(len as usize, 0);
        self.place.get(self.tail + LENGTH as u64, record);
        self.tail += room(len as usize) as u64;
        Ok(true)
    }

    /// Returns the room of the records that were read to the writer.
    pub fn release(&mut self) {
        self.place.header().tail.store(self.tail, Ordering::Release);
    }

    /// Returns how many records of `source` found no room.
    pub fn missed(&self, source: usize) -> u64 {
        self.place.header().missed[source.min(SOURCES - 1)].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use dray_shm::{MemoryFile, PageSize};
    use proptest::prelude::*;

    use super::*;

    const SIZE: usize = 256;

    fn mapping() -> Arc<Mapping> {
        let len = len(SIZE) as u64;
        let file = MemoryFile::create("test", len, PageSize::Normal).unwrap();
        Arc::new(Mapping::new(&file, 0, len).unwrap())
    }

    fn ring() -> (RecordWriter, RecordReader) {
        let mapping = mapping();
        let writer = RecordWriter::new(&mapping, 0, SIZE).unwrap();
        (writer, RecordReader::new(&mapping, 0, SIZE).unwrap())
    }

    proptest! {
        /// Like a queue that has room for `SIZE` bytes.
        #[test]
        fn records_arrive_in_order_or_find_no_room(steps in prop::collection::vec(0..70usize, 1..200)) {
            let (mut writer, mut reader) = ring();
            let mut queue = VecDeque::new();
            let (mut used, mut record) = (0, Vec::new());
            for (number, step) in steps.into_iter().enumerate() {
                if step < 60 {
                    let bytes = vec![number as u8; step];
                    let fits = used + room(step) <= SIZE;
                    prop_assert_eq!(writer.push(bytes.split_at(step / 3).into()), fits);
                    writer.publish();
                    if fits {
                        used += room(step);
                        queue.push_back(bytes);
                    }
                } else {
                    let next = reader.next(&mut record).unwrap().then_some(&record);
                    let expected = queue.pop_front();
                    prop_assert_eq!(next, expected.as_ref());
                    reader.release();
                    used -= expected.map_or(0, |bytes| room(bytes.len()));
                }
            }
        }

        /// Whatever the reader writes, the writer stays within the data and does not panic.
        #[test]
        fn lying_reader_only_fills_its_ring(tails in prop::collection::vec(any::<u64>(), 1..50)) {
            let (mut writer, reader) = ring();
            for tail in tails {
                for tail in [tail, tail % 1024, writer.head, writer.head.wrapping_add(8)] {
                    reader.place.header().tail.store(tail, Ordering::Release);
                    writer.push([&[7; 100], &[]]);
                    writer.publish();
                    prop_assert!(writer.head - writer.tail <= SIZE as u64);
                }
            }
        }

        /// Whatever the writer writes, the reader gets a record, nothing or an error.
        #[test]
        fn lying_writer_is_an_error(words in prop::collection::vec(any::<u64>(), SIZE / 8), head: u64) {
            let (writer, mut reader) = ring();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            writer.place.put(0, &bytes);
            for head in [head, head % 512, 16] {
                writer.place.header().head.store(head, Ordering::Release);
                let mut record = Vec::new();
                for _ in 0..8 {
                    if reader.next(&mut record).is_err() {
                        break;
                    }
                    prop_assert!(record.len() <= SIZE);
                }
            }
        }
    }

    #[test]
    fn missed_records_are_counted_by_source() {
        let (mut writer, reader) = ring();
        for (source, records) in [(0, 2), (7, 3), (7, 1), (SOURCES, 5), (usize::MAX, 1)] {
            writer.miss(source, records);
        }
        let missed = [0, 1, 7, SOURCES - 1].map(|source| reader.missed(source));
        assert_eq!(missed, [2, 0, 4, 6]);
    }

    #[test]
    fn ring_outside_its_memory_is_refused() {
        let mapping = mapping();
        for (offset, size) in
            [(64, SIZE), (0, 2 * SIZE), (0, 255), (0, 0), (usize::MAX, SIZE), (8, 128)]
        {
            assert!(RecordWriter::new(&mapping, offset, size).is_err(), "{offset} {size}");
        }
    }
}
