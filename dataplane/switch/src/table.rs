//! The MAC address table of learning mode: which station is behind which port.
//!
//! Workers look up and learn for every frame, so both cost one read of one cache line as long as
//! nothing changes. A bucket is such a line:
//!
//! ```text
//! byte 0     8     16    24    32    40    48                60    64
//!      ┌─────┬─────┬─────┬─────┬─────┬─────┬─────────────────┬─────┐
//!      │word0│word1│word2│word3│word4│word5│ stamps, 6 × u16 │     │
//!      └─────┴─────┴─────┴─────┴─────┴─────┴─────────────────┴─────┘
//!  word: │ rest of the mixed key (48) │ port + 1 (16) │   0: free
//! ```
//!
//! **An entry is one word, so it cannot be torn**: a reader sees an address with a port that it was
//! learned on, or does not see it, and no memory ordering is needed between words. Address and VLAN
//! are 60 bits and a port 16, which is more than a word. So the key is mixed by a bijection: the
//! bits that select the bucket need not be stored, and the stored bits still identify exactly one
//! key.
//!
//! **Untrusted peers.** A port may send as many source addresses as it likes, on purpose. It gets a
//! limited number of entries, no entry is ever evicted for another port's, and the mixing depends
//! on secret random numbers, so that addresses cannot be chosen to crowd one bucket. A port can
//! take over another port's address by using it, as on any learning switch.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dray_wire::MacAddr;

/// Limit of port numbers, exclusive.
pub const PORTS_MAX: usize = 4096;
/// Minimum capacity of a table: the bits that select a bucket are not stored, and with fewer
/// buckets the remaining bits would not fit a word.
pub const CAPACITY_MIN: usize = 8192;
/// Maximum capacity of a table.
pub const CAPACITY_MAX: usize = 1 << 20;
/// Longest age that [`Table::expire`] can distinguish.
pub const AGE_MAX: u16 = i16::MAX as u16;

const SLOTS: usize = 6;
const KEY_BITS: u32 = 60;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
const PORT_BITS: u32 = 16;

/// The MAC address table; see the module documentation.
///
/// ```
/// use dray_switch::Table;
/// use dray_switch::table::Learned;
/// use dray_wire::MacAddr;
///
/// // At most two stations on each port.
/// let table = Table::new(8192, 2);
/// let station = |id| MacAddr([2, 0, 0, 0, 0, id]);
/// assert_eq!(table.learn(0, station(1), 5, 0), Learned::Added);
/// assert_eq!(table.learn(0, station(1), 5, 0), Learned::Nothing);
/// assert_eq!(table.learn(0, station(2), 5, 0), Learned::Added);
/// assert_eq!(table.learn(0, station(3), 5, 0), Learned::Refused);
/// assert_eq!(table.lookup(0, station(1)), Some(5));
/// assert_eq!(table.lookup(7, station(1)), None, "another VLAN");
/// ```
pub struct Table {
    buckets: Box<[Bucket]>,
    /// Right shift that turns a mixed key into the index of its bucket.
    shift: u32,
    mixer: Mixer,
    /// Number of addresses learned by port; changed by the writer only.
    learned: Box<[AtomicU32]>,
    port_limit: u32,
    /// Lock of a thread that adds, moves or removes entries. Workers never wait for it.
    writer: Mutex<()>,
}

/// Effect of a frame on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// No change: the station was known there, the address is not that of a station, or another
    /// thread is changing the table at present; the station's next frame will be learned then.
    Nothing,
    /// A new station.
    Added,
    /// A known station, now at another port.
    Moved,
    /// No change: the port has used up its share, or the table is full.
    Refused,
    /// No change: the caller did not allow one.
    Limited,
}

/// One known station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// VLAN; 0 for ports without VLANs.
    pub vlan: u16,
    /// Address of the station.
    pub mac: MacAddr,
    /// Port that the station is behind.
    pub port: u16,
    /// Time since the station was last seen, in units of the stamps.
    pub age: u16,
}

