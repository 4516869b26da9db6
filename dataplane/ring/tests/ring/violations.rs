//! Every protocol violation, in each possible way.

use dray_ring::packed::{PackedDevice, PackedDriver, PackedLayout};
use dray_ring::split::{SplitDevice, SplitDriver, SplitLayout};
use dray_ring::{Access, Buffer, CHAIN_MAX, Chain, DeviceQueue, DriverQueue, QueueSize, RingError};

use crate::memory::{
    AVAILABLE, DATA, DATA_LEN, INDIRECT, Layout, Memory, NEXT, RING, TABLES, USED, WRITE,
};

/// Address, length, flags and, in a split ring, the next descriptor.
type Entry = (u64, u32, u16, u16);

const PLAIN: Entry = (DATA, 8, 0, 0);

fn memory<L: Layout>(size: u32) -> (Memory, L) {
    Memory::new(QueueSize::new(size).unwrap(), Access::Read)
}

/// Writes entries from `at` on in the layout's format, with flags of a packed ring's first round.
fn write<L: Layout>(memory: &Memory, at: u64, entries: &[Entry]) {
    for (nth, &(address, len, flags, next)) in (0..).zip(entries) {
        let tail = if L::PACKED { [7, flags | AVAILABLE] } else { [flags, next] };
        memory.write_descriptor(at + 16 * nth, address, len, tail);
    }
}

/// Lets a device pop the chain that begins with the first of these descriptors of a ring of 1024,
/// with these entries in the first table.
fn pop<L: Layout>(indirect: bool, access: Access, ring: &[Entry], table: &[Entry]) -> Popped {
    let (memory, layout) = memory::<L>(1024);
    let base = if L::PACKED { 0x8000 } else { 0 };
    let mut device = layout.device(base, indirect, false);
    write::<L>(&memory, RING, ring);
    write::<L>(&memory, TABLES, table);
    if !L::PACKED {
        memory.write(RING + memory.parts[1] + 2, 1u16.to_le_bytes());
    }
    let popped = device.pop(&memory.guest, access);
    if let Err(error) = popped {
        assert_eq!(device.pop(&memory.guest, access), Err(error), "the error stays one");
        assert_eq!(device.base(), base);
    }
    popped.map(|chain| (chain.expect("it is available"), device.rest().len()))
}

type Popped = Result<(Chain, usize), RingError>;

/// Pops the same chain in both layouts, in the order split, packed.
fn both(access: Access, ring: &[Entry], table: &[Entry]) -> [Popped; 2] {
    let split = pop::<SplitLayout>(true, access, ring, table);
    [split, pop::<PackedLayout>(true, access, ring, table)]
}

fn message(popped: Popped) -> String {
    popped.unwrap_err().to_string()
}

/// Returns `count` chained buffers; the last one also has the flags `last`.
fn chain(count: u16, last: u16) -> Vec<Entry> {
    let flags = |nth: u16| if nth + 1 < count { NEXT } else { last };
    (0..count).map(|nth| (DATA + u64::from(nth), 1, flags(nth), nth + 1)).collect()
}

fn table(entries: u32) -> Entry {
    (TABLES, 16 * entries, INDIRECT, 0)
}

#[test]
fn valid_chains_are_accepted() {
    for popped in both(Access::Read, &[PLAIN], &[]) {
        assert_eq!(popped.unwrap().1, 0);
    }
    for popped in both(Access::Read, &chain(CHAIN_MAX, 0), &[]) {
        assert_eq!(popped.unwrap().1, usize::from(CHAIN_MAX) - 1);
    }
    // The WRITE flag of a descriptor that refers to a table is ignored (section 2.7.5.3.2).
    let with_table = [(DATA, 8, NEXT, 1), (TABLES, 48, INDIRECT | WRITE, 0)];
    for popped in both(Access::Read, &with_table, &chain(3, 0)) {
        assert_eq!(popped.unwrap().1, 3);
    }
    // Empty buffers: one at the start, one at the end of the region.
    for address in [DATA, DATA + DATA_LEN] {
        for popped in both(Access::Write, &[(address, 0, WRITE, 0)], &[]) {
            assert_eq!(popped.unwrap().0.first.len, 0);
        }
    }
}

