//! Programs, containers and checks that the tests share.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use dray_lab::link::LinkOptions;
use dray_lab::{Cancel, ContainerId, Lab, LinkKind, placement};
use dray_upf::Counters;
use dray_upf::api::{Client, Stats};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{self, DRAY, Started, eventually, serves};

/// Configuration in which only our own Ethernet addresses are known beforehand.
pub(crate) const CONFIG: &str = r#"
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

pub(crate) const V4: &str = "gnbs = [\"10.0.3.2\", \"10.0.3.3\"]\nue = \"10.45.0.1\"\n";
pub(crate) const V6: &str = "gnbs = [\"fd00:3::2\"]\nue = \"2001:db8:45::/64\"\n";

pub(crate) struct Upf {
    directory: tempfile::TempDir,
}

impl Upf {
    pub(crate) fn with_config(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("upf.toml"), config).unwrap();
        Self { directory }
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub(crate) fn command(&self, name: &str, n3: &str, n6: &str, more: &[&str]) -> Command {
        let mut command = common::command();
        let config = self.at("upf.toml");
        command.args([name, "--n3", n3, "--n6", n6, "--config", &config]).args(more);
        if name == "upf" {
            command.args(["--control", &self.at("upf.sock")]);
        }
        // A process that outlives the test must not keep the test's own output open.
        let said = File::options().append(true).create(true).open(self.at("stderr"));
        command.stdout(Stdio::piped()).stderr(said.unwrap()).stdin(Stdio::null());
        command
    }

    /// Starts a process that ends with the test, whether the test succeeds or fails.
    pub(crate) fn start(
        &self,
        name: &str,
        n3: &str,
        n6: &str,
        more: &[&str],
    ) -> io::Result<Process> {
        let started = self.command(name, n3, n6, more).arg("--json").spawn().map(Started)?;
        let control = (name == "upf").then(|| self.at("upf.sock").into());
        Ok(Process { started: Some(started), control })
    }

    /// Returns what all started processes have said on standard error.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.at("stderr")).unwrap()
    }

    pub(crate) fn talk(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = common::command();
        command.arg("upf").args(arguments).args(["--control", &self.at("upf.sock")]);
        command.output().unwrap()
    }

    /// Sends a request that must succeed. Returns the reply, if there is one.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Value {
        let output = self.talk(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Sends a request that must be refused. Returns the error message.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.talk(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// A process that ends with the test. Before a user plane function ends, its counters must add up.
pub(crate) struct Process {
    started: Option<Started>,
    /// Control socket of a user plane function.
    control: Option<PathBuf>,
}

impl Process {
    pub(crate) fn started(&self) -> &Started {
        self.started.as_ref().expect("until it is taken")
    }

    fn check(&self) {
        let listening = self.control.iter().filter(|control| serves(control));
        listening.for_each(|control| check_adds_up(control));
    }
}

impl From<Process> for Started {
    fn from(mut process: Process) -> Self {
        process.check();
        process.started.take().expect("it is taken once")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.started.is_some() && !std::thread::panicking() {
            self.check();
        }
    }
}

/// Checks that the user plane function at `control` accounts for every frame that arrived.
pub(crate) fn check_adds_up(control: &Path) {
    let client = Client::new(control);
    let mut last = Stats::default();
    // Numbers that are read while a worker publishes may be of different moments.
    let do_add_up = || {
        last = client.stats().expect("counters");
        [&last.uplink, &last.downlink].into_iter().all(add_up)
    };
    assert!(eventually(do_add_up), "{last:?}");
}

fn add_up(counters: &Counters) -> bool {
    let Counters { rx_packets, tx_packets, buffered, consumed, drops, .. } = counters;
    *rx_packets == tx_packets + buffered + consumed + drops.total()
}

/// Returns the standard output of a process, and its exit status.
pub(crate) fn finished(process: impl Into<Started>) -> (String, ExitStatus) {
    let mut process = process.into();
    let mut text = String::new();
    process.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    (text, process.0.wait().unwrap())
}

pub(crate) fn report(process: impl Into<Started>) -> Value {
    let (text, status) = finished(process);
    assert!(status.success(), "{status}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Ends a user plane function, and returns its last counters.
pub(crate) fn interrupted(process: impl Into<Started>) -> Value {
    let process = process.into();
    common::signal(&process.0, Signal::INT);
    let last = report(process);
    let stats: Stats = serde_json::from_value(last.clone()).expect("counters");
    assert!(add_up(&stats.uplink) && add_up(&stats.downlink), "{last}");
    last
}

pub(crate) fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value}"))
}

/// Checks that every packet came back intact, and that the user plane function's counters agree.
pub(crate) fn check(load: &Value, upf: &Value) {
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
pub(crate) fn hosts() -> (Lab, [ContainerId; 2]) {
    let mut lab = Lab::new(DRAY.into(), Cancel::default()).unwrap();
    let ids = ["upf", "load"].map(|name| lab.start_container(name, &placement::allowed()).unwrap());
    lab.wait_until_up().unwrap();
    for _ in 0..2 {
        lab.link(LinkKind::VETH, &[[ids[0], ids[1]]], LinkOptions::of_mtu(1500)).unwrap();
    }
    (lab, ids)
}

pub(crate) fn wait_for_thread(process: &Process, name: &str) {
    let tasks = format!("/proc/{}/task", process.started().0.id());
    let is_there = || {
        let tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        let mut names =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.any(|found| found.trim() == name)
    };
    assert!(eventually(is_there), "no thread {name}");
}

/// Checks that each worker received its share.
pub(crate) fn check_workers(upf: &Value) {
    for workers in ["uplink_workers", "downlink_workers"] {
        let received: Vec<_> = upf[workers].as_array().unwrap().iter().collect();
        assert_eq!(received.len(), 2, "{upf}");
        assert!(received.iter().all(|count| count.as_u64() > Some(100)), "{upf}");
    }
}
