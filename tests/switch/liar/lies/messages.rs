//! Invalid messages, too many messages, and no messages at all.

use std::time::Duration;

use crate::liar::Expect::{self, Harmless, Left, Refused};
use crate::liar::message::{
    GET_CONFIG, GET_FEATURES, PLAIN, POSTCOPY_ADVISE, SET_FEATURES, SET_OWNER, words,
};
use crate::liar::{Liar, Lie};

const NO_SUCH: Expect = Refused("unknown request");

const fn lie(name: &'static str, tell: fn(&mut Liar), expect: Expect) -> Lie {
    Lie { name, tell, expect }
}

const SILENT: Expect = Refused("no message for 5s");

pub(super) const SILENCE: &[Lie] = &[
    lie("no message", |_| {}, SILENT),
    lie(
        "200 connections without a message",
        |liar| (0..200).for_each(|_| liar.reconnect()),
        SILENT,
    ),
];

pub(super) const LIES: &[Lie] = &[
    lie(
        "half a header, then silence",
        |liar| liar.raw(&words(&[GET_FEATURES]), &[]),
        Refused("incomplete message header: 4 of 12 bytes"),
    ),
    lie(
        "half a header, then disconnect",
        |liar| {
            liar.raw(&words(&[GET_FEATURES]), &[]);
            liar.hang_up();
        },
        Refused("incomplete message header: 4 of 12 bytes, then the peer disconnected"),
    ),
    lie(
        "a message shorter than its header says",
        |liar| liar.raw(&words(&[SET_FEATURES, 1, 8, 0]), &[]),
        Refused("incomplete SET_FEATURES: 4 of 8 bytes"),
    ),
    lie(
        "a message sent byte by byte",
        |liar| {
            let message = [words(&[SET_FEATURES, 1, 8]), PLAIN.to_ne_bytes().to_vec()].concat();
            for byte in message {
                liar.raw(&[byte], &[]);
                std::thread::sleep(Duration::from_millis(2));
            }
            liar.sync();
        },
        Harmless,
    ),
    lie(
        "a message of 4097 bytes",
        |liar| liar.send(SET_FEATURES, &[0; 4097], &[]),
        Refused("SET_FEATURES of 4097 bytes: at most 4096 are allowed"),
    ),
    lie(
        "a message of 4 GiB",
        |liar| liar.raw(&words(&[SET_FEATURES, 1, u32::MAX, 0]), &[]),
        Refused("of 4294967295 bytes"),
    ),
    lie(
        "a message with too few bytes",
        |liar| liar.send(SET_FEATURES, &[0; 4], &[]),
        Refused("SET_FEATURES of 4 bytes with 0 file descriptors is invalid"),
    ),
    lie(
        "a message with too many bytes",
        |liar| liar.send(SET_OWNER, &[0; 100], &[]),
        Refused("SET_OWNER of 100 bytes with 0 file descriptors is invalid"),
    ),
    lie("request 0", |liar| liar.send(0, &[], &[]), NO_SUCH),
    lie("request 1000", |liar| liar.send(1000, &[0; 8], &[]), NO_SUCH),
    lie("request 2^32 - 1", |liar| liar.send(u32::MAX, &[], &[]), NO_SUCH),
    lie("4096 bytes of noise", |liar| liar.raw(&[0xa5; 4096], &[]), NO_SUCH),
    lie(
        "a request for another kind of device",
        |liar| liar.send(POSTCOPY_ADVISE, &[], &[]),
        Refused("POSTCOPY_ADVISE of 0 bytes"),
    ),
    lie(
        "a request without negotiation",
        |liar| {
            liar.negotiate(PLAIN);
            liar.send(GET_CONFIG, &[0; 12], &[]);
        },
        Refused("GET_CONFIG was not negotiated"),
    ),
    lie(
        "a reply instead of a request",
        |liar| liar.raw(&words(&[GET_FEATURES, 1 | 4, 0]), &[]),
        Refused("unexpected reply: GET_FEATURES"),
    ),
    lie(
        "a message of version 2",
        |liar| liar.raw(&words(&[GET_FEATURES, 2, 0]), &[]),
        Refused("version 2"),
    ),
    lie(
        "a message of version 0",
        |liar| liar.raw(&words(&[GET_FEATURES, 0, 0]), &[]),
        Refused("version 0"),
    ),
    lie(
        "a message with undefined flags",
        |liar| liar.raw(&words(&[GET_FEATURES, 0xff00_0001, 0]), &[]),
        Refused("flags 0xff000001"),
    ),
    lie(
        "5000 messages",
        |liar| {
            for _ in 0..5000 {
                if liar.ask(GET_FEATURES).is_none() {
                    break;
                }
            }
        },
        Harmless,
    ),
    lie(
        "5000 messages at once",
        |liar| {
            liar.raw(&words(&[SET_OWNER, 1, 0]).repeat(5000), &[]);
            liar.sync();
        },
        Harmless,
    ),
    lie(
        "replies that the driver never reads",
        |liar| {
            for _ in 0..100 {
                liar.raw(&words(&[GET_FEATURES, 1, 0]).repeat(50), &[]);
            }
        },
        Refused("replies unread"),
    ),
    lie(
        "a second connection beside the first",
        |liar| {
            liar.start(PLAIN);
            let second = Liar::connect(liar.path());
            second.send(GET_FEATURES, &[], &[]);
            liar.sync();
            liar.keep(second);
        },
        Harmless,
    ),
    lie("an immediate disconnect", |liar| liar.hang_up(), Left),
];
