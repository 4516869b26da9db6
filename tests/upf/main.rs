//! The user plane function between gNBs and a data network: a separate process, real links, and a
//! load that checks every packet.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::veths::Veths;
use common::{DRAY, Started, alone, eventually, listens, success};
use dray_lab::link::LinkOptions;
use dray_lab::{Cancel, ContainerId, Lab, LinkKind, Runtime, placement};
use dray_results::Results;
use rustix::process::Signal;
use serde_json::Value;

/// Configuration in which only our own Ethernet addresses are known beforehand.
const CONFIG: &str = r#"
[n3]
mac = "02:00:00:00:03:01"
addresses = ["10.0.3.1", "fd00:3::1"]
[n6]
mac = "02:00:00:00:06:01"
addresses = ["10.0.6.1", "fd00:6::1"]
routes = [ { to = "0.0.0.0/0", via = "10.0.6.2" }, { to = "2001:db8::/32", via = "fd00:6::2" } ]
[generate]
count = 100
qfi = 9
urr = true
mbr_kbps = 1000000
"#;

const V4: &str = "gnbs = [\"10.0.3.2\", \"10.0.3.3\"]\nue = \"10.45.0.1\"\n";
const V6: &str = "gnbs = [\"fd00:3::2\"]\nue = \"2001:db8:45::/64\"\n";

struct Upf {
    directory: tempfile::TempDir,
}

impl Upf {
    fn told(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("upf.toml"), config).unwrap();
        Self { directory }
    }

    fn at(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn command(&self, name: &str, n3: &str, n6: &str, more: &[&str]) -> Command {
        let mut command = common::command();
        let config = self.at("upf.toml");
        command.args([name, "--n3", n3, "--n6", n6, "--config", &config]).args(more);
        if name == "upf" {
            command.args(["--control", &self.at("upf.sock")]);
        }
        // Not the test's own output: nobody waits for its end if the process outlives the test.
        let said = File::options().append(true).create(true).open(self.at("stderr"));
        command.stdout(Stdio::piped()).stderr(said.unwrap()).stdin(Stdio::null());
        command
    }

    /// Starts a process that ends with the test, whether the test succeeds or fails.
    fn start(&self, name: &str, n3: &str, n6: &str, more: &[&str]) -> io::Result<Started> {
        self.command(name, n3, n6, more).arg("--json").spawn().map(Started)
    }

    /// Returns what all started processes have said on standard error.
    fn said(&self) -> String {
        std::fs::read_to_string(self.at("stderr")).unwrap()
    }
}

impl Upf {
    fn talk(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = common::command();
        command.arg("upf").args(arguments).args(["--control", &self.at("upf.sock")]);
        command.output().unwrap()
    }

