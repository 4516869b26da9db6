//! A user plane function that is killed, or restarted, continues with what its service manager
//! keeps: sessions, usage, counters and connections stay, and a state that cannot be used is
//! replaced by an ordinary start.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::process::Stdio;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use dray_port::{LinkState, Port};
use dray_upf::SessionStatus;
use dray_upf::api::{Client, Stats, Transaction};
use dray_upf::config::{SessionConfig, UpfConfig, Volume};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::manager::{Manager, Page, null};
use crate::common::{self, Started, alone, eventually};
use crate::fixture::{CONFIG, V4, check_adds_up, number, report};
use crate::peers::{MEMIF, PACKED, Peers, SPLIT, load, lost_nothing, numbers};

/// Maximum number of packets that a worker moves at a time.
const BATCH: u64 = 256;
/// Sessions of the configuration that no load uses.
pub(crate) const SESSIONS: [u64; 3] = [201, 202, 203];

/// Returns a configuration of generated sessions, and of `seids`.
pub(crate) fn configuration(seids: &[u64]) -> String {
    let session = |seid: &u64| {
        format!(
            "[[sessions]]\nseid = {seid}\nue = [\"10.99.0.{}\"]\n\
             fars = [ {{ id = 1, action = \"forward\" }} ]\n\
             pdrs = [ {{ id = 1, precedence = 1, from = \"access\", teid = {seid}, far = 1 }} ]\n",
            seid - 200,
        )
    };
    format!("{CONFIG}{V4}{}", seids.iter().map(session).collect::<String>())
}

pub(crate) fn session(seid: u64) -> SessionConfig {
    UpfConfig::from_toml(&configuration(&[seid])).unwrap().sessions.remove(0)
}

impl Manager {
    fn upf() -> Self {
        Self::upf_at(SPLIT)
    }

    fn upf_at(peers: Peers) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("upf.toml"), configuration(&SESSIONS)).unwrap();
        let ports = peers.options();
        let [n3, its, n6, other] = ports.each_ref().map(String::as_str);
        let options = ["upf", n3, its, n6, other, "--config", "DIR/upf.toml"];
        // The page of the sessions, and one for each port.
        Self::run(folder, 3, &options)
    }

    fn control_plane(&self) -> Client {
        Client::new(&self.control())
    }

    /// Returns sessions and counters, once no packet is on its way.
    fn sessions_and_stats(&self) -> (Vec<SessionStatus>, Stats) {
        let client = self.control_plane();
        let sessions_and_stats = || (client.sessions().unwrap(), client.stats().unwrap());
        let mut last = sessions_and_stats();
        let is_still = || {
            sleep(Duration::from_millis(20));
            let before = std::mem::replace(&mut last, sessions_and_stats());
            before == last
        };
        assert!(eventually(is_still));
        check_adds_up(&self.control());
        last
    }

    fn change(&self, transaction: &Transaction) {
        self.control_plane().change(transaction).unwrap();
    }

    /// Starts a load.
    fn load(&self, rate: &str, duration: &str, more: &[&str]) -> Started {
        let port = |name: &str| format!("virtio:{}", self.folder.path().join(name).display());
        let config = self.folder.path().join("upf.toml");
        let mut command = common::command();
        command.args(["upf-load", "--n3", &port("n3"), "--n6", &port("n6"), "--json", "--config"]);
        command.arg(config).args(["--rate", rate, "--duration", duration]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().map(Started).unwrap()
    }

    /// Sends packets, all of which must pass: at the first try, unless a busy machine delays what
    /// the neighbours reply.
    fn pass(&self) {
        let pass_all = || {
            let load = report(self.load("1k", "0.3", &["--allow-loss"]));
            let sent = passed(&load, "sent");
            passed(&load, "received") == sent && sent.iter().all(|sent| *sent > 100)
        };
        assert!((0..5).any(|_| pass_all()), "{:?}", self.sessions_and_stats().1);
    }
}

/// Returns the packets that all sessions have counted in each direction.
fn counted(sessions: &[SessionStatus]) -> [u64; 2] {
    let all = || sessions.iter().flat_map(|session| &session.usage).map(|usage| usage.counted);
    [all().map(|it| it.uplink_packets).sum(), all().map(|it| it.downlink_packets).sum()]
}

/// Returns numbers of a load: `sent` or `received`, in each direction.
fn passed(load: &Value, what: &str) -> [u64; 2] {
    ["uplink", "downlink"].map(|way| number(load, &format!("/{way}/{what}")))
}

