//! Ports that are added and removed while others exchange frames.

mod ends;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dray_port::Frame;
use dray_switch::{DropReason, Engine, EngineError};
use dray_wire::MacAddr;
use ends::{
    Frames, LIMIT, add, counters, cpus, drops, eventually, open, pass, plug, reach, send_one,
    status, switch,
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
fn address_is_pinned_to_one_port_at_a_time() {
    let switch = switch("mode = 'learning'");
    let pinned = || -> Vec<_> {
        let entries = switch.table().into_iter().filter(|entry| entry.pinned);
        entries.map(|entry| (entry.vlan, entry.mac, entry.port.to_string())).collect()
    };
    add(&switch, "a=null:,vlan=7,mac=02:00:00:00:00:01+02:00:00:00:00:02");
    let second = "b=null:,mac=02:00:00:00:00:03+02:00:00:00:00:02".parse().unwrap();
    let refused = switch.add_port(&second, Vec::new()).unwrap_err();
    let taken = EngineError::AddressTaken("b".to_owned(), MacAddr::local(2), "a".to_owned());
    assert_eq!(refused, taken);
    // The refused port left nothing behind: its name and its other address are free.
    assert_eq!(switch.ports().len(), 1);
    add(&switch, "b=null:,mac=02:00:00:00:00:03");
    switch.flush_table();
    let [one, two, three] = [1, 2, 3].map(MacAddr::local);
    let (a, b) = ("a".to_owned(), "b".to_owned());
    assert_eq!(pinned(), [(0, three, b.clone()), (7, one, a.clone()), (7, two, a)]);
    switch.remove_port("a").unwrap();
    switch.remove_port("b").unwrap();
    assert_eq!(pinned(), []);
    switch.add_port(&second, Vec::new()).unwrap();
    assert_eq!(pinned(), [(0, two, b.clone()), (0, three, b)]);
}
