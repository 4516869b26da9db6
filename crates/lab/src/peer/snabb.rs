//! Snabb, which runs programs of packet-processing apps: ours is `snabb.lua`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{Process, command};
use super::program::Program;
use super::switch::Running;
use super::{Needs, PeerDir, PortCounters, SwitchSettings, calls};
use crate::{Cancel, LabError};

pub(super) const PROGRAM: &str = "snabb";

const SCRIPT: &str = include_str!("snabb.lua");

const NEEDS: Needs = Needs {
    // For its packets, of 10 KiB each: it takes 1000, and 2000 more when both links are full. With too
    // few pages it would add some to the kernel's pool itself, and nobody would take them out again.
    hugepages_mib: 64,
    privileges: "root, to reserve huge pages and to learn where they lie physically",
    others: &["a mount namespace of its own"],
};

/// All of it runs in one thread.
const FORWARDING_THREAD: &str = PROGRAM;

/// A running switch.
#[derive(Debug)]
pub(super) struct Snabb {
    program: Program,
    ports: usize,
}

/// A command that keeps its counters and its mount of huge pages to itself. Snabb has them in
/// `/var/run/snabb`, wherever that is, and leaves something there even when asked for its version.
pub(super) fn private(program: &Path) -> Command {
    let mut command = command(program);
    calls::mount_tmpfs(&mut command, c"/var", &[c"/var/run"]);
    command
}

impl Snabb {
    pub(super) fn start(
        dir: &PeerDir,
        program: &Path,
        settings: &SwitchSettings,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let (name, ports) = (settings.kind.name(), &settings.ports);
        if let Some(port) = ports.iter().find(|port| port.queues > 1) {
            let (socket, queues) = (port.socket.display(), port.queues);
            let what = format!("socket {socket}: {queues} queues; it has 1 at each port");
            return Err(LabError::peer(name, what));
        }
        let script = dir.write("snabb.lua", SCRIPT)?;
        let mut command = private(program);
        command.arg("snsh").arg(script).arg(settings.cpu.to_string());
        for port in ports {
            command.arg(&port.socket).arg(if port.server { "listen" } else { "connect" });
        }
        let mut program = Program::start(dir, name, &mut command, FORWARDING_THREAD, NEEDS)?;
        let says_so = |process: &Process| process.log().contains("forwarding\n");
        program.process.wait_until(cancel, "its ports", says_so)?;
        Ok(Self { program, ports: ports.len() })
    }

    /// A counter of the link from one port to its neighbour, eight bytes in a file.
    fn counter(&self, from: usize, name: &str) -> Result<u64, LabError> {
        let pid = self.program.process.pid().as_raw_nonzero();
        let link = format!("p{from}.tx -> p{}.rx", from ^ 1);
        let file = format!("var/run/snabb/{pid}/links/{link}/{name}.counter");
        let file = PathBuf::from(format!("/proc/{pid}/root")).join(file);
        let failed =
            |what: &str| self.program.process.failed(&format!("{}: {what}", file.display()));
        let bytes = fs::read(&file).map_err(|error| failed(&error.to_string()))?;
        let bytes = bytes.try_into().map_err(|_| failed("a counter of 8 bytes is expected"))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

impl Running for Snabb {
    fn program(&self) -> &Program {
        &self.program
    }

    /// It counts at links. What found one full it counts as a frame, but not in bytes.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        let of = |port: usize| {
            let (out, back) = (port, port ^ 1);
            Ok(PortCounters {
                received_frames: self.counter(out, "txpackets")? + self.counter(out, "txdrop")?,
                received_bytes: self.counter(out, "txbytes")?,
                sent_frames: self.counter(back, "rxpackets")?,
                sent_bytes: self.counter(back, "rxbytes")?,
            })
        };
        (0..self.ports).map(|port| of(port).map(Some)).collect()
    }
}
