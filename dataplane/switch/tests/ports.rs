//! Ports that are added and removed while others exchange frames.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dray_daemon::Request;
use dray_port::Frame;
use dray_switch::apply::Configuration;
use dray_switch::config::Pairs;
use dray_switch::{DropReason, Mode, Switch, SwitchConfig, SwitchControl, SwitchError};
use dray_wire::MacAddr;

use crate::ends::{
    Frames, LIMIT, add, arrived, counters, cpus, drops, eventually, open, pass, plug, reach,
    send_one, status, switch,
};

#[test]
fn adding_and_removing_ports_spares_others() {
    for mode in ["mode = 'patch'\nflow = 'backpressure'", "mode = 'learning'"] {
        let folder = tempfile::tempdir().unwrap();
        let switch = switch(mode);
        let socket = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            add(&switch, &format!("{name}=vhost:{}", socket(name).display()));
        }
        let [mut a, mut b] = ["a", "b"].map(|name| plug(&socket(name), "packed=1"));
        let done = AtomicBool::new(false);
        let (switch, done) = (&switch, &done);
        let rounds = std::thread::scope(|scope| {
            let others = scope.spawn(move || {
                let mut rounds = 0;
                while !done.load(Ordering::Relaxed) {
                    for name in ["c", "d"] {
                        let socket = folder.path().join(name);
                        add(switch, &format!("{name}=vhost:{}", socket.display()));
                        drop(plug(&socket, "size=16&hugepages=0"));
                    }
                    assert_eq!(switch.ports().len(), 4);
                    for name in ["c", "d"] {
                        switch.remove_port(name).unwrap();
                    }
                    rounds += 1;
                }
                rounds
            });
            let there = Frames::between(1, 2);
            let back = there.clone().swapped();
            for _ in 0..10 {
                pass((&mut a.tx, &mut b.rx), &there, &there, 5000);
                pass((&mut b.tx, &mut a.rx), &back, &back, 5000);
            }
            done.store(true, Ordering::Relaxed);
            others.join().unwrap()
        });
        assert!(rounds > 0);
        for name in ["a", "b"] {
            let counters = counters(switch, name);
            assert_eq!(counters.drops.get(DropReason::ReceiverFull), 0, "{name}: {counters:?}");
            assert!(status(switch, name).disconnects.is_empty());
        }
    }
}

/// A worker with many ports looks at silent ones less often while others keep it busy.
#[test]
fn silent_port_is_served_while_others_are_busy() {
    for mode in ["mode = 'patch'\nflow = 'drop'", "mode = 'learning'"] {
        let folder = tempfile::tempdir().unwrap();
        let switch = switch(mode);
        let socket = |number: u32| folder.path().join(format!("p{number}"));
        for number in 0..32 {
            add(&switch, &format!("p{number}=vhost:{}", socket(number).display()));
        }
        let mut ports: Vec<_> =
            [0, 1, 30, 31].map(|number| plug(&socket(number), "size=256")).into();
        let [busy, drain, a, b] = &mut ports[..] else { unreachable!() };
        // So that the frames of the busy ports are not flooded.
        send_one(&mut *drain.tx[0], &Frames::between(2, 1));
        eventually("a station", || mode.contains("patch") || switch.status().stations == 1);
        let done = AtomicBool::new(false);
        let deadline = Instant::now() + 2 * LIMIT;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let frame = Frames::between(1, 2).make(0);
                let frames = [Frame::from(&frame[..]); 64];
                while !done.load(Ordering::Relaxed) && Instant::now() < deadline {
                    busy.tx[0].transmit(&frames).unwrap();
                    drain.rx[0].receive(&mut |frames| frames.len()).unwrap();
                }
            });
            let (there, back) = (Frames::between(3, 4), Frames::between(4, 3));
            for _ in 0..5 {
                // Both ports have become silent again.
                std::thread::sleep(Duration::from_millis(10));
                reach((&mut a.tx, &mut b.rx), &there);
                pass((&mut b.tx, &mut a.rx), &back, &back, 100);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(counters(&switch, "p0").rx_frames > 1000);
    }
}