#[test]
fn index_jump_is_refused() {
    // With two of eight entries popped, six more can be available.
    for (index, allowed) in [(2u16, true), (8, true), (9, false), (1, false), (0x8002, false)] {
        let (memory, layout) = memory::<SplitLayout>(8);
        let mut device = SplitDevice::new(layout, 0, false, false);
        write::<SplitLayout>(&memory, RING, &[PLAIN]);
        let index_at = RING + memory.parts[1] + 2;
        memory.write(index_at, 2u16.to_le_bytes());
        for _ in 0..2 {
            device.pop(&memory.guest, Access::Read).unwrap().unwrap();
        }
        memory.write(index_at, index.to_le_bytes());
        match device.pop(&memory.guest, Access::Read) {
            Ok(_) => assert!(allowed, "{index}"),
            Err(error) => {
                assert_eq!(error, RingError::IndexJump { from: 2, to: index, size: 6 });
                let message =
                    format!("ring index jumped from 2 to {index}: at most 6 entries can be new");
                assert!(!allowed && error.to_string() == message, "{error}");
                assert!(device.want_kicks(true), "a error is to be found by who pops");
            }
        }
    }
    // Of two posted chains only the published one can have been used.
    for index in [2u16, 3, 0xffff] {
        let (memory, layout) = memory::<SplitLayout>(8);
        let mut driver = SplitDriver::new(layout, false);
        let buffer = Buffer { address: DATA, len: 8, access: Access::Read };
        driver.post(&[buffer]).unwrap();
        driver.publish();
        driver.post(&[buffer]).unwrap();
        memory.write(RING + memory.parts[2] + 2, index.to_le_bytes());
        assert_eq!(driver.poll(), Err(RingError::IndexJump { from: 0, to: index, size: 1 }));
    }
}

#[test]
fn more_descriptors_than_ring_are_refused() {
    let (memory, layout) = memory::<PackedLayout>(4);
    let mut device = PackedDevice::new(layout, 0x8000, false, false).unwrap();
    write::<PackedLayout>(&memory, RING, &[PLAIN; 4]);
    for _ in 0..4 {
        device.pop(&memory.guest, Access::Read).unwrap().unwrap();
    }
    assert_eq!(device.pop(&memory.guest, Access::Read), Ok(None));
    memory.write_descriptor(RING, DATA, 8, [7, USED]);
    let error = device.pop(&memory.guest, Access::Read).unwrap_err();
    assert_eq!(error.to_string(), "driver made more than 4 descriptors available");
    device.unpop(1);
    assert!(device.pop(&memory.guest, Access::Read).unwrap().is_some());
}

#[test]
fn descriptor_outside_table_is_refused() {
    let split = |ring: &[Entry], table: &[Entry]| {
        message(pop::<SplitLayout>(true, Access::Read, ring, table))
    };
    assert_eq!(
        split(&[(DATA, 8, NEXT, 1024)], &[]),
        "descriptor 1024 is outside the table of 1024"
    );
    assert_eq!(split(&[table(3)], &[(DATA, 8, NEXT, 3)]), "descriptor 3 is outside the table of 3");
    let (memory, layout) = memory::<SplitLayout>(8);
    let mut device = SplitDevice::new(layout, 0, false, false);
    memory.write(RING + memory.parts[1] + 2, [1, 0, 0xff, 0xff]);
    let error = device.pop(&memory.guest, Access::Read).unwrap_err();
    assert_eq!(error.to_string(), "descriptor 65535 is outside the table of 8");
    let (_memory, layout) = self::memory::<PackedLayout>(8);
    let error = PackedDevice::new(layout, 0x8008, false, false).unwrap_err();
    assert_eq!(error.to_string(), "descriptor 8 is outside the table of 8");
}

#[test]
fn buffer_outside_memory_is_refused() {
    let end = DATA + DATA_LEN;
    for (address, len) in [(end - 7, 8), (0, 1), (u64::MAX, 2), (DATA, u32::MAX), (RING - 1, 2)] {
        let expected =
            format!("buffer of {len} bytes at {address:#x} is outside the shared memory");
        for popped in both(Access::Read, &[(address, len, 0, 0)], &[]) {
            assert_eq!(message(popped), expected);
        }
        for popped in both(Access::Read, &[table(1)], &[(address, len, 0, 0)]) {
            assert_eq!(message(popped), expected);
        }
        let behind = [(DATA, 8, NEXT, 1), (address, len, 0, 0)];
        for popped in both(Access::Read, &behind, &[]) {
            assert_eq!(message(popped), expected);
        }
    }
    for popped in both(Access::Read, &[(end - 16, 32, INDIRECT, 0)], &[]) {
        assert!(message(popped).starts_with("buffer of 32 bytes at 0x4001fff0"));
    }
}

