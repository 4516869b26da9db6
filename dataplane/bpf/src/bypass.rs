//! The bypass: frames between containers of one switch that pass in the kernel. `bpf/bypass.c` says how.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::SchedClassifier;
use dray_shm::SharedWords;
use serde::{Deserialize, Serialize};

use crate::attach::{load_error, map_error, system_error};
use crate::calls;

/// Maximum number of containers; that of a table's entries is one more. Also in `bpf/bypass.c`.
pub const CONTAINERS_MAX: u32 = ENTRIES - 1;
const ENTRIES: u32 = 4096;

/// Words of 64 bits of an entry, `struct entry` of the program, and where its parts begin.
const WORDS: usize = 15;
const STATION: usize = 2;
const MTU: usize = 4;
const STATE: usize = 5;
const GROUP: usize = 6;
const COUNTERS: usize = 7;
const BEFORE: usize = 11;

/// Maximum length of an interface's name.
const NAME_MAX: usize = 15;

/// A station: the switch, and the address. `struct station` of the program.
type Station = [u64; 2];

/// The kernel's numbers of program and tables, by which another process finds them as long as the program
/// is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BypassIds {
    program: u32,
    entries: u32,
    stations: u32,
}

/// The loaded program with its tables. What it attaches stays attached.
pub struct Bypass {
    program: OwnedFd,
    /// The entries, mapped.
    table: SharedWords,
    entries: Array<MapData, [u64; WORDS]>,
    stations: HashMap<MapData, Station, u32>,
    ids: BypassIds,
}

impl Bypass {
    /// Loads the program.
    pub fn load() -> io::Result<Self> {
        static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bypass.o"));
        let mut ebpf = Ebpf::load(OBJECT).map_err(load_error)?;
        let mut take = |name| ebpf.take_map(name).expect("the object has it");
        let (entries, stations) = (take("entries"), take("stations"));
        let program = ebpf.program_mut("dray_bypass").expect("the object has it");
        let program: &mut SchedClassifier = program.try_into().expect("of this type");
        program.load().map_err(system_error)?;
        let id = program.info().map_err(system_error)?.id();
        let program = program.fd().map_err(system_error)?.as_fd().try_clone_to_owned()?;
        Self::new(id, program, entries, stations)
    }

    /// Finds what another process has loaded; `None` if it is no more, or has another form.
    pub fn find(ids: BypassIds) -> Option<Self> {
        let map = |id| MapData::from_id(id).and_then(Map::from_map_data).ok();
        let (entries, stations) = (map(ids.entries)?, map(ids.stations)?);
        Self::new(ids.program, calls::program_of(ids.program).ok()?, entries, stations).ok()
    }

    fn new(id: u32, program: OwnedFd, entries: Map, stations: Map) -> io::Result<Self> {
        let data = |map: &Map| match map {
            Map::Array(data) | Map::HashMap(data) => {
                Ok((data.info().map_err(map_error)?.id(), data.fd().as_fd().try_clone_to_owned()?))
            }
            _ => Err(io::Error::other("a map of another type")),
        };
        let ((entries_id, table), (stations_id, _)) = (data(&entries)?, data(&stations)?);
        let ids = BypassIds { program: id, entries: entries_id, stations: stations_id };
        // Both check the sizes of keys and values.
        let (entries, stations) =
            (entries.try_into().map_err(map_error)?, stations.try_into().map_err(map_error)?);
        let table = SharedWords::of_array(table, WORDS * ENTRIES as usize)?;
        Ok(Self { program, table, entries, stations, ids })
    }

    /// Returns the numbers by which another process finds it.
    pub fn ids(&self) -> BypassIds {
        self.ids
    }

    /// Returns the program, for the control of traffic (tc-bpf(8)) of frames that an interface receives.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Returns the table of entries, for [`BypassEntry::find`].
    pub fn table(&self) -> io::Result<OwnedFd> {
        self.table.as_fd().try_clone_to_owned()
    }

    /// Returns the least number above `after` that no container has.
    pub fn free_number(&self, after: u32) -> Option<u32> {
        let is_free = |entry: &[AtomicU64]| entry[0].load(Relaxed) == 0;
        let numbers = (0..ENTRIES).zip(self.table.words().chunks(WORDS));
        let mut above = numbers.skip(after as usize + 1);
        above.find(|(_, entry)| is_free(entry)).map(|(number, _)| number)
    }

