//! A switch that is killed, or restarted, continues from what its service manager keeps: peers stay
//! connected, no frame arrives twice, and a state that cannot be used is replaced by an ordinary
//! start.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_lab::peer::{EndpointRole, PeerDir, SwitchKind};
use dray_port::Port;
use rustix::process::Signal;

use crate::common::alone;
use crate::common::veths::Veths;
use crate::ends::{self, Frames};
use crate::exchange::{cpus, exchange, never_reconnected, pass_both_ways};
use crate::manager::{BATCH, Manager, Page, null};
use crate::takeover::{Remotes, dpdk_ports, memory_of_fixed_size, slow_down};
use crate::with_dpdk::{Endpoint, MemifClient, PLAIN};

#[test]
fn frames_and_peers_survive_twenty_kills_with_time() {
    let _alone = alone();
    let mut moment = 1u32;
    for (keys, queues, workers) in [
        ("packed=0", 1, 1),
        ("packed=1", 1, 1),
        ("memif", 1, 1),
        ("packed=0&queues=2", 2, 1),
        ("packed=1&queues=2", 2, 2),
    ] {
        let options = ["--mode", "patch", "--flow", "backpressure", "--cpus", &cpus(workers)];
        let is_memif = keys == "memif";
        let uri = |name: &str| match is_memif {
            true => format!("{name}=memif:DIR/{name}?role=server"),
            false => format!("{name}=vhost:DIR/{name}?queues={queues}"),
        };
        let mut manager = Manager::new(&options, &[&uri("a"), &uri("b")]);
        let plug = |name: &str| match is_memif {
            true => {
                let port =
                    ends::open(&format!("memif:{}", manager.folder.path().join(name).display()));
                ends::wait_until_up(&port);
                port
            }
            false => manager.plug(name, keys),
        };
        let (mut a, mut b) = (plug("a"), plug("b"));
        let mut pauses = Vec::new();
        manager.settle();
        let passed = exchange((&mut a, &mut b), |longest| {
            let mut before = 0;
            for _ in 0..20 {
                manager.wait();
                // Any moment of a batch.
                moment = moment.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                sleep(Duration::from_micros(u64::from(moment >> 17)));
                let frames = manager.port("a").counters.rx_frames;
                assert!(frames >= before, "{before} frames became {frames}");
                before = frames;
                longest.store(0, Relaxed);
                manager.kill();
                let killed = Instant::now();
                manager.wait();
                let ready = killed.elapsed().as_micros();
                sleep(Duration::from_millis(30));
                pauses.push((longest.swap(0, Relaxed), ready));
            }
        });
        pauses.sort_unstable();
        println!("{keys}: {passed:?}; pauses and times until ready, in us: {pauses:?}");
        assert!(never_reconnected(&a) && never_reconnected(&b), "{keys}");
        let [a, b] = ["a", "b"].map(|name| manager.port(name));
        assert!(a.disconnects.is_empty() && b.disconnects.is_empty(), "{keys}");
        assert!(passed.lost <= 20 * queues * BATCH, "{keys}: {passed:?}");
    }
}

#[test]
fn restart_loses_no_frame() {
    let _alone = alone();
    let options = ["--mode", "patch", "--flow", "backpressure"];
    for keys in ["packed=0", "packed=1"] {
        let mut manager = Manager::new(&options, &["a=vhost:DIR/a", "b=vhost:DIR/b"]);
        let (mut a, mut b) = (manager.plug("a", keys), manager.plug("b", keys));
        let passed = exchange((&mut a, &mut b), |_| {
            manager.restart_ten_times();
        });
        assert!(never_reconnected(&a) && never_reconnected(&b), "{keys}");
        let [a, b] = ["a", "b"].map(|name| manager.port(name).counters);
        let expected = (passed.sent, passed.sent, 0);
        assert_eq!((a.rx_frames, b.tx_frames, passed.lost), expected, "{keys}");
    }
}

