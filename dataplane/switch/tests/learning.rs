//! Learning mode over shared memory, end to end: VLANs, isolation, flooding, ageing, limits.

use std::path::PathBuf;

use dray_port::Port;
use dray_switch::{DropReason, Switch, SwitchControl};
use tempfile::TempDir;

use crate::ends::{Frames, add, arrived, counters, drops, eventually, plug, send_one, switch};

/// A switch, and a test port at each of its ports.
struct Bench {
    switch: Switch,
    ports: Vec<(String, Port)>,
    folder: TempDir,
}

impl Bench {
    /// `ports` are names and keys, such as `a,vlan=10`.
    fn new(settings: &str, ports: &[&str]) -> Self {
        let switch = switch(&format!("mode = 'learning'\n{settings}"));
        let mut bench = Self { switch, ports: Vec::new(), folder: tempfile::tempdir().unwrap() };
        ports.iter().for_each(|port| bench.add(port));
        bench
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn add(&mut self, port: &str) {
        let (name, keys) = port.split_once(',').map_or((port, ""), |(name, keys)| (name, keys));
        let comma = if keys.is_empty() { "" } else { "," };
        let socket = self.socket(name);
        add(&self.switch, &format!("{name}=vhost:{}{comma}{keys}", socket.display()));
        self.ports.push((name.to_owned(), plug(&socket, "size=256&hugepages=0")));
    }

    fn port(&mut self, name: &str) -> &mut Port {
        &mut self.ports.iter_mut().find(|(known, _)| known == name).unwrap().1
    }

    /// Sends one frame into port `from`; it must arrive at the ports of `expected`, as given there,
    /// and at no other.
    #[track_caller]
    fn check(&mut self, from: &str, sent: &Frames, expected: &[(&str, &Frames)]) {
        let before = counters(&self.switch, from).rx_frames;
        let sent = send_one(&mut *self.port(from).tx[0], sent);
        // Once the receiving port has counted the frame, it has been forwarded.
        let switch = &self.switch;
        eventually("frame counted by the switch", || {
            counters(switch, from).rx_frames == before + 1
        });
        for (name, port) in &mut self.ports {
            let seen = arrived(port, &sent);
            let wanted = expected.iter().filter(|(expected, _)| expected == name);
            let wanted: Vec<_> = wanted.map(|(_, frames)| frames.like(&sent).make(0)).collect();
            assert_eq!(seen, wanted, "at {name}, sent at {from}: {sent:?}");
        }
    }
}

#[test]
fn frames_are_flooded_until_destination_is_learned() {
    let mut bench = Bench::new("", &["a", "b", "c"]);
    let (there, back) = (Frames::between(1, 2), Frames::between(2, 1));
    bench.check("a", &there, &[("b", &there), ("c", &there)]);
    bench.check("b", &back, &[("a", &back)]);
    bench.check("a", &there, &[("b", &there)]);
    // Without VLANs the switch ignores tags.
    let tagged = there.clone().tagged(0x7064);
    bench.check("a", &tagged, &[("b", &tagged)]);
    let group = Frames::broadcast(1);
    bench.check("a", &group, &[("b", &group), ("c", &group)]);
    // A station moves, and its frames go to its new place.
    bench.check("c", &back, &[("a", &back)]);
    bench.check("a", &there, &[("c", &there)]);
    assert!(bench.switch.ports().iter().all(|port| port.partner.is_none()), "a port has a pair");
    // Destination behind the receiving port.
    let near = Frames::between(3, 1);
    bench.check("a", &near, &[]);
    assert_eq!(drops(&bench.switch, "a", DropReason::Hairpin), 1);
    bench.switch.flush_table();
    bench.check("a", &there, &[("b", &there), ("c", &there)]);
    // Stations learned on a port are forgotten with it, and a port that gets its index does not
    // receive the frames.
    bench.check("c", &back, &[("a", &back)]);
    bench.switch.remove_port("c").unwrap();
    bench.ports.retain(|(name, _)| name != "c");
    bench.add("d");
    bench.check("a", &there, &[("b", &there), ("d", &there)]);
}

#[test]
fn frame_stays_in_vlan_with_right_tag() {
    let ports = ["a,vlan=10", "b,vlan=10", "c,vlan=20", "t,trunk=10+20", "n,trunk=20,native=10"];
    let mut bench = Bench::new("", &[&ports[..], &["p"]].concat());
    let plain = Frames::broadcast(1);
    let (ten, twenty) = (plain.clone().tagged(10), plain.clone().tagged(20));
    bench.check("a", &plain, &[("b", &plain), ("t", &ten), ("n", &plain)]);
    bench.check("c", &plain, &[("t", &twenty), ("n", &twenty)]);
    bench.check("t", &ten, &[("a", &plain), ("b", &plain), ("n", &plain)]);
    bench.check("n", &twenty, &[("c", &plain), ("t", &twenty)]);
    bench.check("n", &plain, &[("a", &plain), ("b", &plain), ("t", &ten)]);
    // A tag of VLAN 0 carries a priority, which is kept if the frame leaves with a tag.
    let (zero, urgent) = (plain.clone().tagged(0xa000), plain.clone().tagged(0xa00a));
    bench.check("a", &zero, &[("b", &plain), ("t", &urgent), ("n", &plain)]);
    bench.check("n", &zero, &[("a", &plain), ("b", &plain), ("t", &urgent)]);
    // Not in the VLAN: an access port's tag, a trunk's other tag, a trunk's missing tag.
    for (from, frames) in [("a", &ten), ("a", &twenty), ("t", &plain), ("n", &ten)] {
        let before = drops(&bench.switch, from, DropReason::VlanNotAllowed);
        bench.check(from, frames, &[]);
        assert_eq!(drops(&bench.switch, from, DropReason::VlanNotAllowed), before + 1, "{from}");
    }
    // Ports without VLANs only exchange frames with each other; here there is one, so no receiver.
    bench.check("p", &ten, &[]);
    assert_eq!(drops(&bench.switch, "p", DropReason::NoReceiver), 1);
    // An address is another station in another VLAN.
    let to_one = Frames::between(7, 1);
    bench.check("b", &to_one, &[("n", &to_one)]);
    bench.check("c", &to_one, &[("n", &to_one.clone().tagged(20))]);
}

#[test]
fn ports_of_isolation_group_exchange_no_frames() {
    let mut bench = Bench::new("", &["a,group=g", "b,group=g", "c,group=h", "u"]);
    let all = Frames::broadcast(1);
    bench.check("a", &all, &[("c", &all), ("u", &all)]);
    let from_b = Frames::between(2, 1);
    bench.check("b", &from_b, &[]);
    assert_eq!(drops(&bench.switch, "b", DropReason::Isolated), 1);
    let from_u = Frames::between(3, 1);
    bench.check("u", &from_u, &[("a", &from_u)]);
}

#[test]
fn silent_stations_age_out() {
    let mut bench = Bench::new("age_s = 1", &["a", "b", "c"]);
    let (there, back) = (Frames::between(1, 2), Frames::between(2, 1));
    bench.check("b", &back, &[("a", &back), ("c", &back)]);
    assert_eq!(bench.switch.table().len(), 1);
    let switch = &bench.switch;
    eventually("stations aged out", || switch.table().is_empty());
    bench.check("a", &there, &[("b", &there), ("c", &there)]);
}

#[test]
fn port_over_station_limit_displaces_no_others() {
    let mut bench = Bench::new("port_addresses = 10", &["a", "b", "c"]);
    let known = Frames::broadcast(1);
    bench.check("a", &known, &[("b", &known), ("c", &known)]);
    for station in 100..150 {
        let many = Frames::between(station, 1);
        bench.check("b", &many, &[("a", &many)]);
    }
    assert_eq!(counters(&bench.switch, "b").addresses_refused, 40);
    assert_eq!(bench.switch.table().len(), 11);
    // One address that was learned, and one that was not.
    let learned = Frames::between(1, 105);
    bench.check("a", &learned, &[("b", &learned)]);
    let refused = Frames::between(1, 120);
    bench.check("a", &refused, &[("b", &refused), ("c", &refused)]);
}
