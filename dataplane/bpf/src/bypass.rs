//! The bypass: the kernel forwards frames between containers of one switch. `bpf/bypass.c` says
//! how.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

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

/// `BPF_NOEXIST` of linux/bpf.h: the address of another container stays that one's. The switch
/// refuses it to a second one.
const ONLY_NEW: u64 = 1;

/// Maximum length of an interface's name.
const NAME_MAX: usize = 15;

/// A station: the switch, and the address. `struct station` of the program.
type Station = [u64; 2];

/// The kernel's numbers of program and tables, by which another process finds them as long as the
/// program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BypassIds {
    program: u32,
    entries: u32,
    stations: u32,
}

/// The loaded program with its tables. It stays attached to interfaces when this is dropped.
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
        let mut ebpf = crate::load(OBJECT).map_err(load_error)?;
        let mut take = |name| ebpf.take_map(name).expect("the object has it");
        let (entries, stations) = (take("entries"), take("stations"));
        let program = ebpf.program_mut("dray_bypass").expect("the object has it");
        let program: &mut SchedClassifier = program.try_into().expect("of this type");
        program.load().map_err(system_error)?;
        let id = program.info().map_err(system_error)?.id();
        let program = program.fd().map_err(system_error)?.as_fd().try_clone_to_owned()?;
        Self::new(id, program, entries, stations)
    }

    /// Finds the program that another process has loaded; `None` if it no longer exists, or its
    /// tables have another form.
    ///
    /// # Errors
    /// It may exist, but cannot be opened.
    pub fn find(ids: BypassIds) -> io::Result<Option<Self>> {
        let map = |id| MapData::from_id(id).map_err(map_error).map_err(io::Error::from);
        let opened = || -> io::Result<_> {
            Ok((calls::program_of(ids.program)?, map(ids.entries)?, map(ids.stations)?))
        };
        let (program, entries, stations) = match opened() {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let tables = (Map::from_map_data(entries), Map::from_map_data(stations));
        let (Ok(entries), Ok(stations)) = tables else { return Ok(None) };
        Ok(Self::new(ids.program, program, entries, stations).ok())
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

    /// Returns the program, for the control of traffic (tc-bpf(8)) of frames that an interface
    /// receives.
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

    /// Adds the container with interfaces 2 `number` and 2 `number` + 1, `tap`, which carry packets
    /// of `mtu` bytes. Its frames go through the switch until that opens the bypass.
    pub fn add(
        &mut self,
        number: u32,
        tap: &str,
        switch: u64,
        mac: [u8; 6],
        mtu: usize,
    ) -> io::Result<()> {
        let mut entry = [0; WORDS];
        entry[..STATION].copy_from_slice(&name_words(tap));
        let station = station(switch, mac);
        entry[STATION..MTU].copy_from_slice(&station);
        entry[MTU] = mtu as u64;
        self.entries.set(number, entry, 0).map_err(map_error)?;
        let added = self.stations.insert(station, number, ONLY_NEW);
        match added.map_err(|error| io::Error::from(map_error(error))) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the container with the interface `tap`, if it is there.
    pub fn remove(&mut self, tap: &str) -> io::Result<()> {
        let name = name_words(tap);
        let numbers: Vec<_> = entries_of(&self.table, name).collect();
        for number in numbers {
            let entry = self.entries.get(&number, 0).map_err(map_error)?;
            let station = [entry[STATION], entry[STATION + 1]];
            if self.stations.get(&station, 0).is_ok_and(|known| known == number) {
                self.stations.remove(&station).map_err(map_error)?;
            }
            self.entries.set(number, [0; WORDS], 0).map_err(map_error)?;
        }
        Ok(())
    }
}

/// Returns the numbers of the entries with this name.
fn entries_of(table: &SharedWords, name: [u64; 2]) -> impl Iterator<Item = u32> {
    let is_its = move |entry: &[AtomicU64]| (0..2).all(|at| entry[at].load(Relaxed) == name[at]);
    let numbers = (0..ENTRIES).zip(table.words().chunks(WORDS));
    numbers.filter(move |(_, entry)| is_its(entry)).map(|(number, _)| number)
}

/// Returns the words of an interface's name, of which the rest is zero.
fn name_words(name: &str) -> [u64; 2] {
    let mut bytes = [0; 16];
    let len = name.len().min(NAME_MAX);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    [word(0), word(8)]
}

fn station(switch: u64, [a, b, c, d, e, f]: [u8; 6]) -> Station {
    [switch, u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])]
}

/// Frames and bytes that bypassed the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bypassed {
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
    /// Index of its first word.
    first: usize,
    name: [u64; 2],
}

impl BypassEntry {
    /// Finds the entry of the container behind the interface `tap` in a [table](Bypass::table).
    ///
    /// # Errors
    /// The descriptor is not a table, or has no such entry.
    pub fn find(table: OwnedFd, tap: &str) -> io::Result<Self> {
        let table = SharedWords::of_array(table, WORDS * ENTRIES as usize)?;
        let name = name_words(tap);
        let number = entries_of(&table, name).next().ok_or_else(|| {
            let what = format!("the table of the bypass has no entry of {tap}");
            io::Error::new(io::ErrorKind::NotFound, what)
        })?;
        Ok(Self { first: WORDS * number as usize, name, table })
    }

    /// Returns true if the entry is still that of this container, which the plugin may have
    /// removed.
    fn is_its(&self) -> bool {
        (0..2).all(|at| self.word(at).load(Relaxed) == self.name[at])
    }

    /// Returns the address of the container.
    pub fn mac(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, _, _] = self.word(STATION + 1).load(Relaxed).to_ne_bytes();
        [a, b, c, d, e, f]
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.table.words()[self.first + at]
    }

    /// Lets the kernel forward frames between this container and others with an open bypass, if
    /// they are of the same VLAN, and not of the same group unless that is 0.
    pub fn open(&self, vlan: u16, group: u64) {
        if self.is_its() {
            self.word(GROUP).store(group, Relaxed);
            self.word(STATE).store(state(vlan), Release);
        }
    }

    /// Sends all frames through the switch.
    pub fn close(&self) {
        if self.is_its() {
            self.word(STATE).store(0, Release);
        }
    }

    /// Returns true if it is open.
    pub fn is_open(&self) -> bool {
        self.is_its() && self.word(STATE).load(Relaxed) != 0
    }

    /// Returns true if it is open with this VLAN and this group.
    pub fn is_open_for(&self, vlan: u16, group: u64) -> bool {
        self.word(STATE).load(Relaxed) == state(vlan) && self.word(GROUP).load(Relaxed) == group
    }

    /// Begins to count anew.
    pub fn reset(&self) {
        if !self.is_its() {
            return;
        }
        for at in 0..4 {
            let now = self.word(COUNTERS + at).load(Relaxed);
            self.word(BEFORE + at).store(now, Relaxed);
        }
    }

    /// Returns what has bypassed the switch since the last [`reset`](Self::reset), also by an
    /// earlier process.
    pub fn bypassed(&self) -> Bypassed {
        if !self.is_its() {
            return Bypassed::default();
        }
        let counter = |at| {
            let now = self.word(COUNTERS + at).load(Relaxed);
            now.wrapping_sub(self.word(BEFORE + at).load(Relaxed))
        };
        Bypassed {
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