#[test]
fn stations_pins_counters_and_ports_stay() {
    let _alone = alone();
    let pinned = "c=null:,mac=52:54:00:00:00:07";
    let mut manager = Manager::new(&[], &["a=vhost:DIR/a", "b=vhost:DIR/b", pinned, "d=null:"]);
    let (mut a, mut b) = (manager.plug("a", ""), manager.plug("b", ""));
    pass_both_ways(&mut a, &mut b);
    manager.client().reset_stats().unwrap();
    pass_both_ways(&mut a, &mut b);
    manager.client().remove_port(&"d".parse().unwrap()).unwrap();
    manager.client().add_port(&"e=null:".parse().unwrap()).unwrap();
    let figures = |manager: &Manager| {
        let client = manager.client();
        let table = client.table(None).unwrap();
        let stations = table.into_iter().map(|entry| (entry.mac, entry.port, entry.pinned));
        let since = client.stats_since_reset().unwrap();
        (stations.collect::<Vec<_>>(), client.stats().unwrap(), since)
    };
    // New stations are recorded after a second.
    sleep(Duration::from_millis(1500));
    let before = figures(&manager);
    assert_eq!((before.0.len(), before.1.len()), (3, 4), "{before:?}");
    manager.kill();
    manager.wait();
    let after = figures(&manager);
    assert_eq!(after.0, before.0);
    assert_eq!(after.1, before.1);
    assert_eq!(after.2, before.2);
    assert!(never_reconnected(&a) && never_reconnected(&b));
    // Without flooding: the stations are known.
    let flooded = manager.port("e").counters.tx_frames;
    let frames = Frames::between(1, 2);
    ends::pass((&mut a.tx, &mut b.rx), &frames, &frames, 100);
    sleep(Duration::from_millis(100));
    assert_eq!(manager.port("e").counters.tx_frames, flooded);
    // An order to restart brings the ports of the options back.
    manager.end(Signal::TERM);
    manager.start();
    manager.pages += 1;
    manager.wait();
    let names = manager.client().ports().unwrap().into_iter().map(|port| port.config.name);
    assert_eq!(names.map(|name| name.to_string()).collect::<String>(), "abcde");
    // A new driver connects as usual, and the next process knows it.
    drop(a);
    let mut a = manager.plug("a", "packed=1");
    pass_both_ways(&mut a, &mut b);
    manager.settle();
    manager.kill();
    manager.wait();
    pass_both_ways(&mut a, &mut b);
    assert!(never_reconnected(&a) && never_reconnected(&b));
}

#[test]
fn switch_listens_at_changed_control_socket_after_kill() {
    let _alone = alone();
    let mut manager = Manager::new(&["--mode", "patch"], &["a=vhost:DIR/a", "b=vhost:DIR/b"]);
    let (mut a, mut b) = (manager.plug("a", ""), manager.plug("b", ""));
    for name in ["moved", "control"] {
        manager.settle();
        manager.move_control(name);
        manager.kill();
        manager.wait();
        assert_eq!(manager.client().ports().unwrap().len(), 2);
        pass_both_ways(&mut a, &mut b);
    }
    assert!(never_reconnected(&a) && never_reconnected(&b));
}

#[test]
fn hosts_and_stations_of_vxlan_stay() {
    let _alone = alone();
    for known in [2, 0] {
        let mut remotes = Remotes::new();
        let mut manager = Manager::new(&[], &["a=vhost:DIR/a", &remotes.port(known)]);
        let mut a = manager.plug("a", "");
        remotes.teach(&mut a);
        // New stations of the switch are recorded after a second.
        sleep(Duration::from_millis(1500));
        for _ in 0..3 {
            manager.settle();
            manager.kill();
            manager.wait();
            remotes.pass(&mut a);
        }
        assert!(never_reconnected(&a));
    }
}

