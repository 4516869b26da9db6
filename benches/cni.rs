//! Time of ADD and DEL of the CNI plugin while a node has many attachments: the process from its
//! start to its end, with addresses of host-local. `scripts/setup-cni.sh` builds host-local.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_lab::NetworkNamespace;
use dray_switch::client::Client;
use dray_traffic::Latency;
use serde_json::json;

/// Number of attachments that the node has.
const ATTACHMENTS: usize = 250;
const DRAY: &str = env!("CARGO_BIN_EXE_dray");
const TOOLS: &str = "/var/cache/dray/cni";

struct Node {
    folder: tempfile::TempDir,
    switch: Child,
}

fn main() {
    if !Path::new(TOOLS).join("host-local").exists() {
        println!("skipped: host-local is not in {TOOLS}; scripts/setup-cni.sh builds it");
        return;
    }
    let node = Node::start();
    for kind in ["tap", "virtio"] {
        let pods: Vec<_> =
            (0..ATTACHMENTS).map(|_| NetworkNamespace::scratch().expect("root")).collect();
        let [mut added, mut deleted] = [Latency::default(), Latency::default()];
        for (at, pod) in pods.iter().enumerate() {
            node.call("ADD", kind, at, pod);
        }
        // Replace each once, so that all but one are there in each measurement.
        for (at, pod) in pods.iter().enumerate() {
            deleted.record(node.call("DEL", kind, at, pod));
            added.record(node.call("ADD", kind, at, pod));
        }
        for (at, pod) in pods.iter().enumerate() {
            node.call("DEL", kind, at, pod);
        }
        for (verb, times) in [("ADD", &added), ("DEL", &deleted)] {
            let times = times.percentiles().expect("some");
            let [p50, p99, max] = [times.p50, times.p99, times.max].map(|time| time as f64 / 1e6);
            println!("{kind} {verb}: p50 {p50:.1}, p99 {p99:.1}, max {max:.1} ms");
        }
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

    /// Calls the plugin for attachment `at`; returns the time that it took.
    fn call(&self, verb: &str, kind: &str, at: usize, pod: &NetworkNamespace) -> Duration {
        let ranges = json!([[{"subnet": "10.1.0.0/16"}]]);
        let ipam = json!({
            "type": "host-local", "dataDir": self.folder.path().join("ipam"), "ranges": ranges,
        });
        let network = json!({
            "cniVersion": "1.1.0", "name": "n", "type": "dray", "kind": kind, "ipam": ipam,
        });
        let input = self.folder.path().join("input");
        fs::write(&input, network.to_string()).expect("a file");
        let mut plugin = Command::new(DRAY);
        plugin
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", format!("c{at}"))
            .env("CNI_IFNAME", "eth0")
            .env(
                "CNI_NETNS",
                format!("/proc/{}/fd/{}", std::process::id(), pod.as_fd().as_raw_fd()),
            )
            .env("CNI_PATH", TOOLS)
            .env("DRAY_CONTROL_DIR", self.folder.path().join("run"))
            .stdin(File::open(&input).expect("a file"));
        let start = Instant::now();
        let output = plugin.output().expect("dray");
        let took = start.elapsed();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        took
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}