    /// Sends a request that must succeed. Returns the reply, if there is one.
    fn ask(&self, arguments: &[&str]) -> Value {
        let output = self.talk(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Sends a request that must be refused. Returns the error message.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.talk(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Returns the standard output of a process, and its exit status.
fn finished(mut process: Started) -> (String, ExitStatus) {
    let mut text = String::new();
    process.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    (text, process.0.wait().unwrap())
}

fn report(process: Started) -> Value {
    let (text, status) = finished(process);
    assert!(status.success(), "{status}: {text}");
    serde_json::from_str(&text).unwrap()
}

fn interrupted(process: Started) -> Value {
    common::signal(&process.0, Signal::INT);
    report(process)
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value}"))
}

/// Checks that every packet came back intact, and that the user plane function's counters agree.
fn check(load: &Value, upf: &Value) {
    for way in ["uplink", "downlink"] {
        let sent = number(load, &format!("/{way}/sent"));
        assert!(sent > 100, "{load}");
        assert_eq!(number(load, &format!("/{way}/received")), sent, "{load} {upf}");
        assert!(number(load, &format!("/{way}/latency_ns/p50")) > 0, "{load}");
        assert!(load[way]["received_pps"].as_f64().is_some_and(|rate| rate > 0.0), "{load}");
        for wrong in ["reordered", "wrong_address", "wrong_teid", "wrong_qfi", "wrong_packet"] {
            assert_eq!(number(load, &format!("/{way}/{wrong}")), 0, "{load}");
        }
        assert_eq!(number(upf, &format!("/{way}/tx_packets")), sent, "{upf}");
    }
}

/// Creates a container for the user plane function, one for everything else, and two wires between
/// them.
fn hosts() -> (Lab, [ContainerId; 2]) {
    let mut lab = Lab::new(DRAY.into(), Cancel::default()).unwrap();
    let ids = ["upf", "load"].map(|name| lab.start_container(name, &placement::allowed()).unwrap());
    lab.wait_until_up().unwrap();
    for _ in 0..2 {
        let options = LinkOptions {
            mtu: 1500,
            addressed: false,
            has_programs: false,
            has_machines: false,
            switch_cpu: 0,
        };
        lab.link(LinkKind::VETH, &[[ids[0], ids[1]]], options).unwrap();
    }
    (lab, ids)
}

fn wait_for_thread(process: &Started, name: &str) {
    let tasks = format!("/proc/{}/task", process.0.id());
    let is_there = || {
        let tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        let mut names =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.any(|found| found.trim() == name)
    };
    assert!(eventually(is_there), "no thread {name}");
}

#[test]
fn upf_loses_no_packet_over_raw() {
    let _alone = alone();
    require_root!();
    let (lab, [upf, load]) = hosts();
    let ports = ("raw:eth0?batch=64", "raw:eth1?batch=64");
    let queues = ("raw:eth0?batch=64&queues=2", "raw:eth1?batch=64&queues=2");
    for (ends, size, workers) in
        [(V4, "512", "1"), (V4, "1400", "1"), (V6, "300", "1"), (V4, "512", "2"), (V6, "512", "2")]
    {
        let files = Upf::told(&format!("{CONFIG}{ends}"));
        let start = |host: ContainerId, name: &str, more: &[&str]| {
            let (n3, n6) = if more[0] == "--workers" { queues } else { ports };
            lab[host].namespace().enter(|| files.start(name, n3, n6, more)).unwrap()
        };
        let load_options = ["--rate", "5k", "--duration", "0.5", "--size", size];
        let load = start(load, "upf-load", &load_options);
        wait_for_thread(&load, "role");
        let upf = start(upf, "upf", &["--workers", workers]);
        check(&report(load), &interrupted(upf));
    }
}

/// Checks that each worker received its share.
fn check_workers(upf: &Value) {
    for workers in ["uplink_workers", "downlink_workers"] {
        let received: Vec<_> = upf[workers].as_array().unwrap().iter().collect();
        assert_eq!(received.len(), 2, "{upf}");
        assert!(received.iter().all(|count| count.as_u64() > Some(100)), "{upf}");
    }
}

/// Uses shared memory, with both sides over one switch, at a rate that the rings can absorb while
/// other threads have the CPUs. With two queues, each queue has one worker in the switch and one
/// for each direction.
#[test]
fn upf_loses_no_packet_over_switch() {
    let _alone = alone();
    let cpus: Vec<_> = placement::allowed().iter().take(2).map(usize::to_string).collect();
    for queues in 1..=2 {
        if cpus.len() < queues {
            common::skip("the switch needs two CPUs for two workers");
            continue;
        }
        let files = Upf::told(&format!("{CONFIG}{V4}"));
        let port = |name: &str| format!("{name}=vhost:{}?queues={queues}", files.at(name));
        let mut switch = common::command();
        switch.args(["switch", "--mode", "patch", "--control", &files.at("control")]);
        switch.args(["--cpus", &cpus[..queues].join(",")]);
        for name in ["n3", "gnb", "n6", "dn"] {
            switch.args(["--port", &port(name)]);
        }
        switch.stdout(Stdio::null()).stderr(Stdio::null());
        let switch = Started(switch.spawn().unwrap());
        assert!(eventually(|| listens(files.at("control"))));
        let virtio = |name: &str| format!("virtio:{}?wait=poll&queues={queues}", files.at(name));
        let load_options = ["--rate", "1k", "--duration", "0.5"];
        let load = files.start("upf-load", &virtio("gnb"), &virtio("dn"), &load_options).unwrap();
        wait_for_thread(&load, "role");
        let workers = ["--workers", &queues.to_string()];
        let upf = files.start("upf", &virtio("n3"), &virtio("n6"), &workers).unwrap();
        let report = report(load);
        let upf = interrupted(upf);
        drop(switch);
        check(&report, &upf);
        if queues == 2 {
            check_workers(&upf);
        }
    }
}

/// scapy sends messages of every kind from and to addresses that no single host has. Each is
/// counted once, by a reason if it is refused; afterwards every packet passes both ways.
#[test]
fn upf_counts_hostile_scapy_messages() {
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
    let files = Upf::told(&format!("{before}[n6]{after}{V4}"));
    let start = |name: &str, ports: [&str; 2], more: &[&str]| {
        let [n3, n6] = ports.map(|name| format!("raw:{name}?batch=64"));
        veths.0.enter(|| files.start(name, &n3, &n6, more)).unwrap()
    };
    let upf = start("upf", ["n3", "n6"], &[]);
    assert!(eventually(|| listens(files.at("upf.sock"))));
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
        let done = number(&stats, "/control") + number(&stats, "/tx_packets") + dropped;
        (number(&stats, "/rx_packets"), done)
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

/// Each queue of an interface has an AF_XDP socket, and each socket a worker.
#[test]
fn upf_loses_no_packet_over_afxdp_queues() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(2, &[["gnb", "n3"], ["dn", "n6"]]);
    let port = |name: &str| format!("afxdp:{name}?queues=2");
    for ends in [V4, V6] {
        let files = Upf::told(&format!("{CONFIG}{ends}"));
        let start = |name: &str, ports: [&str; 2], more: &[&str]| {
            let [n3, n6] = ports.map(port);
            veths.0.enter(|| files.start(name, &n3, &n6, more)).unwrap()
        };
        let load = start("upf-load", ["gnb", "dn"], &["--rate", "5k", "--duration", "0.5"]);
        wait_for_thread(&load, "role");
        let upf = start("upf", ["n3", "n6"], &["--workers", "2"]);
        let report = report(load);
        let upf = interrupted(upf);
        check(&report, &upf);
        check_workers(&upf);
    }
}

/// A 10 Mb/s limit passes 10 Mb/s for each of two sessions that are offered twice as much.
#[test]
fn session_rate_limits_hold() {
    let _alone = alone();
    require_root!();
    let (lab, [upf_host, load_host]) = hosts();
    let config = CONFIG.replace("count = 100", "count = 2").replace("1000000", "10000");
    assert_ne!(config, CONFIG);
    let files = Upf::told(&format!("{config}{V4}"));
    let ports = ("raw:eth0?batch=64", "raw:eth1?batch=64");
    // Rates count bits of IP packets: a frame of 1014 bytes carries one of 1000. Over ten seconds
    // the burst that may be ahead is half a percent.
    let offers =
        ["--rate", "5k", "--duration", "10", "--size", "1014", "--only", "uplink", "--allow-loss"];
    let passed = |_| {
        let start = |host: ContainerId, name: &str, more: &[&str]| {
            lab[host].namespace().enter(|| files.start(name, ports.0, ports.1, more)).unwrap()
        };
        let load = start(load_host, "upf-load", &offers);
        wait_for_thread(&load, "role");
        let upf = start(upf_host, "upf", &[]);
        let report = report(load);
        let sessions = files.ask(&["sessions", "ls", "--json"]);
        let stats = interrupted(upf);
        let dropped = number(&stats, "/uplink/drops/policed");
        assert_eq!(dropped, number(&report, "/uplink/lost"), "{report} {stats}");
        let bits = |session: &Value| number(session, "/usage/0/uplink_octets") as f64 * 8.0;
        sessions.as_array().unwrap().iter().map(bits).collect::<Vec<_>>()
    };
    // A load that does not get to run sends less than the limit for a while, so such a result is
    // tried again; more than the limit is never right.
    let found = (0..3).map(passed).find(|bits| {
        assert_eq!(bits.len(), 2);
        assert!(bits.iter().all(|bits| *bits < 1.02e8), "{bits:?}");
        bits.iter().all(|bits| *bits > 0.98e8)
    });
    assert!(found.is_some(), "never as much as the limit");
}

/// Measures the paper's function between a sender and a receiver, over each link that this machine
/// can have in the lab's containers, and over some in an engine's. Counters balance, and no packet
/// is lost at a rate that all links carry.
#[test]
fn upf_counters_balance_over_links() {
    let _alone = alone();
    require_root!();
    let both = "bridge/raw-mmsg,switch/patch/virtio";
    let sockets = ["macvlan/bridge", "macvlan/passthru", "vxlan", "xdp/pairs", "xdp/learning"]
        .map(|link| format!("{link}/raw-mmsg"));
    let others = "veth/afxdp,veth/tap,macvtap/tap,ovs/userspace/raw-mmsg,ovs/afxdp/raw-mmsg,\
                  testpmd/pairs/virtio,ovs-dpdk/pairs/virtio,direct/virtio,switch/learning/virtio";
    let all = [both, &sockets.join(","), others].join(",");
    for (runtime, techniques) in [(Runtime::Embedded, &*all), (Runtime::Docker, both)] {
        if let Err(error) = runtime.version() {
            common::skip(&error.to_string());
            continue;
        }
        let text = success(&[
            "bench",
            "shyamkumar2022-fig6",
            "--quick",
            "--runtime",
            runtime.name(),
            "--technique",
            techniques,
            "--rate",
            "1k",
            "--duration",
            "0.3",
            "--trials",
            "1",
            "--json",
            "-",
        ]);
        let results: Results = serde_json::from_str(&text).unwrap();
        // One row for each direction.
        assert_eq!(results.results.len(), 2 * techniques.split(',').count(), "{text}");
        for row in &results.results {
            let load = row.upf.unwrap();
            let name = format!("{runtime} {} {load}", row.technique);
            let Some(measured) = row.measured() else {
                let why = format!("{:?}", row.outcome);
                if why.contains("is not installed") {
                    common::skip(&why);
                    continue;
                }
                let is_refused = row.link == "switch/learning" && why.contains("as switch/patch");
                assert!(is_refused, "{name}: {why}");
                continue;
            };
            assert!(!measured.counters_disagree() && measured.received > 0, "{name}: {measured:?}");
            assert_eq!((load.sessions, load.pdrs, measured.lost), (8000, 2, 0), "{name}");
        }
    }
}

/// Measures the cost of sessions and rules: one row for each number of them, with balanced
/// counters.
#[test]
fn upf_counters_balance_over_sessions_and_rules() {
    let _alone = alone();
    require_root!();
    let quick = ["--quick", "--duration", "0.2", "--trials", "1"];
    let text = success(&[&["bench", "upf-scale"][..], &quick, &["--json", "-"]].concat());
    let results: Results = serde_json::from_str(&text).unwrap();
    let mut loads = Vec::new();
    for row in &results.results {
        let load = row.upf.unwrap();
        let measured = row.measured().unwrap_or_else(|| panic!("{load}: {:?}", row.outcome));
        assert!(!measured.counters_disagree() && measured.received > 0, "{load}: {measured:?}");
        loads.push((load.sessions, load.pdrs));
    }
    let sessions = [1, 1000, 10_000, 100_000, 1_000_000].map(|sessions| (sessions, 2));
    let rules = [2, 8, 32, 128].map(|rules| (8000, rules));
    assert_eq!(loads, [&sessions[..], &rules].concat());
}

#[test]
fn load_without_replies_says_what_it_waits_for_and_fails() {
    let files = Upf::told(&format!("{CONFIG}{V4}"));
    let load = files.command("upf-load", "null:", "null:", &["--duration", "0.1"]).spawn();
    let load = Started(load.unwrap());
    let waiting = "waiting for the user plane function, at most 10 s: it has not asked on N3 for \
                   10.0.3.2, 10.0.3.3, and it has not asked on N6 for 10.0.6.2, fd00:6::2\n";
    assert!(eventually(|| files.said().contains(waiting)), "{}", files.said());
    let (text, status) = finished(load);
    let said = files.said();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("uplink: no packet came back; downlink: no packet came back"), "{said}");
    assert!(text.contains("has not asked for 10.0.3.2,"), "{text}");
}

/// Sessions that are added, changed and removed by command.
#[test]
fn sessions_change_at_run_time() {
    let files = Upf::told(&format!("{CONFIG}{V4}"));
    let upf = files.start("upf", "null:", "null:", &[]).unwrap();
    assert!(eventually(|| listens(files.at("upf.sock"))));
    let more = "[generate]\ncount = 3\nteid = 900\ngnb_teid = 900\ngnbs = [\"10.0.3.2\"]\nue = \"10.46.0.1\"";
    std::fs::write(files.at("more.toml"), more).unwrap();
    let count = || number(&files.ask(&["status", "--json"]), "/sessions");
    assert_eq!(count(), 100);
    // These SEIDs are in use already.
    let message = files.refused(&["sessions", "add", &files.at("more.toml")]);
    assert!(message.contains("more.toml: session 1: seid: already in use"), "{message}");
    let wrong = "[generate]\ncount = 0\ngnbs = []\nue = \"10.46.0.1\"";
    std::fs::write(files.at("wrong.toml"), wrong).unwrap();
    let message = files.refused(&["sessions", "add", &files.at("wrong.toml")]);
    assert!(message.contains("wrong.toml") && message.contains("generate.count"), "{message}");
    let session = |teid: u32, more: &str| {
        format!(
            "[[sessions]]\nseid = 200\nue = [\"10.99.0.1\"]\nfars = [ {{ id = 1, action = \"forward\" }} ]\n\
             pdrs = [ {{ id = 1, precedence = 1, from = \"access\", teid = {teid}, far = 1{more} }} ]\n"
        )
    };
    for (text, part) in [
        (session(500, ", qers = [7]"), "wrong.toml: session 200: pdrs[0].qers: QER 7"),
        (
            session(50, ""),
            "wrong.toml: session 200: pdrs[0].teid: 0x32: already in use by session 50",
        ),
        (session(500, "").replace("99", "45"), "wrong.toml: session 200: ue[0]: 10.45.0.1"),
        (
            session(500, ", filters = [\"permit in ip\"]"),
            "wrong.toml: line 5: session 200: pdrs[0].filters[0]: ",
        ),
    ] {
        std::fs::write(files.at("wrong.toml"), text).unwrap();
        let message = files.refused(&["sessions", "add", &files.at("wrong.toml")]);
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(count(), 100);
    files.ask(&["sessions", "modify", &files.at("more.toml"), "--end-marker"]);
    let sessions = files.ask(&["sessions", "ls", "--json"]);
    assert_eq!(sessions[0]["ue"][0], "10.46.0.1");
    assert_eq!(sessions[2]["teids"][0], "0x386");
    files.ask(&["sessions", "remove", "5", "6", "--file", &files.at("more.toml")]);
    assert_eq!(count(), 95);
    files.ask(&["sessions", "add", &files.at("more.toml")]);
    let message = files.refused(&["sessions", "remove", "7", "500"]);
    assert!(message.contains("session 500: seid: no such session"), "{message}");
    assert_eq!(count(), 98);
    let shown = String::from_utf8(files.talk(&["sessions", "show", "7"]).stdout).unwrap();
    assert!(shown.starts_with("session 7: forwarding, 0 packets waiting\n"), "{shown}");
    assert!(shown.contains("\ntunnels to gNBs: 10.0.3.2 0x7\n"), "{shown}");
    let message = files.refused(&["sessions", "show", "500"]);
    assert!(message.contains("no such session: \"500\""), "{message}");
    assert_eq!(number(&files.ask(&["stats", "--json"]), "/uplink/rx_packets"), 0);
    interrupted(upf);
    assert!(!Path::new(&files.at("upf.sock")).exists());
    let message = files.refused(&["stats"]);
    assert!(message.contains("dray upf") && message.contains("--control"), "{message}");
}

#[test]
fn upf_says_where_it_is_at_start_and_what_it_did_at_end() {
    let files = Upf::told(&format!("{CONFIG}{V4}"));
    let cpu = placement::allowed()[0].to_string();
    let upf = files.command("upf", "null:", "null:", &["--cpus", &cpu]).spawn().map(Started);
    let upf = upf.unwrap();
    assert!(eventually(|| files.said().contains("next, ")), "{}", files.said());
    let said = files.said();
    let control = files.at("upf.sock");
    for part in [
        &format!("dray upf: 100 sessions, 2 workers on CPU {cpu}\n"),
        "\nN3    10.0.3.1, fd00:3::1  discards frames  null:\n",
        &format!("control socket: {control}\n"),
        &format!("next, from another terminal: dray upf sessions ls --control {control}\n"),
    ] {
        assert!(said.contains(part), "{part:?}: {said}");
    }
    common::signal(&upf.0, Signal::INT);
    let (text, status) = finished(upf);
    assert!(status.success());
    assert!(text.starts_with("dray upf: ended after "), "{text}");
    assert!(text.contains("\nuplink: received 0, forwarded 0, "), "{text}");
}

#[test]
fn one_interface_twice_is_refused() {
    let files = Upf::told(&format!("{CONFIG}{V4}"));
    for name in ["upf", "upf-load"] {
        let mut command = files.command(name, "raw:lo", "raw:lo?batch=64", &[]);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said, "dray: --n3 and --n6 both use interface lo: give two ports\n");
    }
}

#[test]
fn invalid_upf_configuration_changes_nothing() {
    let session = |seid: u32, teid: u32, ue: &str, more: &str| {
        format!(
            "[[sessions]]\nseid = {seid}\nue = [\"{ue}\"]\nfars = [ {{ id = 1, action = \"forward\" }} ]\n\
             pdrs = [ {{ id = 1, precedence = 1, from = \"access\", teid = {teid}, far = 1{more} }} ]\n"
        )
    };
    let base = &format!("{CONFIG}{V4}");
    for (sessions, parts) in [
        (session(200, 500, "10.99.0.1", ", qers = [7]"), ["session 200", "pdrs[0].qers", "QER 7"]),
        (session(200, 50, "10.99.0.1", ""), ["session 200", "pdrs[0].teid", "session 50"]),
        (session(200, 500, "10.45.0.9", ""), ["session 200", "ue[0]", "10.45.0.9"]),
        (
            session(200, 500, "10.99.0.1", ", filters = [\"permit in ip\"]"),
            ["session 200", "pdrs[0].filters[0]", "\"in\""],
        ),
        (session(7, 500, "10.99.0.1", ""), ["session 7", "seid", "already in use"]),
    ] {
        let files = Upf::told(&format!("{base}{sessions}"));
        let start = Instant::now();
        let output = files.command("upf", "null:", "null:", &[]).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("upf.toml"), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
