//! Adapters: what the lab knows of a peer before it runs: how it is found, its minimum version, its
//! abilities, and how it is started. Each peer's file has one.

use std::env;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::port::check;
use super::program::Program;
use super::settings::{SwitchSettings, Wiring};
use super::{Needs, PeerDir, PortCounters, Protocol};
use crate::process::{command, installed};
use crate::{Cancel, LabError};

/// Description of a peer for the lab.
pub(super) struct Adapter {
    /// Name of the peer in tables and results.
    pub(super) name: &'static str,
    /// The installed program; `None` for this program itself.
    pub(super) installed: Option<Installed>,
    /// True if the peer can learn addresses; false if it only wires its ports in pairs.
    pub(super) learns: bool,
    /// Protocols at its ports; empty if the ports are interfaces.
    pub(super) protocols: &'static [Protocol],
    /// Maximum number of queue pairs of a port.
    pub(super) queues_max: u16,
    /// Starts the peer and waits until it forwards: its sockets exist and it serves connections.
    pub(super) start: fn(&Launch<'_>) -> Result<Box<dyn RunningSwitch>, LabError>,
}

/// A program that the user has to install.
#[derive(Clone, Copy)]
pub(super) struct Installed {
    pub(super) program: &'static str,
    /// Folder outside any PATH where the program may be.
    pub(super) folder: Option<&'static str>,
    /// Name of the software, in errors.
    pub(super) whose: &'static str,
    /// How to get it.
    pub(super) remedy: &'static str,
    /// Oldest version that was tried, as in `22.11`.
    pub(super) minimum: &'static str,
    /// Makes a command that sees and leaves nothing outside its own directories; arguments follow.
    pub(super) command: fn(&Path) -> Command,
    /// Arguments that print the version.
    pub(super) version_arguments: &'static [&'static str],
    /// Extracts the version from that output.
    pub(super) version: fn(&str) -> Option<String>,
}

/// An installed program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Path of the program.
    pub program: PathBuf,
    /// Version, as the program prints it.
    pub version: String,
}

/// A switch to be started with checked settings.
pub(super) struct Launch<'a> {
    pub(super) adapter: &'static Adapter,
    pub(super) dir: &'a PeerDir,
    pub(super) program: &'a Path,
    pub(super) settings: &'a SwitchSettings,
    pub(super) cancel: &'a Cancel,
}

/// Operations on a running switch.
pub(super) trait RunningSwitch: Debug {
    /// The forwarding programs: one, or one for each host.
    fn programs(&self) -> Vec<&Program>;

    /// Start time of its first process.
    fn started(&self) -> Instant {
        self.programs()[0].process.started()
    }

    /// Counters of each port; `None` if the switch has none.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError>;

    /// Share of the frames from the containers that bypassed the switch so far; `None` if none can.
    fn bypassed(&self) -> Result<Option<f64>, LabError> {
        Ok(None)
    }

    /// Time so far in which the forwarding thread had frames to move; `None` if the switch does not
    /// report it.
    fn work_time(&self) -> Result<Option<Duration>, LabError> {
        Ok(None)
    }
}

impl Adapter {
    /// Finds the installed program; the error says why none is suitable and what to do.
    pub(super) fn find(&self) -> Result<Found, String> {
        match &self.installed {
            Some(installed) => installed.find(),
            None => {
                let program = env::current_exe().map_err(|error| format!("dray: {error}"))?;
                Ok(Found { program, version: env!("CARGO_PKG_VERSION").to_owned() })
            }
        }
    }

    /// Checks that the peer supports the settings; the error says why not.
    pub(super) fn check(&self, settings: &SwitchSettings) -> Result<(), LabError> {
        let SwitchSettings { ports, wiring, .. } = settings;
        let wrong = |what: String| Err(LabError::peer(self.name, what));
        let sockets = ports.iter().map(|port| (port.socket.as_path(), port.queues));
        check(self.name, sockets, *wiring == Wiring::Pairs)?;
        if *wiring == Wiring::Learning && !self.learns {
            return wrong("does not learn addresses; connect its ports in pairs".to_owned());
        }
        for port in ports {
            let socket = port.socket.display();
            if !self.protocols.contains(&port.protocol) {
                return wrong(format!(
                    "socket {socket}: protocol {} is not supported",
                    port.protocol
                ));
            }
            if port.queues > self.queues_max {
                let (queues, most) = (port.queues, self.queues_max);
                return wrong(format!("socket {socket}: {queues} queues; at most {most} per port"));
            }
        }
        Ok(())
    }
}