/// Frames that the receiver does not take stay where they are; the worker sleeps most of the time.
#[test]
fn stuck_receiver_lets_worker_sleep() {
    let folder = tempfile::tempdir().unwrap();
    let switch = switch("mode = 'patch'\nflow = 'backpressure'\nidle = '50us'");
    let socket = |name: &str| folder.path().join(name);
    for name in ["a", "b"] {
        add(&switch, &format!("{name}=vhost:{}", socket(name).display()));
    }
    let [mut a, mut b] = ["a", "b"].map(|name| plug(&socket(name), ""));
    let frame = Frames::between(1, 2).make(0);
    let (mut sent, mut refused) = (0, 0);
    // Until all rings are full and stay full.
    while refused < 100 {
        match a.tx[0].transmit(&[Frame::from(&frame[..])]).unwrap() {
            0 => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            taken => (sent, refused) = (sent + taken, 0),
        }
    }
    let sleeps = || switch.status().workers[0].sleeps;
    let before = sleeps();
    eventually("100 more sleeps", || sleeps() > before + 100);
    let mut received = 0;
    eventually("all frames held back", || {
        received += b.rx[0].receive(&mut |frames| frames.len()).unwrap();
        received == sent
    });
    assert_eq!(drops(&switch, "b", DropReason::ReceiverFull), 0);
}

/// A peer that never reads does not slow down the others: its port is full, and the worker goes on.
#[test]
fn stuck_receiver_does_not_delay_others() {
    const COUNT: u32 = 3000;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let switch = switch("mode = 'learning'");
    let [mut a, _silent, mut c] = ["a", "silent", "c"].map(|name| {
        let (here, there) = (path(name), path(&format!("peer-{name}")));
        let port = open(&format!("unix:{there}?peer={here}&batch=64"));
        add(&switch, &format!("{name}=unix:{here}?peer={there}"));
        port
    });
    let frames = Frames::broadcast(1);
    reach((&mut a.tx, &mut c.rx), &frames);
    let drops_before = drops(&switch, "c", DropReason::ReceiverFull);
    // Until the silent peer has no room any more.
    eventually("silent port full", || {
        pass((&mut a.tx, &mut c.rx), &frames, &frames, 500);
        drops(&switch, "silent", DropReason::ReceiverFull) > 0
    });
    let begin = Instant::now();
    pass((&mut a.tx, &mut c.rx), &frames, &frames, COUNT);
    // It takes some milliseconds; 10 ms for each frame would be half a minute.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(drops(&switch, "c", DropReason::ReceiverFull), drops_before);
    assert!(drops(&switch, "silent", DropReason::ReceiverFull) >= u64::from(COUNT));
}

#[test]
fn peer_with_one_queue_receives_from_both_workers() {
    let cpus = cpus();
    let [first, second, ..] = cpus[..] else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "tests may not be skipped in CI");
        return eprintln!("SKIPPED: two workers need two CPUs");
    };
    let folder = tempfile::tempdir().unwrap();
    let switch = switch(&format!("mode = 'learning'\ncpus = [{first}, {second}]"));
    // The two queues of the first port go to one worker each, and so do the two other ports.
    let mut plugged = ["to", "a", "b"].map(|name| {
        let socket = folder.path().join(name);
        let queues = if name == "to" { "?queues=2" } else { "" };
        add(&switch, &format!("{name}=vhost:{}{queues}", socket.display()));
        plug(&socket, "queues=1")
    });
    let [to, senders @ ..] = &mut plugged;
    for (station, from) in (1..).zip(senders) {
        let frames = Frames::between(station, 9);
        reach((&mut from.tx, &mut to.rx), &frames);
        pass((&mut from.tx, &mut to.rx), &frames, &frames, 1000);
    }
    let drops = counters(&switch, "to").drops;
    assert_eq!(drops.get(DropReason::ReceiverNotReady), 0, "{drops:?}");
}

