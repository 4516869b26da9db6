//! A user plane function that is killed, or restarted, continues with what its service manager keeps:
//! sessions, usage and counters stay, and a state that cannot be used is replaced by an ordinary start.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::process::Stdio;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use dray_upf::SessionStatus;
use dray_upf::api::{Client, Stats, Transaction};
use dray_upf::config::{SessionConfig, UpfConfig, Volume};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::manager::{Manager, Page, null};
use crate::common::{self, Started, alone, eventually};
use crate::fixture::{CONFIG, V4, number, report};

/// Sessions of the configuration that no load uses.
const SESSIONS: [u64; 3] = [201, 202, 203];

/// Returns a configuration of generated sessions, and of `seids`.
fn configuration(seids: &[u64]) -> String {
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

fn session(seid: u64) -> SessionConfig {
    UpfConfig::from_toml(&configuration(&[seid])).unwrap().sessions.remove(0)
}

impl Manager {
    fn upf() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("upf.toml"), configuration(&SESSIONS)).unwrap();
        let options = ["upf", "--n3", "vhost:DIR/n3", "--n6", "vhost:DIR/n6", "--config"];
        Self::run(folder, 1, &[&options[..], &["DIR/upf.toml"]].concat())
    }

    fn control_plane(&self) -> Client {
        Client::new(&self.control())
    }

    /// Returns sessions and counters, once no packet is on its way.
    fn told(&self) -> (Vec<SessionStatus>, Stats) {
        let client = self.control_plane();
        let told = || (client.sessions().unwrap(), client.stats().unwrap());
        let mut last = told();
        let is_still = || {
            sleep(Duration::from_millis(20));
            let before = std::mem::replace(&mut last, told());
            before == last
        };
        assert!(eventually(is_still));
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

    /// Sends packets, all of which must pass: at the first try, unless a busy machine delays what the
    /// neighbours reply.
    fn pass(&self) {
        let pass_all = || {
            let load = report(self.load("1k", "0.3", &["--allow-loss"]));
            let sent = passed(&load, "sent");
            passed(&load, "received") == sent && sent.iter().all(|sent| *sent > 100)
        };
        assert!((0..5).any(|_| pass_all()), "{:?}", self.told().1);
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
        let before = manager.told();
        assert!(counted(&before.0)[0] > 100 && before.0.len() == 103);
        let said = manager.end(signal);
        let warns = |line: &str| line.contains("WARN") && !line.contains("peer disconnected");
        assert!(!said.lines().any(warns), "{said}");
        manager.start();
        manager.wait();
        let after = manager.told();
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
    let (sessions, _) = manager.told();
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
    manager.told.is_busy.store(true, Relaxed);
    // The journal is written anew more often than messages wait at a socket.
    let queue = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap();
    for _ in 0..20 * queue.trim().parse::<usize>().unwrap() {
        manager.change(&Transaction { modify: modify.clone(), ..Transaction::default() });
    }
    manager.change(&Transaction { remove: vec![201], ..Transaction::default() });
    manager.told.is_busy.store(false, Relaxed);
    manager.wait();
    manager.kill();
    manager.wait();
    assert_eq!(manager.control_plane().status().unwrap().sessions, 102);
}

/// A packet that was forwarded was counted, whenever the process is killed.
#[test]
fn no_forwarded_packet_is_uncounted_after_kills_under_load() {
    let _alone = alone();
    let mut manager = Manager::upf();
    let load = manager.load("5k", "4", &["--allow-loss"]);
    for _ in 0..5 {
        sleep(Duration::from_millis(500));
        manager.kill();
        manager.wait();
    }
    let load = report(load);
    let (sessions, _) = manager.told();
    let (counted, sent, received) =
        (counted(&sessions), passed(&load, "sent"), passed(&load, "received"));
    println!("{sent:?} sent, {counted:?} counted, {received:?} received");
    for way in 0..2 {
        assert!(received[way] > sent[way] / 10, "{load}");
        assert!(received[way] <= counted[way] && counted[way] <= sent[way], "{counted:?} {load}");
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
    let (before, _) = manager.told();
    for signal in [Signal::KILL, Signal::TERM] {
        manager.end(signal);
        manager.start();
        manager.wait();
        assert!(eventually(|| manager.said().contains(event)), "{}", manager.said());
        report(manager.load("1k", "0.2", &["--allow-loss", "--only", "uplink"]));
        let (after, stats) = manager.told();
        assert_eq!(after[0].usage, before[0].usage);
        assert!(after[1].usage != before[1].usage && stats.uplink.drops.total() > 0);
    }
}

#[test]
fn state_that_cannot_be_used_leads_to_an_ordinary_start() {
    let _alone = alone();
    let mut manager = Manager::upf();
    fn journal(pages: &[Page]) -> File {
        pages[0].1[0].try_clone().unwrap().into()
    }
    fn overwrite(pages: &[Page], at: u64, bytes: &[u8]) {
        let mut file = journal(pages);
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
    }
    type Spoil<'s> = &'s dyn Fn(&mut Vec<Page>);
    let spoil: [(&str, Spoil<'_>); 11] = [
        ("invalid state", &|pages| pages[0].0.truncate(50)),
        ("formats 9 and 1", &|pages| {
            pages[0].0 = pages[0].0.replacen("\"format\":1", "\"format\":9", 1);
        }),
        ("3 of its 4 file descriptors", &|pages| pages[0].1.truncate(3)),
        ("sessions: cut short", &|pages| {
            let file = journal(pages);
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        }),
        ("sessions: cut short", &|pages| journal(pages).set_len(3).unwrap()),
        ("sessions: wrong length", &|pages| overwrite(pages, 1, b"spoiled")),
        ("sessions: wrong checksum at byte 16", &|pages| overwrite(pages, 40, b"spoiled")),
        ("sessions: ", &|pages| pages[0].1[0] = null()),
        ("accounts: not memory", &|pages| pages[0].1[1] = null()),
        ("sessions: no such account", &|pages| pages[0].1.swap(1, 2)),
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
