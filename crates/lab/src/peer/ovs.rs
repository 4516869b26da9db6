//! Open vSwitch with its user-space datapath on DPDK, apart from any other on the machine: its
//! database, sockets and logs are in a directory of their own.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::process::{Process, command, run};
use super::program::{Program, housekeeping_cpu};
use super::switch::Running;
use super::{Needs, PeerDir, PortCounters, SwitchSettings, Wiring};
use crate::{Cancel, LabError};

pub(super) const PROGRAM: &str = "ovs-vswitchd-dpdk";

/// Where Debian has it.
pub(super) const DEBIAN_FOLDER: &str = "/usr/lib/openvswitch-switch-dpdk";

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Its buffers, 752 MiB when the first driver connects, and what it needs for each port. With less it
/// takes all that there is, finds that it does not do, and asks for half as many buffers; a driver
/// that connects meanwhile is disconnected for lack of memory.
const MEMORY_MIB: u32 = 800;

const NEEDS: Needs = Needs {
    // It does not start with a page too few.
    hugepages_mib: MEMORY_MIB + 16,
    privileges: "root, to reserve huge pages and for its bridge's TAP interface",
    others: &["a database server of its own", "a network namespace of its own"],
};

const BRIDGE: &str = "br0";

/// The forwarding thread's name begins with this.
const FORWARDING_THREAD: &str = "pmd-c";

/// A running switch. Its fields are dropped in order: the database outlives the switch.
#[derive(Debug)]
pub(super) struct Ovs {
    switch: Program,
    database: Process,
    /// The sockets that its ports were to have, which are links to those that it made.
    links: Vec<PathBuf>,
    home: Home,
}

/// The part of the peers' directory that is the switch's, and how its tools are called.
#[derive(Debug)]
struct Home {
    dir: PeerDir,
    path: PathBuf,
}

impl Ovs {
    pub(super) fn start(
        dir: &PeerDir,
        program: &Path,
        settings: &SwitchSettings,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let path = dir.join("ovs");
        fs::create_dir_all(&path)
            .map_err(LabError::doing(format!("directory {}", path.display())))?;
        let home = Home { dir: dir.clone(), path };
        let database = home.start_database(cancel)?;
        home.configure(settings.cpu)?;
        let mut command = home.command(program);
        command.arg(home.remote()).args(["--no-chdir", "--unixctl"]).arg(home.control());
        let name = settings.kind.name();
        let switch = Program::start(dir, name, &mut command, FORWARDING_THREAD, NEEDS)?;
        let mut ovs = Self { switch, database, links: Vec::new(), home };
        let control = ovs.home.control();
        ovs.switch.process.wait_until(cancel, "its control socket", |_| control.exists())?;
        ovs.add_ports(settings).map_err(|error| ovs.switch.process.failed(&error.to_string()))?;
        Ok(ovs)
    }

    fn add_ports(&mut self, settings: &SwitchSettings) -> Result<(), LabError> {
        let home = &self.home;
        home.vsctl(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
        for (index, port) in settings.ports.iter().enumerate() {
            let name = port_name(index);
            let request = format!("ofport_request={}", port_number(index));
            let mut words =
                vec!["add-port", BRIDGE, &name, "--", "set", "interface", &name, &request];
            let server = format!("options:vhost-server-path={}", port.socket.display());
            if port.server {
                words.push("type=dpdkvhostuser");
            } else {
                words.extend(["type=dpdkvhostuserclient", &server]);
            }
            home.vsctl(&words)?;
            let error = home.vsctl(&["get", "interface", &name, "error"])?;
            if error.trim() != "[]" {
                let what = format!("port {} of {PROGRAM}", port.socket.display());
                return Err(LabError::System { what, error: io::Error::other(error.trim()) });
            }
            if port.server {
                // It listens under a name of its own choice.
                let doing = LabError::doing(format!("socket {}", port.socket.display()));
                symlink(home.path.join(&name), &port.socket).map_err(doing)?;
                self.links.push(port.socket.clone());
            }
        }
        match settings.wiring {
            Wiring::Pairs => home.pair_ports(settings.ports.len()),
            Wiring::Learning => Ok(()),
        }
    }
}

impl Running for Ovs {
    fn program(&self) -> &Program {
        &self.switch
    }

    fn started(&self) -> Instant {
        self.database.started()
    }

    /// `None` where it has none: version 3.1 counts nothing at ports where it listens.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        let control = self.home.control();
        let mut command = self.home.command("ovs-appctl");
        command.arg("--timeout=5").arg("--target").arg(control);
        let text = run(&self.home.dir, command.args(["dpctl/show", "--statistics"]))?;
        Ok((0..).map_while(|index| parse_counters(&text, &port_name(index))).collect())
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for link in &self.links {
            // It may be gone with its directory.
            let _ = fs::remove_file(link);
        }
    }
}

