//! Limits of a port: pinned addresses, storms, rates.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use dray_switch::DropReason;
use dray_wire::MacAddr;

use crate::inline::{Inline, Sent};

const BROADCAST: MacAddr = MacAddr([0xff; 6]);

fn station(id: u64) -> MacAddr {
    MacAddr::local(id)
}

fn frame(from: MacAddr, to: MacAddr) -> Vec<u8> {
    [&to.0[..], &from.0, &[0x88, 0xb5], &[7; 50]].concat()
}

/// Returns the ports at which a frame arrives.
fn reached(switch: &mut Inline, port: &str, frame: impl Into<Sent>) -> Vec<String> {
    switch.send(port, frame).into_iter().map(|(port, _)| port).collect()
}

fn gateway() -> Inline {
    Inline::of(&[
        "gateway,mac=02:00:00:00:00:01",
        "a,group=tenants",
        "b,group=tenants,mac=02:00:00:00:00:03+02:00:00:00:00:04",
        "c,mac=02:00:00:00:00:05,spoof_check=false",
    ])
}

#[test]
fn pinned_address_cannot_be_taken_over() {
    let mut switch = gateway();
    // The station has not sent yet, but its port is known.
    assert_eq!(reached(&mut switch, "a", frame(station(2), station(1))), ["gateway"]);
    for port in ["a", "b", "c"] {
        let claims = frame(station(1), BROADCAST);
        assert_eq!(reached(&mut switch, port, claims), [""; 0], "{port}");
        assert_eq!(switch.drops(port, DropReason::Spoofed), 1, "{port}");
    }
    // The ports of an isolation group cannot cut each other off.
    assert_eq!(reached(&mut switch, "a", frame(station(2), station(1))), ["gateway"]);
    assert_eq!(reached(&mut switch, "gateway", frame(station(1), station(2))), ["a"]);
}

#[test]
fn spoof_check_allows_own_addresses_only() {
    let mut switch = gateway();
    for own in [3, 4] {
        let sent = frame(station(own), station(1));
        assert_eq!(reached(&mut switch, "b", sent), ["gateway"]);
    }
    for other in [station(9), station(5)] {
        let before = switch.drops("b", DropReason::Spoofed);
        assert_eq!(reached(&mut switch, "b", frame(other, station(1))), [""; 0], "{other}");
        assert_eq!(switch.drops("b", DropReason::Spoofed), before + 1);
    }
    // Without the check a port may have other stations behind it, which are learned.
    assert_eq!(reached(&mut switch, "c", frame(station(9), station(1))), ["gateway"]);
    assert_eq!(reached(&mut switch, "a", frame(station(2), station(9))), ["c"]);
}

#[test]
fn address_change_after_spoof_check_is_ignored() {
    let mut switch = gateway();
    let honest = frame(station(2), station(1));
    let spoofed = [&station(1).0, &station(1).0, &honest[12..]].concat();
    let sent = Sent { bytes: honest.clone(), later: Some(spoofed) };
    let arrived = switch.send("a", sent);
    assert_eq!(arrived, [("gateway".to_owned(), honest)]);
}

#[test]
fn pinned_address_holds_in_its_vlans_only() {
    let mut switch = Inline::of(&[
        "t,trunk=10+20,mac=02:00:00:00:00:01",
        "a,vlan=10",
        "b,vlan=20",
        "c,vlan=30",
        "d,vlan=30",
        "e,vlan=40,mac=02:00:00:00:00:01",
        "f,vlan=40",
    ]);
    assert_eq!(reached(&mut switch, "a", frame(station(2), station(1))), ["t"]);
    assert_eq!(reached(&mut switch, "b", frame(station(2), station(1))), ["t"]);
    for port in ["a", "b", "f"] {
        assert_eq!(reached(&mut switch, port, frame(station(1), BROADCAST)), [""; 0]);
        assert_eq!(switch.drops(port, DropReason::Spoofed), 1, "{port}");
    }
    // In another VLAN the address is that of another station.
    assert_eq!(reached(&mut switch, "d", frame(station(1), BROADCAST)), ["c"]);
    assert_eq!(reached(&mut switch, "c", frame(station(2), station(1))), ["d"]);
    // And in a further one it is pinned to another port.
    assert_eq!(reached(&mut switch, "f", frame(station(2), station(1))), ["e"]);
    assert_eq!(reached(&mut switch, "e", frame(station(1), station(2))), ["f"]);
}

