//! Programs that pass frames from interface to interface.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::xdp::DevMapHash;
use aya::maps::{MapData, RingBuf};
use aya::programs::Xdp;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::attach::{Attached, Mode, XdpError, load_error, map_error, system_error};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.o"));

/// A program attached to interfaces, whose frames it passes on among them.
pub struct Redirect {
    mode: Mode,
    learner: Option<Learner>,
    _attached: Vec<Attached>,
    _ebpf: Ebpf,
}

impl Redirect {
    /// What comes in at one of `interfaces`, indices in this network namespace, goes out at the other.
    pub fn pair(interfaces: [u32; 2], modes: &[Mode]) -> Result<Self, XdpError> {
        let mut ebpf = Ebpf::load(OBJECT).map_err(load_error)?;
        let [a, b] = interfaces;
        set_interfaces(&mut ebpf, "pairs", &[(a, b), (b, a)])?;
        let attached = attach(&mut ebpf, "dray_pairs", &interfaces, modes)?;
        Ok(Self::new(ebpf, attached, None))
    }

    /// What comes in at one of `interfaces` goes out where its destination was seen, or at all others
    /// where that is not known. A station that has sent nothing for `age` is forgotten.
    pub fn learning(interfaces: &[u32], modes: &[Mode], age: Duration) -> Result<Self, XdpError> {
        let mut ebpf = Ebpf::load(OBJECT).map_err(load_error)?;
        let members: Vec<_> = interfaces.iter().map(|&index| (index, index)).collect();
        set_interfaces(&mut ebpf, "members", &members)?;
        let learner = Learner::start(&mut ebpf, age)?;
        let attached = attach(&mut ebpf, "dray_learning", interfaces, modes)?;
        Ok(Self::new(ebpf, attached, Some(learner)))
    }

    fn new(ebpf: Ebpf, attached: Vec<Attached>, learner: Option<Learner>) -> Self {
        let native = attached.iter().all(|attached| attached.mode() == Mode::Native);
        let mode = if native { Mode::Native } else { Mode::Generic };
        Self { mode, learner, _attached: attached, _ebpf: ebpf }
    }

    /// Where the program runs: natively only if it does so at all interfaces.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How many stations are known, where they are learnt.
    pub fn stations(&self) -> Option<usize> {
        self.learner.as_ref().map(|learner| learner.known.load(Ordering::Relaxed))
    }
}

/// A program that does nothing, attached: a veth takes redirected frames from its other end only where
/// there is a program.
#[derive(Debug)]
pub struct Pass {
    _attached: Vec<Attached>,
    _ebpf: Ebpf,
}

impl Pass {
    /// Attaches it to the driver of an interface of this network namespace.
    pub fn attach(interface: u32) -> Result<Self, XdpError> {
        let mut ebpf = Ebpf::load(OBJECT).map_err(load_error)?;
        let attached = attach(&mut ebpf, "dray_pass", &[interface], &[Mode::Native])?;
        Ok(Self { _attached: attached, _ebpf: ebpf })
    }
}

fn set_interfaces(ebpf: &mut Ebpf, map: &str, entries: &[(u32, u32)]) -> Result<(), XdpError> {
    let map = ebpf.map_mut(map).expect("the object has it");
    let mut map: DevMapHash<&mut MapData> = map.try_into().map_err(map_error)?;
    for (key, interface) in entries {
        map.insert(*key, *interface, None, 0)
            .map_err(|error| XdpError::Map(io::Error::other(error)))?;
    }
    Ok(())
}

fn attach(
    ebpf: &mut Ebpf,
    program: &str,
    interfaces: &[u32],
    modes: &[Mode],
) -> Result<Vec<Attached>, XdpError> {
    let program = ebpf.program_mut(program).expect("the object has it");
    let program: &mut Xdp = program.try_into().expect("of this type");
    program.load().map_err(|error| XdpError::Load(system_error(error)))?;
    interfaces.iter().map(|interface| Attached::new(program, *interface, modes)).collect()
}