impl Home {
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
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
        command.args(["--no-syslog", "--timeout=20", "--db", &self.remote()]).args(words);
        run(&self.dir, &mut command)
    }

    fn ofctl(&self, words: &[&str]) -> Result<String, LabError> {
        run(&self.dir, self.command("ovs-ofctl").arg("--timeout=20").args(words))
    }

    /// Puts flows between two ports each in place of the one that learns.
    fn pair_ports(&self, count: usize) -> Result<(), LabError> {
        self.ofctl(&["del-flows", BRIDGE])?;
        (0..count).try_for_each(|index| {
            let (input, output) = (port_number(index), port_number(index ^ 1));
            let flow = format!("in_port={input},actions=output:{output}");
            self.ofctl(&["add-flow", BRIDGE, &flow]).map(drop)
        })
    }

    fn start_database(&self, cancel: &Cancel) -> Result<Process, LabError> {
        let file = self.path.join("conf.db");
        run(&self.dir, self.command("ovsdb-tool").arg("create").arg(&file).arg(SCHEMA))?;
        let mut command = self.command("ovsdb-server");
        command
            .arg(&file)
            .args(["--no-chdir", "--unixctl"])
            .arg(self.path.join("database.ctl"))
            .arg(format!("--remote=p{}", self.remote()));
        let mut database = Process::start(&self.dir, "ovsdb-server", &mut command)?;
        let socket = self.path.join("db.sock");
        database.wait_until(cancel, "its socket", |_| socket.exists())?;
        Ok(database)
    }

    fn configure(&self, cpu: usize) -> Result<(), LabError> {
        self.vsctl(&["--no-wait", "init"])?;
        let settings = [
            "dpdk-init=true".to_owned(),
            "dpdk-extra=--no-pci --in-memory --single-file-segments --iova-mode=va".to_owned(),
            format!("dpdk-socket-mem={MEMORY_MIB}"),
            format!("dpdk-socket-limit={MEMORY_MIB}"),
            format!("dpdk-lcore-mask={}", mask(housekeeping_cpu(cpu))),
            format!("pmd-cpu-mask={}", mask(cpu)),
        ]
        .map(|setting| format!("other_config:{}", quote(&setting)));
        let mut words = vec!["--no-wait", "set", "Open_vSwitch", "."];
        words.extend(settings.iter().map(String::as_str));
        self.vsctl(&words).map(drop)
    }
}

/// What flows call a port: OpenFlow counts from 1.
fn port_number(index: usize) -> usize {
    index + 1
}

/// What it calls a port's interface.
fn port_name(index: usize) -> String {
    format!("p{}", port_number(index))
}

/// A value with commas or spaces is a list for ovs-vsctl unless it is quoted.
fn quote(setting: &str) -> String {
    match setting.split_once('=') {
        Some((key, value)) => format!("{key}=\"{value}\""),
        None => setting.to_owned(),
    }
}

/// A set of one CPU, as a hexadecimal number of any length.
fn mask(cpu: usize) -> String {
    format!("0x{:x}{}", 1 << (cpu % 4), "0".repeat(cpu / 4))
}

/// Finds a port in what `dpctl/show --statistics` prints: `None` if it is not there; inside that,
/// `None` if it has no counters.
fn parse_counters(text: &str, name: &str) -> Option<Option<PortCounters>> {
    let (_, rest) = text.split_once(&format!(": {name} ("))?;
    let section = rest.split("  port ").next()?;
    let count = |direction: &str, what: &str| -> Option<u64> {
        let (_, number) = section.split_once(&format!("{direction} {what}:"))?;
        number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let counters = || {
        Some(PortCounters {
            received_frames: count("RX", "packets")?,
            received_bytes: count("RX", "bytes")?,
            sent_frames: count("TX", "packets")?,
            sent_bytes: count("TX", "bytes")?,
        })
    };
    Some(counters())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "\
netdev@ovs-netdev:
  lookups: hit:17265855 missed:1 lost:0
  flows: 1
  port 1: br0 (tap)
    RX packets:9 errors:0 dropped:0 overruns:0 frame:0
    TX packets:9 errors:0 dropped:0 aborted:0 carrier:0
    collisions:0
    RX bytes:9  TX bytes:9
  port 2: p1 (dpdkvhostuserclient: configured_rx_queues=1, mtu=1500)
    RX packets:3 errors:0 dropped:? overruns:0 frame:0
    TX packets:1 errors:0 dropped:0 aborted:0 carrier:0
    collisions:0
    RX bytes:192 (1 KiB)  TX bytes:64
  port 3: p2 (dpdkvhostuser: configured_rx_queues=1, mtu=1500)
, could not retrieve stats (Protocol error)  port 4: p3 (dpdkvhostuserclient)
    RX packets:5
";

    #[test]
    fn reads_counters_of_ports_that_have_them() {
        let counters = parse_counters(SHOWN, "p1").unwrap().unwrap();
        assert_eq!((counters.received_frames, counters.received_bytes), (3, 192));
        assert_eq!((counters.sent_frames, counters.sent_bytes), (1, 64));
        assert_eq!(parse_counters(SHOWN, "p2"), Some(None));
        assert_eq!(parse_counters(SHOWN, "p4"), None);
    }

    #[test]
    fn masks_have_any_length() {
        assert_eq!((mask(0), mask(1), mask(6)), ("0x1".into(), "0x2".into(), "0x40".into()));
        assert_eq!(mask(130), format!("0x4{}", "0".repeat(32)));
    }
}
