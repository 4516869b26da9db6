//! Stations of the network by MAC address: which remote each one is behind.
//!
//! The receiving half writes, the transmitting halves read. An entry is one word, so it cannot be
//! torn. The table is of a fixed size, and the place of an address depends on a secret number: a
//! remote that sends from many addresses can fill it, but cannot crowd out a chosen station. Frames
//! for stations that are not in it go to all remotes.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use dray_wire::MacAddr;

/// Entries of a bucket: with their times they fill a cache line.
const WAYS: usize = 5;
const BUCKETS: usize = 2048;
const REMOTE_BITS: u32 = 16;

/// An address and its remote; 0 is a free entry.
#[derive(Default)]
#[repr(align(64))]
struct Bucket {
    words: [AtomicU64; WAYS],
    /// Second in which a frame of the station last arrived.
    seen: [AtomicU32; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

pub(super) struct Stations {
    buckets: Box<[Bucket]>,
    factor: u64,
    age_s: u32,
}

impl Stations {
    pub(super) fn new(age_s: u32) -> Self {
        let buckets = std::iter::repeat_with(Bucket::default).take(BUCKETS).collect();
        Self { buckets, factor: RandomState::new().hash_one(()) | 1, age_s }
    }

    fn bucket(&self, address: u64) -> &Bucket {
        let mixed = address.wrapping_mul(self.factor);
        &self.buckets[(mixed >> (u64::BITS - BUCKETS.trailing_zeros())) as usize]
    }

    /// Returns the remote that the station is behind. `now` is in seconds.
    #[inline]
    pub(super) fn lookup(&self, mac: MacAddr, now: u32) -> Option<u16> {
        let address = number(mac);
        let Bucket { words, seen } = self.bucket(address);
        for (word, seen) in words.iter().zip(seen) {
            let word = word.load(Relaxed);
            if word >> REMOTE_BITS == address && word != 0 {
                return self.is_young(seen.load(Relaxed), now).then_some(word as u16);
            }
        }
        None
    }

    /// Records that a frame from the station arrived from a remote. Only one thread at a time may
    /// call this.
    #[inline]
    pub(super) fn learn(&self, mac: MacAddr, remote: u16, now: u32) {
        let address = number(mac);
        let word = address << REMOTE_BITS | u64::from(remote);
        let bucket = self.bucket(address);
        for (known, seen) in bucket.words.iter().zip(&bucket.seen) {
            if known.load(Relaxed) == word {
                if seen.load(Relaxed) != now {
                    seen.store(now, Relaxed);
                }
                return;
            }
        }
        if mac.is_station() {
            self.change(bucket, word, now);
        }
    }

    /// Adds a station, or moves it to another remote.
    #[cold]
    fn change(&self, bucket: &Bucket, word: u64, now: u32) {
        let words = bucket.words.each_ref().map(|word| word.load(Relaxed));
        let is_free =
            |at: &usize| words[*at] == 0 || !self.is_young(bucket.seen[*at].load(Relaxed), now);
        let known = words.iter().position(|known| known >> REMOTE_BITS == word >> REMOTE_BITS);
        // Without a free entry the station's frames go to all remotes.
        if let Some(at) = known.or_else(|| (0..WAYS).find(is_free)) {
            bucket.words[at].store(word, Relaxed);
            bucket.seen[at].store(now, Relaxed);
        }
    }

    fn is_young(&self, seen: u32, now: u32) -> bool {
        now.saturating_sub(seen) <= self.age_s
    }
}

fn number(MacAddr([a, b, c, d, e, f]): MacAddr) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_move_and_age() {
        let stations = Stations::new(10);
        let [a, b] = [1, 2].map(MacAddr::local);
        assert_eq!(stations.lookup(a, 0), None);
        stations.learn(a, 3, 5);
        stations.learn(b, 0, 5);
        assert_eq!([a, b].map(|mac| stations.lookup(mac, 6)), [Some(3), Some(0)]);
        stations.learn(a, 7, 7);
        assert_eq!([a, b].map(|mac| stations.lookup(mac, 16)), [Some(7), None]);
        stations.learn(a, 7, 17);
        assert_eq!(stations.lookup(a, 27), Some(7));
        assert_eq!(stations.lookup(a, 28), None);
    }

    #[test]
    fn group_and_zero_addresses_are_not_learned() {
        let stations = Stations::new(10);
        for mac in [MacAddr([0xff; 6]), MacAddr([1, 0, 0, 0, 0, 0]), MacAddr([0; 6])] {
            stations.learn(mac, 3, 0);
            assert_eq!(stations.lookup(mac, 0), None, "{mac}");
        }
    }

    #[test]
    fn full_table_keeps_young_stations() {
        let stations = Stations::new(10);
        let all = || (0..100_000).map(MacAddr::local);
        all().for_each(|mac| stations.learn(mac, 1, 0));
        let known: Vec<_> = all().filter(|mac| stations.lookup(*mac, 0) == Some(1)).collect();
        assert!((BUCKETS..=BUCKETS * WAYS).contains(&known.len()), "{}", known.len());
        (100_000..200_000).for_each(|id| stations.learn(MacAddr::local(id), 2, 10));
        assert!(known.iter().all(|mac| stations.lookup(*mac, 10) == Some(1)));
        // Old ones make room.
        (200_000..300_000).for_each(|id| stations.learn(MacAddr::local(id), 3, 21));
        assert!(known.iter().all(|mac| stations.lookup(*mac, 21).is_none()));
    }
}
