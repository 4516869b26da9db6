//! Time of ADD and DEL of the CNI plugin while a node has many attachments: the process from its
//! start to its end, with addresses of host-local. And rates between two pods on our switch, beside
//! those between two on a bridge, as the `bridge` plugin connects them: one TCP stream of iperf3
//! by interfaces, and datagrams in frames of 64 bytes, to our switch by memif.
//! `scripts/setup-cni.sh` builds the other plugins.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_lab::NetworkNamespace;
use dray_switch::client::Client;
use dray_traffic::{Latency, line};
use serde_json::{Value, json};

/// Number of attachments that the node has.
const ATTACHMENTS: usize = 250;
/// Number of turns for rates, in each of which both networks are measured, and seconds for each.
const TURNS: usize = 10;
const SECONDS: &str = "2";
const DRAY: &str = env!("CARGO_BIN_EXE_dray");
const TOOLS: &str = "/var/cache/dray/cni";

struct Node {
    folder: tempfile::TempDir,
    switch: Child,
}

/// A pod with an attachment.
struct Pod {
    namespace: NetworkNamespace,
    mac: String,
    address: String,
}

fn main() {
    if !Path::new(TOOLS).join("host-local").exists() {
        println!("skipped: host-local is not in {TOOLS}; scripts/setup-cni.sh builds it");
        return;
    }
    let node = Node::start();
    for kind in ["tap", "virtio"] {
        times(&node, kind);
    }
    let host = NetworkNamespace::scratch().expect("root");
    let bridge = node.network("bridge", &json!({"bridge": "cni0"}), "10.2.0.0/16");
    let on_bridge = ["x", "y"].map(|name| node.attach(&host, "bridge", name, &bridge));
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    let tap = node.network("dray", &json!({"kind": "tap"}), "10.1.0.0/16");
    let on_switch = ["s", "t"].map(|name| node.attach(&host, "dray", name, &tap));
    let mut apart = Vec::new();
    for _ in 0..TURNS {
        apart.extend(distance());
        ours.push(tcp(&on_switch));
        theirs.push(tcp(&on_bridge));
    }
    compare("TCP, Gb/s: tap pods on our switch, pods on a bridge", &mut ours, &mut theirs, 1e9);
    print_distances(apart);
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    let memif = node.network("dray", &json!({"kind": "memif"}), "10.3.0.0/16");
    let on_switch = ["u", "v"].map(|name| node.attach(&host, "dray", name, &memif));
    let addresses = ["--src-mac", &on_switch[1].mac, "--dst-mac", &on_switch[0].mac];
    let socket = "memif:@dray/eth0".to_owned();
    let [to, from] = [&on_bridge[0], &on_bridge[1]].map(|pod| format!("{}:9000", pod.address));
    let mut apart = Vec::new();
    for _ in 0..TURNS {
        apart.extend(distance());
        ours.push(frames(&on_switch, [&socket, &socket], &addresses));
        let ports = [format!("udp:{to}?batch=64"), format!("udp:{from}-{to}?batch=64")];
        theirs.push(frames(&on_bridge, [&ports[0], &ports[1]], &[]));
    }
    compare("64 B, Mpps: memif pods on our switch, UDP on a bridge", &mut ours, &mut theirs, 1e6);
    print_distances(apart);
}

/// Returns the time that a cache line takes from the first CPU to the second and back, in
/// nanoseconds.
fn distance() -> Option<f64> {
    line::round_trip_ns(0, 1).expect("two CPUs")
}

/// Prints how far apart the CPUs were before the turns.
fn print_distances(mut apart: Vec<f64>) {
    apart.sort_unstable_by(f64::total_cmp);
    if let [least, .., most] = apart[..] {
        println!("    cache line between CPUs 0 and 1: {least:.0} to {most:.0} ns");
    }
}

/// Measures ADD and DEL of attachments of a kind.
fn times(node: &Node, kind: &str) {
    let network = node.network("dray", &json!({"kind": kind}), "10.1.0.0/16");
    let pods: Vec<_> =
        (0..ATTACHMENTS).map(|_| NetworkNamespace::scratch().expect("root")).collect();
    let call = |verb: &str, at: usize| {
        let plugin = Path::new(DRAY);
        node.call(plugin, verb, &format!("c{at}"), &pods[at], &network).1
    };
    let [mut added, mut deleted] = [Latency::default(), Latency::default()];
    for at in 0..pods.len() {
        call("ADD", at);
    }
    // Replace each once, so that all but one are there in each measurement.
    for at in 0..pods.len() {
        deleted.record(call("DEL", at));
        added.record(call("ADD", at));
    }
    for at in 0..pods.len() {
        call("DEL", at);
    }
    for (verb, times) in [("ADD", &added), ("DEL", &deleted)] {
        let times = times.percentiles().expect("some");
        let [p50, p99, max] = [times.p50, times.p99, times.max].map(|time| time as f64 / 1e6);
        println!("{kind} {verb}: p50 {p50:.1}, p99 {p99:.1}, max {max:.1} ms");
    }
}