#[test]
fn frames_from_impossible_sources_are_dropped() {
    for keys in
        ["", ",vlan=10", ",mac=02:00:00:00:00:09", ",mac=02:00:00:00:00:09,spoof_check=false"]
    {
        let mut switch = Inline::of(&[&format!("a{keys}"), "b", "c,vlan=10"]);
        for (count, source) in
            [BROADCAST, MacAddr([0; 6]), MacAddr([3, 0, 0, 0, 0, 1])].into_iter().enumerate()
        {
            assert_eq!(reached(&mut switch, "a", frame(source, BROADCAST)), [""; 0], "{keys}");
            assert_eq!(switch.drops("a", DropReason::InvalidSource), count as u64 + 1, "{keys}");
        }
    }
}

/// Returns the reserved address with this last byte.
fn reserved(last: u8) -> MacAddr {
    MacAddr([1, 0x80, 0xc2, 0, 0, last])
}

#[test]
fn reserved_addresses_are_not_relayed() {
    let mut switch = Inline::of(&["a", "b", "c,vlan=10", "t,trunk=10+20"]);
    let tagged = |bytes: Vec<u8>| [&bytes[..12], &[0x81, 0, 0xe0, 10], &bytes[12..]].concat();
    for last in 0..=0x0f {
        let sent = frame(station(2), reserved(last));
        let count = u64::from(last) + 1;
        for (port, sent) in [
            ("a", sent.clone()),
            ("b", tagged(sent.clone())),
            ("c", sent.clone()),
            ("t", tagged(sent)),
        ] {
            assert_eq!(reached(&mut switch, port, sent), [""; 0], "{port} {last}");
            assert_eq!(switch.drops(port, DropReason::Reserved), count, "{port}");
        }
    }
    // Neighbours of these addresses are relayed.
    for to in [reserved(0x10), MacAddr([1, 0x80, 0xc2, 0, 1, 0]), MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        assert_eq!(reached(&mut switch, "a", frame(station(2), to)), ["b"], "{to}");
        assert_eq!(reached(&mut switch, "c", frame(station(2), to)), ["t"], "{to}");
    }
}

#[test]
fn reserved_addresses_are_relayed_between_ports_with_the_key() {
    let mut switch = Inline::of(&[
        "a,reserved=forward",
        "b,reserved=forward",
        "c",
        "d,vlan=10,reserved=forward",
        "t,trunk=10+20,reserved=forward",
    ]);
    for last in [0, 3, 0x0e] {
        let sent = frame(station(2), reserved(last));
        assert_eq!(reached(&mut switch, "a", sent.clone()), ["b"]);
        assert_eq!(reached(&mut switch, "d", sent.clone()), ["t"]);
        assert_eq!(reached(&mut switch, "c", sent), [""; 0]);
    }
    assert_eq!(switch.drops("c", DropReason::Reserved), 3);
    assert_eq!(reached(&mut switch, "a", frame(station(2), BROADCAST)), ["b", "c"]);
}

#[test]
fn patch_mode_relays_every_address() {
    let mut switch = Inline::new(
        "mode = 'patch'\nports = [{ name = 'a', uri = 'null:' }, { name = 'b', uri = 'null:' }]",
    );
    for (from, to) in
        [(station(1), reserved(0)), (BROADCAST, station(1)), (MacAddr([0; 6]), BROADCAST)]
    {
        assert_eq!(reached(&mut switch, "a", frame(from, to)), ["b"]);
    }
}

/// Frames of a batch that a `storm` limit lets pass at any rate.
const BURST: u64 = 32;

#[test]
fn storm_limits_only_flooded_frames() {
    let mut switch = Inline::of(&["a,storm=1pps", "b", "c"]);
    assert_eq!(reached(&mut switch, "b", frame(station(2), BROADCAST)), ["a", "c"]);
    let floods: Vec<Sent> = (0..200)
        .map(|number| {
            let to = if number % 2 == 0 { BROADCAST } else { station(1000 + number) };
            frame(station(1), to).into()
        })
        .collect();
    let arrived = switch.pass(0, floods);
    assert_eq!((arrived[1].len(), arrived[2].len()), (32, 32));
    assert_eq!(switch.drops("a", DropReason::Storm), 200 - BURST);
    let known = vec![frame(station(1), station(2)).into(); 200];
    assert_eq!(switch.pass(0, known)[1].len(), 200);
    // Other ports may flood without limit.
    let floods = vec![frame(station(2), BROADCAST).into(); 200];
    assert_eq!(switch.pass(1, floods)[2].len(), 200);
}