#[test]
fn address_is_pinned_to_one_port_of_a_vlan() {
    let switch = switch("mode = 'learning'");
    let pinned = || -> Vec<_> {
        let entries = switch.table().into_iter().filter(|entry| entry.pinned);
        entries.map(|entry| (entry.vlan, entry.mac, entry.port.to_string())).collect()
    };
    add(&switch, "a=null:,vlan=7,mac=02:00:00:00:00:01+02:00:00:00:00:02");
    let taken = SwitchError::AddressTaken("b".to_owned(), MacAddr::local(2), "a".to_owned());
    for vlans in ["vlan=7", "trunk=7+8", "trunk=8,native=7"] {
        let second = format!("b=null:,{vlans},mac=02:00:00:00:00:03+02:00:00:00:00:02");
        let refused = switch.add_port(&second.parse().unwrap(), Vec::new()).unwrap_err();
        assert_eq!(refused, taken, "{vlans}");
        let ports = ["a=null:,vlan=7,mac=02:00:00:00:00:02", &second].map(str::parse);
        let ports = ports.into_iter().collect::<Result<_, _>>().unwrap();
        let both = SwitchConfig { ports, ..SwitchConfig::default() };
        assert_eq!(both.check(&[]).unwrap_err().to_string(), taken.to_string());
    }
    // The refused port left nothing behind: its name and its other address are free.
    assert_eq!(switch.ports().len(), 1);
    // In another VLAN, and without one, it is another station's address.
    add(&switch, "b=null:,trunk=8+9,mac=02:00:00:00:00:02");
    add(&switch, "c=null:,mac=02:00:00:00:00:02");
    switch.flush_table();
    let [one, two] = [1, 2].map(MacAddr::local);
    let [a, b, c] = ["a", "b", "c"].map(str::to_owned);
    // A trunk's address is listed in each of its VLANs.
    let trunk = [(8, two, b.clone()), (9, two, b)];
    let own = [(0, two, c.clone()), (7, one, a.clone()), (7, two, a)];
    assert_eq!(pinned(), [&own[..], &trunk].concat());
    switch.remove_port("a").unwrap();
    assert_eq!(pinned(), [&own[..1], &trunk].concat());
    let second = "d=null:,vlan=7,mac=02:00:00:00:00:02".parse().unwrap();
    switch.add_port(&second, Vec::new()).unwrap();
}

#[test]
fn station_of_another_port_is_not_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("up");
    let switch = switch("mode = 'learning'");
    add(&switch, &format!("up=vhost:{},vlan=10", socket.display()));
    add(&switch, "other=null:,vlan=10");
    let mut up = plug(&socket, "hugepages=0");
    // One frame: another on its way would teach the station again after the table is flushed.
    let _ = send_one(&mut *up.tx[0], &Frames::broadcast(1));
    eventually("a station", || status(&switch, "up").stations == 1);
    let check = |port: &str| switch.check_addresses(&port.parse().unwrap());
    for vlans in ["vlan=10", "trunk=10+20", "trunk=20,native=10"] {
        let refused = check(&format!("x=null:,{vlans},mac=02:00:00:00:00:02+02:00:00:00:00:01"));
        let (port, other) = ("x".to_owned(), "up".to_owned());
        let expected =
            SwitchError::AddressLearned { port, mac: MacAddr::local(1), other, vlan: 10 };
        assert_eq!(refused, Err(expected), "{vlans}");
    }
    // Another VLAN, another address, and the port itself.
    for port in ["x=null:,vlan=20,mac=02:00:00:00:00:01", "x=null:,mac=02:00:00:00:00:01"] {
        assert_eq!(check(port), Ok(()));
    }
    assert_eq!(check("x=null:,vlan=10,mac=02:00:00:00:00:02"), Ok(()));
    assert_eq!(check("up=null:,vlan=10,mac=02:00:00:00:00:01"), Ok(()));
    // An address that was pinned is no station's afterwards.
    switch.flush_table();
    add(&switch, "x=null:,vlan=10,mac=02:00:00:00:00:01");
    switch.remove_port("x").unwrap();
    assert_eq!(check("x=null:,vlan=10,mac=02:00:00:00:00:01"), Ok(()));
}

