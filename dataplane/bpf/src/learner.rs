//! The control side of the learning program: it learns where stations are.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::attach::{XdpError, map_error};

/// `struct address`: a MAC address and two bytes of zero.
type Address = [u8; 8];
/// `struct station`: index of an interface (4 bytes), unused (4), time in ns (8).
type Station = [u8; 16];
type Stations = aya::maps::HashMap<MapData, Address, Station>;

/// `struct news`: a time in ns (8 bytes), a count (4), unused (4).
type News = [u8; 16];

/// Interval at which stations that have been silent for long are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Maximum number of known stations: the capacity of the program's table.
const STATIONS_MAX: usize = 16384;

/// The thread that learns where stations are.
pub(crate) struct Learner {
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    known: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Learner {
    pub(crate) fn start(
        ebpf: &mut Ebpf,
        interfaces: &[u32],
        age: Duration,
    ) -> Result<Self, XdpError> {
        let news = ebpf.map_mut("news").expect("the object has it");
        let mut news = aya::maps::HashMap::<_, u32, News>::try_from(news).map_err(map_error)?;
        for interface in interfaces {
            news.insert(interface, [0; 16], 0).map_err(map_error)?;
        }
        let mut take = |name| ebpf.take_map(name).expect("the object has it");
        let sightings = RingBuf::try_from(take("sightings")).map_err(map_error)?;
        let stations = Stations::try_from(take("stations")).map_err(map_error)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|errno| XdpError::Map(errno.into()))?);
        let (stop, known) = (Arc::<AtomicBool>::default(), Arc::default());
        let share = STATIONS_MAX / interfaces.len().max(1);
        let mut table =
            Table { stations, counts: HashMap::new(), share, known: Arc::clone(&known), age };
        let (is_stopped, woken) = (stop.clone(), wake.clone());
        let thread = thread::Builder::new()
            .name("dray-learner".to_owned())
            .spawn(move || table.run(sightings, &is_stopped, &woken))
            .map_err(XdpError::Map)?;
        Ok(Self { stop, wake, known, thread: Some(thread) })
    }

    /// Returns the number of known stations.
    pub(crate) fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }
}

impl Drop for Learner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A full counter wakes the thread as well.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Known stations, here and in the kernel.
struct Table<S = Stations> {
    stations: S,
    /// Number of stations behind each interface.
    counts: HashMap<u32, usize>,
    /// Maximum for one interface: one that invents stations does not take the others' place.
    share: usize,
    known: Arc<AtomicUsize>,
    age: Duration,
}

/// A table of stations by address.
trait StationMap {
    fn get(&self, address: &Address) -> Option<Station>;
    /// Returns true if there was room.
    fn set(&mut self, address: &Address, station: Station) -> bool;
    /// Returns true if the station was in the table.
    fn remove(&mut self, address: &Address) -> bool;
    fn all(&self) -> Vec<(Address, Station)>;
}

impl StationMap for Stations {
    fn get(&self, address: &Address) -> Option<Station> {
        self.get(address, 0).ok()
    }

    fn set(&mut self, address: &Address, station: Station) -> bool {
        self.insert(address, station, 0).is_ok()
    }

    fn remove(&mut self, address: &Address) -> bool {
        self.remove(address).is_ok()
    }

    fn all(&self) -> Vec<(Address, Station)> {
        self.iter().filter_map(Result::ok).collect()
    }
}

impl Table {
    fn run(&mut self, mut sightings: RingBuf<MapData>, stop: &AtomicBool, wake: &OwnedFd) {
        let mut swept = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            // Bounded, so that a flood of sightings does not delay stopping.
            const AT_ONCE: usize = 1024;
            for _ in 0..AT_ONCE {
                let Some(sighting) = sightings.next() else { break };
                self.see(&sighting, now_ns());
            }
            if swept.elapsed() >= SWEEP {
                self.sweep(now_ns());
                swept = Instant::now();
            }
            // SAFETY: the ring outlives the call.
            let ring = unsafe { BorrowedFd::borrow_raw(sightings.as_raw_fd()) };
            let mut fds = [PollFd::new(&ring, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
            let patience = Timespec { tv_sec: SWEEP.as_secs() as i64, tv_nsec: 0 };
            // Interrupted or not, the next round finds out what is ready.
            let _ = poll(&mut fds, Some(&patience));
        }
    }
}

impl<S: StationMap> Table<S> {
    /// Records where a station was seen.
    fn see(&mut self, sighting: &[u8], now: u64) {
        let Some((station, interface)) = sighting.split_first_chunk() else { return };
        let Some(interface) = interface.first_chunk().copied().map(u32::from_ne_bytes) else {
            return;
        };
        let before = self.stations.get(station).map(|known| interface_of(&known));
        if before == Some(interface) {
            return;
        }
        // A station that has moved is no longer at its old interface, even if there is no room for
        // it.
        if let Some(before) = before {
            self.forget(station, before);
        }
        let count = self.counts.entry(interface).or_default();
        let mut entry: Station = [0; 16];
        entry[..4].copy_from_slice(&interface.to_ne_bytes());
        entry[8..].copy_from_slice(&now.to_ne_bytes());
        // Frames to stations without an entry are flooded.
        if *count < self.share && self.stations.set(station, entry) {
            *count += 1;
        }
        self.publish();
    }