#[test]
fn storm_limits_learned_addresses() {
    let mut switch = Inline::of(&["a,storm=1pps", "b"]);
    reached(&mut switch, "b", frame(station(2), BROADCAST));
    let many = (0..200).map(|id| frame(station(1000 + id), station(2)).into()).collect();
    assert_eq!(switch.pass(0, many)[1].len(), 200, "every frame is forwarded");
    let counters = switch.counters("a");
    assert_eq!((counters.addresses_limited, counters.drops.total()), (200 - BURST, 0));
    // Learned stations are not forgotten because of the limit.
    assert_eq!(reached(&mut switch, "b", frame(station(2), station(1000))), ["a"]);
}

/// Moves what waits for a rate for so long; returns what arrives at port 1.
fn wait(switch: &mut Inline, time: Duration) -> Vec<Vec<u8>> {
    let began = Instant::now();
    let mut arrived = Vec::new();
    while began.elapsed() < time {
        arrived.append(&mut switch.step()[1]);
    }
    arrived
}

/// Returns two ports with other keys.
fn pair(setting: &str, a: &str, b: &str) -> Inline {
    Inline::new(&format!(
        "{setting}\ncontrol = '/tmp/unused'\n\
         [[ports]]\nname = 'a'\nuri = 'null:'\n{a}\n\
         [[ports]]\nname = 'b'\nuri = 'null:'\n{b}\n"
    ))
}

#[test]
fn rates_hold_in_both_directions_and_modes() {
    for mode in ["mode = 'learning'", "mode = 'patch'"] {
        let mut switch = pair(mode, "rate_in = '16pps'", "rate_out = '1kbit'");
        let sent = |len: usize| -> Vec<Sent> {
            let frame = [frame(station(1), station(2)), vec![0; len - 64]].concat();
            vec![frame.into(); 200]
        };
        // The first one passes; 16 wait.
        assert_eq!(switch.pass(0, sent(64))[1].len(), 1, "{mode}");
        let counters = switch.counters("a");
        assert_eq!(counters.drops.get(DropReason::PolicedIn), 200 - 17, "{mode}");
        assert_eq!((counters.rx_frames, counters.delayed_in), (200, 16), "{mode}");
        assert_eq!(switch.counters("b").tx_frames, 1, "{mode}");

        let mut switch = pair(mode, "", "rate_out = '800kbit'");
        // 72 KiB wait.
        assert_eq!(switch.pass(0, sent(1024))[1].len(), 1, "{mode}");
        let counters = switch.counters("b");
        assert_eq!(counters.drops.get(DropReason::PolicedOut), 200 - 73, "{mode}");
        assert_eq!((counters.drops.total(), counters.delayed_out), (200 - 73, 72), "{mode}");
        assert_eq!((counters.tx_frames, counters.tx_bytes), (1, 1024), "{mode}");
        assert_eq!(switch.counters("a").drops.total(), 0, "{mode}");
        // The opposite direction has no limit.
        assert_eq!(switch.pass(1, sent(1024))[0].len(), 200, "{mode}");

        // No frame waits for 8 s.
        let mut switch = pair(mode, "", "rate_out = '1kbit'");
        assert_eq!(switch.pass(0, sent(1024))[1].len(), 1, "{mode}");
        let counters = switch.counters("b");
        assert_eq!((counters.drops.get(DropReason::PolicedOut), counters.delayed_out), (199, 0));
    }
}

/// Datagrams that a kernel sends at once (`UDP_SEGMENT`) wait for a low rate, all of them.
#[test]
fn datagrams_of_64_kib_pass_low_rates() {
    for rate in ["1Mbit", "10Mbit", "100pps", "1kpps"] {
        let [of_a, of_b] = ["in", "out"].map(|way| format!("rate_{way} = '{rate}'"));
        for (a, b) in [(&*of_a, ""), ("", &*of_b)] {
            let mut switch = pair("mode = 'patch'", a, b);
            let frame = [frame(station(1), station(2)), vec![0; 1514 - 64]].concat();
            let began = Instant::now();
            let mut arrived = switch.pass(0, vec![frame.into(); 45]).remove(1).len();
            while arrived < 45 && began.elapsed() < Duration::from_secs(5) {
                arrived += switch.step()[1].len();
            }
            assert_eq!(arrived, 45, "{a}{b}");
        }
    }
}

