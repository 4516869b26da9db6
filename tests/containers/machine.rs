//! A machine with container engines of Debian 13, in namespaces of its own: nothing that runs in it
//! outlives it, and it changes nothing outside but control groups, which it removes.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dray_switch::client::Client;
use dray_switch::{PortState, PortStatus};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{DRAY, Started, eventually, listens};
use crate::node::text;

/// Folder into which `scripts/setup-engines.sh` unpacks the engines.
const ENGINES: &str = "/var/cache/dray/engines";
const FIRST_PROCESS: &str = include_str!("machine.sh");
const IMAGE: &str = include_str!("image.sh");

/// Returns from the calling test, counted as skipped, without root or the engines.
macro_rules! require_engines {
    () => {
        require_cni!();
        if let Err(why) = $crate::machine::has_engines() {
            $crate::common::skip(&why);
            return;
        }
    };
}

pub(crate) fn has_engines() -> Result<(), String> {
    match Path::new(ENGINES).join("versions").exists() {
        true => Ok(()),
        false => Err(format!("no engines in {ENGINES}: scripts/setup-engines.sh unpacks them")),
    }
}

pub(crate) struct Machine {
    folder: tempfile::TempDir,
    /// First process of the machine. When it ends, so do all others.
    first: Option<Started>,
    pid: Pid,
    switch: RefCell<Option<Inside>>,
}

/// A process in the machine, which ends with this value.
pub(crate) struct Inside(Started);

impl Drop for Inside {
    fn drop(&mut self) {
        // The process in the PID namespace is a child of the one that entered the other namespaces.
        if let Some(pid) = child_of(&self.0.0) {
            let _ = kill_process(pid, Signal::KILL);
            let _ = self.0.0.wait();
        }
    }
}

