//! Addresses and parameters of rings, before they run and while they run.

use std::os::fd::AsFd;

use crate::liar::Expect::{self, Any, Harmless, Refused};
use crate::liar::memory::{LEN, USER, parts};
use crate::liar::message::{
    GET_VRING_BASE, PLAIN, Region, SET_FEATURES, SET_VRING_BASE, SET_VRING_ENABLE, SET_VRING_KICK,
    SET_VRING_NUM,
};
use crate::liar::ring::{FRAME, WRITE, buffer};
use crate::liar::{Liar, Lie, lie};

const SIZE: Expect = Refused("a power of two from 2 to 32768");
const OUTSIDE: Expect = Refused("is outside the shared memory");

/// Starts virtqueue 1 with these addresses.
fn addresses(liar: &mut Liar, addresses: [u64; 3]) {
    liar.negotiate(PLAIN);
    liar.share_all();
    liar.set_up(1);
    liar.addresses(1, addresses);
    liar.enable(1);
}

fn right() -> [u64; 3] {
    parts(1).map(|part| USER + part)
}

pub(super) const LIES: &[Lie] = &[
    lie("a ring of no entries", SIZE, |liar| liar.vring(SET_VRING_NUM, 0, 0)),
    lie("a ring of 3 entries", SIZE, |liar| liar.vring(SET_VRING_NUM, 0, 3)),
    lie("a ring of 65536 entries", SIZE, |liar| liar.vring(SET_VRING_NUM, 0, 65_536)),
    lie("a ring of 2^32 - 1 entries", SIZE, |liar| liar.vring(SET_VRING_NUM, 0, u32::MAX)),
    lie(
        "a ring size that changes while the ring runs",
        Refused("the size of virtqueue 1 changed while it runs"),
        |liar| {
            liar.start(PLAIN);
            liar.vring(SET_VRING_NUM, 1, 1024);
        },
    ),
    lie(
        "a ring address that changes while the ring runs",
        Refused("the address of virtqueue 1 changed while it runs"),
        |liar| {
            liar.start(PLAIN);
            liar.addresses(1, right().map(|address| address + 4096));
        },
    ),
    lie(
        "a ring base that changes while the ring runs",
        Refused("the base of virtqueue 1 changed while it runs"),
        |liar| {
            liar.start(PLAIN);
            liar.vring(SET_VRING_BASE, 1, 77);
        },
    ),
    lie(
        "features that change while rings run",
        Refused("features changed while virtqueues run"),
        |liar| {
            liar.start(PLAIN);
            let changed = PLAIN | crate::liar::message::PACKED;
            liar.send(SET_FEATURES, &changed.to_ne_bytes(), &[]);
        },
    ),
    lie("a ring outside memory", OUTSIDE, |liar| addresses(liar, [0x1000, 0x2000, 0x3000])),
    lie("a used ring across the end of memory", Refused("used ring, 2054 bytes"), |liar| {
        addresses(liar, [right()[0], right()[1], USER + LEN - 64]);
    }),
    lie(
        "an available ring across the last address",
        Refused("available ring, 518 bytes"),
        |liar| addresses(liar, [right()[0], u64::MAX - 1, right()[2]]),
    ),
    lie(
        "a ring of 32768 entries in memory for 4096",
        Refused("descriptor table, 524288 bytes"),
        |liar| {
            liar.size = 32_768;
            addresses(liar, [USER + LEN - 0x1_0000, right()[1], right()[2]]);
        },
    ),
    lie("a ring at an odd address", Refused("descriptors aligned to 16"), |liar| {
        addresses(liar, right().map(|address| address + 1));
    }),
    lie("a ring at an odd file offset", Refused("is not aligned to"), |liar| {
        liar.negotiate(PLAIN);
        let odd = Region { len: LEN - 4096, offset: 9, ..Region::ALL };
        liar.share(&[odd], &[liar.memory.as_fd()]);
        liar.set_up(1);
        liar.enable(1);
    }),
    lie("all parts of a ring at one address", Any, |liar| {
        addresses(liar, [right()[0]; 3]);
        liar.tx().descriptor(0, (buffer(), FRAME, 0, 0));
        liar.kick();
    }),
    lie("one ring as both virtqueues", Refused("not device-"), |liar| {
        liar.negotiate(PLAIN);
        liar.share_all();
        liar.set_up(0);
        liar.set_up(1);
        liar.addresses(0, right());
        (0..2).for_each(|index| liar.enable(index));
        liar.sync();
        let mut tx = liar.tx();
        (0..64).for_each(|index| tx.offer((buffer(), 2048, [0, WRITE][index % 2], 0)));
        liar.kick();
    }),
    lie("a ring started 1000 times", Harmless, |liar| {
        liar.start(PLAIN);
        let (mut tx, mut offered) = (liar.tx(), 0u16);
        for _ in 0..1000 {
            liar.fd(SET_VRING_KICK, 1, liar.kicks[1].as_fd());
            if offered.wrapping_sub(tx.used()) < 256 {
                tx.offer((buffer(), FRAME, 0, 0));
                offered += 1;
            }
            liar.kick();
            liar.sync();
        }
    }),
    lie("a ring enabled and disabled 1000 times", Harmless, |liar| {
        liar.start(PLAIN);
        for round in 0..1000 {
            liar.vring(SET_VRING_ENABLE, 1, round % 2);
        }
        liar.sync();
    }),
    lie("a ring stopped before it was started", Harmless, |liar| {
        liar.negotiate(PLAIN);
        liar.vring(GET_VRING_BASE, 1, 0);
        let base = liar.reply();
        assert!(matches!(base, Some(1) | None), "{base:?}");
    }),
    lie("a ring stopped 100 times", Harmless, |liar| {
        liar.start(PLAIN);
        for _ in 0..100 {
            liar.vring(GET_VRING_BASE, 1, 0);
            liar.reply();
        }
        liar.sync();
    }),
];