#[test]
fn sessions_usage_and_counters_survive_kills_and_restarts() {
    let _alone = alone();
    let mut manager = Manager::upf();
    manager.pass();
    let moved = SessionConfig { ue: vec!["10.99.1.1".parse().unwrap()], ..session(202) };
    manager.change(&Transaction {
        remove: vec![201],
        modify: vec![moved],
        add: vec![session(204)],
        end_marker: false,
    });
    for signal in [Signal::KILL, Signal::TERM, Signal::KILL] {
        let before = manager.sessions_and_stats();
        assert!(counted(&before.0)[0] > 100 && before.0.len() == 103);
        let said = manager.end(signal);
        let warns = |line: &str| line.contains("WARN") && !line.contains("peer disconnected");
        assert!(!said.lines().any(warns), "{said}");
        manager.start();
        manager.wait();
        let after = manager.sessions_and_stats();
        assert_eq!(after.0, before.0, "{signal:?}");
        let numbers = |stats: &Stats| (stats.uplink, stats.downlink);
        assert_eq!(numbers(&after.1).0.tx_packets, before.1.uplink.tx_packets);
        assert_eq!(numbers(&after.1).1.tx_packets, before.1.downlink.tx_packets);
        assert!(manager.said().contains("103"), "{}", manager.said());
        manager.pass();
    }
    // Sessions that differ in the file are changed, and no others.
    let config = configuration(&[201, 202, 205]);
    std::fs::write(manager.folder.path().join("upf.toml"), config).unwrap();
    manager.end(Signal::TERM);
    manager.start();
    manager.wait();
    let (sessions, _) = manager.sessions_and_stats();
    let (_, others) = sessions.split_at(100);
    let others: Vec<_> = others.iter().map(|session| (session.seid, &*session.ue[0])).collect();
    assert_eq!(others, [(202, "10.99.1.1"), (204, "10.99.0.4"), (205, "10.99.0.5")]);
    manager.pass();
}

/// The journal is written anew when it is long; every transaction that was replied to is in it.
#[test]
fn many_transactions_survive_kills() {
    let _alone = alone();
    let mut manager = Manager::upf();
    let text = configuration(&[]);
    let generated: Vec<_> = UpfConfig::from_toml(&text).unwrap().all_sessions().collect();
    for round in 1..=40u8 {
        let mut modify = generated.clone();
        modify[0].ue = vec![format!("10.98.0.{round}").parse().unwrap()];
        manager.change(&Transaction { modify, ..Transaction::default() });
        if round % 8 == 0 {
            manager.kill();
            manager.wait();
            let first = manager.control_plane().session(1).unwrap();
            assert_eq!(
                (first.ue, first.config.unwrap().pdrs.len()),
                (vec![format!("10.98.0.{round}")], 2)
            );
        }
    }
}

#[test]
fn busy_manager_keeps_the_state_later() {
    let _alone = alone();
    let mut manager = Manager::upf();
    let text = configuration(&[]);
    let modify: Vec<_> = UpfConfig::from_toml(&text).unwrap().all_sessions().collect();
    manager.notifications.is_busy.store(true, Relaxed);
    // The journal is written anew more often than messages wait at a socket.
    let queue = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap();
    for _ in 0..20 * queue.trim().parse::<usize>().unwrap() {
        manager.change(&Transaction { modify: modify.clone(), ..Transaction::default() });
    }
    manager.change(&Transaction { remove: vec![201], ..Transaction::default() });
    manager.notifications.is_busy.store(false, Relaxed);
    manager.wait();
    manager.kill();
    manager.wait();
    assert_eq!(manager.control_plane().status().unwrap().sessions, 102);
}

/// Peers never reconnect, and a packet that was forwarded was counted, whenever the process is
/// killed.
#[test]
fn connections_and_usage_survive_twenty_kills_with_time() {
    let _alone = alone();
    let mut moment = 1u32;
    for peers in [SPLIT, PACKED, MEMIF] {
        let mut manager = Manager::upf_at(peers);
        let folder = manager.folder.path().to_owned();
        let report = load(&folder, peers.plug(&folder), |_| {
            manager.settle();
            for _ in 0..20 {
                manager.wait();
                moment = moment.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                sleep(Duration::from_micros(u64::from(moment >> 17)));
                manager.kill();
            }
            manager.wait();
        });
        let (sessions, stats) = manager.sessions_and_stats();
        let numbers = numbers(&report, &sessions);
        println!("{peers:?}: {numbers:?} sent, counted and received each way");
        for [sent, counted, received] in numbers {
            assert!(received <= counted && counted <= sent, "{report:?}");
            // Lost are frames that a worker was moving, and those that waited for the egress port.
            assert!(sent - received <= 20 * 2 * BATCH, "{report:?} {stats:?}");
        }
    }
}

#[test]
fn restart_loses_no_packet_and_no_connection() {
    let _alone = alone();
    for peers in [SPLIT, PACKED, MEMIF] {
        let mut manager = Manager::upf_at(peers);
        let folder = manager.folder.path().to_owned();
        let report = load(&folder, peers.plug(&folder), |_| {
            manager.restart_ten_times();
        });
        lost_nothing(&report, &manager.sessions_and_stats());
    }
}

