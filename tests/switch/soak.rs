//! Ports, peers, captures, mirrors, scrapes and kills of the switch that come and go, while two
//! ports exchange frames: not one of these is lost but those that a killed switch was about to
//! pass, and memory and descriptors of the switch stay what they are.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use dray_switch::PortState;

use crate::common::{self, Started, alone, eventually};
use crate::ends::{self, Frames};
use crate::exchange::{exchange, never_reconnected};
use crate::manager::{BATCH, Manager};

/// Pairs of ports that each round adds and removes.
const PAIRS: usize = 31;
/// Pairs among them that exchange frames.
const BUSY: usize = 6;
const FRAMES: u32 = 64;
/// Memory by which the least of the second half of the rounds may exceed that of the first, in KiB.
const SLACK: u64 = 4096;
/// Number of mappings by which the second half may exceed the first: two ports have more.
const MAPPINGS: u64 = 8;

/// Returns the time that the rounds take: `DRAY_SOAK` seconds.
fn length() -> Duration {
    let seconds = std::env::var("DRAY_SOAK").map_or(10, |text| text.parse().expect("seconds"));
    Duration::from_secs(seconds)
}

/// Resources of the machine that a process holds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
    descriptors: usize,
    threads: usize,
    mappings: u64,
    /// Memory of its own, in KiB.
    own: u64,
    /// Memory that it shares with peers, in KiB.
    shared: u64,
}

impl Usage {
    fn of(process: u32) -> Self {
        let count = |what| fs::read_dir(format!("/proc/{process}/{what}")).unwrap().count();
        let text = |what| fs::read_to_string(format!("/proc/{process}/{what}")).unwrap();
        let status = text("status");
        let kib = |key| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        Self {
            descriptors: count("fd"),
            threads: count("task"),
            mappings: text("maps").lines().count() as u64,
            own: kib("RssAnon:"),
            shared: kib("RssShmem:"),
        }
    }

    /// Returns true if there are no more descriptors and threads than at another time; of memory,
    /// the allocator keeps more at one time than at another.
    fn is_within(&self, other: &Self) -> bool {
        self.descriptors <= other.descriptors && self.threads <= other.threads
    }
}

fn start(words: &[&str]) -> Started {
    let mut command = common::command();
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Started(command.spawn().unwrap())
}

/// Adds ports, lets peers, captures and scrapes use them, and removes all of it. Kills the switch
/// in every third round, when it has all the ports. Returns the number of kills.
fn round(manager: &mut Manager, number: usize) -> u64 {
    let client = manager.client();
    let folder = manager.folder.path().to_owned();
    let path = |name: &str| folder.join(name).display().to_string();
    let control = manager.control().display().to_string();
    let file = path("all.pcapng");
    let capture =
        start(&["capture", "--control", &control, "--all", "-w", &file, "--snaplen", "64"]);
    // In every second round, ports come with a configuration file, and go with an empty one.
    let by_file = number.is_multiple_of(2);
    let (mut names, mut file_text) = (Vec::new(), String::new());
    for pair in 0..PAIRS {
        let [left, right] = ["l", "r"].map(|side| format!("{side}{pair}"));
        // A port's transport differs from round to round.
        let scheme = |by: usize| ["vhost", "memif", "unix", "vhost"][(pair + number + by) % 4];
        for (name, by, other) in [(&left, 0, &right), (&right, 1, &left)] {
            let scheme = if pair < BUSY { "vhost" } else { scheme(by) };
            let uri = format!("{scheme}:{}", path(name));
            if by_file {
                file_text +=
                    &format!("[[ports]]\nname = {name:?}\nuri = {uri:?}\npair = {other:?}\n");
            } else {
                client.add_port(&format!("{name}={uri},pair={other}").parse().unwrap()).unwrap();
            }
            names.push(name.clone());
        }
    }
    let changed = client.apply(&file_text, false).unwrap().ports.len();
    assert_eq!(changed, if by_file { names.len() } else { 0 }, "round {number}");
    assert!(client.metrics().unwrap().contains("dray_switch_port"), "metrics of {number}");
    let is_killed = number % 3 == 1;
    if is_killed {
        manager.pages += names.len();
        manager.kill();
        manager.wait();
        manager.pages -= names.len();
    }
    for pair in 0..BUSY {
        let keys = if pair % 2 == 0 { "packed=1" } else { "packed=0" };
        let [mut left, mut right] =
            ["l", "r"].map(|side| ends::plug(Path::new(&path(&format!("{side}{pair}"))), keys));
        let frames = Frames::between(3, 4);
        ends::reach((&mut left.tx, &mut right.rx), &frames);
        let right_port = format!("r{pair}").parse().unwrap();
        let moved = || client.port(&right_port).unwrap().counters.tx_frames;
        let before = moved();
        ends::pass((&mut left.tx, &mut right.rx), &frames, &frames, FRAMES);
        // Frames of before may be counted later.
        assert!(eventually(|| moved() >= before + u64::from(FRAMES)), "round {number}");
    }
    // A peer that is killed in the middle of its work.
    let uri = format!("virtio:{}", path("l0"));
    let mut peer = start(&["send", "--port", &uri, "-i", "0"]);
    let port = || client.port(&"l0".parse().unwrap()).unwrap();
    assert!(eventually(|| port().state == PortState::Running));
    peer.0.kill().unwrap();
    peer.0.wait().unwrap();
    assert!(eventually(|| port().state == PortState::Waiting), "round {number}");
    client.add_port(&"m=null:,mirror=l1+a".parse().unwrap()).unwrap();
    client.remove_port(&"m".parse().unwrap()).unwrap();
    client.apply("", false).unwrap();
    for name in names.iter().filter(|_| !by_file) {
        client.remove_port(&name.parse().unwrap()).unwrap();
    }
    drop(capture);
    assert_eq!(client.ports().unwrap().len(), 2, "round {number}");
    u64::from(is_killed)
}