/// `struct address`: a MAC address and two bytes of zero.
type Address = [u8; 8];
/// `struct station`: index of an interface (4 bytes), unused (4), time in ns (8).
type Station = [u8; 16];
type Stations = aya::maps::HashMap<MapData, Address, Station>;

/// How often stations that have sent nothing for long are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Stations behind one interface: whoever makes up more of them does not take the others' place.
const SHARE: usize = 4096;

/// The thread that learns where stations are.
struct Learner {
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    known: Arc<std::sync::atomic::AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Learner {
    fn start(ebpf: &mut Ebpf, age: Duration) -> Result<Self, XdpError> {
        let mut take = |name| ebpf.take_map(name).expect("the object has it");
        let sightings = RingBuf::try_from(take("sightings")).map_err(map_error)?;
        let stations = Stations::try_from(take("stations")).map_err(map_error)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|errno| XdpError::Map(errno.into()))?);
        let (stop, known) = (Arc::<AtomicBool>::default(), Arc::default());
        let mut table = Table { stations, counts: HashMap::new(), known: Arc::clone(&known), age };
        let (told, woken) = (stop.clone(), wake.clone());
        let thread = thread::Builder::new()
            .name("dray-learner".to_owned())
            .spawn(move || table.run(sightings, &told, &woken))
            .map_err(XdpError::Map)?;
        Ok(Self { stop, wake, known, thread: Some(thread) })
    }
}

impl Drop for Learner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is known of stations, here and in the kernel.
struct Table {
    stations: Stations,
    /// How many stations are behind each interface.
    counts: HashMap<u32, usize>,
    known: Arc<std::sync::atomic::AtomicUsize>,
    age: Duration,
}

impl Table {
    fn run(&mut self, mut sightings: RingBuf<MapData>, stop: &AtomicBool, wake: &OwnedFd) {
        let mut swept = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            while let Some(sighting) = sightings.next() {
                self.see(&sighting);
            }
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.sweep();
            }
            // SAFETY: the ring outlives the call.
            let ring = unsafe { BorrowedFd::borrow_raw(sightings.as_raw_fd()) };
            let mut fds = [PollFd::new(&ring, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
            let patience = Timespec { tv_sec: SWEEP.as_secs() as i64, tv_nsec: 0 };
            // Interrupted or not, the next round finds out what there is.
            let _ = poll(&mut fds, Some(&patience));
        }
    }

    /// Notes where a station was seen.
    fn see(&mut self, sighting: &[u8]) {
        let Some((station, interface)) = sighting.split_first_chunk() else { return };
        let Some(interface) = interface.first_chunk().copied().map(u32::from_ne_bytes) else {
            return;
        };
        let before = self.stations.get(station, 0).ok().map(|known| interface_of(&known));
        if before == Some(interface) {
            return;
        }
        let count = self.counts.entry(interface).or_default();
        if *count >= SHARE {
            return;
        }
        let mut entry: Station = [0; 16];
        entry[..4].copy_from_slice(&interface.to_ne_bytes());
        entry[8..].copy_from_slice(&now_ns().to_ne_bytes());
        // A full table knows no more; frames to the others go everywhere.
        if self.stations.insert(station, entry, 0).is_err() {
            return;
        }
        *count += 1;
        if let Some(count) = before.and_then(|before| self.counts.get_mut(&before)) {
            *count -= 1;
        }
        self.publish();
    }

    /// Forgets stations that have sent nothing for long.
    fn sweep(&mut self) {
        let now = now_ns();
        let age = self.age.as_nanos() as u64;
        let is_old = |station: &Station| now.saturating_sub(seen_ns(station)) > age;
        let old: Vec<_> = self
            .stations
            .iter()
            .filter_map(Result::ok)
            .filter(|(_, station)| is_old(station))
            .collect();
        for (address, station) in old {
            if self.stations.remove(&address).is_ok()
                && let Some(count) = self.counts.get_mut(&interface_of(&station))
            {
                *count -= 1;
            }
        }
        self.publish();
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

/// The monotonic clock, which the program reads as well.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