    /// Adds the container with interfaces 2 `number` and 2 `number` + 1, `tap`, which carry packets of `mtu`
    /// bytes. Its frames pass the switch until that opens the bypass.
    pub fn add(
        &mut self,
        number: u32,
        tap: &str,
        control: u64,
        mac: [u8; 6],
        mtu: usize,
    ) -> io::Result<()> {
        let mut entry = [0; WORDS];
        entry[..STATION].copy_from_slice(&name_words(tap));
        let station = station(control, mac);
        entry[STATION..MTU].copy_from_slice(&station);
        entry[MTU] = mtu as u64;
        self.entries.set(number, entry, 0).map_err(map_error)?;
        Ok(self.stations.insert(station, number, 0).map_err(map_error)?)
    }

    /// Removes a container, if it is there.
    pub fn remove(&mut self, control: u64, mac: [u8; 6]) -> io::Result<()> {
        let station = station(control, mac);
        let Ok(number) = self.stations.get(&station, 0) else { return Ok(()) };
        self.stations.remove(&station).map_err(map_error)?;
        let entry = self.entries.get(&number, 0).map_err(map_error)?;
        // An entry may be another container's by now.
        if entry[STATION..MTU] == station {
            self.entries.set(number, [0; WORDS], 0).map_err(map_error)?;
        }
        Ok(())
    }
}

/// Returns the words of an interface's name, of which the rest is zero.
fn name_words(name: &str) -> [u64; 2] {
    let mut bytes = [0; 16];
    let len = name.len().min(NAME_MAX);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    [word(0), word(8)]
}

fn station(control: u64, [a, b, c, d, e, f]: [u8; 6]) -> Station {
    [control, u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])]
}

/// Frames and bytes that passed in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames from the container.
    pub from_frames: u64,
    /// Bytes from the container, from destination MAC to end of payload.
    pub from_bytes: u64,
    /// Frames to the container.
    pub to_frames: u64,
    /// Bytes to the container, as above.
    pub to_bytes: u64,
}

/// The entry of one container, as the switch uses it.
#[derive(Debug)]
pub struct BypassEntry {
    table: SharedWords,
    first: usize,
}

impl BypassEntry {
    /// Finds the entry of the container behind the interface `tap` in a [table](Bypass::table).
    ///
    /// # Errors
    /// The descriptor is not a table, or has no such entry.
    pub fn find(table: OwnedFd, tap: &str) -> io::Result<Self> {
        let table = SharedWords::of_array(table, WORDS * ENTRIES as usize)?;
        let name = name_words(tap);
        let is_its = |entry: &[AtomicU64]| (0..2).all(|at| entry[at].load(Relaxed) == name[at]);
        match table.words().chunks(WORDS).position(is_its) {
            Some(number) => Ok(Self { table, first: WORDS * number }),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("the table of the bypass has no entry of {tap}"),
            )),
        }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.table.words()[self.first + at]
    }

    /// Has frames between this container and others with an open bypass pass in the kernel, if they are of
    /// the same VLAN, and not of the same group unless that is 0.
    pub fn open(&self, vlan: u16, group: u64) {
        let state = state(vlan);
        if self.word(STATE).load(Relaxed) == state && self.word(GROUP).load(Relaxed) == group {
            return;
        }
        self.close();
        self.word(GROUP).store(group, Relaxed);
        self.word(STATE).store(state, Relaxed);
    }

    /// Has all frames pass the switch.
    pub fn close(&self) {
        self.word(STATE).store(0, Relaxed);
    }

    /// Returns true if it is open.
    pub fn is_open(&self) -> bool {
        self.word(STATE).load(Relaxed) != 0
    }

    /// Begins to count anew.
    pub fn reset(&self) {
        for at in 0..4 {
            let now = self.word(COUNTERS + at).load(Relaxed);
            self.word(BEFORE + at).store(now, Relaxed);
        }
    }

    /// Returns what has passed since the last [`reset`](Self::reset), also by an earlier process.
    pub fn passed(&self) -> Passed {
        let counter = |at| {
            let now = self.word(COUNTERS + at).load(Relaxed);
            now.wrapping_sub(self.word(BEFORE + at).load(Relaxed))
        };
        Passed {
            from_frames: counter(0),
            from_bytes: counter(1),
            to_frames: counter(2),
            to_bytes: counter(3),
        }
    }
}

impl AsFd for BypassEntry {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

/// Returns the word of `is_open` and `vlan`.
fn state(vlan: u16) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (1_u32.to_ne_bytes(), u32::from(vlan).to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}