#[test]
fn overlong_or_looping_chain_is_refused() {
    let expected = "descriptor chain is a loop or longer than 256 descriptors";
    // One buffer too many: in the ring, in a table, and in a table after the maximum number of
    // buffers.
    for popped in both(Access::Read, &chain(CHAIN_MAX + 1, 0), &[]) {
        assert_eq!(message(popped), expected);
    }
    for popped in both(Access::Read, &[table(257)], &chain(257, 0)) {
        assert_eq!(message(popped), expected);
    }
    let mut ring = chain(CHAIN_MAX, NEXT);
    ring.push(table(1));
    ring[255].3 = 256;
    for popped in both(Access::Read, &ring, &[PLAIN]) {
        assert_eq!(message(popped), expected);
    }
    let mut ring = chain(CHAIN_MAX - 1, NEXT);
    ring.push(table(2));
    for popped in both(Access::Read, &ring, &chain(2, 0)) {
        assert_eq!(message(popped), expected);
    }
    // Loops.
    let split = |ring: &[Entry], table: &[Entry]| {
        message(pop::<SplitLayout>(true, Access::Read, ring, table))
    };
    assert_eq!(split(&[(DATA, 8, NEXT, 0)], &[]), expected);
    assert_eq!(split(&[table(1)], &[(DATA, 8, NEXT, 0)]), expected);
    let (memory, layout) = memory::<PackedLayout>(4);
    let mut device = PackedDevice::new(layout, 0x8000, false, false).unwrap();
    write::<PackedLayout>(&memory, RING, &[PLAIN, (DATA, 8, NEXT, 0), PLAIN, (DATA, 8, NEXT, 0)]);
    device.pop(&memory.guest, Access::Read).unwrap().unwrap();
    let chain = device.pop(&memory.guest, Access::Read).unwrap().unwrap();
    assert_eq!(chain.slots, 2);
    // This one would take entries that have not been returned.
    let error = device.pop(&memory.guest, Access::Read).unwrap_err();
    assert_eq!(error, RingError::ChainTooLong { max: 1 });
}

#[test]
fn wrong_buffer_direction_is_refused() {
    let writable = (DATA, 8, WRITE, 0);
    let [read, written] = ["buffer is not device-readable", "buffer is not device-writable"];
    for (access, right, wrong, expected) in
        [(Access::Read, PLAIN, writable, read), (Access::Write, writable, PLAIN, written)]
    {
        let behind = [(right.0, right.1, right.2 | NEXT, 1), wrong];
        for ring in [&[wrong][..], &behind] {
            for popped in both(access, ring, &[]) {
                assert_eq!(message(popped), expected);
            }
        }
        for (ring, entries) in [([table(1)], &[wrong][..]), ([table(2)], &behind)] {
            let [split, packed] = both(access, &ring, entries);
            assert_eq!(message(split), expected);
            // DPDK's driver sets WRITE on headers in its packed tables; the device does not write
            // there anyway.
            match access {
                Access::Read => assert!(packed.is_ok()),
                Access::Write => assert_eq!(message(packed), expected),
            }
        }
    }
}

#[test]
fn invalid_indirect_tables_are_refused() {
    for popped in both(Access::Read, &[table(2)], &[(DATA, 8, NEXT, 1), table(1)]) {
        assert_eq!(message(popped), "an indirect table inside an indirect table");
    }
    for popped in both(Access::Read, &[(TABLES, 16, INDIRECT | NEXT, 1), PLAIN], &[PLAIN]) {
        assert_eq!(message(popped), "an indirect table with a next descriptor");
    }
    for len in [0, 15, 17, 24, u32::MAX] {
        for popped in both(Access::Read, &[(TABLES, len, INDIRECT, 0)], &[PLAIN]) {
            let expected = format!("indirect table length {len} is not a positive multiple of 16");
            assert_eq!(message(popped), expected);
        }
    }
    let expected = "indirect tables were not negotiated";
    for ring in [&[table(1)][..], &[(DATA, 8, NEXT, 1), table(1)]] {
        let popped = pop::<SplitLayout>(false, Access::Read, ring, &[PLAIN]);
        assert_eq!(message(popped), expected);
        let popped = pop::<PackedLayout>(false, Access::Read, ring, &[PLAIN]);
        assert_eq!(message(popped), expected);
    }
}