fn child_of(process: &Child) -> Option<Pid> {
    let id = process.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

impl Machine {
    /// Starts a machine with a switch, and makes the image of its containers, `localhost/dray:1`.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("run")).unwrap();
        let mut image = Command::new("sh");
        image.args(["-c", IMAGE, "image"]).arg(folder.path()).args([DRAY, ENGINES]);
        let output = image.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        fs::copy(DRAY, folder.path().join("dray")).unwrap();
        let mut first = Command::new("unshare");
        first.args(["--mount", "--net", "--pid", "--fork", "--kill-child=KILL"]);
        first.args(["sh", "-c", FIRST_PROCESS, "first", ENGINES]).arg(folder.path());
        let said = File::create(folder.path().join("first.log")).unwrap();
        first.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        let first = Started(first.spawn().unwrap());
        let ready = eventually(|| folder.path().join("ready").exists());
        assert!(ready, "{}", fs::read_to_string(folder.path().join("first.log")).unwrap());
        let pid = child_of(&first.0).unwrap();
        let machine = Self { folder, first: Some(first), pid, switch: RefCell::default() };
        machine.start_switch();
        machine
    }

    /// Returns the path of a file in the folder that the machine shares with the test.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the parent of the control groups of containers.
    pub(crate) fn control_group(&self) -> String {
        let name = self.folder.path().file_name().unwrap().to_string_lossy();
        format!("/dray-test-{}", name.trim_start_matches('.'))
    }

    /// Returns a command that runs in the machine.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid.as_raw_nonzero().to_string()])
            .args(["--mount", "--net", "--pid", "--root", "--wd", "--"])
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env("DRAY_CONTROL_DIR", self.at("run"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command in the machine. Returns its output if it succeeds, else all that it writes.
    pub(crate) fn try_run(&self, words: &[&str]) -> Result<String, String> {
        let output: Output = self.command(words[0]).args(&words[1..]).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(text(&output)),
        }
    }

    /// Runs a command in the machine, which must succeed.
    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> String {
        self.try_run(words).unwrap_or_else(|said| panic!("{}: {said}", words.join(" ")))
    }

    /// Starts a program that writes what it says to `NAME.log`.
    pub(crate) fn spawn(&self, name: &str, command: &mut Command) -> Inside {
        let path = self.at(&format!("{name}.log"));
        let said = File::options().append(true).create(true).open(path).unwrap();
        command.stdout(said.try_clone().unwrap()).stderr(said);
        Inside(Started(command.spawn().unwrap()))
    }

    /// Returns what a program has written.
    pub(crate) fn said(&self, name: &str) -> String {
        fs::read_to_string(self.at(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Starts a daemon and waits until it accepts connections at `socket`.
    pub(crate) fn start_daemon(&self, name: &str, command: &mut Command, socket: &Path) -> Inside {
        let daemon = self.spawn(name, command);
        assert!(eventually(|| listens(socket)), "{name}: {}", self.said(name));
        daemon
    }

    pub(crate) fn dray(&self) -> Command {
        self.command(self.at("dray"))
    }

    pub(crate) fn start_switch(&self) {
        let mut command = self.dray();
        command.args(["switch", "--idle", "50us"]);
        let socket = self.at("run/switch.sock");
        *self.switch.borrow_mut() = Some(self.start_daemon("switch", &mut command, &socket));
    }

    /// Kills the switch with SIGKILL.
    pub(crate) fn kill_switch(&self) {
        drop(self.switch.take());
    }

    pub(crate) fn ports(&self) -> Vec<PortStatus> {
        Client::new(&self.at("run/switch.sock")).ports().unwrap()
    }

    /// Fails if anything of an attachment is left: records, ports.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert!(self.ports().is_empty(), "{:?}", self.ports());
        let records = fs::read_dir(self.at("run/cni")).into_iter().flatten().flatten();
        let records: Vec<_> = records.map(|entry| entry.file_name()).collect();
        assert!(records.is_empty(), "{records:?}");
        let links = self.run(&["ip", "-o", "link"]);
        assert!(!links.contains(": dray"), "{links}");
    }
}

/// Sends 10,000 frames between two containers without privileges, which get the sockets of their
/// ports as devices. `engine` runs a command of Docker or Podman.
pub(crate) fn check_devices(
    machine: &Machine,
    engine: impl Fn(&[&str]) -> Result<String, String>,
    options: &[&str],
) {
    let uri = |name: &str| format!("vhost:/run/dray/{name}/vhost.sock?mode=0666");
    let dray = machine.at("dray");
    let dray = dray.to_str().unwrap();
    for name in ["to", "from"] {
        machine.run(&[dray, "switch", "add-port", name, &uri(name)]);
    }
    machine.run(&[dray, "cdi"]);
    let run = |name: &str, role: &[&str], detach: &[&str]| {
        let device = format!("dray.dev/port={name}");
        let port = format!("virtio:/run/dray/{name}/vhost.sock");
        let words = ["run", "--name", name, "--network", "none", "--user", "65534"];
        let device = ["--device", &device, "dray:1", "/bin/dray", role[0], "--port", &port];
        let words = [&words[..], detach, options, &device, &role[1..]].concat();
        engine(&words).unwrap_or_else(|said| panic!("{}: {said}", words.join(" ")))
    };
    run("to", &["receive", "--count", "10000", "-t", "60"], &["--detach"]);
    let runs = || machine.ports()[0].state == PortState::Running;
    assert!(eventually(runs), "{:?} {:?}", machine.ports(), engine(&["logs", "to"]));
    // The switch drops frames while the receiver gets no CPU time.
    run("from", &["send", "--count", "30000", "--rate", "50k"], &[]);
    assert_eq!(engine(&["wait", "to"]).unwrap(), "0", "{:?}", machine.ports());
    engine(&["rm", "--force", "to", "from"]).unwrap();
}

/// Returns the rate in a report of iperf3, in bit/s. iperf3 exits with 0 even if the connection is
/// refused; its report then has none.
pub(crate) fn rate(report: &str) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(report).ok()?;
    report["end"]["sum_received"]["bits_per_second"].as_f64()
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_switch();
        drop(self.first.take());
        // Version 2 has one hierarchy, version 1 one for each controller.
        let mut hierarchies = vec![PathBuf::from("/sys/fs/cgroup")];
        let controllers = fs::read_dir(&hierarchies[0]).into_iter().flatten().flatten();
        hierarchies.extend(controllers.map(|entry| entry.path()).filter(|path| path.is_dir()));
        let name = self.control_group();
        for hierarchy in hierarchies {
            let group = hierarchy.join(name.trim_start_matches('/'));
            // The machine's last processes may not have ended yet.
            eventually(|| !group.exists() || remove_group(&group).is_ok());
        }
    }
}

fn remove_group(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.path().is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
