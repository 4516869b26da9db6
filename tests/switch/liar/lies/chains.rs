//! Descriptor chains and indirect tables.

use std::os::fd::{AsFd, OwnedFd};

use crate::liar::Expect::{Harmless, Malformed, NoRoom, Refused};
use crate::liar::memory::{BUFFERS, GUEST, LEN, Memory};
use crate::liar::message::{INDIRECT as INDIRECT_FEATURE, MERGEABLE, PLAIN, Region};
use crate::liar::ring::{Descriptor, FRAME, INDIRECT, NEXT, Ring, WRITE, at, buffer, split};
use crate::liar::{Expect, Liar, Lie, lie};

const TOO_LONG: Expect = Refused("longer than 256 descriptors");
/// Offset of indirect tables in the memory.
const TABLE: u64 = BUFFERS + 0x1_0000;

/// Starts, and transmits the chain that begins with the first of `descriptors`.
fn chain(liar: &mut Liar, descriptors: &[Descriptor]) {
    liar.start(PLAIN);
    let mut tx = liar.tx();
    for (index, descriptor) in descriptors.iter().enumerate() {
        tx.descriptor(index as u16, *descriptor);
    }
    tx.post(0);
    liar.kick();
}

/// Starts, and transmits a chain of one descriptor that points to `table`.
fn table(liar: &mut Liar, table: &[Descriptor], descriptor: Descriptor) {
    for (index, entry) in (0..).zip(table) {
        liar.memory.write(TABLE + index * 16, &split(*entry));
    }
    liar.start(PLAIN | INDIRECT_FEATURE);
    liar.tx().offer(descriptor);
    liar.kick();
}

