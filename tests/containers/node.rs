//! A node: a switch, network namespaces that stand for containers, and the plugin, called directly
//! or by `cnitool`.

use std::cell::{Cell, RefCell};
use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dray_lab::NetworkNamespace;
use dray_switch::PortStatus;
use dray_switch::client::Client;
use serde_json::{Value, json};

use crate::common::{self, DRAY, Started, eventually};

/// Where `scripts/setup-cni.sh` puts cnitool and host-local.
pub(crate) const TOOLS: &str = "/var/cache/dray/cni";
/// Where cnitool keeps results.
const RESULTS: &str = "/var/lib/cni/results";

/// Returns from the calling test, counted as skipped, without root or the tools.
macro_rules! require_cni {
    () => {
        require_root!();
        if let Err(why) = $crate::node::has_tools() {
            $crate::common::skip(&why);
            return;
        }
    };
}

pub(crate) fn has_tools() -> Result<(), String> {
    let missing =
        ["cnitool", "host-local"].into_iter().find(|tool| !Path::new(TOOLS).join(tool).exists());
    missing.map_or(Ok(()), |tool| {
        Err(format!("{tool} is not in {TOOLS}: scripts/setup-cni.sh builds it, with Go"))
    })
}

pub(crate) struct Node {
    folder: tempfile::TempDir,
    switch: RefCell<Option<Started>>,
    network: String,
    version: Cell<&'static str>,
    /// User of the switch.
    user: &'static str,
}

/// A network namespace that stands for a container.
pub(crate) struct Pod {
    pub(crate) namespace: NetworkNamespace,
}

impl Pod {
    pub(crate) fn new() -> Self {
        Self { namespace: NetworkNamespace::scratch().unwrap() }
    }

    /// Returns the file of its network namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_fd().as_raw_fd())
    }

    /// Starts a command in the container.
    pub(crate) fn start(&self, command: &mut Command) -> Started {
        Started(self.namespace.enter(|| command.spawn()).unwrap())
    }

    /// Runs a command in the container, which must succeed; returns what it writes.
    #[track_caller]
    pub(crate) fn run(&self, words: &str) -> String {
        let (succeeded, said) = self.try_run(words);
        assert!(succeeded, "{words}: {said}");
        said
    }

    /// Runs a command in the container. Returns true if it succeeds, and what it writes.
    pub(crate) fn try_run(&self, words: &str) -> (bool, String) {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null());
        let output = self.namespace.enter(|| command.output()).unwrap();
        (output.status.success(), text(&output))
    }

    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.enter(|| Ok(work())).unwrap()
    }
}

pub(crate) fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams.map(|stream| String::from_utf8_lossy(stream).into_owned()).concat()
}

/// Runs a command. Returns what it wrote to its output, or all that it wrote if it fails.
pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(text(&output)),
    }
}

impl Node {
    /// Starts a switch of root.
    pub(crate) fn start() -> Self {
        Self::start_as("root")
    }

