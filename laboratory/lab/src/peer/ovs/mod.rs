//! Open vSwitch, separate from any other on the machine: its database, sockets and logs are in a
//! directory of their own.

mod bridge;
mod vhost_user;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::Program;
use super::{Needs, PeerDir};
use crate::process::{Process, calls, command, query, run};
use crate::{Cancel, LabError};

pub(super) use bridge::{ADAPTER, RunningBridges};
pub use bridge::{Bridge, BridgePort, Datapath, Vxlan};
pub(super) use vhost_user::ADAPTER as DPDK_ADAPTER;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

const BRIDGE: &str = "br0";

/// Prefix of the names of threads that always poll.
const POLLING_THREAD: &str = "pmd-c";

/// A running switch. Fields are dropped in order: the database outlives the switch.
#[derive(Debug)]
struct Ovs {
    switch: Program,
    database: Process,
    home: Home,
}

/// Settings to start Open vSwitch with.
struct Start<'a> {
    /// Name of the switch in messages.
    name: &'a str,
    program: &'a Path,
    /// Settings of `other_config` in its database.
    config: &'a [String],
    /// CPU of all threads that it does not move itself.
    cpu: Option<usize>,
    /// Prefix of the names of forwarding threads.
    forwarding_thread: &'static str,
    needs: Needs,
}

/// The switch's part of the peers' directory, used to run its tools.
#[derive(Debug)]
struct Home {
    dir: PeerDir,
    path: PathBuf,
}

impl Ovs {
    /// Starts the switch without a bridge.
    fn start(dir: &PeerDir, start: &Start<'_>, cancel: &Cancel) -> Result<Self, LabError> {
        let path = dir.join(start.name);
        fs::create_dir_all(&path)
            .map_err(LabError::doing(format!("directory {}", path.display())))?;
        let home = Home { dir: dir.clone(), path };
        let database = home.start_database(&format!("{}-database", start.name), cancel)?;
        home.configure(start.config)?;
        let mut command = home.command(start.program);
        command.arg(home.remote()).args(["--no-chdir", "--unixctl"]).arg(home.control());
        if let Some(cpu) = start.cpu {
            calls::pin(&mut command, cpu);
        }
        let Start { name, forwarding_thread, needs, .. } = *start;
        let mut switch = Program::start(dir, name, command, forwarding_thread, needs)?;
        let control = home.control();
        switch.wait_until_ready(|process| {
            process.wait_until_listening(cancel, "its control socket", &control)?;
            if needs.hugepages_mib == 0 {
                return Ok(());
            }
            process.wait_until_logged(cancel, "its huge pages", "DPDK Enabled - initialized")
        })?;
        Ok(Self { switch, database, home })
    }

    /// Adds the last lines of the log to an error.
    fn failed(&self, error: LabError) -> LabError {
        match error {
            LabError::Cancelled => error,
            error => self.switch.process.failed(&error.to_string()),
        }
    }
}

impl Home {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = command(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "RUNTIME_DIRECTORY"] {
            command.env(variable, &self.path);
        }
        command
    }

    fn remote(&self) -> String {
        format!("unix:{}", self.path.join("db.sock").display())
    }

    fn control(&self) -> PathBuf {
        self.path.join("switch.ctl")
    }

    fn vsctl(&self, words: &[&str]) -> Result<String, LabError> {
        let mut command = self.command("ovs-vsctl");
        command.args(["--no-syslog", "--timeout=60", "--db", &self.remote()]).args(words);
        run(&self.dir, &mut command)
    }

    fn ofctl(&self, words: &[&str]) -> Result<String, LabError> {
        run(&self.dir, self.command("ovs-ofctl").arg("--timeout=60").args(words))
    }

    fn start_database(&self, name: &str, cancel: &Cancel) -> Result<Process, LabError> {
        let file = self.path.join("conf.db");
        run(&self.dir, self.command("ovsdb-tool").arg("create").arg(&file).arg(SCHEMA))?;
        let mut command = self.command("ovsdb-server");
        command
            .arg(&file)
            .args(["--no-chdir", "--unixctl"])
            .arg(self.path.join("database.ctl"))
            .arg(format!("--remote=p{}", self.remote()));
        let mut database = Process::start(&self.dir, name, &mut command)?;
        let socket = self.path.join("db.sock");
        database.wait_until_listening(cancel, "its socket", &socket)?;
        Ok(database)
    }

    /// Creates a bridge with the given datapath, a user-space one or the kernel's, and settings.
    fn add_bridge(&self, name: &str, datapath: &str, settings: &[&str]) -> Result<(), LabError> {
        let datapath = format!("datapath_type={datapath}");
        let add = ["add-br", name, "--", "set", "bridge", name, &datapath];
        self.vsctl(&[&add, settings].concat()).map(drop)
    }

    /// Adds a port with an interface of these settings; of a segment other than the first, it joins
    /// only ports of that one.
    fn add_port(
        &self,
        index: usize,
        name: &str,
        segment: u16,
        settings: &[&str],
    ) -> Result<(), LabError> {
        let request = format!("ofport_request={}", port_number(index));
        let tag = format!("tag={segment}");
        let tag: &[&str] = if segment > 1 { &[&tag] } else { &[] };
        let (add, set) = (["add-port", BRIDGE, name], ["--", "set", "interface", name, &request]);
        self.vsctl(&[&add, tag, &set, settings].concat())?;
        let error = self.vsctl(&["get", "interface", name, "error"])?;
        if error.trim() == "[]" {
            return Ok(());
        }
        let what = format!("port {name} of Open vSwitch");
        Err(LabError::System { what, error: io::Error::other(error.trim().to_owned()) })
    }

    /// Sends a request to the running switch.
    fn appctl(&self, words: &[&str]) -> Result<String, LabError> {
        let mut command = self.command("ovs-appctl");
        command.arg("--timeout=60").arg("--target").arg(self.control()).args(words);
        query(&self.dir, &mut command)
    }

    /// Writes `other_config` before the switch, which reads it, is started.
    fn configure(&self, config: &[String]) -> Result<(), LabError> {
        self.vsctl(&["--no-wait", "init"])?;
        if config.is_empty() {
            return Ok(());
        }
        let settings = config.iter().map(|setting| format!("other_config:{}", quote(setting)));
        let settings: Vec<_> = settings.collect();
        let mut words = vec!["--no-wait", "set", "Open_vSwitch", "."];
        words.extend(settings.iter().map(String::as_str));
        self.vsctl(&words).map(drop)
    }
}

/// Port number in flows: OpenFlow counts from 1.
fn port_number(index: usize) -> usize {
    index + 1
}

/// Quotes a setting, because ovs-vsctl takes an unquoted value with commas or spaces for a list.
fn quote(setting: &str) -> String {
    match setting.split_once('=') {
        Some((key, value)) => format!("{key}=\"{value}\""),
        None => setting.to_owned(),
    }
}

/// Formats a set of one CPU as a hexadecimal number of any length.
fn mask(cpu: usize) -> String {
    format!("0x{:x}{}", 1 << (cpu % 4), "0".repeat(cpu / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_masks_have_any_length() {
        assert_eq!((mask(0), mask(1), mask(6)), ("0x1".into(), "0x2".into(), "0x40".into()));
        assert_eq!(mask(130), format!("0x4{}", "0".repeat(32)));
    }
}