#[test]
fn stations_of_a_peer_that_left_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let switch = switch("mode = 'learning'");
    for port in [
        format!("a=vhost:{}", at("a")),
        format!("b=memif:{}?role=server", at("b")),
        format!("c=virtio:{}?hugepages=0", at("c")),
        format!("d=unix:{}?peer={}", at("d"), at("d.peer")),
        format!("stays=vhost:{}", at("stays")),
    ] {
        add(&switch, &port);
    }
    let mut other = plug(&folder.path().join("stays"), "hugepages=0");
    let _ = send_one(&mut *other.tx[0], &Frames::broadcast(9));
    for (name, peer) in [
        ("a", format!("virtio:{}?hugepages=0", at("a"))),
        ("b", format!("memif:{}", at("b"))),
        ("c", format!("vhost:{}", at("c"))),
        ("d", format!("unix:{}?peer={}", at("d.peer"), at("d"))),
    ] {
        for _ in 0..2 {
            let mut peer = open(&peer);
            // A socket loses what came before it was connected to its new peer.
            eventually("a station", || {
                let _ = send_one(&mut *peer.tx[0], &Frames::broadcast(1));
                status(&switch, name).stations == 1
            });
            drop(peer);
            eventually(name, || status(&switch, name).stations == 0);
        }
    }
    assert_eq!(status(&switch, "stays").stations, 1);
}

/// Random numbers, the same in each run.
struct Random(u32);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        // xorshift32 (Marsaglia 2003)
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 as usize % limit
    }

    /// Returns a file with some of five ports; many are invalid.
    fn file(&mut self, mode: Mode, folder: &str) -> String {
        let mut names = vec!["a", "b", "c", "d", "e"];
        let mut text =
            format!("mode = '{}'\ncpus = [{}]\n", format!("{mode:?}").to_lowercase(), cpus()[0]);
        for _ in 0..self.below(6) {
            let name = names.remove(self.below(names.len()));
            let uri = match self.below(3) {
                0 => "null:".to_owned(),
                queues => format!("vhost:{folder}/{}?queues={queues}", self.below(5)),
            };
            let other = ["a", "b", "c", "d", "e"][self.below(5)];
            let keys = match (self.below(6), mode) {
                (0, _) if other != name => format!("mirror = ['{other}']"),
                (1, _) => "rate_in = '1Gpps'".to_owned(),
                (2, Mode::Patch) => format!("pair = '{other}'"),
                (2, Mode::Learning) => format!("vlan = {}", 1 + self.below(2)),
                (3, Mode::Learning) => format!("mac = ['02:00:00:00:00:0{}']", self.below(9)),
                _ => String::new(),
            };
            text += &format!("[[ports]]\nname = '{name}'\nuri = '{uri}'\n{keys}\n");
        }
        text
    }
}

/// Returns the names of the ports that can be captured.
fn captured(switch: &Switch) -> Vec<String> {
    let request = Request { method: "GET".to_owned(), ..Request::default() };
    let reply = switch.captures().answer(&request).unwrap();
    let reply: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    let names = reply["ports"].as_array().unwrap().iter().filter_map(|name| name.as_str());
    let mut names: Vec<_> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    names.sort();
    names
}