pub(super) const LIES: &[Lie] = &[
    lie("a chain that loops over two descriptors", TOO_LONG, |liar| {
        chain(liar, &[(buffer(), 16, NEXT, 1), (buffer(), 16, NEXT, 0)]);
    }),
    lie("a chain that loops over one descriptor", TOO_LONG, |liar| {
        chain(liar, &[(buffer(), 16, NEXT, 0)]);
    }),
    lie(
        "a chain with a next index past the table",
        Refused("descriptor 60000 is outside the table of 256"),
        |liar| chain(liar, &[(buffer(), 16, NEXT, 60_000)]),
    ),
    lie("a chain of 300 descriptors", TOO_LONG, |liar| {
        liar.size = 1024;
        let descriptors: Vec<_> = (1..=300).map(|next| (buffer(), 4, NEXT, next)).collect();
        chain(liar, &descriptors);
    }),
    lie(
        "a chain whose second buffer is outside memory",
        Refused("is outside the shared memory"),
        |liar| chain(liar, &[(buffer(), 16, NEXT, 1), (GUEST + LEN, 100, 0, 0)]),
    ),
    lie(
        "an indirect table without negotiation",
        Refused("indirect tables were not negotiated"),
        |liar| chain(liar, &[(at(TABLE), 16, INDIRECT, 0)]),
    ),
    lie(
        "an indirect table inside an indirect table",
        Refused("inside an indirect table"),
        |liar| table(liar, &[(at(TABLE), 16, INDIRECT, 0)], (at(TABLE), 16, INDIRECT, 0)),
    ),
    lie(
        "an indirect table with a next descriptor",
        Refused("an indirect table with a next descriptor"),
        |liar| table(liar, &[(buffer(), FRAME, 0, 0)], (at(TABLE), 16, INDIRECT | NEXT, 1)),
    ),
    lie("an indirect table of 24 bytes", Refused("indirect table length 24"), |liar| {
        table(liar, &[(buffer(), FRAME, 0, 0)], (at(TABLE), 24, INDIRECT, 0));
    }),
    lie("an indirect table of no bytes", Refused("indirect table length 0"), |liar| {
        table(liar, &[], (at(TABLE), 0, INDIRECT, 0));
    }),
    lie("an indirect table of 4 GiB", Refused("is outside the shared memory"), |liar| {
        table(liar, &[], (at(TABLE), 0xffff_fff0, INDIRECT, 0));
    }),
    lie(
        "an indirect table across the end of memory",
        Refused("is outside the shared memory"),
        |liar| table(liar, &[], (GUEST + LEN - 16, 32, INDIRECT, 0)),
    ),
    lie(
        "an indirect chain with a next index past its table",
        Refused("descriptor 9 is outside the table of 4"),
        |liar| table(liar, &[(buffer(), 16, NEXT, 9)], (at(TABLE), 64, INDIRECT, 0)),
    ),
    lie("an indirect chain that loops", TOO_LONG, |liar| {
        table(liar, &[(buffer(), 16, NEXT, 0)], (at(TABLE), 16, INDIRECT, 0));
    }),
    lie("an indirect table at an odd address", Harmless, |liar| {
        liar.memory.write(TABLE + 5, &split((buffer(), FRAME, 0, 0)));
        liar.start(PLAIN | INDIRECT_FEATURE);
        liar.tx().offer((at(TABLE) + 5, 16, INDIRECT, 0));
        liar.kick();
    }),
    lie("endless chains of maximum length with empty buffers", Malformed, |liar| {
        for entry in 0..256 {
            let flags = if entry < 255 { NEXT } else { 0 };
            let entry = (entry, split((buffer(), 0, flags, entry as u16 + 1)));
            liar.memory.write(TABLE + entry.0 * 16, &entry.1);
        }
        liar.start(PLAIN | INDIRECT_FEATURE);
        let (tx, kick) = (liar.tx(), liar.kicks[1].try_clone().expect("a descriptor"));
        (0..256).for_each(|index| tx.descriptor(index, (at(TABLE), 4096, INDIRECT, 0)));
        post_without_end(liar, tx, kick);
    }),
    lie("endless receive chains of 256 empty buffers", NoRoom, |liar| {
        receive_in(liar, PLAIN | INDIRECT_FEATURE | MERGEABLE, 0);
    }),
    lie("endless receive chains of 256 one-byte buffers", Harmless, |liar| {
        receive_in(liar, PLAIN | INDIRECT_FEATURE | MERGEABLE, 1);
    }),
    lie("one receive chain of 256 empty buffers per frame", NoRoom, |liar| {
        receive_in(liar, PLAIN | INDIRECT_FEATURE, 0);
    }),
    lie("endless frames in 256 one-byte buffers", Harmless, |liar| {
        for entry in 0..256 {
            let flags = if entry < 255 { NEXT } else { 0 };
            let place = (TABLE + entry * 16, split((buffer(), 1, flags, entry as u16 + 1)));
            liar.memory.write(place.0, &place.1);
        }
        liar.start(PLAIN | INDIRECT_FEATURE);
        let (tx, kick) = (liar.tx(), liar.kicks[1].try_clone().expect("a descriptor"));
        (0..256).for_each(|index| tx.descriptor(index, (at(TABLE), 4096, INDIRECT, 0)));
        post_without_end(liar, tx, kick);
    }),
    lie("an indirect table of 65,535 entries that jumps between pages", Malformed, |liar| {
        liar.memory = Memory::of(2 * LEN);
        for step in 0..256u64 {
            let next = if step < 255 { ((step + 1) * 256 % 65_535) as u16 } else { 0 };
            let flags = if step < 255 { NEXT } else { 0 };
            let entry = split((buffer(), 0, flags, next));
            liar.memory.write(LEN + step * 256 % 65_535 * 16, &entry);
        }
        liar.negotiate(PLAIN | INDIRECT_FEATURE);
        let all = Region { len: 2 * LEN, ..Region::ALL };
        liar.share(&[all], &[liar.memory.as_fd()]);
        (0..2).for_each(|index| liar.set_up(index));
        (0..2).for_each(|index| liar.enable(index));
        liar.sync();
        let (tx, kick) = (liar.tx(), liar.kicks[1].try_clone().expect("a descriptor"));
        let table = (GUEST + LEN, 65_535 * 16, INDIRECT, 0);
        (0..256).for_each(|index| tx.descriptor(index, table));
        post_without_end(liar, tx, kick);
    }),
];

/// Posts all descriptors again as soon as they are returned.
fn post_without_end(liar: &mut Liar, mut ring: Ring, kick: OwnedFd) {
    let mut posted = 0u16;
    liar.meanwhile(move || {
        while posted.wrapping_sub(ring.used()) < 256 {
            ring.post(posted % 256);
            posted = posted.wrapping_add(1);
        }
        let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
    });
}

/// Posts chains of 256 receive buffers of `len` bytes without end.
fn receive_in(liar: &mut Liar, features: u64, len: u32) {
    for entry in 0..256 {
        let flags = if entry < 255 { NEXT | WRITE } else { WRITE };
        let place = (TABLE + entry * 16, split((buffer(), len, flags, entry as u16 + 1)));
        liar.memory.write(place.0, &place.1);
    }
    liar.start(features);
    let (rx, kick) = (liar.rx(), liar.kicks[0].try_clone().expect("a descriptor"));
    (0..256).for_each(|index| rx.descriptor(index, (at(TABLE), 4096, INDIRECT, 0)));
    post_without_end(liar, rx, kick);
}
