//! Packed rings.

use crate::liar::Expect::{Any, Harmless, Malformed, Refused};
use crate::liar::memory::{GUEST, LEN, parts};
use crate::liar::message::{INDIRECT as INDIRECT_FEATURE, PACKED, PLAIN, SET_VRING_BASE};
use crate::liar::ring::{AVAILABLE, FRAME, INDIRECT, NEXT, USED, WRITE, buffer, packed};
use crate::liar::{Liar, Lie, lie};

/// Posts empty frames without end: half a ring whenever the device is returning the other half.
fn flood(liar: &mut Liar) {
    const HALF: u16 = 512;
    liar.size = 2 * HALF;
    liar.start(PLAIN | PACKED);
    let (memory, ring) = (liar.memory.share(), parts(1)[0]);
    let half = |flags| (0..HALF).flat_map(|id| packed((buffer(), 0, flags, id))).collect();
    let (even, odd): (Vec<u8>, Vec<u8>) = (half(AVAILABLE), half(USED));
    let place = move |half: u64| ring + half * u64::from(HALF) * 16;
    (0..2).for_each(|half| memory.write(place(half), &even));
    let kick = liar.kicks[1].try_clone().expect("a descriptor");
    let mut step = 0u64;
    liar.meanwhile(move || {
        // The flags of the half's last descriptor show that the device has returned all of it.
        let (half, round) = (step % 2, step / 2);
        let back = if round % 2 == 0 { AVAILABLE | USED } else { 0 };
        let last = memory.read_u16(place(half) + u64::from(HALF) * 16 - 2);
        if last & (AVAILABLE | USED) == back {
            memory.write(place(half), if round % 2 == 0 { &odd } else { &even });
            step += 1;
        }
        if step.is_multiple_of(16) {
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        }
    });
}

pub(super) const LIES: &[Lie] = &[
    lie("packed: endless frames of no bytes", Malformed, flood),
    lie("packed: a frame outside memory", Refused("is outside the shared memory"), |liar| {
        liar.start(PLAIN | PACKED);
        liar.tx().packed(0, (GUEST + LEN, FRAME, AVAILABLE, 0));
        liar.kick();
    }),
    lie("packed: a chain longer than the ring", Refused("longer than 16 descriptors"), |liar| {
        liar.size = 16;
        liar.start(PLAIN | PACKED);
        let tx = liar.tx();
        (0..16).rev().for_each(|index| {
            tx.packed(index, (buffer(), 16, AVAILABLE | NEXT, 0));
        });
        liar.kick();
    }),
    lie(
        "packed: a chain longer than the maximum",
        Refused("longer than 256 descriptors"),
        |liar| {
            liar.size = 1024;
            liar.start(PLAIN | PACKED);
            let tx = liar.tx();
            (0..1024).rev().for_each(|index| {
                tx.packed(index, (buffer(), 16, AVAILABLE | NEXT, 0));
            });
            liar.kick();
        },
    ),
    lie("packed: descriptors with the wrong wrap counter", Harmless, |liar| {
        liar.start(PLAIN | PACKED);
        let tx = liar.tx();
        (0..256).for_each(|index| tx.packed(index, (0, FRAME, USED, index)));
        liar.kick();
    }),
    lie("packed: unknown buffer ids", Harmless, |liar| {
        liar.start(PLAIN | PACKED);
        let tx = liar.tx();
        (0..100).for_each(|index| tx.packed(index, (buffer(), FRAME, AVAILABLE, 0xffff)));
        liar.kick();
    }),
    lie("packed: flags that change repeatedly", Any, |liar| {
        liar.start(PLAIN | PACKED);
        let (tx, rx) = (liar.tx(), liar.rx());
        (0..256).for_each(|index| tx.packed(index, (buffer(), FRAME, 0, index)));
        (0..256).for_each(|index| rx.packed(index, (buffer(), 2048, WRITE, index)));
        let kick = liar.kicks[1].try_clone().expect("a descriptor");
        let mut round = 0u16;
        liar.meanwhile(move || {
            round = round.wrapping_add(1);
            let flags = [AVAILABLE, USED, AVAILABLE | USED, 0][usize::from(round % 4)];
            for index in 0..256 {
                tx.packed_flags(index, flags);
                rx.packed_flags(index, flags | WRITE);
            }
            let _ = rustix::io::write(&kick, &1u64.to_ne_bytes());
        });
    }),
    lie(
        "packed: an indirect table without negotiation",
        Refused("indirect tables were not negotiated"),
        |liar| {
            liar.start(PLAIN | PACKED);
            liar.tx().packed(0, (buffer(), 16, AVAILABLE | INDIRECT, 0));
            liar.kick();
        },
    ),
    lie("packed: an indirect table of 16 MiB", Refused("is outside the shared memory"), |liar| {
        liar.start(PLAIN | PACKED | INDIRECT_FEATURE);
        liar.tx().packed(0, (buffer(), 1 << 24, AVAILABLE | INDIRECT, 0));
        liar.kick();
    }),
    lie(
        "packed: a receive buffer marked device-readable",
        Refused("not device-writable"),
        |liar| {
            liar.start(PLAIN | PACKED);
            liar.rx().packed(0, (buffer(), 2048, AVAILABLE, 0));
        },
    ),
    lie(
        "packed: a base past the end of the ring",
        Refused("virtqueue 1: descriptor 28672 is outside the table of 256"),
        |liar| {
            liar.negotiate(PLAIN | PACKED);
            liar.share_all();
            liar.set_up(1);
            liar.vring(SET_VRING_BASE, 1, 0x7000);
            liar.enable(1);
        },
    ),
];