/// Whatever ran before, a file gives the ports that a switch has that is started with it.
#[test]
fn applied_file_gives_what_a_start_gives() {
    for mode in [Mode::Learning, Mode::Patch] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let mut random = Random(1);
        let empty = Random(1).file(mode, path).lines().take(2).collect::<Vec<_>>().join("\n");
        let start = SwitchConfig::from_toml(&empty).unwrap();
        let switch = Switch::start(&start).unwrap();
        let config = Configuration::new(start, Vec::new());
        let (mut applied, mut refused) = (0, 0);
        for _ in 0..600 {
            let text = random.file(mode, path);
            let wanted = SwitchConfig::from_toml(&text).unwrap();
            let before = switch.ports();
            let said = config.apply(&switch, &text, false);
            if let Err(why) = wanted.check(&cpus()) {
                assert_eq!(said.unwrap_err().to_string(), why.find_line(&text).to_string());
                assert_eq!(switch.ports(), before);
                refused += 1;
                continue;
            }
            let said = said.unwrap_or_else(|why| panic!("{why}: {text}")).to_string();
            applied += 1;
            let mut pairs = Pairs::default();
            if mode == Mode::Patch {
                let paired = wanted.ports.iter().filter(|port| port.mirror.is_empty());
                paired.for_each(|port| drop(pairs.add(port).unwrap()));
            }
            let ports = switch.ports();
            let partners = ports.iter().map(|port| (port.config.clone(), port.partner.clone()));
            let expected = wanted.ports.iter();
            let expected = expected.map(|port| (port.clone(), pairs.partner(&port.name).cloned()));
            let expected: Vec<_> = expected.collect();
            assert_eq!(partners.collect::<Vec<_>>(), expected, "{said}");
            let mut names: Vec<_> =
                expected.iter().map(|(port, _)| port.name.to_string()).collect();
            names.sort();
            assert_eq!(captured(&switch), names, "{said}");
            let sockets = expected.iter().filter(|(port, _)| port.uri.socket_path().is_some());
            let files = std::fs::read_dir(folder.path()).unwrap();
            assert_eq!(files.count(), sockets.count(), "{said}");
            let pinned: usize = expected.iter().map(|(port, _)| port.macs.len()).sum();
            assert_eq!(switch.table().len(), pinned, "{said}");
            let again = config.apply(&switch, &text, true).unwrap();
            assert_eq!((again.ports.len(), again.unchanged), (0, expected.len()), "{said}");
        }
        assert!(applied > 100 && refused > 100, "{applied} files were applied, {refused} refused");
    }
}

#[test]
fn frame_that_driver_has_no_room_for_is_too_long() {
    for mode in ["mode = 'patch'\nflow = 'backpressure'", "mode = 'patch'", "mode = 'learning'"] {
        let folder = tempfile::tempdir().unwrap();
        let switch = switch(mode);
        let [sender, driver] = ["a", "b"].map(|name| {
            let socket = folder.path().join(name);
            add(&switch, &format!("{name}=vhost:{}", socket.display()));
            socket
        });
        let mut a = plug(&sender, "hugepages=0");
        // Two buffers of 2 KiB are all that this driver ever posts.
        let mut b = plug(&driver, "size=2&hugepages=0");
        let (long, short) =
            (Frames::between(1, 2).lens(&[9000]), Frames::between(1, 2).lens(&[60]));
        for round in 1..=5 {
            send_one(&mut *a.tx[0], &long);
            eventually("an account", || drops(&switch, "b", DropReason::TooLong) == round);
        }
        for count in 1..=20 {
            let sent = send_one(&mut *a.tx[0], &short);
            eventually("the frame", || !arrived(&mut b, &sent).is_empty());
            eventually("an account", || counters(&switch, "b").tx_frames == count);
        }
        let of_b = counters(&switch, "b");
        assert_eq!((of_b.tx_frames, of_b.tx_bytes), (20, 20 * 60), "{mode}");
        assert_eq!(of_b.drops.iter().map(|(_, frames)| frames).sum::<u64>(), 5, "{of_b:?}");
    }
}
