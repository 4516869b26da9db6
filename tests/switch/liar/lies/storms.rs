//! Messages that are valid once, repeated without end.

use std::os::fd::AsFd;

use crate::liar::Expect::{Any, Harmless};
use crate::liar::Lie;
use crate::liar::memory::{GUEST, LEN, USER};
use crate::liar::message::{
    ADD_MEM_REG, GET_FEATURES, PLAIN, REM_MEM_REG, Region, SET_VRING_ENABLE,
};

pub(super) const LIES: &[Lie] = &[
    Lie {
        name: "endless messages",
        tell: |liar| {
            liar.start(PLAIN);
            liar.storm(|liar| liar.send(GET_FEATURES, &[], &[]));
        },
        expect: Harmless,
    },
    Lie {
        name: "endless memory tables",
        tell: |liar| {
            liar.start(PLAIN);
            super::files::be_busy(liar);
            liar.storm(super::super::Liar::share_all);
        },
        expect: Harmless,
    },
    Lie {
        name: "endless memory tables of 32 regions",
        tell: |liar| {
            liar.negotiate(PLAIN);
            let part = LEN / 32;
            let regions: Vec<Region> = (0..32)
                .map(|index| {
                    let at = index * part;
                    Region { guest: GUEST + at, len: part, user: USER + at, offset: at }
                })
                .collect();
            liar.storm(|liar| liar.share(&regions, &[liar.memory.as_fd(); 32]));
        },
        expect: Harmless,
    },
    Lie {
        name: "a region endlessly added and removed",
        tell: |liar| {
            liar.start(PLAIN);
            super::files::be_busy(liar);
            let other = Region { guest: 0, user: 0x1000, ..Region::ALL };
            liar.storm(|liar| {
                liar.region(ADD_MEM_REG, other, &[liar.memory.as_fd()]);
                liar.region(REM_MEM_REG, other, &[]);
            });
        },
        expect: Harmless,
    },
    Lie {
        name: "a ring endlessly enabled and disabled",
        tell: |liar| {
            liar.start(PLAIN);
            super::files::be_busy(liar);
            liar.storm(|liar| {
                liar.vring(SET_VRING_ENABLE, 1, 0);
                liar.vring(SET_VRING_ENABLE, 1, 1);
            });
        },
        expect: Harmless,
    },
    Lie {
        name: "1500 connections with one message each",
        tell: |liar| {
            let start = std::time::Instant::now();
            for _ in 0..1500 {
                if start.elapsed() > std::time::Duration::from_secs(3) {
                    break;
                }
                liar.send(GET_FEATURES, &[], &[]);
                liar.reconnect();
            }
        },
        expect: Any,
    },
];
