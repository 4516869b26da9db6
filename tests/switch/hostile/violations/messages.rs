//! Invalid messages, too many messages, and no messages at all.

use std::time::Duration;

use crate::hostile::Expect::{self, Harmless, Left, Refused};
use crate::hostile::message::{
    GET_CONFIG, GET_FEATURES, PLAIN, POSTCOPY_ADVISE, SET_FEATURES, SET_OWNER, words,
};
use crate::hostile::{HostileDriver, Violation, violation};

const NO_SUCH: Expect = Refused("unknown request");

const SILENT: Expect = Refused("no message for 5s");

pub(super) const SILENCE: &[Violation] = &[
    violation("no message", SILENT, |_| {}),
    violation("200 connections without a message", SILENT, |driver| {
        (0..200).for_each(|_| driver.reconnect());
    }),
];

pub(super) const VIOLATIONS: &[Violation] = &[
    violation(
        "half a header, then silence",
        Refused("incomplete message header: 4 of 12 bytes"),
        |driver| driver.raw(&words(&[GET_FEATURES]), &[]),
    ),
    violation(
        "half a header, then disconnect",
        Refused("incomplete message header: 4 of 12 bytes, then the peer disconnected"),
        |driver| {
            driver.raw(&words(&[GET_FEATURES]), &[]);
            driver.hang_up();
        },
    ),
    violation(
        "a message shorter than its header says",
        Refused("incomplete SET_FEATURES: 4 of 8 bytes"),
        |driver| driver.raw(&words(&[SET_FEATURES, 1, 8, 0]), &[]),
    ),
    violation("a message sent byte by byte", Harmless, |driver| {
        let message = [words(&[SET_FEATURES, 1, 8]), PLAIN.to_ne_bytes().to_vec()].concat();
        for byte in message {
            driver.raw(&[byte], &[]);
            std::thread::sleep(Duration::from_millis(2));
        }
        driver.sync();
    }),
    violation(
        "a message of 4097 bytes",
        Refused("SET_FEATURES of 4097 bytes: at most 4096 are allowed"),
        |driver| driver.send(SET_FEATURES, &[0; 4097], &[]),
    ),
    violation("a message of 4 GiB", Refused("of 4294967295 bytes"), |driver| {
        driver.raw(&words(&[SET_FEATURES, 1, u32::MAX, 0]), &[]);
    }),
    violation(
        "a message with too few bytes",
        Refused("SET_FEATURES of 4 bytes with 0 file descriptors is invalid"),
        |driver| driver.send(SET_FEATURES, &[0; 4], &[]),
    ),
    violation(
        "a message with too many bytes",
        Refused("SET_OWNER of 100 bytes with 0 file descriptors is invalid"),
        |driver| driver.send(SET_OWNER, &[0; 100], &[]),
    ),
    violation("request 0", NO_SUCH, |driver| driver.send(0, &[], &[])),
    violation("request 1000", NO_SUCH, |driver| driver.send(1000, &[0; 8], &[])),
    violation("request 2^32 - 1", NO_SUCH, |driver| driver.send(u32::MAX, &[], &[])),
    violation("4096 bytes of noise", NO_SUCH, |driver| driver.raw(&[0xa5; 4096], &[])),
    violation(
        "a request for another kind of device",
        Refused("POSTCOPY_ADVISE of 0 bytes"),
        |driver| {
            driver.send(POSTCOPY_ADVISE, &[], &[]);
        },
    ),
    violation(
        "a request without negotiation",
        Refused("GET_CONFIG was not negotiated"),
        |driver| {
            driver.negotiate(PLAIN);
            driver.send(GET_CONFIG, &[0; 12], &[]);
        },
    ),
    violation(
        "a reply instead of a request",
        Refused("unexpected reply: GET_FEATURES"),
        |driver| {
            driver.raw(&words(&[GET_FEATURES, 1 | 4, 0]), &[]);
        },
    ),
    violation("a message of version 2", Refused("version 2"), |driver| {
        driver.raw(&words(&[GET_FEATURES, 2, 0]), &[]);
    }),
    violation("a message of version 0", Refused("version 0"), |driver| {
        driver.raw(&words(&[GET_FEATURES, 0, 0]), &[]);
    }),
    violation("a message with undefined flags", Refused("flags 0xff000001"), |driver| {
        driver.raw(&words(&[GET_FEATURES, 0xff00_0001, 0]), &[]);
    }),
    violation("5000 messages", Harmless, |driver| {
        for _ in 0..5000 {
            if driver.ask(GET_FEATURES).is_none() {
                break;
            }
        }
    }),
    violation("5000 messages at once", Harmless, |driver| {
        driver.raw(&words(&[SET_OWNER, 1, 0]).repeat(5000), &[]);
        driver.sync();
    }),
    violation("replies that the driver never reads", Refused("replies unread"), |driver| {
        for _ in 0..100 {
            driver.raw(&words(&[GET_FEATURES, 1, 0]).repeat(50), &[]);
        }
    }),
    violation("a second connection beside the first", Harmless, |driver| {
        driver.start(PLAIN);
        let second = HostileDriver::connect(driver.path());
        second.send(GET_FEATURES, &[], &[]);
        driver.sync();
        driver.keep(second);
    }),
    violation("an immediate disconnect", Left, |driver| driver.hang_up()),
];
