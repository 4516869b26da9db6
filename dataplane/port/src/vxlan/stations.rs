//! Stations of the network by MAC address: which remote each one is behind.
//!
//! The receiving half writes, the transmitting halves read. An entry is one word, so it cannot be
//! torn. The table is of a fixed size, and the place of an address depends on a secret number: a
//! remote that sends from many addresses can fill it, but cannot crowd out a chosen station. Frames
//! for stations that are not in it go to all remotes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dray_wire::MacAddr;

use super::memory::{BUCKETS, LINE, Memory};

/// Entries of a bucket: with their times they fill a cache line.
const WAYS: usize = 5;
const REMOTE_BITS: u32 = 16;

/// A cache line: words of an address and its remote, of which 0 is a free entry; then, two to a
/// word, the seconds in which a frame of each station last arrived.
struct Bucket<'m>(&'m [AtomicU64; LINE]);

impl<'m> Bucket<'m> {
    #[inline]
    fn words(&self) -> &'m [AtomicU64] {
        &self.0[..WAYS]
    }

    #[inline]
    fn seen(&self, at: usize) -> u32 {
        (self.0[WAYS + at / 2].load(Relaxed) >> (u32::BITS as usize * (at % 2))) as u32
    }

    fn see(&self, at: usize, now: u32) {
        let (pair, shift) = (&self.0[WAYS + at / 2], u32::BITS as usize * (at % 2));
        let other = pair.load(Relaxed) & !(u64::from(u32::MAX) << shift);
        pair.store(other | u64::from(now) << shift, Relaxed);
    }
}

pub(super) struct Stations {
    memory: Memory,
    factor: u64,
    age_s: u32,
}

impl Stations {
    pub(super) fn new(memory: Memory, age_s: u32) -> Self {
        Self { factor: memory.factor(), memory, age_s }
    }

    fn bucket(&self, address: u64) -> Bucket<'_> {
        let mixed = address.wrapping_mul(self.factor);
        let number = mixed >> (u64::BITS - BUCKETS.trailing_zeros());
        Bucket(&self.memory.buckets()[number as usize])
    }

    /// Returns the remote that the station is behind. `now` is in seconds.
    #[inline]
    pub(super) fn lookup(&self, mac: MacAddr, now: u32) -> Option<u16> {
        let address = number(mac);
        let bucket = self.bucket(address);
        for (at, word) in bucket.words().iter().enumerate() {
            let word = word.load(Relaxed);
            if word >> REMOTE_BITS == address && word != 0 {
                return self.is_young(bucket.seen(at), now).then_some(word as u16);
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
        for (at, known) in bucket.words().iter().enumerate() {
            if known.load(Relaxed) == word {
                if bucket.seen(at) != now {
                    bucket.see(at, now);
                }
                return;
            }
        }
        if mac.is_station() {
            self.change(&bucket, word, now);
        }
    }

    /// Adds a station, or moves it to another remote.
    #[cold]
    fn change(&self, bucket: &Bucket<'_>, word: u64, now: u32) {
        let words = bucket.words();
        let load = |at: usize| words[at].load(Relaxed);
        let is_free = |at: &usize| load(*at) == 0 || !self.is_young(bucket.seen(*at), now);
        let known = (0..WAYS).find(|at| load(*at) >> REMOTE_BITS == word >> REMOTE_BITS);
        // Without a free entry the station's frames go to all remotes.
        if let Some(at) = known.or_else(|| (0..WAYS).find(is_free)) {
            words[at].store(word, Relaxed);
            bucket.see(at, now);
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
    use std::os::fd::AsFd;

    use super::super::memory::Limits;
    use super::*;

    fn memory() -> Memory {
        Memory::create(Limits { frame_max: 1514, longest: 1514 }).unwrap()
    }

    #[test]
    fn next_process_knows_stations_of_the_one_before() {
        let memory = memory();
        let stations = Stations::new(memory.clone(), 10);
        (0..100).for_each(|id| stations.learn(MacAddr::local(id), id as u16, 5));
        let copy = Memory::of(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let next = Stations::new(copy, 10);
        let known = |id: &u64| next.lookup(MacAddr::local(*id), 6) == Some(*id as u16);
        // More may come to a bucket than it has room for.
        assert!((0..100).filter(known).count() > 90);
    }

    #[test]
    fn stations_move_and_age() {
        let stations = Stations::new(memory(), 10);
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
        let stations = Stations::new(memory(), 10);
        for mac in [MacAddr([0xff; 6]), MacAddr([1, 0, 0, 0, 0, 0]), MacAddr([0; 6])] {
            stations.learn(mac, 3, 0);
            assert_eq!(stations.lookup(mac, 0), None, "{mac}");
        }
    }

    #[test]
    fn full_table_keeps_young_stations() {
        let stations = Stations::new(memory(), 10);
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
