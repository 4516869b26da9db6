//! Sessions that change while packets go on: by the library, and over the control socket.

mod ends;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dray_daemon::{ClientError, ControlSocket};
use dray_upf::api::{self, Client, Transaction};
use dray_upf::config::{Generator, SessionConfig, SessionsFile};
use dray_upf::{Operation, Upf};
use ends::{Ends, from_dn, from_gnb, plain_session, to_dn, to_gnb, udp};

const SERVER: &str = "203.0.113.9";

fn session(seid: u8) -> SessionConfig {
    session_of(&plain_session(seid))
}

fn session_of(text: &str) -> SessionConfig {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.toml");
    std::fs::write(&path, text).unwrap();
    SessionsFile::load(&path).unwrap().into_sessions().unwrap().remove(0)
}

fn up(seid: u8) -> Vec<u8> {
    from_gnb(seid.into(), None, &udp(&format!("10.45.0.{seid}"), SERVER, (5000, 80), b"up"))
}

/// A user plane function behind its control socket, whose directions are polled by hand.
struct Served {
    ends: Ends,
    client: Client,
    _server: dray_daemon::Server,
    directory: tempfile::TempDir,
}

fn serve(sessions: &str) -> Served {
    let ends = Ends::new(sessions);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("upf.sock");
    let server = api::serve(ControlSocket::bind(&path).unwrap(), ends.upf.clone());
    Served { ends, client: Client::new(&path), _server: server, directory }
}

#[test]
fn sessions_come_change_and_go_over_the_socket() {
    let Served { mut ends, client, directory, .. } = serve(&plain_session(1));
    let add =
        |sessions: Vec<SessionConfig>| Transaction { add: sessions, ..Transaction::default() };
    client.change(&add(vec![session(2), session(3)])).unwrap();
    assert_eq!(ends.up([up(1), up(2), up(3), up(4)]).len(), 3);
    let seids = || client.sessions().unwrap().iter().map(|it| it.seid).collect::<Vec<_>>();
    assert_eq!(seids(), [1, 2, 3]);

    // A gNB hands over: the old tunnel ends, and packets take the new one.
    let other = session_of(&plain_session(2).replace("teid = 1002", "teid = 77"));
    let modify = Transaction { modify: vec![other], end_marker: true, ..Transaction::default() };
    client.change(&modify).unwrap();
    let frames = ends.down([from_dn(&udp(SERVER, "10.45.0.2", (80, 5000), b"down"))]);
    let teids: Vec<_> = frames.iter().map(|frame| to_gnb(frame).1.teid).collect();
    assert_eq!(teids, [1002, 77]);

    // What one leaves another one takes, in one transaction.
    let taker = session_of(&plain_session(4).replace("teid = 4,", "teid = 2,"));
    let swap = Transaction { remove: vec![2], add: vec![taker], ..Transaction::default() };
    client.change(&swap).unwrap();
    assert_eq!(seids(), [1, 3, 4]);
    let status = client.sessions().unwrap().remove(2);
    assert_eq!(
        (status.ue, status.teids),
        (vec!["10.45.0.4/32".into(), "2001:db8:4::/64".into()], vec![2])
    );
    assert_eq!(client.status().unwrap().sessions, 3);
    assert_eq!(client.stats().unwrap().uplink, ends.upf.uplink());
    drop(directory);
}

#[test]
fn a_transaction_that_cannot_be_changes_nothing_and_says_why() {
    let Served { mut ends, client, .. } = serve(&(plain_session(1) + &plain_session(2)));
    let none = Transaction::default;
    let wrong = |text: String| vec![session_of(&text)];
    for (transaction, part) in [
        (
            Transaction { add: vec![session(3), session(1)], ..none() },
            "session 1: seid: is given twice",
        ),
        (Transaction { modify: vec![session(3)], ..none() }, "session 3: seid: there is no such"),
        (Transaction { remove: vec![1, 9], ..none() }, "session 9: seid: there is no such"),
        (
            Transaction { remove: vec![1], modify: vec![session(1)], ..none() },
            "session 1: seid: is in the transaction twice",
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

/// As many sessions as there is room for, in one go and out again.
#[test]
fn large_transactions_take_no_longer_by_session() {
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
    let running = Threads::of(ends);
    let removed: Vec<_> = sessions.iter().map(|it| Operation::Remove(it.seid)).collect();
    let added: Vec<_> = sessions.into_iter().map(Operation::Add).collect();
    for _ in 0..2 {
        upf.apply(&added).unwrap();
        assert_eq!(upf.session_count(), 20_000);
        assert!(upf.apply(&[Operation::Add(session(1))]).is_err(), "there is no more room");
        upf.apply(&removed).unwrap();
    }
    drop(running);
}

/// Polls both directions until it is dropped.
struct Threads(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Threads {
    fn of(ends: Ends) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let threads = ends.directions.into_iter().map(|mut direction| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if !direction.poll().unwrap() {
                        std::thread::yield_now();
                    }
                    direction.publish();
                }
            })
        });
        Self(stop.clone(), threads.collect())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Sessions come and go while others' packets pass: none of those is lost, or passes wrongly, and
/// what is gone has left nothing behind.
#[test]
fn churn_leaves_the_others_alone_and_grows_nothing() {
    let ends = Ends::new(&plain_session(1));
    let (upf, n3, n6) = (ends.upf.clone(), ends.n3.clone(), ends.n6.clone());
    let running = Threads::of(ends);
    let stop = Arc::<AtomicBool>::default();
    let churn = std::thread::spawn({
        let (upf, stop) = (upf.clone(), stop.clone());
        move || churn(&upf, &stop)
    });
    let packet = udp("10.45.0.1", SERVER, (5000, 80), b"stays");
    let (frame, expected) = (from_gnb(1, None, &packet), to_dn(&packet));
    let mut sent = 0;
    let mut received = 0;
    let mut take = |received: &mut u64| {
        for frame in n6.received() {
            assert_eq!(frame, expected);
            *received += 1;
        }
    };
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        n3.send((0..64).map(|_| frame.clone()));
        sent += 64;
        take(&mut received);
        std::thread::sleep(Duration::from_micros(200));
    }
    stop.store(true, Ordering::Relaxed);
    let (changes, before, after) = churn.join().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while received < sent && Instant::now() < patience {
        take(&mut received);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(received, sent);
    drop(running);
    assert_eq!(upf.uplink().drops.total(), 0, "{:?}", upf.uplink());
    assert_eq!(upf.session_count(), 1);
    assert!(changes > 1000, "{changes}");
    // What an allocator keeps is far less than what so many sessions would take.
    assert!(after < before + (4 << 20), "{before} to {after} bytes over {changes} changes");
}

/// Adds and removes 30 sessions again and again; how many changes that were, and what memory the
/// process had some way in and at the end.
fn churn(upf: &Upf, stop: &AtomicBool) -> (usize, usize, usize) {
    let sessions: Vec<_> = (2..32).map(session).collect();
    let (mut changes, mut before) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let add: Vec<_> = sessions.iter().cloned().map(Operation::Add).collect();
        let remove: Vec<_> = sessions.iter().map(|it| Operation::Remove(it.seid)).collect();
        upf.apply(&add).unwrap();
        upf.apply(&remove).unwrap();
        changes += add.len() + remove.len();
        if before == 0 && changes > 600 {
            before = resident();
        }
    }
    (changes, before, resident())
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}