/// Returns the goodput of one TCP stream between two pods, in bit/s.
fn tcp([server, client]: &[Pod; 2]) -> f64 {
    let mut command = Command::new("iperf3");
    let listening = server.start(command.args(["-s", "-1"]));
    sleep(Duration::from_millis(300));
    let mut command = Command::new("iperf3");
    command.args(["-c", &server.address, "-t", SECONDS, "-O", "0.3", "-J"]);
    let report = json(&client.start(&mut command).wait_with_output().expect("iperf3"));
    listening.wait_with_output().expect("iperf3");
    report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate")
}

/// Returns the rate of received frames of 64 bytes between ports of two pods, per second.
fn frames([to, from]: &[Pod; 2], ports: [&str; 2], addresses: &[&str]) -> f64 {
    let mut command = Command::new(DRAY);
    command.args(["receive", "--sampled", "--json", "-i", "0", "-t", "3", "--port", ports[0]]);
    let receiver = to.start(&mut command);
    sleep(Duration::from_millis(300));
    let mut command = Command::new(DRAY);
    command.args(["send", "-i", "0", "-t", SECONDS, "--port", ports[1]]).args(addresses);
    from.start(&mut command).wait_with_output().expect("dray");
    let report = json(&receiver.wait_with_output().expect("dray"));
    let arrivals = &report["receive"]["arrivals"];
    let [frames, ns] = ["frames", "ns"].map(|key| arrivals[key].as_f64().expect("a number"));
    frames / ns * 1e9
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Prints the medians of both, in units of `unit`, and the median of the ratios by turn.
fn compare(what: &str, ours: &mut [f64], theirs: &mut [f64], unit: f64) {
    let mut ratios: Vec<_> =
        ours.iter().zip(&*theirs).map(|(ours, theirs)| ours / theirs).collect();
    let median = |figures: &mut [f64]| {
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let ratio = median(&mut ratios);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    let [ours, theirs] = [ours, theirs].map(|figures| median(figures) / unit);
    println!("{what}: {ours:.2} and {theirs:.2}, ratio {ratio:.2} ({least:.2} to {most:.2})");
}

impl Pod {
    /// Starts a program in the pod's network.
    fn start(&self, command: &mut Command) -> Child {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.namespace.enter(|| command.spawn()).expect("iperf3, from scripts/setup.sh bench")
    }
}

impl Node {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let run = folder.path().join("run");
        fs::create_dir(&run).expect("a directory");
        let mut switch = Command::new(DRAY);
        switch.arg("switch").env("DRAY_CONTROL_DIR", &run);
        switch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let switch = switch.spawn().expect("dray");
        let client = Client::new(&run.join("switch.sock"));
        while client.status().is_err() {
            sleep(Duration::from_millis(10));
        }
        Self { folder, switch }
    }

    /// Returns a configuration of a plugin, with further keys and addresses of a range.
    fn network(&self, plugin: &str, keys: &Value, range: &str) -> Value {
        let mut network = json!({
            "cniVersion": "1.0.0", "name": range.replace('/', "-"), "type": plugin,
            "ipam": {
                "type": "host-local",
                "dataDir": self.folder.path().join("ipam"),
                "ranges": [[{"subnet": range}]],
            },
        });
        let object = network.as_object_mut().expect("an object");
        object.extend(keys.as_object().expect("an object").clone());
        network
    }

    /// Attaches a new pod by a plugin that runs in the network of `host`.
    fn attach(&self, host: &NetworkNamespace, plugin: &str, name: &str, network: &Value) -> Pod {
        let plugin = match plugin {
            "dray" => Path::new(DRAY).to_owned(),
            other => Path::new(TOOLS).join(other),
        };
        let namespace = NetworkNamespace::scratch().expect("root");
        let add = || Ok(self.call(&plugin, "ADD", name, &namespace, network).0);
        let result = host.enter(add).expect("a thread");
        let address = result["ips"][0]["address"].as_str().expect("an address");
        let address = address.split('/').next().expect("a part").to_owned();
        let interfaces = result["interfaces"].as_array().expect("interfaces");
        let inside = interfaces.iter().find(|interface| interface["sandbox"].is_string());
        let mac = inside.expect("the pod's")["mac"].as_str().expect("a MAC address").to_owned();
        Pod { namespace, mac, address }
    }

    /// Calls a plugin for a container; returns its result and the time that it took.
    fn call(
        &self,
        plugin: &Path,
        verb: &str,
        container: &str,
        pod: &NetworkNamespace,
        network: &Value,
    ) -> (Value, Duration) {
        let input = self.folder.path().join("input");
        fs::write(&input, network.to_string()).expect("a file");
        let mut command = Command::new(plugin);
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", container)
            .env("CNI_IFNAME", "eth0")
            .env(
                "CNI_NETNS",
                format!("/proc/{}/fd/{}", std::process::id(), pod.as_fd().as_raw_fd()),
            )
            .env("CNI_PATH", TOOLS)
            .env("DRAY_CONTROL_DIR", self.folder.path().join("run"))
            .stdin(File::open(&input).expect("a file"));
        let start = Instant::now();
        let output = command.output().expect("the plugin");
        let took = start.elapsed();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        (serde_json::from_slice(&output.stdout).unwrap_or_default(), took)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}
