//! Messages that are valid once, repeated without end.

use std::os::fd::AsFd;

use crate::liar::Expect::{Any, Harmless};
use crate::liar::message::{
    ADD_MEM_REG, GET_FEATURES, PLAIN, REM_MEM_REG, Region, SET_VRING_ENABLE,
};
use crate::liar::{Lie, lie};

pub(super) const LIES: &[Lie] = &[
    lie("endless messages", Harmless, |liar| {
        liar.start(PLAIN);
        liar.storm(|liar| liar.send(GET_FEATURES, &[], &[]));
    }),
    lie("endless memory tables", Harmless, |liar| {
        liar.start(PLAIN);
        super::files::be_busy(liar);
        liar.storm(super::super::Liar::share_all);
    }),
    lie("endless memory tables of 32 regions", Harmless, |liar| {
        liar.negotiate(PLAIN);
        liar.storm(|liar| liar.share(&Region::parts::<32>(), &[liar.memory.as_fd(); 32]));
    }),
    lie("a region endlessly added and removed", Harmless, |liar| {
        liar.start(PLAIN);
        super::files::be_busy(liar);
        let other = Region { guest: 0, user: 0x1000, ..Region::ALL };
        liar.storm(|liar| {
            liar.region(ADD_MEM_REG, other, &[liar.memory.as_fd()]);
            liar.region(REM_MEM_REG, other, &[]);
        });
    }),
    lie("a ring endlessly enabled and disabled", Harmless, |liar| {
        liar.start(PLAIN);
        super::files::be_busy(liar);
        liar.storm(|liar| {
            liar.vring(SET_VRING_ENABLE, 1, 0);
            liar.vring(SET_VRING_ENABLE, 1, 1);
        });
    }),
    lie("1500 connections with one message each", Any, |liar| {
        let start = std::time::Instant::now();
        for _ in 0..1500 {
            if start.elapsed() > std::time::Duration::from_secs(3) {
                break;
            }
            liar.send(GET_FEATURES, &[], &[]);
            liar.reconnect();
        }
    }),
];
