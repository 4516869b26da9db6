//! Simulations of ns-3 at both ends: over each kind of port, and in `dray bench`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use dray_lab::peer::find_ns3;
use dray_results::{Outcome, Results};
use rustix::process::Signal;

use crate::common::veths::Veths;
use crate::common::{self, alone, eventually, listens};

/// Number of packets of a run.
const PACKETS: u64 = 1000;

/// Returns from the calling test, counted as skipped, if ns-3 is not built.
macro_rules! require_ns3 {
    () => {
        require_root!();
        if find_ns3().is_none() {
            common::skip("no ns-3 program: make ns-3, see docs/ns-3.md");
            return;
        }
    };
}

/// The device that ns-3 has without dray.
const OWN: &str = "ns-3's own";

/// A program that is killed at the end of its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One end of a path, with its log.
struct Simulation {
    program: Running,
    log: PathBuf,
}

impl Simulation {
    fn start(veths: &Veths, folder: &Path, role: &str, port: &str) -> Self {
        let own = if role == "sender" { [1, 2] } else { [2, 1] };
        let [mac, peer_mac] = own.map(|number| format!("02:00:00:00:00:0{number}"));
        let [address, peer] = own.map(|number| format!("198.18.0.{number}"));
        let log = folder.join(role);
        let mut command = Command::new(find_ns3().unwrap());
        command.args([
            format!("--port={port}"),
            format!("--role={role}"),
            format!("--mac={mac}"),
            format!("--peerMac={peer_mac}"),
            format!("--address={address}"),
            format!("--peer={peer}"),
            "--rate=2000".to_owned(),
            "--interval=0.2".to_owned(),
            "--paused=1".to_owned(),
            format!("--pcap={}", folder.join(format!("{role}.pcap")).display()),
        ]);
        command.arg(format!("--count={PACKETS}"));
        let file = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stderr(file.try_clone().unwrap()).stdout(file);
        let program = Running(veths.0.enter(|| command.spawn()).unwrap());
        Self { program, log }
    }

    fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn wait_for_output(&self, words: &str) {
        assert!(eventually(|| self.output().contains(words)), "{words}: {}", self.output());
    }

    /// Waits until the program has ended; returns the line of its counts.
    fn counts(&mut self) -> serde_json::Value {
        let ended = eventually(|| self.program.0.try_wait().unwrap().is_some());
        let output = self.output();
        assert!(ended, "{output}");
        serde_json::from_str(output.lines().last().unwrap_or_default()).expect(&output)
    }
}

/// Sends packets from one port to another one: each of them arrives. The socket of ns-3's own
/// device holds 250 packets, so on a busy machine it may drop some, which it counts.
fn pass(veths: &Veths, folder: &Path, kind: &str, ports: [&str; 2]) {
    let [from, to] = ports.map(|port| port.replace("F/", &format!("{}/", folder.display())));
    let mut receiver = Simulation::start(veths, folder, "receiver", &to);
    receiver.wait_for_output("open\n");
    let mut sender = Simulation::start(veths, folder, "sender", &from);
    sender.wait_for_output("ready\n");
    receiver.wait_for_output("ready\n");
    if kind == "memif" {
        // testpmd serves a client some 50 ms after both have connected, and drops frames until
        // then.
        sleep(Duration::from_secs(1));
    }
    common::signal(&sender.program.0, Signal::USR1);
    let sent = sender.counts();
    // Samples of the receiver tell when all are there.
    let all = format!(" {PACKETS} ");
    let there = eventually(|| receiver.output().contains(&all));
    common::signal(&receiver.program.0, Signal::TERM);
    let got = receiver.counts();
    let dropped = if kind == OWN { got["port_dropped"].as_u64().unwrap() } else { 0 };
    assert!(there || dropped > 0, "{kind}: {sent} {got}");
    let received = PACKETS - dropped;
    for (counts, key, number) in [
        (&sent, "sent", PACKETS),
        (&sent, "dropped", 0),
        (&sent, "port_dropped", 0),
        (&got, "received", received),
        (&got, "bytes", 64 * received),
        (&got, "port_dropped", dropped),
    ] {
        assert_eq!(counts[key], number, "{kind}: {key}: {sent} {got}");
    }
    assert!(received > 0, "{kind}: {got}");
    // The trace sources of both devices had each frame, with its Ethernet header.
    for (role, frames) in [("sender", PACKETS), ("receiver", received)] {
        let length = fs::metadata(folder.join(role).with_extension("pcap")).unwrap().len();
        assert_eq!(length, 24 + frames * (16 + 64), "{kind}: {role}");
    }
}

