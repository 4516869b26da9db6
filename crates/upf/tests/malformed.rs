//! A million malformed packets, and malformed requests: nothing breaks, each packet is counted once,
//! by its reason, and nothing passes that is not the user's.

mod ends;

use std::collections::BTreeMap;
use std::time::Instant;

use dray_daemon::Request;
use dray_upf::{Counters, DropReason, api};
use ends::{Ends, from_dn, from_gnb, message_from_gnb, plain_session, udp};

/// Packets of each direction.
const PACKETS: usize = 500_000;
const BATCH: usize = 250;
const REQUESTS: usize = 50_000;

/// The same numbers in each run (splitmix64, Vigna 2015).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Bytes that begin as `seed` does, with some changed, gone, or more.
    fn spoil(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..1 + self.below(4) {
            // Headers are what it is about.
            let at = self.below(bytes.len().min(120));
            bytes[at] = match self.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ 1 << self.below(8),
                _ => self.next() as u8,
            };
        }
        match self.below(16) {
            0 => bytes.truncate(1 + self.below(bytes.len())),
            1 => bytes.extend((0..self.below(200)).map(|_| 7)),
            _ => {}
        }
        bytes
    }
}

/// With the checksum of the IPv4 header that begins at `at` put right, so that what lies behind is
/// looked at.
fn mended(mut frame: Vec<u8>, at: usize) -> Vec<u8> {
    if let Some(header) = frame.get_mut(at..at + 20) {
        header[10..12].fill(0);
        let sum = dray_wire::checksum::internet(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

fn v6(message: &[u8]) -> Vec<u8> {
    let packet = udp("fd00:3::2", "fd00:3::1", (2152, 2152), message);
    ends::frame(ends::GNB_MAC, ends::N3_MAC, &packet)
}

/// What became of every packet is in one number.
fn dealt_with(counters: &Counters) -> u64 {
    counters.tx_packets + counters.control + counters.buffered + counters.drops.total()
}

fn reasons(counters: &Counters) -> BTreeMap<&'static str, u64> {
    counters.drops.iter().map(|(reason, packets)| (reason.name(), packets)).collect()
}

#[test]
fn a_million_malformed_packets() {
    let mut ends = Ends::new(&plain_session(1));
    let mut chance = Chance(1);
    let inner = [
        udp("10.45.0.1", "203.0.113.9", (5000, 80), &[3; 60]),
        udp("2001:db8:1::5", "2001:db8:ff::1", (5000, 80), &[3; 60]),
    ];
    let message = |inner: &[u8], flags: u8| {
        let mut message = vec![flags, 255, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0x85, 1, 0x10, 9, 0];
        message.extend(inner);
        let len = message.len() as u16 - 8;
        message[2..4].copy_from_slice(&len.to_be_bytes());
        message
    };
    let indication = dray_wire::gtpu::error_indication(5, "10.0.3.2".parse().unwrap(), 2152);
    let to_n3 = [
        from_gnb(1, None, &inner[0]),
        from_gnb(1, Some(9), &inner[1]),
        message_from_gnb(&message(&inner[0], 0x37)),
        v6(&message(&inner[1], 0x34)),
        message_from_gnb(&dray_wire::gtpu::echo_request(7)),
        message_from_gnb(&dray_wire::gtpu::end_marker(1)),
        message_from_gnb(&indication),
    ];
    let to_n6 = [
        from_dn(&udp("203.0.113.9", "10.45.0.1", (80, 5000), &[3; 60])),
        from_dn(&udp("2001:db8:ff::1", "2001:db8:1::5", (80, 5000), &[3; 60])),
    ];
    for round in 0..PACKETS / BATCH {
        let spoilt: Vec<_> = (0..BATCH)
            .map(|_| {
                let seed = &to_n3[chance.below(to_n3.len())];
                let frame = chance.spoil(seed);
                // Of the outer packet, mostly; of the inner one behind the shortest header, too.
                let mend = chance.below(4);
                let frame = if mend > 0 { mended(frame, 14) } else { frame };
                if mend > 1 { mended(frame, 50) } else { frame }
            })
            .collect();
        for frame in ends.up(spoilt) {
            let packet = &frame[14..];
            let own = match packet[0] >> 4 {
                4 => packet[12..16] == [10, 45, 0, 1],
                _ => packet[8..16] == [0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0],
            };
            assert!(own, "not the user's: {frame:x?}");
        }
        let spoilt: Vec<_> = (0..BATCH)
            .map(|_| {
                let seed = &to_n6[chance.below(to_n6.len())];
                let frame = chance.spoil(seed);
                if chance.below(4) > 0 { mended(frame, 14) } else { frame }
            })
            .collect();
        ends.down(spoilt);
        ends.n6.received();
        ends.n3.received();
        let sent = ((round + 1) * BATCH) as u64;
        for counters in [ends.upf.uplink(), ends.upf.downlink()] {
            assert_eq!((counters.rx_packets, dealt_with(&counters)), (sent, sent), "{counters:?}");
        }
    }
    let (uplink, downlink) = (ends.upf.uplink(), ends.upf.downlink());
    println!("uplink {:?}\ndownlink {:?}", reasons(&uplink), reasons(&downlink));
    use DropReason as R;
    for reason in [
        R::OtherHost,
        R::NotIp,
        R::OuterIp,
        R::OuterFragment,
        R::NotForUs,
        R::OuterUdp,
        R::Gtpu,
        R::GtpuExtension,
        R::GtpuUnknownExtension,
        R::UnknownTeid,
        R::InnerIp,
        R::Spoofed,
        R::TtlExpired,
        R::NoRoute,
    ] {
        assert!(uplink.drops.get(reason) > 0, "uplink {reason:?}");
    }
    for reason in [R::OtherHost, R::NotIp, R::InnerIp, R::NoSession, R::TtlExpired] {
        assert!(downlink.drops.get(reason) > 0, "downlink {reason:?}");
    }
    assert!(uplink.error_indications > 0 && uplink.end_markers > 0 && uplink.control > 0);
}

#[test]
fn malformed_requests() {
    let mut ends = Ends::new(&plain_session(1));
    let mut chance = Chance(2);
    let session = r#"{"seid":2,"ue":["10.45.0.2","2001:db8:2::/64"],
        "pdrs":[{"id":1,"precedence":9,"from":"access","teid":2,"far":1,"qfis":[9],
        "filters":["permit out 17 from 203.0.113.0/24 80,90-99 to assigned"],"tos":[1,255]},
        {"id":2,"precedence":9,"from":"core","far":2,"qers":[1],"urrs":[1]}],
        "fars":[{"id":1,"action":"forward"},
        {"id":2,"action":"forward","tunnel":{"gnb":"10.0.3.2","teid":7}}],
        "qers":[{"id":1,"qfi":9,"mbr_uplink_kbps":100}],"urrs":[{"id":1,"quota":{"total":5}}]}"#;
    let add = format!("{{\"add\":[{session}]}}");
    let seeds = [add.as_str(), "{\"remove\":[2]}", "{\"remove\":[1],\"end_marker\":true}"];
    let mut statuses = BTreeMap::<u16, usize>::new();
    let started = Instant::now();
    for number in 0..REQUESTS {
        let mut body = seeds[chance.below(seeds.len())].as_bytes().to_vec();
        for _ in 0..chance.below(4) {
            let at = chance.below(body.len());
            body[at] = b"0129{}[]\",:.x- \xff"[chance.below(16)];
        }
        let target = ["/sessions", "/sessions/1", "/stats", "/", "/x"][chance.below(40).min(4)];
        let target = if number % 10 == 0 { target } else { "/sessions" };
        let request = Request {
            method: ["POST", "GET", "PUT"][chance.below(30).min(2) * usize::from(number % 10 == 0)]
                .to_owned(),
            path: target.to_owned(),
            query: Vec::new(),
            body,
        };
        let before = ends.upf.sessions();
        let status = api::answer(&ends.upf, started, &request).status;
        *statuses.entry(status).or_default() += 1;
        if status != 204 {
            assert_eq!(ends.upf.sessions(), before, "{request:?}");
        }
        if ends.upf.session_count() > 8 {
            // Room for what is right as well.
            let all: Vec<_> =
                before.iter().map(|it| dray_upf::Operation::Remove(it.seid)).collect();
            let _ = ends.upf.apply(&all);
        }
        // Changes are made meanwhile, or there would be no room for more.
        ends.run();
    }
    println!("{statuses:?}");
    assert!([200, 204, 400, 404, 405].iter().all(|status| statuses.contains_key(status)));
    assert!(statuses.keys().all(|status| *status < 500), "{statuses:?}");
}
