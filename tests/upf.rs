//! The user plane function between gNBs and a data network: another process, real links, and a load
//! that checks every packet.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{DRAY, alone, eventually};
use dray_lab::link::LinkOptions;
use dray_lab::{Cancel, ContainerId, Lab, LinkKind, placement};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Nobody's Ethernet address is known beforehand but our own.
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
        let mut command = Command::new(DRAY);
        let config = self.at("upf.toml");
        command.args([name, "--n3", n3, "--n6", n6, "--json", "--config", &config]).args(more);
        command.stdout(Stdio::piped());
        command
    }
}

fn report(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn interrupted(child: Child) -> Value {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    report(child)
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value}"))
}

/// Every packet came back right, and the user plane function says the same.
fn check(load: &Value, upf: &Value) {
    for way in ["uplink", "downlink"] {
        let sent = number(load, &format!("/{way}/sent"));
        assert!(sent > 100, "{load}");
        assert_eq!(number(load, &format!("/{way}/received")), sent, "{load} {upf}");
        for wrong in ["reordered", "wrong_address", "wrong_teid", "wrong_qfi", "wrong_packet"] {
            assert_eq!(number(load, &format!("/{way}/{wrong}")), 0, "{load}");
        }
        assert_eq!(number(upf, &format!("/{way}/tx_packets")), sent, "{upf}");
    }
}

/// A container for the user plane function, one for all others, and two wires between them.
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

fn wait_for_thread(child: &Child, name: &str) {
    let tasks = format!("/proc/{}/task", child.id());
    let is_there = || {
        let tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        let mut names =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.any(|found| found.trim() == name)
    };
    assert!(eventually(is_there), "no thread {name}");
}

#[test]
fn every_packet_passes_between_packet_sockets() {
    let _alone = alone();
    require_root!();
    let (lab, [upf, load]) = hosts();
    for (ends, size) in [(V4, "512"), (V4, "1400"), (V6, "300")] {
        let files = Upf::told(&format!("{CONFIG}{ends}"));
        let ports = ("raw:eth0?batch=64", "raw:eth1?batch=64");
        let start = |host: ContainerId, name: &str, more: &[&str]| {
            let mut command = files.command(name, ports.0, ports.1, more);
            lab[host].namespace().enter(|| command.spawn()).unwrap()
        };
        let load_options = ["--rate", "5k", "--duration", "0.5", "--size", size];
        let load = start(load, "upf-load", &load_options);
        wait_for_thread(&load, "role");
        let upf = start(upf, "upf", &[]);
        check(&report(load), &interrupted(upf));
    }
}

/// Through shared memory, both sides over one switch; slow enough for rings to hold what comes while
/// others have the CPUs.
#[test]
fn every_packet_passes_over_our_switch() {
    let _alone = alone();
    let files = Upf::told(&format!("{CONFIG}{V4}"));
    let port = |name: &str| format!("{name}=vhost:{}", files.at(name));
    let mut switch = Command::new(DRAY);
    switch.args(["switch", "--mode", "patch", "--control", &files.at("control")]);
    for name in ["n3", "gnb", "n6", "dn"] {
        switch.args(["--port", &port(name)]);
    }
    let mut switch = switch.spawn().unwrap();
    assert!(eventually(|| Path::new(&files.at("dn")).exists()));
    let virtio = |name: &str| format!("virtio:{}?wait=poll", files.at(name));
    let load_options = ["--rate", "1k", "--duration", "0.5"];
    let mut load = files.command("upf-load", &virtio("gnb"), &virtio("dn"), &load_options);
    let load = load.spawn().unwrap();
    wait_for_thread(&load, "role");
    let upf = files.command("upf", &virtio("n3"), &virtio("n6"), &[]).spawn().unwrap();
    let report = report(load);
    let upf = interrupted(upf);
    kill_process(Pid::from_child(&switch), Signal::TERM).unwrap();
    switch.wait().unwrap();
    check(&report, &upf);
}

#[test]
fn a_wrong_configuration_is_refused_as_a_whole() {
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
            ["filters[0]", "\"in\"", "line"],
        ),
        (session(7, 500, "10.99.0.1", ""), ["session 7", "seid", "twice"]),
    ] {
        let files = Upf::told(&format!("{base}{sessions}"));
        let start = Instant::now();
        let output = files.command("upf", "null:", "null:", &[]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("upf.toml"), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
