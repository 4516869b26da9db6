//! Descriptor chains and indirect tables.

use std::os::fd::{AsFd, OwnedFd};

use crate::hostile::Expect::{Harmless, Malformed, NoRoom, Refused};
use crate::hostile::memory::{BUFFERS, GUEST, LEN, Memory};
use crate::hostile::message::{INDIRECT as INDIRECT_FEATURE, MERGEABLE, PLAIN, Region};
use crate::hostile::ring::{Descriptor, FRAME, INDIRECT, NEXT, Ring, WRITE, at, buffer, split};
use crate::hostile::{Expect, HostileDriver, Violation, violation};

const TOO_LONG: Expect = Refused("longer than 256 descriptors");
/// Offset of indirect tables in the memory.
const TABLE: u64 = BUFFERS + 0x1_0000;

/// Starts, and transmits the chain that begins with the first of `descriptors`.
fn chain(driver: &mut HostileDriver, descriptors: &[Descriptor]) {
    driver.start(PLAIN);
    let mut tx = driver.tx();
    for (index, descriptor) in descriptors.iter().enumerate() {
        tx.descriptor(index as u16, *descriptor);
    }
    tx.post(0);
    driver.kick();
}

/// Starts, and transmits a chain of one descriptor that points to `table`.
fn table(driver: &mut HostileDriver, table: &[Descriptor], descriptor: Descriptor) {
    for (index, entry) in (0..).zip(table) {
        driver.memory.write(TABLE + index * 16, &split(*entry));
    }
    driver.start(PLAIN | INDIRECT_FEATURE);
    driver.tx().offer(descriptor);
    driver.kick();
}

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("a chain that loops over two descriptors", TOO_LONG, |driver| {
        chain(driver, &[(buffer(), 16, NEXT, 1), (buffer(), 16, NEXT, 0)]);
    }),
    violation("a chain that loops over one descriptor", TOO_LONG, |driver| {
        chain(driver, &[(buffer(), 16, NEXT, 0)]);
    }),
    violation(
        "a chain with a next index past the table",
        Refused("descriptor 60000 is outside the table of 256"),
        |driver| chain(driver, &[(buffer(), 16, NEXT, 60_000)]),
    ),
    violation("a chain of 300 descriptors", TOO_LONG, |driver| {
        driver.size = 1024;
        let descriptors: Vec<_> = (1..=300).map(|next| (buffer(), 4, NEXT, next)).collect();
        chain(driver, &descriptors);
    }),
    violation(
        "a chain whose second buffer is outside memory",
        Refused("is outside the shared memory"),
        |driver| chain(driver, &[(buffer(), 16, NEXT, 1), (GUEST + LEN, 100, 0, 0)]),
    ),
    violation(
        "an indirect table without negotiation",
        Refused("indirect tables were not negotiated"),
        |driver| chain(driver, &[(at(TABLE), 16, INDIRECT, 0)]),
    ),
    violation(
        "an indirect table inside an indirect table",
        Refused("inside an indirect table"),
        |driver| table(driver, &[(at(TABLE), 16, INDIRECT, 0)], (at(TABLE), 16, INDIRECT, 0)),
    ),
    violation(
        "an indirect table with a next descriptor",
        Refused("an indirect table with a next descriptor"),
        |driver| table(driver, &[(buffer(), FRAME, 0, 0)], (at(TABLE), 16, INDIRECT | NEXT, 1)),
    ),
    violation("an indirect table of 24 bytes", Refused("indirect table length 24"), |driver| {
        table(driver, &[(buffer(), FRAME, 0, 0)], (at(TABLE), 24, INDIRECT, 0));
    }),
    violation("an indirect table of no bytes", Refused("indirect table length 0"), |driver| {
        table(driver, &[], (at(TABLE), 0, INDIRECT, 0));
    }),
    violation("an indirect table of 4 GiB", Refused("is outside the shared memory"), |driver| {
        table(driver, &[], (at(TABLE), 0xffff_fff0, INDIRECT, 0));
    }),
    violation(
        "an indirect table across the end of memory",
        Refused("is outside the shared memory"),
        |driver| table(driver, &[], (GUEST + LEN - 16, 32, INDIRECT, 0)),
    ),
    violation(
        "an indirect chain with a next index past its table",
        Refused("descriptor 9 is outside the table of 4"),
        |driver| table(driver, &[(buffer(), 16, NEXT, 9)], (at(TABLE), 64, INDIRECT, 0)),
    ),
    violation("an indirect chain that loops", TOO_LONG, |driver| {
        table(driver, &[(buffer(), 16, NEXT, 0)], (at(TABLE), 16, INDIRECT, 0));
    }),
    violation("an indirect table at an odd address", Harmless, |driver| {
        driver.memory.write(TABLE + 5, &split((buffer(), FRAME, 0, 0)));
        driver.start(PLAIN | INDIRECT_FEATURE);
        driver.tx().offer((at(TABLE) + 5, 16, INDIRECT, 0));
        driver.kick();
    }),
    violation("endless chains of maximum length with empty buffers", Malformed, |driver| {
        for entry in 0..256 {
            let flags = if entry < 255 { NEXT } else { 0 };
            let entry = (entry, split((buffer(), 0, flags, entry as u16 + 1)));
            driver.memory.write(TABLE + entry.0 * 16, &entry.1);
        }
        driver.start(PLAIN | INDIRECT_FEATURE);
        let (tx, kick) = (driver.tx(), driver.kicks[1].try_clone().expect("a descriptor"));
        (0..256).for_each(|index| tx.descriptor(index, (at(TABLE), 4096, INDIRECT, 0)));
        post_without_end(driver, tx, kick);
    }),
    violation("endless receive chains of 256 empty buffers", NoRoom, |driver| {
        receive_in(driver, PLAIN | INDIRECT_FEATURE | MERGEABLE, 0);
    }),
    violation("endless receive chains of 256 one-byte buffers", Harmless, |driver| {
        receive_in(driver, PLAIN | INDIRECT_FEATURE | MERGEABLE, 1);
    }),
    violation("one receive chain of 256 empty buffers per frame", NoRoom, |driver| {
        receive_in(driver, PLAIN | INDIRECT_FEATURE, 0);
    }),
    violation("endless frames in 256 one-byte buffers", Harmless, |driver| {
        for entry in 0..256 {
            let flags = if entry < 255 { NEXT } else { 0 };
            let place = (TABLE + entry * 16, split((buffer(), 1, flags, entry as u16 + 1)));
            driver.memory.write(place.0, &place.1);
        }
        driver.start(PLAIN | INDIRECT_FEATURE);
        let (tx, kick) = (driver.tx(), driver.kicks[1].try_clone().expect("a descriptor"));
        (0..256).for_each(|index| tx.descriptor(index, (at(TABLE), 4096, INDIRECT, 0)));
        post_without_end(driver, tx, kick);
    }),
    violation(
        "an indirect table of 65,535 entries that jumps between pages",
        Malformed,
        |driver| {
            driver.memory = Memory::of(2 * LEN);
            for step in 0..256u64 {
                let next = if step < 255 { ((step + 1) * 256 % 65_535) as u16 } else { 0 };
                let flags = if step < 255 { NEXT } else { 0 };
                let entry = split((buffer(), 0, flags, next));
                driver.memory.write(LEN + step * 256 % 65_535 * 16, &entry);
            }
            driver.negotiate(PLAIN | INDIRECT_FEATURE);
            let all = Region { len: 2 * LEN, ..Region::ALL };
            driver.share(&[all], &[driver.memory.as_fd()]);
            (0..2).for_each(|index| driver.set_up(index));
            (0..2).for_each(|index| driver.enable(index));
            driver.sync();
            let (tx, kick) = (driver.tx(), driver.kicks[1].try_clone().expect("a descriptor"));
            let table = (GUEST + LEN, 65_535 * 16, INDIRECT, 0);
            (0..256).for_each(|index| tx.descriptor(index, table));
            post_without_end(driver, tx, kick);
        },
    ),
];

/// Posts all descriptors again as soon as they are returned.
fn post_without_end(driver: &mut HostileDriver, mut ring: Ring, kick: OwnedFd) {
    let mut posted = 0u16;
    driver.meanwhile(move || {
        while posted.wrapping_sub(ring.used()) < 256 {
            ring.post(posted % 256);
            posted = posted.wrapping_add(1);
        }
        let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
    });
}

/// Posts chains of 256 receive buffers of `len` bytes without end.
fn receive_in(driver: &mut HostileDriver, features: u64, len: u32) {
    for entry in 0..256 {
        let flags = if entry < 255 { NEXT | WRITE } else { WRITE };
        let place = (TABLE + entry * 16, split((buffer(), len, flags, entry as u16 + 1)));
        driver.memory.write(place.0, &place.1);
    }
    driver.start(features);
    let (rx, kick) = (driver.rx(), driver.kicks[0].try_clone().expect("a descriptor"));
    (0..256).for_each(|index| rx.descriptor(index, (at(TABLE), 4096, INDIRECT, 0)));
    post_without_end(driver, rx, kick);
}