#[test]
fn simulations_exchange_every_packet_over_each_kind_of_port() {
    let _alone = alone();
    require_ns3!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let veths = Veths::new(1, &[["v1", "v2"]]);
    for (kind, ports) in [
        (OWN, ["fd:v1", "fd:v2"]),
        ("raw", ["raw:v1", "raw:v2"]),
        ("afxdp", ["afxdp:v1", "afxdp:v2"]),
        ("unix", ["unix:F/u1?peer=F/u2", "unix:F/u2?peer=F/u1"]),
        ("direct", ["virtio:F/d", "vhost:F/d"]),
        ("packed", ["virtio:F/p?packed=1", "vhost:F/p"]),
    ] {
        pass(&veths, folder, kind, ports);
    }

    let path = |name: &str| folder.join(name);
    let mut switch = common::command();
    switch.arg("switch").arg("--control").arg(path("control"));
    let ports = ["s1", "s2"].map(|name| format!("{name}=vhost:{}", path(name).display()));
    switch.args(ports).stdout(Stdio::null()).stderr(Stdio::null());
    let _switch = Running(switch.spawn().unwrap());
    assert!(eventually(|| ["s1", "s2"].iter().all(|name| listens(path(name)))));
    pass(&veths, folder, "through our switch", ["virtio:F/s1", "virtio:F/s2?size=2048"]);

    let mut testpmd = Command::new("dpdk-testpmd");
    testpmd.args(["--no-pci", "--no-huge", "-m", "256", "--no-shconf", "--no-telemetry"]);
    for (number, name) in ["m1", "m2"].iter().enumerate() {
        let socket = path(name);
        let device = format!("role=server,socket={},socket-abstract=no", socket.display());
        testpmd.arg("--vdev").arg(format!("net_memif{number},{device}"));
    }
    testpmd.args(["--", "--forward-mode=io", "--auto-start", "--no-mlockall", "-i"]);
    testpmd.args(["--total-num-mbufs=16384"]).stdin(Stdio::piped());
    match testpmd.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(testpmd) => {
            let _testpmd = Running(testpmd);
            assert!(eventually(|| ["m1", "m2"].iter().all(|name| path(name).exists())));
            // With room for all packets: testpmd drops a frame that does not fit.
            let ports = ["memif:F/m1?size=2048", "memif:F/m2?size=2048"];
            pass(&veths, folder, "memif", ports);
        }
        Err(error) => common::note_skip(&format!("ns-3 over memif: dpdk-testpmd: {error}")),
    }
}

#[test]
fn simulation_error_gives_reason_of_port() {
    let _alone = alone();
    require_ns3!();
    let program = find_ns3().unwrap();
    for (arguments, status, why) in [
        (&["--port=raw:nowhere"][..], 1, "dray-ns3: port raw:nowhere: interface index"),
        (&["--port=fd:nowhere"], 1, "dray-ns3: fd:nowhere: No such device"),
        (&["--port=ray:eth0"], 1, "unknown scheme"),
        (&["--port=null:", "--mtu=9100", "--size=64"], 1, "Mtu"),
        (&["--port=null:", "--role=both"], 2, "--role=sender or receiver"),
        (&["--port=null:", "--rate=-1"], 2, "--rate and --duration from 0"),
        (&["--port=null:", "--batch=0"], 2, "--batch from 1 to 256"),
        (&[], 2, "dray-ns3: give --port"),
    ] {
        let output = Command::new(&program).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {stderr}");
        assert!(stderr.contains(why), "{arguments:?}: {stderr}");
    }
}

/// The example of a simulated network between two containers: each of its four stations routes.
#[test]
fn packets_cross_a_simulated_mesh() {
    let _alone = alone();
    require_ns3!();
    let program = find_ns3().unwrap().with_file_name("dray-ns3-mesh");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/ns3-mesh.toml");
    let text = fs::read_to_string(example).unwrap();
    let command = "PATH=$PATH:../target/ns3/bin exec dray-ns3-mesh";
    assert!(text.contains(command), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ns3-mesh-test.toml");
    fs::write(&file, text.replace(command, &format!("exec {}", program.display()))).unwrap();
    common::success(&["lab", "up", file.to_str().unwrap()]);
    let routed =
        || common::success(&["lab", "logs", "--lab", "ns3-mesh-test", "mesh"]).contains("routed");
    let found = common::eventually(routed);
    let ping = "lab exec --lab ns3-mesh-test left -- ping -c 3 -W 5 10.1.2.1";
    let output = common::command().args(ping.split(' ')).output().unwrap();
    let down = common::success(&["lab", "down", "ns3-mesh-test"]);
    assert!(found, "{down}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("3 received") && said.contains("ttl=60"), "{said}");
}

#[test]
fn bench_accounts_for_every_packet_of_simulations() {
    let _alone = alone();
    require_ns3!();
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    common::success(&[
        "bench",
        "casoni2013-ns3",
        "--quick",
        "--trials",
        "1",
        "--duration",
        "0.4",
        "--rate",
        "2k",
        "--technique",
        "veth/ns3-fd,bridge/ns3-raw,direct/ns3-virtio-bare,switch/patch/ns3-virtio",
        "--json",
        json.to_str().unwrap(),
    ]);
    let results: Results = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(results.results.len(), 4 * 7, "chains of 0 to 6 forwarders");
    for row in &results.results {
        let Outcome::Measured(measured) = &row.outcome else { panic!("{row:?}") };
        assert_eq!((measured.sent, measured.loss_ratio), (measured.received, 0.0), "{row:?}");
        assert!(measured.received > 500, "{row:?}");
        assert_ne!(measured.counters_agree, Some(false), "{row:?}");
    }
}