/// A port whose record cannot be used is opened again, and the other one stays.
#[test]
fn port_that_cannot_continue_connects_anew() {
    let _alone = alone();
    let mut manager = Manager::upf();
    type Spoil<'s> = &'s dyn Fn(&mut Page);
    let spoil: [Spoil<'_>; 4] = [
        // It has changed since it was recorded.
        &|(text, _)| {
            let at = text.find("\"changes\":").unwrap() + 10;
            text.insert(at, '1');
        },
        // The marks, or the connection, are none.
        &|(_, descriptors)| descriptors[2] = null(),
        &|(_, descriptors)| descriptors[1] = null(),
        // It was opened otherwise.
        &|(text, _)| *text = text.replacen("/n3", "/n5", 1),
    ];
    let [n3, n6] = SPLIT.plug(manager.folder.path());
    let status = |port: &Port| port.link.as_ref().expect("a peer").status();
    let is_up = |port: &Port| status(port).state == LinkState::Running;
    for (number, spoil) in spoil.into_iter().enumerate() {
        assert!(eventually(|| is_up(&n3) && is_up(&n6)));
        manager.settle();
        let before = status(&n3).ends;
        let said = manager.spoil(|pages| {
            let is_of_n3 = |page: &&mut Page| page.0.contains("Port") && page.0.contains("/n3");
            spoil(pages.iter_mut().find(is_of_n3).expect("a page"));
        });
        assert!(eventually(|| status(&n3).ends != before && is_up(&n3)), "{number}: {said}");
        assert!(!said.contains("not used") && status(&n6).ends.is_empty(), "{number}: {said}");
        assert_eq!(manager.control_plane().status().unwrap().sessions, 103);
    }
}

#[test]
fn quota_that_is_used_up_stays_so_and_is_reported_again() {
    let _alone = alone();
    let mut manager = Manager::upf();
    let mut first = manager.control_plane().session(1).unwrap().config.unwrap();
    first.urrs[0].quota = Volume { uplink: Some(1000), ..Volume::default() };
    manager.change(&Transaction { modify: vec![first], ..Transaction::default() });
    let load = report(manager.load("1k", "0.5", &["--allow-loss"]));
    assert_ne!(passed(&load, "sent")[0], passed(&load, "received")[0], "{load}");
    let event = "{\"event\":\"usage\",\"seid\":1,\"urr\":1,\"quota\":true,";
    assert!(eventually(|| manager.said().contains(event)), "{}", manager.said());
    let (before, _) = manager.sessions_and_stats();
    for signal in [Signal::KILL, Signal::TERM] {
        manager.end(signal);
        manager.start();
        manager.wait();
        assert!(eventually(|| manager.said().contains(event)), "{}", manager.said());
        report(manager.load("1k", "0.2", &["--allow-loss", "--only", "uplink"]));
        let (after, stats) = manager.sessions_and_stats();
        assert_eq!(after[0].usage, before[0].usage);
        assert!(after[1].usage != before[1].usage && stats.uplink.drops.total() > 0);
    }
}

#[test]
fn state_that_cannot_be_used_leads_to_an_ordinary_start() {
    let _alone = alone();
    let mut manager = Manager::upf();
    fn journal(pages: &[Page]) -> File {
        // Behind the control socket.
        pages[0].1[1].try_clone().unwrap().into()
    }
    fn overwrite(pages: &[Page], at: u64, bytes: &[u8]) {
        let mut file = journal(pages);
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
    }
    type Spoil<'s> = &'s dyn Fn(&mut Vec<Page>);
    let spoil: [(&str, Spoil<'_>); 13] = [
        ("invalid state", &|pages| pages[0].0.truncate(50)),
        ("formats 9 and 4", &|pages| {
            pages[0].0 = pages[0].0.replacen("\"format\":4", "\"format\":9", 1);
        }),
        ("2 of its 6 file descriptors", &|pages| pages[0].1.truncate(3)),
        ("no page of the state", &|pages| _ = pages.remove(0)),
        ("sessions: cut short", &|pages| {
            let file = journal(pages);
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        }),
        ("sessions: cut short", &|pages| journal(pages).set_len(3).unwrap()),
        ("sessions: wrong length", &|pages| overwrite(pages, 1, b"spoiled")),
        ("sessions: wrong checksum at byte 16", &|pages| overwrite(pages, 40, b"spoiled")),
        ("sessions: ", &|pages| pages[0].1[1] = null()),
        ("accounts: not memory", &|pages| pages[0].1[2] = null()),
        ("neighbours: ", &|pages| pages[0].1.swap(5, 3)),
        ("sessions: no such account", &|pages| pages[0].1.swap(2, 3)),
        ("page 0", &|pages| pages.clear()),
    ];
    for (part, spoil) in spoil {
        manager.change(&Transaction { remove: vec![1, 203], ..Transaction::default() });
        let said = manager.spoil(spoil);
        let lines: Vec<_> = said.lines().filter(|line| line.contains("not used")).collect();
        assert!(lines.len() == 1 && lines[0].contains(part), "{part}: {said}");
        assert_eq!(manager.control_plane().status().unwrap().sessions, 103, "{part}");
        manager.pass();
    }
}
