//! Messages that no network should carry.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::veths::Veths;
use crate::common::{self, Started, alone, eventually, serves};
use crate::fixture::{CONFIG, Upf, V4, check, interrupted, number, report};

/// scapy sends messages of every kind from and to addresses that no single host has. Each is
/// counted once, by a reason if it is refused; afterwards every packet passes both ways.
#[test]
fn upf_counts_hostile_scapy_messages_with_time() {
    let _alone = alone();
    require_root!();
    let mut scapy = Command::new("/usr/bin/python3");
    let known = scapy.args(["-c", "import scapy.layers.inet6"]).output();
    if !known.is_ok_and(|output| output.status.success()) {
        common::skip("python3-scapy is not installed");
        return;
    }
    let veths = Veths::new(1, &[["gnb", "n3"], ["dn", "n6"]]);
    // Static neighbours, which no message may change and which need no resolution.
    let neighbours = |addresses: [&str; 2], mac: &str| {
        let one = |address| format!("{{ address = \"{address}\", mac = \"{mac}\" }}");
        format!("neighbours = [{}]\n", addresses.map(one).join(", "))
    };
    let (before, after) = CONFIG.split_once("[n6]").expect("a table n6");
    let (before, after) = (
        before.to_owned() + &neighbours(["10.0.3.2", "10.0.3.3"], "02:00:00:00:03:09"),
        after.replacen(
            "[generate]",
            &(neighbours(["10.0.6.2", "fd00:6::2"], "02:00:00:00:06:09") + "[generate]"),
            1,
        ),
    );
    let files = Upf::with_config(&format!("{before}[n6]{after}{V4}"));
    let start = |name: &str, ports: [&str; 2], more: &[&str]| {
        let [n3, n6] = ports.map(|name| format!("raw:{name}?batch=64"));
        veths.0.enter(|| files.start(name, &n3, &n6, more)).unwrap()
    };
    let upf = start("upf", ["n3", "n6"], &[]);
    assert!(eventually(|| serves(files.at("upf.sock"))));
    let mut scapy = Command::new("/usr/bin/python3");
    scapy.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/upf/hostile_by_scapy.py"));
    scapy.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut scapy = Started(veths.0.enter(|| scapy.spawn()).unwrap());
    let mut requests = scapy.0.stdin.take().unwrap();
    let mut answers = BufReader::new(scapy.0.stdout.take().unwrap());
    let stats = |way: &str| {
        let stats = files.ask(&["stats", "--json"])[way].clone();
        let drops = stats["drops"].as_object().unwrap();
        let dropped: u64 = drops.values().filter_map(Value::as_u64).sum();
        let parts = ["/tx_packets", "/buffered", "/consumed"].map(|part| number(&stats, part));
        (number(&stats, "/rx_packets"), parts.iter().sum::<u64>() + dropped)
    };
    let ends = [
        ("gnb", "uplink", "02:00:00:00:03:01", ["10.0.3.1", "10.0.3.9", "fd00:3::1", "fd00:3::9"]),
        ("dn", "downlink", "02:00:00:00:06:01", ["10.0.6.1", "10.0.6.9", "fd00:6::1", "fd00:6::9"]),
    ];
    for kind in ["icmp", "icmpv6", "discovery", "udp", "arp"] {
        for (interface, way, mac, addresses) in ends {
            let (before, _) = stats(way);
            let request = serde_json::json!({
                "interface": interface, "kind": kind, "mac": mac, "addresses": addresses,
            });
            writeln!(requests, "{request}").unwrap();
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            let sent: u64 = line.trim().parse().unwrap_or_else(|_| panic!("{kind}: {line:?}"));
            assert!(sent > 100, "{kind}: {sent}");
            // The kernel sometimes sends packets of its own, which are counted as well.
            let is_counted = || {
                let (received, done) = stats(way);
                received >= before + sent && done == received
            };
            assert!(eventually(is_counted), "{kind} {way}: {sent} {before} {:?}", stats(way));
        }
    }
    drop(requests);
    let counted = files.ask(&["stats", "--json"]);
    for way in ["uplink", "downlink"] {
        for reason in ["martian_source", "martian_destination", "outer_ip", "group", "not_for_us"] {
            assert!(number(&counted, &format!("/{way}/drops/{reason}")) > 0, "{way} {reason}");
        }
    }
    let forwarded = |way: &str, stats: &Value| number(stats, &format!("/{way}/tx_packets"));
    let before = ["uplink", "downlink"].map(|way| forwarded(way, &counted));
    assert_eq!(before, [0, 0], "{counted}");
    let load = start("upf-load", ["gnb", "dn"], &["--rate", "2k", "--duration", "0.5"]);
    let report = report(load);
    check(&report, &interrupted(upf));
}
