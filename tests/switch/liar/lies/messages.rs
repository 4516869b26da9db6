//! Invalid messages, too many messages, and no messages at all.

use std::time::Duration;

use crate::liar::Expect::{self, Harmless, Left, Refused};
use crate::liar::message::{
    GET_CONFIG, GET_FEATURES, PLAIN, POSTCOPY_ADVISE, SET_FEATURES, SET_OWNER, words,
};
use crate::liar::{Liar, Lie, lie};

const NO_SUCH: Expect = Refused("unknown request");

const SILENT: Expect = Refused("no message for 5s");

pub(super) const SILENCE: &[Lie] = &[
    lie("no message", SILENT, |_| {}),
    lie("200 connections without a message", SILENT, |liar| {
        (0..200).for_each(|_| liar.reconnect());
    }),
];

pub(super) const LIES: &[Lie] = &[
    lie(
        "half a header, then silence",
        Refused("incomplete message header: 4 of 12 bytes"),
        |liar| liar.raw(&words(&[GET_FEATURES]), &[]),
    ),
    lie(
        "half a header, then disconnect",
        Refused("incomplete message header: 4 of 12 bytes, then the peer disconnected"),
        |liar| {
            liar.raw(&words(&[GET_FEATURES]), &[]);
            liar.hang_up();
        },
    ),
    lie(
        "a message shorter than its header says",
        Refused("incomplete SET_FEATURES: 4 of 8 bytes"),
        |liar| liar.raw(&words(&[SET_FEATURES, 1, 8, 0]), &[]),
    ),
    lie("a message sent byte by byte", Harmless, |liar| {
        let message = [words(&[SET_FEATURES, 1, 8]), PLAIN.to_ne_bytes().to_vec()].concat();
        for byte in message {
            liar.raw(&[byte], &[]);
            std::thread::sleep(Duration::from_millis(2));
        }
        liar.sync();
    }),
    lie(
        "a message of 4097 bytes",
        Refused("SET_FEATURES of 4097 bytes: at most 4096 are allowed"),
        |liar| liar.send(SET_FEATURES, &[0; 4097], &[]),
    ),
    lie("a message of 4 GiB", Refused("of 4294967295 bytes"), |liar| {
        liar.raw(&words(&[SET_FEATURES, 1, u32::MAX, 0]), &[]);
    }),
    lie(
        "a message with too few bytes",
        Refused("SET_FEATURES of 4 bytes with 0 file descriptors is invalid"),
        |liar| liar.send(SET_FEATURES, &[0; 4], &[]),
    ),
    lie(
        "a message with too many bytes",
        Refused("SET_OWNER of 100 bytes with 0 file descriptors is invalid"),
        |liar| liar.send(SET_OWNER, &[0; 100], &[]),
    ),
    lie("request 0", NO_SUCH, |liar| liar.send(0, &[], &[])),
    lie("request 1000", NO_SUCH, |liar| liar.send(1000, &[0; 8], &[])),
    lie("request 2^32 - 1", NO_SUCH, |liar| liar.send(u32::MAX, &[], &[])),
    lie("4096 bytes of noise", NO_SUCH, |liar| liar.raw(&[0xa5; 4096], &[])),
    lie("a request for another kind of device", Refused("POSTCOPY_ADVISE of 0 bytes"), |liar| {
        liar.send(POSTCOPY_ADVISE, &[], &[]);
    }),
    lie("a request without negotiation", Refused("GET_CONFIG was not negotiated"), |liar| {
        liar.negotiate(PLAIN);
        liar.send(GET_CONFIG, &[0; 12], &[]);
    }),
    lie("a reply instead of a request", Refused("unexpected reply: GET_FEATURES"), |liar| {
        liar.raw(&words(&[GET_FEATURES, 1 | 4, 0]), &[]);
    }),
    lie("a message of version 2", Refused("version 2"), |liar| {
        liar.raw(&words(&[GET_FEATURES, 2, 0]), &[]);
    }),
    lie("a message of version 0", Refused("version 0"), |liar| {
        liar.raw(&words(&[GET_FEATURES, 0, 0]), &[]);
    }),
    lie("a message with undefined flags", Refused("flags 0xff000001"), |liar| {
        liar.raw(&words(&[GET_FEATURES, 0xff00_0001, 0]), &[]);
    }),
    lie("5000 messages", Harmless, |liar| {
        for _ in 0..5000 {
            if liar.ask(GET_FEATURES).is_none() {
                break;
            }
        }
    }),
    lie("5000 messages at once", Harmless, |liar| {
        liar.raw(&words(&[SET_OWNER, 1, 0]).repeat(5000), &[]);
        liar.sync();
    }),
    lie("replies that the driver never reads", Refused("replies unread"), |liar| {
        for _ in 0..100 {
            liar.raw(&words(&[GET_FEATURES, 1, 0]).repeat(50), &[]);
        }
    }),
    lie("a second connection beside the first", Harmless, |liar| {
        liar.start(PLAIN);
        let second = Liar::connect(liar.path());
        second.send(GET_FEATURES, &[], &[]);
        liar.sync();
        liar.keep(second);
    }),
    lie("an immediate disconnect", Left, |liar| liar.hang_up()),
];