#[repr(C, align(64))]
#[derive(Default)]
struct Bucket {
    words: [AtomicU64; SLOTS],
    stamps: [AtomicU16; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Table {
    /// Creates a table for `capacity` addresses, at most `port_limit` of them for each port. It has
    /// more room than requested, so that hardly any bucket overflows before that.
    pub fn new(capacity: usize, port_limit: u32) -> Self {
        let capacity = capacity.clamp(CAPACITY_MIN, CAPACITY_MAX);
        let buckets = (capacity / 2).next_power_of_two();
        Self {
            buckets: std::iter::repeat_with(Bucket::default).take(buckets).collect(),
            shift: KEY_BITS - buckets.trailing_zeros(),
            mixer: Mixer::random(),
            learned: std::iter::repeat_with(AtomicU32::default).take(PORTS_MAX).collect(),
            port_limit,
            writer: Mutex::new(()),
        }
    }

    /// Returns the port where `mac` was last seen.
    #[inline]
    pub fn lookup(&self, vlan: u16, mac: MacAddr) -> Option<u16> {
        let (bucket, rest) = self.place(key(vlan, mac));
        for word in &bucket.words {
            let word = word.load(Relaxed);
            if word >> PORT_BITS == rest && word != 0 {
                return port_of(word);
            }
        }
        None
    }

    /// Records that a frame from `mac` was received on `port` at the time `now`, in any fixed unit.
    /// A station already known there costs two reads, and one write per unit of time.
    #[inline]
    pub fn learn(&self, vlan: u16, mac: MacAddr, port: u16, now: u32) -> Learned {
        self.learn_if(vlan, mac, port, now, || true)
    }

    /// Like [`learn`](Self::learn), but only changes an entry if `may` allows it.
    #[inline]
    pub fn learn_if(
        &self,
        vlan: u16,
        mac: MacAddr,
        port: u16,
        now: u32,
        may: impl FnOnce() -> bool,
    ) -> Learned {
        let key = key(vlan, mac);
        let (bucket, rest) = self.place(key);
        let word = word(rest, port);
        for (slot, stamp) in bucket.words.iter().zip(&bucket.stamps) {
            if slot.load(Relaxed) == word {
                // Workers share the line: it is written only when the stamp changes.
                if stamp.load(Relaxed) != now as u16 {
                    stamp.store(now as u16, Relaxed);
                }
                return Learned::Nothing;
            }
        }
        self.change(key, port, now, may)
    }

    /// Adds or moves a station.
    #[cold]
    fn change(&self, key: u64, port: u16, now: u32, may: impl FnOnce() -> bool) -> Learned {
        if !is_station(key) {
            return Learned::Nothing;
        }
        if !may() {
            return Learned::Limited;
        }
        let Some(learned) = self.learned.get(usize::from(port)) else { return Learned::Refused };
        if learned.load(Relaxed) >= self.port_limit {
            return Learned::Refused;
        }
        let Ok(_writer) = self.writer.try_lock() else { return Learned::Nothing };
        // Other threads may have written meanwhile: only under the lock do the reads stay valid.
        if learned.load(Relaxed) >= self.port_limit {
            return Learned::Refused;
        }
        let (bucket, rest) = self.place(key);
        let words = bucket.words.each_ref().map(|word| word.load(Relaxed));
        let known = words.iter().position(|word| *word != 0 && word >> PORT_BITS == rest);
        let Some(slot) = known.or_else(|| words.iter().position(|word| *word == 0)) else {
            return Learned::Refused;
        };
        if let Some(before) = port_of(words[slot]) {
            self.learned[usize::from(before)].fetch_sub(1, Relaxed);
        }
        learned.fetch_add(1, Relaxed);
        bucket.stamps[slot].store(now as u16, Relaxed);
        bucket.words[slot].store(word(rest, port), Relaxed);
        if known.is_some() { Learned::Moved } else { Learned::Added }
    }

    /// Forgets stations not seen for longer than `max_age`, at most [`AGE_MAX`]. Call it more often
    /// than the stamps wrap, which is every 65536 units.
    pub fn expire(&self, now: u32, max_age: u16) {
        self.retain(|_, stamp| age(now, stamp) <= max_age);
    }

    /// Forgets all stations behind `port`. No worker may learn from that port any more.
    pub fn remove_port(&self, port: u16) {
        self.retain(|of, _| of != port);
    }

    /// Forgets all stations.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    fn retain(&self, keep: impl Fn(u16, u16) -> bool) {
        let _writer = self.lock();
        for bucket in &self.buckets {
            for (word, stamp) in bucket.words.iter().zip(&bucket.stamps) {
                if let Some(port) = port_of(word.load(Relaxed))
                    && !keep(port, stamp.load(Relaxed))
                {
                    word.store(0, Relaxed);
                    self.learned[usize::from(port)].fetch_sub(1, Relaxed);
                }
            }
        }
    }

    /// Returns all stations, ordered by VLAN and address.
    pub fn entries(&self, now: u32) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.len());
        for (number, bucket) in self.buckets.iter().enumerate() {
            for (word, stamp) in bucket.words.iter().zip(&bucket.stamps) {
                let word = word.load(Relaxed);
                let Some(port) = port_of(word) else { continue };
                let key = self.mixer.unmix((number as u64) << self.shift | word >> PORT_BITS);
                let [_, _, mac @ ..] = key.to_be_bytes();
                entries.push(Entry {
                    vlan: (key >> 48) as u16,
                    mac: MacAddr(mac),
                    port,
                    age: age(now, stamp.load(Relaxed)),
                });
            }
        }
        entries.sort_unstable();
        entries
    }

    /// Returns the number of known stations.
    pub fn len(&self) -> usize {
        self.learned.iter().map(|learned| learned.load(Relaxed) as usize).sum()
    }

    /// Returns true if no station is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of stations known behind `port`.
    pub fn learned_on(&self, port: u16) -> u32 {
        self.learned.get(usize::from(port)).map_or(0, |learned| learned.load(Relaxed))
    }

    #[inline]
    fn place(&self, key: u64) -> (&Bucket, u64) {
        let mixed = self.mixer.mix(key);
        let bucket = (mixed >> self.shift) as usize;
        (&self.buckets[bucket], mixed & ((1 << self.shift) - 1))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline]