#[test]
fn uplink_that_cannot_continue_is_opened_again() {
    let _alone = alone();
    let mut remotes = Remotes::new();
    let mut manager = Manager::new(&["--mode", "patch"], &["a=vhost:DIR/a", &remotes.port(2)]);
    let mut a = manager.plug("a", "");
    type Spoil<'s> = &'s dyn Fn(&mut Vec<OwnedFd>);
    // A socket that receives, one for each of eight flows, memory of the link, and the counters.
    let spoil: [(&str, Spoil<'_>); 5] = [
        ("number 1 is a character device", &|all| all[0] = null()),
        ("number 3 is a character device", &|all| all[2] = null()),
        ("memory: not memory of a fixed size", &|all| all[9] = null()),
        ("memory: 512 words, not", &|all| all[9] = memory_of_fixed_size()),
        ("number 1 is a datagram socket", &|all| all.swap(0, 1)),
    ];
    for (part, spoil) in spoil {
        pass_both_ways(&mut a, &mut remotes.two);
        manager.settle();
        let said = manager.spoil(|pages| {
            let of_v =
                pages.iter_mut().find(|page| page.0.contains("Port") && page.0.contains("vxlan:"));
            spoil(&mut of_v.expect("a page").1);
        });
        pass_both_ways(&mut a, &mut remotes.two);
        let lines: Vec<_> = said.lines().filter(|line| line.contains("not continue")).collect();
        assert!(lines.len() == 1 && lines[0].contains(part), "{part}: {said}");
    }
    assert!(never_reconnected(&a));
}

#[test]
fn frames_through_afxdp_are_whole_after_kills() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["x0", "x1"], ["y0", "y1"]]);
    let test = || {
        for umem in ["", "?umem=one"] {
            let ports = ["x", "y"].map(|name| format!("{name}=afxdp:{name}0{umem}"));
            let options = ["--mode", "patch", "--flow", "backpressure", "--sandbox", "off"];
            let mut manager = Manager::new(&options, &ports.each_ref().map(String::as_str));
            let open = |end: &str| ends::open(&format!("raw:{end}?batch=64"));
            let (mut x, mut y) = (open("x1"), open("y1"));
            let mut disturb = |x: &mut Port, y: &mut Port, kills| {
                exchange((x, y), |_| {
                    for moment in 0..kills {
                        manager.wait();
                        sleep(Duration::from_micros(20_000 + 777 * moment));
                        manager.kill();
                    }
                    manager.wait();
                })
            };
            // Rings have no room for all frames that come while the switch is away.
            println!("{umem}: {:?}", disturb(&mut x, &mut y, 10));
            // More frames than there are chunks.
            (0..10).for_each(|_| pass_both_ways(&mut x, &mut y));
            slow_down(&mut x);
            let passed = disturb(&mut x, &mut y, 3);
            assert!(passed.lost <= 3 * BATCH, "{umem}: {passed:?}");
            assert!(!manager.said().contains("not continue"), "{}", manager.said());
        }
        Ok(())
    };
    veths.0.enter(test).unwrap();
}

#[test]
fn busy_manager_keeps_the_state_later() {
    let _alone = alone();
    let mut manager = Manager::new(&[], &["a=vhost:DIR/a"]);
    manager.notifications.is_busy.store(true, Relaxed);
    // More messages than wait at a socket.
    let queue = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap();
    let count = queue.trim().parse::<usize>().unwrap() + 10;
    let port = |number| format!("[[ports]]\nname = 'p{number}'\nuri = 'null:'\n");
    manager.client().apply(&(0..count).map(port).collect::<String>(), false).unwrap();
    assert!(manager.notifications.store().len() < count);
    manager.notifications.is_busy.store(false, Relaxed);
    manager.pages += count;
    manager.wait();
    manager.kill();
    manager.wait();
    assert_eq!(manager.client().ports().unwrap().len(), count + 1);
}

#[test]
fn peers_stay_connected_with_dpdk() {
    let _alone = alone();
    require!(SwitchKind::Testpmd);
    for (packed, queues, workers) in [(false, 1, 1), (true, 2, 1), (false, 2, 2)] {
        let dir = PeerDir::new().unwrap();
        let ports = dpdk_ports(&dir, queues);
        let ports = ports.each_ref().map(String::as_str);
        // A peer that gets no CPU time must not lose frames.
        let options = ["--mode", "patch", "--flow", "backpressure", "--cpus", &cpus(workers)];
        let mut manager = Manager::new(&options, &ports);
        let endpoint = Endpoint { packed, queues, ..PLAIN };
        let mut echo = endpoint.start(&dir, EndpointRole::Echo, &[("echo.sock", 2, 1)]);
        echo.start_traffic().unwrap();
        let memif = dir.join("memif.sock");
        let _memif = MemifClient::start(&dir, &format!("{},socket-abstract=no", memif.display()));
        let mut own = manager.plug("own", &format!("queues={queues}"));
        let [mut x, mut y] = ["x", "y"].map(|name| manager.plug(name, ""));
        let there = Frames::between(1, 2);
        let back = there.clone().swapped();
        for _ in 0..3 {
            ends::reach((&mut own.tx, &mut own.rx), &there);
            ends::pass((&mut own.tx, &mut own.rx), &there, &back, 500);
            pass_both_ways(&mut x, &mut y);
            manager.settle();
            manager.kill();
            manager.wait();
        }
        for name in ["echo", "m0", "m1"] {
            assert!(manager.port(name).disconnects.is_empty(), "{name}");
        }
    }
}