impl Installed {
    fn find(&self) -> Result<Found, String> {
        let missing = || format!("{} is not installed; {}", self.program, self.remedy);
        let program = installed::find(self.program, self.folder).ok_or_else(missing)?;
        let shown = program.display();
        let output =
            (self.command)(&program).args(self.version_arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{shown}: {error}"))?;
        let output =
            [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
        let version = output.iter().find_map(|text| (self.version)(text));
        let version =
            version.ok_or_else(|| format!("{shown} printed no version of {}", self.whose))?;
        let found = Found { program, version };
        self.check_version(&found)?;
        Ok(found)
    }

    /// Checks that the version is new enough; the error says what to do. A version without a number
    /// is accepted.
    pub(super) fn check_version(&self, found: &Found) -> Result<(), String> {
        let Self { minimum, remedy, .. } = self;
        if numbers(&found.version).is_none_or(|there| Some(there) >= numbers(minimum)) {
            return Ok(());
        }
        let (program, version) = (found.program.display(), &found.version);
        Err(format!("{program} is {version}; {minimum} or later is required; {remedy}"))
    }
}

impl Launch<'_> {
    /// Command of the launch's program, without arguments.
    pub(super) fn command(&self) -> Command {
        match &self.adapter.installed {
            Some(installed) => (installed.command)(self.program),
            None => command(self.program),
        }
    }

    /// [Starts](Program::start) the program.
    pub(super) fn start(
        &self,
        command: Command,
        forwarding_thread: &'static str,
        needs: Needs,
    ) -> Result<Program, LabError> {
        Program::start(self.dir, self.adapter.name, command, forwarding_thread, needs)
    }
}

/// Parses the numbers of a version, as in `Name 22.11.1-rc2`: 22, 11, 1.
fn numbers(version: &str) -> Option<Vec<u32>> {
    let digits = &version[version.find(|c: char| c.is_ascii_digit())?..];
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    Some(digits[..end].split('.').map_while(|number| number.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::SwitchKind;
    use super::*;

    #[test]
    fn parses_program_versions() {
        let testpmd = "EAL: Detected NUMA nodes: 1\nEAL: RTE Version: 'DPDK 22.11.11'\n";
        let ovs = "ovs-vswitchd (Open vSwitch) 3.1.0\n";
        let with_dpdk = format!("{ovs}DPDK 22.11.11\n");
        let snabb = "snabb 2022.07\nCopyright (C) 2012-2017 Snabb authors\n";
        for (kind, output, version) in [
            (SwitchKind::Testpmd, testpmd, Some("DPDK 22.11.11")),
            (SwitchKind::OvsDpdk, &with_dpdk, Some("Open vSwitch 3.1.0, DPDK 22.11.11")),
            // A build without DPDK is a different switch.
            (SwitchKind::OvsDpdk, ovs, None),
            (SwitchKind::Ovs, ovs, Some("Open vSwitch 3.1.0")),
            (SwitchKind::Vpp, "vlib_plugin_config: unknown input '--version'", Some("VPP")),
            (SwitchKind::Vpp, "vpp 1.0\n", None),
            (SwitchKind::Snabb, snabb, Some("Snabb 2022.07")),
            (SwitchKind::Snabb, "1.0\n", None),
            (SwitchKind::Testpmd, "", None),
        ] {
            let found = (kind.adapter().installed.unwrap().version)(output);
            assert_eq!(found.as_deref(), version, "{output}");
        }
    }

    #[test]
    fn versions_compare_numerically() {
        for (version, expected) in [
            ("DPDK 22.11.11", Some(vec![22, 11, 11])),
            ("DPDK 24.03.0-rc1", Some(vec![24, 3, 0])),
            ("Open vSwitch 3.1.0, DPDK 22.11.11", Some(vec![3, 1, 0])),
            ("VPP 25.10-release", Some(vec![25, 10])),
            ("Snabb 2022.07", Some(vec![2022, 7])),
            ("1.", Some(vec![1])),
            ("VPP", None),
        ] {
            assert_eq!(numbers(version), expected, "{version}");
        }
    }

    #[test]
    fn too_old_version_error_names_minimum() {
        let installed = SwitchKind::Testpmd.adapter().installed.unwrap();
        let check_version = |version: &str| {
            let program = "/usr/bin/dpdk-testpmd".into();
            installed.check_version(&Found { program, version: version.to_owned() })
        };
        assert_eq!(
            check_version("DPDK 20.11.10").unwrap_err(),
            "/usr/bin/dpdk-testpmd is DPDK 20.11.10; 22.11 or later is required; apt install \
             dpdk-dev"
        );
        // Version numbers are not decimals.
        for version in ["DPDK 22.9.1", "DPDK 22", "DPDK 3.99"] {
            check_version(version).unwrap_err();
        }
        for version in ["DPDK 22.11", "DPDK 22.11.0-rc1", "DPDK 23.07", "DPDK 100.1", "DPDK"] {
            check_version(version).unwrap();
        }
    }

    #[test]
    fn every_minimum_is_a_number() {
        for kind in SwitchKind::ALL {
            let installed = kind.adapter().installed;
            assert_eq!(installed.is_none(), kind == SwitchKind::Dray);
            assert!(installed.is_none_or(|it| numbers(it.minimum).is_some()), "{kind:?}");
        }
    }
}