    /// Forgets stations that have been silent for longer than the age.
    fn sweep(&mut self, now: u64) {
        let age = u64::try_from(self.age.as_nanos()).unwrap_or(u64::MAX);
        for (address, station) in self.stations.all() {
            if now.saturating_sub(seen_ns(&station)) > age {
                self.forget(&address, interface_of(&station));
            }
        }
        self.publish();
    }

    fn forget(&mut self, address: &Address, interface: u32) {
        if self.stations.remove(address)
            && let Some(count) = self.counts.get_mut(&interface)
        {
            *count -= 1;
        }
    }

    fn publish(&self) {
        self.known.store(self.counts.values().sum(), Ordering::Relaxed);
    }
}

fn interface_of(station: &Station) -> u32 {
    u32::from_ne_bytes(*station.first_chunk().expect("16 bytes"))
}

fn seen_ns(station: &Station) -> u64 {
    u64::from_ne_bytes(*station.last_chunk().expect("16 bytes"))
}

/// Returns the time of the monotonic clock, which the program reads as well.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    impl StationMap for HashMap<Address, Station> {
        fn get(&self, address: &Address) -> Option<Station> {
            self.get(address).copied()
        }

        fn set(&mut self, address: &Address, station: Station) -> bool {
            self.insert(*address, station);
            true
        }

        fn remove(&mut self, address: &Address) -> bool {
            self.remove(address).is_some()
        }

        fn all(&self) -> Vec<(Address, Station)> {
            self.iter().map(|(address, station)| (*address, *station)).collect()
        }
    }

    type TestTable = Table<HashMap<Address, Station>>;

    fn table(share: usize) -> TestTable {
        let age = Duration::from_nanos(100);
        Table {
            stations: HashMap::new(),
            counts: HashMap::new(),
            share,
            known: Arc::default(),
            age,
        }
    }

    fn address(number: u32) -> Address {
        u64::from(number).to_ne_bytes()
    }

    fn see(table: &mut TestTable, station: u32, interface: u32, now: u64) {
        let mut sighting = address(station).to_vec();
        sighting.extend(interface.to_ne_bytes());
        sighting.extend([0; 4]);
        table.see(&sighting, now);
    }

    fn whereabouts(table: &TestTable, station: u32) -> Option<u32> {
        StationMap::get(&table.stations, &address(station)).map(|station| interface_of(&station))
    }

    fn known(table: &TestTable) -> usize {
        let known = table.known.load(Ordering::Relaxed);
        assert_eq!(known, table.stations.len());
        known
    }

    #[test]
    fn stations_per_interface_are_bounded() {
        let mut table = table(10);
        (0..1000).for_each(|station| see(&mut table, station, 1, 0));
        assert_eq!(known(&table), 10);
        see(&mut table, 5000, 2, 0);
        assert_eq!((whereabouts(&table, 5000), known(&table)), (Some(2), 11));
        // It has moved to an interface without room: its old entry is gone.
        see(&mut table, 5000, 1, 0);
        assert_eq!((whereabouts(&table, 5000), known(&table)), (None, 10));
        see(&mut table, 3, 2, 0);
        assert_eq!((whereabouts(&table, 3), known(&table)), (Some(2), 10));
        see(&mut table, 5000, 1, 0);
        assert_eq!((whereabouts(&table, 5000), known(&table)), (Some(1), 11));
    }

    #[test]
    fn silent_stations_are_forgotten() {
        let mut table = table(10);
        see(&mut table, 1, 1, 50);
        see(&mut table, 2, 1, 120);
        // A truncated sighting is ignored.
        table.see(&[0; 9], 120);
        table.sweep(150);
        assert_eq!(known(&table), 2);
        table.sweep(151);
        assert_eq!((known(&table), whereabouts(&table, 1)), (1, None));
        // The clock that the program reads may be behind ours.
        table.sweep(0);
        assert_eq!(known(&table), 1);
    }
}