    /// Starts a switch that root starts, as `user`.
    pub(crate) fn start_as(user: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["run", "bin", "net.d"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink(DRAY, folder.path().join("bin/dray-cni")).unwrap();
        let network = folder.path().file_name().unwrap().to_str().unwrap().replace('.', "");
        let node = Self {
            folder,
            switch: RefCell::default(),
            network: format!("dray-{network}"),
            version: Cell::new("1.1.0"),
            user,
        };
        if user != "root" {
            // As /run/dray.
            for (path, mode) in [(node.folder.path().to_owned(), 0o755), (node.at("run"), 0o1777)] {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
        }
        node.start_switch();
        node
    }

    /// Adds and removes ports, so that the switch has opened what it keeps open.
    pub(crate) fn warm_up(&self) {
        let pod = Pod::new();
        for kind in ["tap", "virtio", "vhost", "memif"] {
            for verb in ["ADD", "DEL"] {
                self.call(verb, "warm", &pod.path(), &json!({"kind": kind})).unwrap();
            }
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn set_version(&self, version: &'static str) {
        self.version.set(version);
    }

    pub(crate) fn start_switch(&self) {
        let said = File::options().append(true).create(true).open(self.at("switch.log")).unwrap();
        let mut command = common::command();
        command
            .args(["switch", "--idle", "50us", "--user", self.user])
            .env("DRAY_CONTROL_DIR", self.at("run"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        *self.switch.borrow_mut() = Some(Started(command.spawn().unwrap()));
        assert!(eventually(|| self.client().status().is_ok()), "{}", self.said());
    }

    /// Starts a switch that takes over the running one, which ends.
    pub(crate) fn take_over(&self) {
        let said = File::options().append(true).open(self.at("switch.log")).unwrap();
        let mut command = common::command();
        command
            .args(["switch", "--idle", "50us", "--user", self.user, "--take-over"])
            .env("DRAY_CONTROL_DIR", self.at("run"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        let mut before = self.switch.replace(Some(Started(command.spawn().unwrap()))).unwrap();
        assert!(eventually(|| before.0.try_wait().unwrap().is_some()), "{}", self.said());
        assert!(eventually(|| self.client().status().is_ok()), "{}", self.said());
    }

    /// Kills the switch with SIGKILL.
    pub(crate) fn kill_switch(&self) {
        drop(self.switch.take());
    }

    /// Returns what the switch has written.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.at("switch.log")).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.at("run/switch.sock"))
    }

    pub(crate) fn ports(&self) -> Vec<PortStatus> {
        self.client().ports().unwrap()
    }

    /// Returns the user numbers of the switch's threads, as in their status.
    pub(crate) fn users(&self) -> Vec<String> {
        let id = self.switch.borrow().as_ref().unwrap().0.id();
        let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
        let users = tasks.map(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("Uid:\t"));
            line.unwrap().to_owned()
        });
        users.collect()
    }

    /// Returns the files that the switch has open.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let id = self.switch.borrow().as_ref().unwrap().0.id();
        let entries = fs::read_dir(format!("/proc/{id}/fd")).unwrap().flatten();
        // One may be closed meanwhile.
        entries
            .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string()))
            .collect()
    }

    /// Returns the configuration of the plugin with these keys.
    pub(crate) fn configuration(&self, keys: &Value) -> Value {
        let mut plugin = json!({"type": "dray-cni"});
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        plugin
    }

    /// Makes the network a chain of these plugins, for cnitool.
    pub(crate) fn configure(&self, plugins: &[Value]) {
        let list = json!({
            "cniVersion": self.version.get(), "name": self.network, "plugins": plugins,
        });
        fs::write(self.at("net.d/net.conflist"), list.to_string()).unwrap();
    }

    /// Returns an IPAM section with a range for each subnet.
    pub(crate) fn ipam(&self, subnets: &[&str]) -> Value {
        let ranges: Vec<_> = subnets.iter().map(|subnet| json!([{"subnet": subnet}])).collect();
        json!({"type": "host-local", "dataDir": self.at("ipam"), "ranges": ranges})
    }

    fn environment(&self, command: &mut Command) {
        let path = format!("{}:{TOOLS}", self.at("bin").display());
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_PATH", path)
            .env("NETCONFPATH", self.at("net.d"))
            .env("DRAY_CONTROL_DIR", self.at("run"));
    }

    /// Runs cnitool. Returns its output if it succeeds, else its error.
    pub(crate) fn tool(&self, verb: &str, pod: &Pod, interface: &str) -> Result<String, String> {
        self.tool_with(verb, pod, interface, &Value::Null)
    }

    /// Runs cnitool with arguments of capabilities.
    pub(crate) fn tool_with(
        &self,
        verb: &str,
        pod: &Pod,
        interface: &str,
        capabilities: &Value,
    ) -> Result<String, String> {
        let mut command = Command::new(Path::new(TOOLS).join("cnitool"));
        self.environment(&mut command);
        if !capabilities.is_null() {
            command.env("CAP_ARGS", capabilities.to_string());
        }
        command.args([verb, &self.network, &pod.path(), "--ifname", interface]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = text(&output);
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    /// Adds an interface by cnitool, which must succeed; returns the result.
    #[track_caller]
    pub(crate) fn add(&self, pod: &Pod, interface: &str) -> Value {
        let said = self.tool("add", pod, interface).unwrap_or_else(|error| panic!("{error}"));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    #[track_caller]
    pub(crate) fn delete(&self, pod: &Pod, interface: &str) {
        self.tool("del", pod, interface).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns a command that calls the plugin directly, with the configuration as its input.
    pub(crate) fn plugin(&self, verb: &str, container: &str, netns: &str, keys: &Value) -> Command {
        let mut configuration = json!({
            "cniVersion": self.version.get(), "name": self.network, "type": "dray-cni",
        });
        configuration.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let input = self.at(&format!("input-{container}"));
        fs::write(&input, configuration.to_string()).unwrap();
        let mut command = Command::new(self.at("bin/dray-cni"));
        self.environment(&mut command);
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", "eth0")
            .stdin(File::open(&input).unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Calls the plugin directly. Returns its result, or its error.
    pub(crate) fn call(
        &self,
        verb: &str,
        container: &str,
        netns: &str,
        keys: &Value,
    ) -> Result<Value, Value> {
        let output = self.plugin(verb, container, netns, keys).output().unwrap();
        let reply = match output.stdout.as_slice() {
            [] => Value::Null,
            reply => serde_json::from_slice(reply).unwrap_or_else(|_| panic!("{}", text(&output))),
        };
        if output.status.success() { Ok(reply) } else { Err(reply) }
    }

    /// Fails if anything of an attachment is left: records, ports, directories, addresses.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert!(self.ports().is_empty(), "{:?}", self.ports());
        for folder in ["run/cni", "run/vhost"] {
            let names = self.names_in(folder);
            assert!(names.is_empty(), "{folder}: {names:?}");
        }
        let ipam = self.names_in(&format!("ipam/{}", self.network));
        let addresses: Vec<_> = ipam
            .iter()
            .filter(|name| name.contains(['.', ':']) && !name.starts_with("last"))
            .collect();
        assert!(addresses.is_empty(), "{addresses:?}");
    }

    /// Returns the names of the records of attachments.
    pub(crate) fn records(&self) -> Vec<String> {
        let mut names = self.names_in("run/cni");
        names.retain(|name| name.ends_with(".json"));
        names
    }

    pub(crate) fn names_in(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A failed test leaves results of plugins, and mounts.
        let results = fs::read_dir(RESULTS).into_iter().flatten().flatten();
        for result in
            results.filter(|result| result.file_name().to_string_lossy().starts_with(&self.network))
        {
            let _ = fs::remove_file(result.path());
        }
        for directory in self.names_in("run/vhost") {
            let path = self.at("run/vhost").join(directory);
            let _ = rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH);
        }
    }
}