#[test]
fn nothing_is_lost_or_left_when_everything_comes_and_goes() {
    let _alone = alone();
    let options = ["--mode", "patch", "--flow", "backpressure"];
    let mut manager = Manager::new(&options, &["a=vhost:DIR/a", "b=vhost:DIR/b"]);
    let (mut a, mut b) = (manager.plug("a", "packed=0"), manager.plug("b", "packed=1"));
    let (mut rounds, mut kills, mut usages) = (0, 0, Vec::new());
    let passed = exchange((&mut a, &mut b), |_| {
        let began = Instant::now();
        while rounds < 6 || began.elapsed() < length() {
            kills += round(&mut manager, rounds);
            rounds += 1;
            let usage = || Usage::of(manager.process());
            // A switch that continues has other descriptors than one that has started. Threads of
            // connections and captures end soon.
            let first = usages.get(2).copied().unwrap_or_else(usage);
            assert!(eventually(|| usage().is_within(&first)), "{rounds}: {first:?} {:?}", usage());
            usages.push(usage());
        }
    });
    println!("{rounds} rounds, {kills} kills, {passed:?}; the last: {:?}", usages[rounds - 1]);
    assert!(never_reconnected(&a) && never_reconnected(&b));
    // The first rounds fill what is kept for the next ones; what stays shows in the least.
    let (early, late) = usages[2..].split_at((rounds - 2) / 2);
    let kinds: [fn(&Usage) -> u64; 3] =
        [|usage| usage.own, |usage| usage.shared, |usage| usage.mappings];
    for (of, slack) in kinds.into_iter().zip([SLACK, SLACK, MAPPINGS]) {
        let least = |usages: &[Usage]| usages.iter().map(of).min().unwrap();
        assert!(least(late) <= least(early) + slack, "after {rounds} rounds: {usages:?}");
    }
    let [a, b] = ["a", "b"].map(|name| manager.port(name));
    assert!(a.disconnects.is_empty() && b.disconnects.is_empty());
    for (what, frames) in [
        ("arrived", passed.sent - passed.lost),
        ("received", a.counters.rx_frames),
        ("sent", b.counters.tx_frames),
    ] {
        let missing = passed.sent.abs_diff(frames);
        assert!(missing <= kills * BATCH, "{what}: {frames} of {passed:?}, {kills} kills");
    }
}