/// A frame that waits arrives, unchanged and in order, and not before its time.
#[test]
fn frames_beyond_rate_arrive_later() {
    let limits = [
        ("rate_in = '1Mbit/1ms'", ""),
        ("", "rate_out = '1Mbit/1ms'"),
        ("rate_in = '1kpps/1ms'", ""),
    ];
    for (mode, (a, b)) in ["learning", "patch"].iter().flat_map(|mode| limits.map(|l| (mode, l))) {
        let mut switch = pair(&format!("mode = '{mode}'"), a, b);
        // Each takes a millisecond.
        let long = |id| -> Sent { [frame(station(id), station(99)), vec![0; 61]].concat().into() };
        let sent: Vec<Sent> = (1..=16).map(long).collect();
        let began = Instant::now();
        let mut arrived = switch.pass(0, sent.clone()).remove(1);
        while arrived.len() < 16 && began.elapsed() < Duration::from_secs(5) {
            arrived.append(&mut switch.step()[1]);
            let earliest = Duration::from_micros(990) * (arrived.len() as u32 - 1);
            assert!(began.elapsed() >= earliest, "{mode} {a} {b}: {}", arrived.len());
        }
        assert_eq!(arrived.len(), 16, "{mode} {a} {b}");
        assert!(arrived.iter().zip(&sent).all(|(arrived, sent)| *arrived == sent.bytes));
    }
}

/// Frames that wait for the rate of one port hold up no other port.
#[test]
fn rate_of_one_port_delays_no_other() {
    let mut switch = Inline::of(&["a", "b,rate_out=1kbit", "c", "d,rate_in=1kbit"]);
    for (port, id) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        reached(&mut switch, port, frame(station(id), BROADCAST));
    }
    for _ in 0..10 {
        let to_both = (0..200).map(|n| frame(station(1), station(2 + n % 2)).into()).collect();
        assert_eq!(switch.pass(0, to_both)[2].len(), 100);
        switch.pass(3, vec![frame(station(4), station(2)).into(); 200]);
    }
    assert!(switch.drops("b", DropReason::PolicedOut) > 0);
    assert!(switch.drops("d", DropReason::PolicedIn) > 0);
}

/// A frame that waits for room at its receiver is not counted against a rate twice.
#[test]
fn backpressured_frame_counts_once_against_rate() {
    for (a, b) in [("rate_in = '1kpps'", ""), ("", "rate_out = '1kpps'")] {
        let mut switch = pair("mode = 'patch'\nflow = 'backpressure'", a, b);
        switch.room.store(3, Relaxed);
        let sent: Vec<Sent> = (0..100).map(|id| frame(station(id), station(1)).into()).collect();
        let mut arrived = switch.pass(0, sent.clone()).remove(1);
        let began = Instant::now();
        let mut dropped = 0;
        while arrived.len() as u64 + dropped < 100 && began.elapsed() < Duration::from_secs(5) {
            arrived.append(&mut switch.step()[1]);
            dropped = switch.drops("a", DropReason::PolicedIn)
                + switch.drops("b", DropReason::PolicedOut);
        }
        assert_eq!(arrived.len() as u64 + dropped, 100, "{a} {b}");
        // 10 at once, and 30 that wait; on a busy machine, more while they are handed over.
        assert!((39..100).contains(&arrived.len()), "{a} {b}: {}", arrived.len());
        let mut sent = sent.iter().map(|sent| &sent.bytes);
        assert!(arrived.iter().all(|arrived| sent.any(|sent| sent == arrived)), "{a} {b}");
        assert_eq!(switch.counters("a").rx_frames, 100, "{a} {b}");
    }
}

/// While the receiver takes nothing, frames stay with their sender, and are not dropped.
#[test]
fn shaped_port_passes_backpressure_on() {
    for (a, b) in [("rate_in = '10kpps'", ""), ("", "rate_out = '10kpps'")] {
        let mut switch = pair("mode = 'patch'\nflow = 'backpressure'", a, b);
        let frames = |many: usize| vec![Sent::from(frame(station(1), station(2))); many];
        let mut arrived = switch.pass(0, frames(200))[1].len();
        switch.room.store(0, Relaxed);
        // Frames that wait for the rate wait for the receiver as well.
        arrived += wait(&mut switch, Duration::from_millis(50)).len();
        assert!((100..200).contains(&arrived), "{a} {b}: {arrived}");
        switch.offer(0, frames(3000));
        wait(&mut switch, Duration::from_millis(50));
        assert_eq!(switch.counters("a").rx_frames, 200, "{a} {b}");
        switch.room.store(256, Relaxed);
        arrived += switch.step()[1].len();
        assert!(arrived >= 200, "{a} {b}: {arrived}");
    }
}