#[test]
fn returned_buffer_not_in_flight_is_refused() {
    let buffer = Buffer { address: DATA, len: 8, access: Access::Write };
    // Buffer ids: not posted, beyond the ring, and already returned.
    for id in [1u32, 8, 0x1_0000, u32::MAX, 0] {
        let (memory, layout) = memory::<SplitLayout>(8);
        let mut driver = SplitDriver::new(layout, false);
        assert_eq!(driver.post(&[buffer; 3]), Some(0));
        assert_eq!(driver.post(&[buffer; 3]), Some(3));
        driver.publish();
        memory.write(RING + memory.parts[2] + 4 + 8, id.to_le_bytes());
        memory.write(RING + memory.parts[2] + 2, 2u16.to_le_bytes());
        assert_eq!(driver.poll().unwrap().unwrap().id, 0);
        let error = driver.poll().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("device returned buffer {id}, which is not in flight")
        );
    }
    for id in [2u16, 8, 0xffff, 0] {
        let (memory, layout) = memory::<PackedLayout>(8);
        let mut driver = PackedDriver::new(layout, false);
        assert_eq!(driver.post(&[buffer; 3]), Some(0));
        assert_eq!(driver.post(&[buffer; 3]), Some(3));
        driver.publish();
        memory.write_descriptor(RING, 0, 0, [0, AVAILABLE | USED]);
        memory.write_descriptor(RING + 16 * 3, 0, 0, [id, AVAILABLE | USED]);
        assert_eq!(driver.poll().unwrap().unwrap().id, 0);
        let error = driver.poll().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("device returned buffer {id}, which is not in flight")
        );
    }
    // A chain that was not published.
    let (memory, layout) = memory::<PackedLayout>(8);
    let mut driver = PackedDriver::new(layout, false);
    driver.post(&[buffer]).unwrap();
    driver.publish();
    driver.post(&[buffer; 2]).unwrap();
    memory.write_descriptor(RING, 0, 0, [1, AVAILABLE | USED]);
    assert_eq!(driver.poll(), Err(RingError::NotInFlight { id: 1 }));
}

/// As above, by the loop over a batch: what came before is valid, and the rest stays posted.
#[test]
fn batch_with_returned_buffer_not_in_flight_is_refused() {
    let buffer = Buffer { address: DATA, len: 8, access: Access::Write };
    // Numbers of buffers of the chains; identities that are returned, the last one wrongly.
    for (chains, ids) in [
        (&[1, 1, 1, 1][..], &[2, 2][..]),
        (&[1, 1, 1, 1], &[3, 0, 3]),
        (&[1, 1], &[0, 5]),
        (&[1, 3, 1], &[0, 1, 2]),
        (&[1, 3, 1], &[4, 3]),
    ] {
        let (valid, wrong) = (&ids[..ids.len() - 1], ids[ids.len() - 1]);
        let count = |id: &u16| {
            let before = |at: usize| chains[..at].iter().sum::<usize>();
            let at = (0..chains.len()).find(|at| before(*at) == usize::from(*id)).unwrap();
            chains[at] as u16
        };
        let left = chains.iter().sum::<usize>() as u16 - valid.iter().map(count).sum::<u16>();

        let (memory, layout) = memory::<SplitLayout>(8);
        let mut driver = SplitDriver::new(layout, false);
        chains.iter().for_each(|count| assert!(driver.post(&vec![buffer; *count]).is_some()));
        driver.publish();
        for (at, id) in (0..).zip(ids) {
            memory.write(RING + memory.parts[2] + 4 + 8 * at, u32::from(*id).to_le_bytes());
        }
        memory.write(RING + memory.parts[2] + 2, (ids.len() as u16).to_le_bytes());
        let mut seen = Vec::new();
        let error = driver.poll_each(64, |used| seen.push(used.id));
        assert_eq!((error, &seen[..]), (Err(RingError::NotInFlight { id: wrong.into() }), valid));
        assert_eq!(driver.in_use(), left);

        let (memory, layout) = self::memory::<PackedLayout>(8);
        let mut driver = PackedDriver::new(layout, false);
        chains.iter().for_each(|count| assert!(driver.post(&vec![buffer; *count]).is_some()));
        driver.publish();
        let mut at = RING;
        for id in ids {
            memory.write_descriptor(at, 0, 0, [*id, AVAILABLE | USED]);
            at += if valid.contains(id) { 16 * u64::from(count(id)) } else { 0 };
        }
        let mut seen = Vec::new();
        let error = driver.poll_each(64, |used| seen.push(used.id));
        assert_eq!((error, &seen[..]), (Err(RingError::NotInFlight { id: wrong.into() }), valid));
        assert_eq!(driver.in_use(), left);
    }
}

#[test]
fn used_length_without_write_flag_is_ignored() {
    let (memory, layout) = memory::<PackedLayout>(8);
    let mut driver = PackedDriver::new(layout, false);
    let buffer = Buffer { address: DATA, len: 8, access: Access::Read };
    driver.post(&[buffer]).unwrap();
    driver.post(&[buffer]).unwrap();
    driver.publish();
    memory.write_descriptor(RING, 0, 77, [0, AVAILABLE | USED]);
    memory.write_descriptor(RING + 16, 0, 77, [1, AVAILABLE | USED | WRITE]);
    assert_eq!(driver.poll().unwrap().unwrap().len, 0);
    assert_eq!(driver.poll().unwrap().unwrap().len, 77);
}