fn key(vlan: u16, mac: MacAddr) -> u64 {
    let MacAddr([a, b, c, d, e, f]) = mac;
    u64::from(vlan & 0xfff) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Returns true if the address is that of one station: neither a group address nor all zeros.
fn is_station(key: u64) -> bool {
    let group = 1 << 40;
    key & group == 0 && key << 16 != 0
}

#[inline]
fn word(rest: u64, port: u16) -> u64 {
    rest << PORT_BITS | (u64::from(port) + 1)
}

fn port_of(word: u64) -> Option<u16> {
    (word as u16).checked_sub(1)
}

/// Age of a stamp. A worker's clock may be a little ahead of the caller's: such a stamp is new, not
/// very old.
fn age(now: u32, stamp: u16) -> u16 {
    let age = (now as u16).wrapping_sub(stamp);
    if age > AGE_MAX { 0 } else { age }
}

/// A bijection of 60-bit numbers with two secret odd factors. The high bits of the result depend on
/// all bits of the key; the probability that two keys share them is at most twice the minimum
/// possible ([multiply-shift](https://doi.org/10.1006/jagm.1997.0873)).
struct Mixer {
    factors: [u64; 2],
    inverses: [u64; 2],
}

impl Mixer {
    fn random() -> Self {
        // The standard library's hash keys come from the operating system's random numbers.
        let factors = [(); 2].map(|()| RandomState::new().build_hasher().finish() | 1);
        Self { factors, inverses: factors.map(inverse) }
    }

    #[inline]
    fn mix(&self, key: u64) -> u64 {
        let mixed = key.wrapping_mul(self.factors[0]) & KEY_MASK;
        (mixed ^ mixed >> (KEY_BITS / 2)).wrapping_mul(self.factors[1]) & KEY_MASK
    }

    fn unmix(&self, mixed: u64) -> u64 {
        let key = mixed.wrapping_mul(self.inverses[1]) & KEY_MASK;
        (key ^ key >> (KEY_BITS / 2)).wrapping_mul(self.inverses[0]) & KEY_MASK
    }
}

/// Returns the inverse of an odd number modulo 2⁶⁴, by Newton's iteration: the correct bits double
/// from 3 each time.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    fn station(id: u64) -> MacAddr {
        MacAddr::local(id)
    }

    #[test]
    fn lookup_finds_last_port_within_vlan() {
        let table = Table::new(CAPACITY_MIN, 10);
        assert_eq!(table.learn(7, station(1), 3, 0), Learned::Added);
        assert_eq!(table.learn(7, station(1), 3, 1), Learned::Nothing);
        assert_eq!(table.lookup(7, station(1)), Some(3));
        assert_eq!(table.lookup(8, station(1)), None);
        assert_eq!(table.learn(7, station(1), 4, 2), Learned::Moved);
        assert_eq!(table.lookup(7, station(1)), Some(4));
        assert_eq!((table.learned_on(3), table.learned_on(4), table.len()), (0, 1, 1));
        let entry = Entry { vlan: 7, mac: station(1), port: 4, age: 3 };
        assert_eq!(table.entries(5), [entry]);
    }

    #[test]
    fn group_and_zero_addresses_are_not_learned() {
        let table = Table::new(CAPACITY_MIN, 10);
        for mac in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1], [3, 0, 0, 0, 0, 0]] {
            assert_eq!(table.learn(0, MacAddr(mac), 1, 0), Learned::Nothing);
            assert_eq!(table.lookup(0, MacAddr(mac)), None);
        }
        assert!(table.is_empty());
    }

    #[test]
    fn address_limit_leaves_room_for_other_ports() {
        let table = Table::new(CAPACITY_MIN, 100);
        assert_eq!(table.learn(0, station(1), 1, 0), Learned::Added);
        let refused = (10..100_000).filter(|id| {
            // Not even by taking over addresses that others have learned, once its share is used
            // up.
            table.learn(0, station(*id), 2, 0) == Learned::Refused
        });
        assert_eq!(refused.count(), 100_000 - 10 - 100);
        assert_eq!(table.learn(0, station(1), 2, 0), Learned::Refused);
        assert_eq!(table.lookup(0, station(1)), Some(1));
        assert_eq!(table.learn(0, station(2), 1, 0), Learned::Added);
        assert_eq!(table.learn(0, station(3), PORTS_MAX as u16, 0), Learned::Refused);
        table.remove_port(2);
        assert_eq!((table.len(), table.learned_on(2)), (2, 0));
    }

    #[test]
    fn full_table_refuses_and_keeps_stations() {
        let table = Table::new(CAPACITY_MIN, u32::MAX);
        let mut known = Vec::new();
        for id in 0..50_000 {
            match table.learn(0, station(id), (id % 7) as u16, 0) {
                Learned::Added => known.push(id),
                other => assert_eq!(other, Learned::Refused),
            }
            // The requested capacity is available, except for the few stations whose bucket is
            // full.
            assert!(id + 1 != CAPACITY_MIN as u64 || known.len() > CAPACITY_MIN * 98 / 100);
        }
        assert_eq!(table.len(), known.len());
        assert!(known.iter().all(|id| table.lookup(0, station(*id)) == Some((id % 7) as u16)));
    }

    #[test]
    fn stamp_ahead_of_clock_counts_as_new() {
        let table = Table::new(CAPACITY_MIN, 10);
        table.learn(0, station(1), 1, 65_540);
        table.expire(65_539, 0);
        assert_eq!(table.len(), 1);
        table.expire(65_541, 0);
        assert!(table.is_empty());
    }

    /// Readers race with a writer that adds, moves and removes stations: each station has its own
    /// ports, so that a mixed-up entry is detected.
    #[test]
    fn concurrent_lookup_never_mixes_stations() {
        let table = Table::new(CAPACITY_MIN, 10);
        let stations = 200;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for worker in 0..2 {
                let (table, stop) = (&table, &stop);
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        for id in 0..stations {
                            let port = id as u16 * 4;
                            let found = table.lookup(0, station(id));
                            assert!(found.is_none_or(|found| found / 4 == id as u16));
                            table.learn(0, station(id), port + worker, 0);
                        }
                    }
                });
            }
            for round in 0..500 {
                match round % 3 {
                    0 => table.clear(),
                    1 => table.expire(1, 0),
                    _ => table.remove_port(4),
                }
                let entries = table.entries(0);
                assert!(
                    entries.iter().all(|entry| entry.mac == station(u64::from(entry.port / 4)))
                );
                assert!(
                    entries.windows(2).all(|pair| pair[0].mac < pair[1].mac),
                    "duplicate entry"
                );
            }
            stop.store(true, Relaxed);
        });
        assert_eq!(table.len(), table.entries(0).len());
    }

    #[derive(Clone, Debug)]
    enum Op {
        Learn { vlan: u16, id: u64, port: u16 },
        Expire { max_age: u16 },
        Forget { port: u16 },
        Sleep { time: u32 },
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..3u16, 0..20u64, 0..4u16)
                .prop_map(|(vlan, id, port)| Op::Learn { vlan, id, port }),
            1 => (0..300u16).prop_map(|max_age| Op::Expire { max_age }),
            1 => (0..4u16).prop_map(|port| Op::Forget { port }),
            1 => (0..200u32).prop_map(|time| Op::Sleep { time }),
        ]
    }

    proptest! {
        #[test]
        fn table_agrees_with_ordered_map(ops in prop::collection::vec(op(), 0..200), start: u16) {
            let limit = 12;
            let table = Table::new(CAPACITY_MIN, limit);
            let mut oracle = BTreeMap::<(u16, MacAddr), (u16, u32)>::new();
            let mut now = u32::from(start);
            for op in ops {
                match op {
                    Op::Learn { vlan, id, port } => {
                        let key = (vlan, station(id));
                        let count = oracle.values().filter(|(of, _)| *of == port).count();
                        let before = oracle.get(&key).map(|(of, _)| *of);
                        let expected = match before {
                            Some(before) if before == port => Learned::Nothing,
                            _ if count >= limit as usize => Learned::Refused,
                            Some(_) => Learned::Moved,
                            None => Learned::Added,
                        };
                        prop_assert_eq!(table.learn(vlan, key.1, port, now), expected);
                        if expected != Learned::Refused {
                            oracle.insert(key, (port, now));
                        }
                    }
                    Op::Expire { max_age } => {
                        table.expire(now, max_age);
                        oracle.retain(|_, (_, at)| now - *at <= u32::from(max_age));
                    }
                    Op::Forget { port } => {
                        table.remove_port(port);
                        oracle.retain(|_, (of, _)| *of != port);
                    }
                    Op::Sleep { time } => now += time,
                }
                for vlan in 0..3 {
                    for mac in (0..20).map(station) {
                        let port = oracle.get(&(vlan, mac)).map(|(port, _)| *port);
                        prop_assert_eq!(table.lookup(vlan, mac), port);
                    }
                }
                let entries = oracle.iter().map(|(&(vlan, mac), &(port, at))| {
                    Entry { vlan, mac, port, age: age(now, at as u16) }
                });
                prop_assert_eq!(table.entries(now), entries.collect::<Vec<_>>());
                prop_assert_eq!(table.len(), oracle.len());
            }
        }

        #[test]
        fn unmix_inverts_mix(key in 0..=KEY_MASK) {
            let mixer = Mixer::random();
            prop_assert!(mixer.mix(key) <= KEY_MASK);
            prop_assert_eq!(mixer.unmix(mixer.mix(key)), key);
        }
    }
}
