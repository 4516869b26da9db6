//! Messages that are valid once, repeated without end.

use std::os::fd::AsFd;

use crate::hostile::Expect::{Any, Harmless};
use crate::hostile::message::{
    ADD_MEM_REG, GET_FEATURES, PLAIN, REM_MEM_REG, Region, SET_VRING_ENABLE,
};
use crate::hostile::{Violation, violation};

pub(super) const VIOLATIONS: &[Violation] = &[
    violation("endless messages", Harmless, |driver| {
        driver.start(PLAIN);
        driver.storm(|driver| driver.send(GET_FEATURES, &[], &[]));
    }),
    violation("endless memory tables", Harmless, |driver| {
        driver.start(PLAIN);
        super::files::be_busy(driver);
        driver.storm(super::super::HostileDriver::share_all);
    }),
    violation("endless memory tables of 32 regions", Harmless, |driver| {
        driver.negotiate(PLAIN);
        driver.storm(|driver| driver.share(&Region::parts::<32>(), &[driver.memory.as_fd(); 32]));
    }),
    violation("a region endlessly added and removed", Harmless, |driver| {
        driver.start(PLAIN);
        super::files::be_busy(driver);
        let other = Region { guest: 0, user: 0x1000, ..Region::ALL };
        driver.storm(|driver| {
            driver.region(ADD_MEM_REG, other, &[driver.memory.as_fd()]);
            driver.region(REM_MEM_REG, other, &[]);
        });
    }),
    violation("a ring endlessly enabled and disabled", Harmless, |driver| {
        driver.start(PLAIN);
        super::files::be_busy(driver);
        driver.storm(|driver| {
            driver.vring(SET_VRING_ENABLE, 1, 0);
            driver.vring(SET_VRING_ENABLE, 1, 1);
        });
    }),
    violation("1500 connections with one message each", Any, |driver| {
        let start = std::time::Instant::now();
        for _ in 0..1500 {
            if start.elapsed() > std::time::Duration::from_secs(3) {
                break;
            }
            driver.send(GET_FEATURES, &[], &[]);
            driver.reconnect();
        }
    }),
];
