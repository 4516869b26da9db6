//! A node: a switch, the driver, and containers.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::api_server::ApiServer;
use crate::kubelet::Kubelet;

/// Directory of the workspace whose program `dray` is the switch.
const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Returns the program `dray`: $DRAY, or the workspace's, which must have been built.
fn dray() -> PathBuf {
    let usual = || format!("{TOP}/target/debug/dray").into();
    let path = std::env::var_os("DRAY").map_or_else(usual, PathBuf::from);
    fs::canonicalize(&path).unwrap_or_else(|_| panic!("{}: run cargo build first", path.display()))
}

/// Returns from the calling test, counted as skipped, without root or Podman.
macro_rules! require_node {
    () => {
        if let Err(why) = $crate::node::has_needs() {
            $crate::node::skip(why);
            return;
        }
    };
}

pub(crate) fn has_needs() -> Result<(), &'static str> {
    if !rustix::process::geteuid().is_root() {
        return Err("a driver needs root");
    }
    let podman = Command::new("podman").arg("--version").output();
    podman.map(drop).map_err(|_| "podman is not installed: apt install podman crun")
}

/// Counts the calling test as skipped, as tests/common does.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI skips nothing, but: {why}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("SKIPPED {test}: {why}");
    if let Ok(path) = std::env::var("DRAY_SKIPPED") {
        let mut list = File::options().append(true).create(true).open(path).unwrap();
        writeln!(list, "{test}: {why}").unwrap();
    }
}

pub(crate) async fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..500 {
        if condition() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

/// A program that is killed with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Node {
    folder: tempfile::TempDir,
    pub(crate) api: ApiServer,
    switch: RefCell<Option<Started>>,
    driver: RefCell<Option<Started>>,
}

impl Node {
    pub(crate) async fn start() -> Self {
        let node = Self {
            folder: tempfile::tempdir().unwrap(),
            api: ApiServer::start(),
            switch: RefCell::default(),
            driver: RefCell::default(),
        };
        fs::create_dir(node.at("run")).unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \
             \"http://127.0.0.1:{}\"}}}}]\nusers: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, \
             context: {{cluster: c, user: u}}}}]\n",
            node.api.port
        );
        fs::write(node.at("kubeconfig"), kubeconfig).unwrap();
        node.restart_switch();
        node.restart_driver();
        node
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns what the driver and the switch have written.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.at("said")).unwrap_or_default()
    }

    fn spawn(&self, command: &mut Command) -> Option<Started> {
        let said = File::options().append(true).create(true).open(self.at("said")).unwrap();
        command.env("DRAY_CONTROL_DIR", self.at("run"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Some(Started(command.spawn().unwrap()))
    }

    pub(crate) fn kill_switch(&self) {
        drop(self.switch.take());
    }

    pub(crate) fn restart_switch(&self) {
        self.kill_switch();
        let mut command = Command::new(dray());
        *self.switch.borrow_mut() = self.spawn(command.args(["switch", "--idle", "50us"]));
        for _ in 0..500 {
            if self.dray("switch status --json").is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no switch: {}", self.said());
    }

    /// Kills the driver, if it runs, and starts it.
    pub(crate) fn restart_driver(&self) {
        drop(self.driver.take());
        let mut command = Command::new(env!("CARGO_BIN_EXE_dray-k8s"));
        command.args(["--node", "node-1"]).env("KUBECONFIG", self.at("kubeconfig"));
        for (option, name) in [
            ("--control", "run/switch.sock"),
            ("--registry", "registry"),
            ("--plugins", "plugins"),
            ("--cdi", "cdi"),
        ] {
            command.arg(option).arg(self.at(name));
        }
        *self.driver.borrow_mut() = self.spawn(&mut command);
    }

    /// Returns true if the driver has ended by itself, with an error.
    pub(crate) fn driver_has_failed(&self) -> bool {
        let mut driver = self.driver.borrow_mut();
        let status = driver.as_mut().and_then(|driver| driver.0.try_wait().unwrap());
        status.is_some_and(|status| !status.success())
    }

    /// Registers the driver once its socket answers.
    pub(crate) async fn kubelet(&self) -> Kubelet {
        let socket = self.at("registry/dray.dev-reg.sock");
        let answers = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        assert!(eventually(answers).await, "{}", self.said());
        Kubelet::register(&self.at("registry")).await
    }

    fn dray(&self, words: &str) -> Result<String, String> {
        let mut command = Command::new(dray());
        command.args(words.split(' ')).env("DRAY_CONTROL_DIR", self.at("run"));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Returns the switch's ports.
    pub(crate) fn ports(&self) -> Vec<Value> {
        serde_json::from_str(&self.dray("switch ports --json").unwrap()).unwrap()
    }

    /// Runs two Podman containers with these devices, of which the first receives what the second
    /// sends. Returns what they write.
    pub(crate) fn run_containers(&self, receiver: &[&str], sender: &[&str]) -> String {
        let options = |devices: &[&str]| {
            devices.iter().map(|device| format!("--device {device}")).collect::<Vec<_>>().join(" ")
        };
        let mut command = Command::new("timeout");
        command.args(["120", "unshare", "--mount", "--pid", "--ipc", "--uts", "--net", "--fork"]);
        command.args(["--kill-child", "--mount-proc", "bash", "-eu"]);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        command.arg(here.join("tests/claims/containers.sh"));
        let work = self.at("containers");
        fs::create_dir_all(work.join("bin")).unwrap();
        let output = command
            .current_dir(&work)
            .env("DRAY", dray())
            .env("SETUPS", format!("{TOP}/tests/cli/recipes"))
            .env("CDI", self.at("cdi"))
            .env("RECEIVER", options(receiver))
            .env("SENDER", options(sender))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{said}\n{}", self.said());
        said
    }

    /// Fails if anything of a claim is left.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.ports(), [Value::Null; 0]);
        for folder in ["run/cni", "run/vhost", "run/claims", "cdi"] {
            let names: Vec<_> =
                fs::read_dir(self.at(folder)).into_iter().flatten().flatten().collect();
            assert!(names.is_empty(), "{folder}: {names:?}");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A failed test leaves mounts.
        for entry in fs::read_dir(self.at("run/vhost")).into_iter().flatten().flatten() {
            let flags = rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(entry.path(), flags);
        }
    }
}