#[test]
fn state_that_cannot_be_used_leads_to_an_ordinary_start() {
    let _alone = alone();
    let mut manager = Manager::new(&["--mode", "patch"], &["a=vhost:DIR/a", "b=vhost:DIR/b"]);
    let (mut a, mut b) = (manager.plug("a", ""), manager.plug("b", "packed=1"));
    let is_port = |page: &&mut Page| page.0.contains("Port");
    type Spoil<'s> = &'s dyn Fn(&mut Vec<Page>);
    let spoil: [(&str, Spoil<'_>); 6] = [
        ("invalid state", &|pages| {
            pages.iter_mut().for_each(|(text, _)| text.truncate(text.len() / 2));
        }),
        ("formats 1 and 4", &|pages| {
            pages
                .iter_mut()
                .for_each(|(text, _)| *text = text.replacen("\"format\":4", "\"format\":1", 1));
        }),
        ("no page of the state", &|pages| pages.retain_mut(|page| is_port(&page))),
        ("no control socket", &|pages| {
            pages.iter_mut().filter(|page| !is_port(page)).for_each(|(_, fds)| fds.clear());
        }),
        ("invalid state", &|pages| pages.push(("[]".to_owned(), Vec::new()))),
        ("page 0", &|pages| pages.clear()),
    ];
    for (part, spoil) in spoil {
        pass_both_ways(&mut a, &mut b);
        manager.settle();
        let said = manager.spoil(spoil);
        pass_both_ways(&mut a, &mut b);
        let lines: Vec<_> = said.lines().filter(|line| line.contains("not used")).collect();
        assert!(lines.len() == 1 && lines[0].contains(part), "{part}: {said}");
    }
    assert!(!never_reconnected(&a) && !never_reconnected(&b));
}

#[test]
fn port_that_cannot_continue_connects_anew() {
    let _alone = alone();
    let mut manager = Manager::new(&["--mode", "patch"], &["a=vhost:DIR/a", "b=vhost:DIR/b"]);
    let (mut a, mut b) = (manager.plug("a", ""), manager.plug("b", "packed=1"));
    let changes = |text: &str| text.find("\"changes\":").unwrap() + 10;
    type Spoil<'s> = &'s dyn Fn(&mut Vec<Page>, usize);
    let spoil: [Spoil<'_>; 6] = [
        // It has changed since it was recorded.
        &|pages, a| {
            let at = changes(&pages[a].0);
            pages[a].0.insert(at, '1');
        },
        // In place of the queue progress, the counters or the connection, there is a device.
        &|pages, a| pages[a].1[2] = null(),
        &|pages, a| *pages[a].1.last_mut().expect("counters") = null(),
        &|pages, a| pages[a].1[1] = null(),
        &|pages, a| pages[a].1.truncate(3),
        // The manager has not kept it.
        &|pages, a| _ = pages.remove(a),
    ];
    for (number, spoil) in spoil.into_iter().enumerate() {
        pass_both_ways(&mut a, &mut b);
        manager.settle();
        let said = manager.spoil(|pages| {
            let of_a =
                pages.iter().position(|page| page.0.contains("Port") && page.0.contains("/a\""));
            spoil(pages, of_a.unwrap());
        });
        pass_both_ways(&mut a, &mut b);
        assert!(!said.contains("not used") && never_reconnected(&b), "{number}: {said}");
    }
    assert!(!never_reconnected(&a));
}
