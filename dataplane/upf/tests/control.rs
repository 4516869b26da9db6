//! Sessions that change while packets pass: through the library, and over the control socket.

use std::collections::BTreeMap;
use std::time::Instant;

use dray_daemon::{ClientError, ControlSocket, Request};
use dray_upf::api::{self, Client, Transaction};
use dray_upf::config::{Generator, SessionConfig, SessionsFile, Tunnel};
use dray_upf::{Operation, SessionState};

use crate::ends::{self, Ends, from_dn, from_gnb, plain_session, session, session_of, to_gnb, udp};

const SERVER: &str = "203.0.113.9";

fn up(seid: u8) -> Vec<u8> {
    from_gnb(seid.into(), None, &udp(&format!("10.45.0.{seid}"), SERVER, (5000, 80), b"up"))
}

/// A user plane function with its control socket; the test polls both directions.
struct Served {
    ends: Ends,
    client: Client,
    _server: dray_daemon::Server,
    _directory: tempfile::TempDir,
}

fn serve(sessions: &str) -> Served {
    let ends = Ends::new(sessions);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("upf.sock");
    let server =
        api::serve(ControlSocket::bind(&path.clone().into()).unwrap(), ends.upf.clone(), || ());
    Served { ends, client: Client::new(&path), _server: server, _directory: directory }
}

#[test]
fn sessions_change_over_control_socket() {
    let mut served = serve(&plain_session(1));
    let (ends, client) = (&mut served.ends, &served.client);
    let add =
        |sessions: Vec<SessionConfig>| Transaction { add: sessions, ..Transaction::default() };
    client.change(&add(vec![session(2), session(3)])).unwrap();
    assert_eq!(ends.up([up(1), up(2), up(3), up(4)]).len(), 3);
    let seids = || client.sessions().unwrap().iter().map(|it| it.seid).collect::<Vec<_>>();
    assert_eq!(seids(), [1, 2, 3]);

    ends.n3.received();
    // Handover: the old tunnel gets its end marker, and packets take the new one.
    let other = session_of(&plain_session(2).replace("teid = 1002", "teid = 77"));
    let modify = Transaction { modify: vec![other], end_marker: true, ..Transaction::default() };
    client.change(&modify).unwrap();
    let frames = ends.down([from_dn(&udp(SERVER, "10.45.0.2", (80, 5000), b"down"))]);
    let teids: Vec<_> = frames.iter().map(|frame| to_gnb(frame).1.teid).collect();
    assert_eq!(teids, [1002, 77]);

    // In one transaction, a new session takes the tunnel of a removed one.
    let taker = session_of(&plain_session(4).replace("teid = 4,", "teid = 2,"));
    let swap = Transaction { remove: vec![2], add: vec![taker], ..Transaction::default() };
    client.change(&swap).unwrap();
    assert_eq!(seids(), [1, 3, 4]);
    let status = client.sessions().unwrap().remove(2);
    assert_eq!(
        (status.ue, status.teids),
        (vec!["10.45.0.4".into(), "2001:db8:4::/64".into()], vec![2])
    );
    assert_eq!(client.status().unwrap().sessions, 3);
    let shown = client.session(4).unwrap();
    assert_eq!((shown.state, shown.waiting), (SessionState::Forwarding, 0));
    let gnb = Tunnel { gnb: "10.0.3.2".parse().unwrap(), teid: 1004, dscp: 0 };
    assert_eq!(shown.tunnels, [gnb]);
    let text = plain_session(4).replace("teid = 4,", "teid = 2,");
    assert_eq!(shown.config, Some(session_of(&text)), "as given, for the next change");
    match client.session(5).unwrap_err() {
        ClientError::Refused { status: 404, what } => assert!(what.contains("5"), "{what}"),
        other => panic!("{other}"),
    }
    assert_eq!(client.stats().unwrap().uplink, ends.upf.uplink());
}

