//! Hash table from a key (a TEID or a user's address) to a session number.
//!
//! A table belongs to one worker, which alone reads and changes it. It is plain memory, and a
//! lookup costs one cache line, which can be prefetched. The table has room for a fixed number of
//! keys, since growing it would delay packets.

use std::hash::{BuildHasher, Hasher, RandomState};

use dray_port::prefetch;
use dray_shm::vec_in_huge_pages;

/// Keys per bucket: as many as fit a cache line.
const KEYS: usize = 5;
/// Average keys per bucket in a full table: one key in 12 then lies in a later bucket than its own.
const FILL: usize = 3;

/// A bucket of keys: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket {
    keys: [u64; KEYS],
    /// Session numbers plus one; 0 if there is no key.
    numbers: [u32; KEYS],
    /// Number of keys that hashed to this bucket or an earlier one and lie behind it because it was
    /// full.
    passed: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// A table of keys.
#[derive(Debug)]
pub(crate) struct Table {
    buckets: Vec<Bucket>,
    /// Odd and secret, so that senders cannot know which keys share a bucket.
    factor: u64,
    len: usize,
}

/// The table has no room for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Table {
    /// Creates a table with room for `keys` keys.
    pub(crate) fn new(keys: usize) -> Self {
        // The hash keys of the standard library come from the operating system's random numbers.
        let factor = RandomState::new().build_hasher().finish() | 1;
        let count = keys.div_ceil(FILL).max(2);
        let mut buckets = vec_in_huge_pages(count);
        buckets.resize(count, Bucket::default());
        Self { buckets, factor, len: 0 }
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        // Multiplication moves differences to the high bits, so the high half is mixed in once
        // more.
        let mixed = key.wrapping_mul(self.factor);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(self.factor);
        // Scales the high half, a fraction of 2³², to the number of buckets.
        ((mixed >> 32) as usize * self.buckets.len()) >> 32
    }

    #[inline(always)]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// Prefetches the bucket that `key` hashes to, and returns the bucket's number.
    #[inline(always)]
    pub(crate) fn prefetch(&self, key: u64) -> u32 {
        let home = self.home(key);
        prefetch(&self.buckets[home]);
        home as u32
    }

    /// Returns the number of `key`.
    pub(crate) fn find(&self, key: u64) -> Option<u32> {
        self.find_from(self.home(key) as u32, key)
    }

    /// Returns the number of `key`, for which [`prefetch`](Self::prefetch) returned `home`.
    #[inline(always)]
    pub(crate) fn find_from(&self, home: u32, key: u64) -> Option<u32> {
        let mut at = home as usize;
        // In a nearly full table every bucket may have been passed.
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            for (known, number) in bucket.keys.iter().zip(bucket.numbers) {
                if *known == key && number != 0 {
                    return Some(number - 1);
                }
            }
            if bucket.passed == 0 {
                break;
            }
            at = self.next(at);
        }
        None
    }

    /// Inserts `key`, or gives it another number.
    pub(crate) fn insert(&mut self, key: u64, number: u32) -> Result<(), Full> {
        self.remove(key);
        if self.len == self.buckets.len() * KEYS {
            return Err(Full);
        }
        let mut at = self.home(key);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(free) = bucket.numbers.iter().position(|number| *number == 0) {
                bucket.keys[free] = key;
                bucket.numbers[free] = number + 1;
                self.len += 1;
                return Ok(());
            }
            bucket.passed += 1;
            at = self.next(at);
        }
    }

    /// Removes `key`.
    pub(crate) fn remove(&mut self, key: u64) {
        if self.find(key).is_none() {
            return;
        }
        let mut at = self.home(key);
        loop {
            let bucket = &mut self.buckets[at];
            let known = bucket.keys.iter().zip(&bucket.numbers);
            let place = known.map(|(known, number)| *known == key && *number != 0);
            if let Some(place) = place.into_iter().position(|found| found) {
                bucket.numbers[place] = 0;
                self.len -= 1;
                return;
            }
            bucket.passed -= 1;
            at = self.next(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn table_agrees_with_hash_map(ops in prop::collection::vec((any::<bool>(), 0u64..40, 0u32..99), 0..400)) {
            // Small enough that buckets overflow.
            let mut table = Table::new(6);
            let room = table.buckets.len() * KEYS;
            let mut oracle = HashMap::new();
            for (insert, key, number) in ops {
                if insert {
                    let fits = oracle.contains_key(&key) || oracle.len() < room;
                    prop_assert_eq!(table.insert(key, number).is_ok(), fits);
                    if fits {
                        oracle.insert(key, number);
                    }
                } else {
                    table.remove(key);
                    oracle.remove(&key);
                }
                for key in 0..40 {
                    prop_assert_eq!(table.find(key), oracle.get(&key).copied());
                }
            }
            let keys: Vec<u64> = oracle.keys().copied().collect();
            keys.into_iter().for_each(|key| table.remove(key));
            prop_assert!(table.buckets.iter().all(|bucket| bucket.passed == 0 && bucket.numbers == [0; KEYS]));
        }
    }

    #[test]
    fn most_keys_are_in_their_own_bucket() {
        let mut table = Table::new(100_000);
        for key in 0..100_000 {
            table.insert(key, key as u32).unwrap();
        }
        let elsewhere: u32 = table.buckets.iter().map(|bucket| bucket.passed).sum();
        assert!(elsewhere < 20_000, "{elsewhere}");
        assert!((0..100_000).all(|key| table.find(key) == Some(key as u32)));
    }
}