#[test]
fn session_shows_state_and_number_of_buffered_packets() {
    let forward = "action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1001 }";
    let buffering = plain_session(1).replace(forward, "action = \"buffer\"");
    let blocked = plain_session(2)
        .replace(
            "action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1002 }",
            "action = \"drop\"",
        )
        .replace("action = \"forward\"", "action = \"drop\"");
    let mut served = serve(&(buffering + &blocked));
    let (ends, client) = (&mut served.ends, &served.client);
    let packet = |number| from_dn(&udp(SERVER, "10.45.0.1", (80, 5000), &[number]));
    ends.down([packet(1), packet(2)]);
    let shown = client.session(1).unwrap();
    assert_eq!((shown.state, shown.waiting, shown.tunnels), (SessionState::Buffering, 2, vec![]));
    assert_eq!(client.session(2).unwrap().state, SessionState::Blocked);
    // The shown configuration, with its TEIDs in hex, is valid in a change.
    let change = Transaction { modify: vec![shown.config.unwrap()], ..Transaction::default() };
    client.change(&change).unwrap();
}

#[test]
fn refused_transaction_changes_nothing() {
    let mut served = serve(&(plain_session(1) + &plain_session(2)));
    let (ends, client) = (&mut served.ends, &served.client);
    let none = Transaction::default;
    let wrong = |text: String| vec![session_of(&text)];
    for (transaction, part) in [
        (
            Transaction { add: vec![session(3), session(1)], ..none() },
            "session 1: seid: already in use",
        ),
        (Transaction { modify: vec![session(3)], ..none() }, "session 3: seid: no such session"),
        (Transaction { remove: vec![1, 9], ..none() }, "session 9: seid: no such session"),
        (
            Transaction { remove: vec![1], modify: vec![session(1)], ..none() },
            "session 1: seid: occurs twice in the transaction",
        ),
        (
            Transaction { add: wrong(plain_session(3).replace("[1] }", "[8] }")), ..none() },
            "session 3: pdrs[1].qers: QER 8",
        ),
        (
            Transaction {
                remove: vec![2],
                add: wrong(plain_session(3).replace("0.3\"", "0.1\"")),
                ..none()
            },
            "session 3: ue[0]: 10.45.0.1",
        ),
    ] {
        match client.change(&transaction).unwrap_err() {
            ClientError::Refused { status: 400, what } => assert!(what.contains(part), "{what}"),
            other => panic!("{other}"),
        }
        assert_eq!(client.sessions().unwrap().len(), 2);
        assert_eq!(ends.up([up(1), up(2), up(3)]).len(), 2);
    }
}

/// Adds as many sessions as there is room for in one transaction, and removes them.
#[test]
fn one_transaction_fills_or_empties_capacity() {
    let generator = Generator {
        count: 20_000,
        teid: 1,
        gnb_teid: 1,
        gnbs: vec!["10.0.3.2".parse().unwrap()],
        ue: "10.64.0.1".parse().unwrap(),
        qfi: Some(9),
        pdrs: 2,
        mbr_kbps: None,
        urr: true,
    };
    let file = SessionsFile { generate: Some(generator), sessions: Vec::new() };
    let sessions = file.into_sessions().unwrap();
    let room = ends::INTERFACES.replace("sessions_max = 64", "sessions_max = 20000");
    let ends = Ends::try_new(&room).unwrap();
    let upf = ends.upf.clone();
    let running = ends::Threads::of(ends);
    let removed: Vec<_> = sessions.iter().map(|it| Operation::Remove(it.seid)).collect();
    let added: Vec<_> = sessions.into_iter().map(Operation::Add).collect();
    for _ in 0..2 {
        upf.apply(&added).unwrap();
        assert_eq!(upf.session_count(), 20_000);
        assert!(upf.apply(&[Operation::Add(session(1))]).is_err(), "a session beyond sessions_max");
        upf.apply(&removed).unwrap();
    }
    drop(running);
}

/// A reproducible stream of numbers (splitmix64, Vigna 2015).
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
}

#[test]
fn malformed_request_changes_nothing() {
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
    for number in 0..50_000 {
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
            body,
            ..Request::default()
        };
        let before = ends.upf.sessions();
        let status = api::answer(&ends.upf, started, &request).status;
        *statuses.entry(status).or_default() += 1;
        if status != 204 {
            assert_eq!(ends.upf.sessions(), before, "{request:?}");
        }
        if ends.upf.session_count() > 8 {
            // Make room for valid requests as well.
            let all: Vec<_> = before.iter().map(|it| Operation::Remove(it.seid)).collect();
            let _ = ends.upf.apply(&all);
        }
        // Apply the changes, or there would be no room for more.
        ends.run();
    }
    assert!([200, 204, 400, 404, 405].iter().all(|status| statuses.contains_key(status)));
    assert!(statuses.keys().all(|status| *status < 500), "{statuses:?}");
}
