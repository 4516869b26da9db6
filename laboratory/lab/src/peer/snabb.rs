//! Snabb, which runs programs made of packet-processing apps: ours is `snabb.lua`.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::adapter::{Adapter, Installed, Launch, RunningSwitch};
use super::program::Program;
use super::{Needs, PortCounters, Protocol};
use crate::LabError;
use crate::process::{calls, command};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "snabb",
    installed: Some(Installed {
        program: "snabb",
        folder: None,
        whose: "Snabb",
        remedy: "Debian has no package, see github.com/snabbco/snabb",
        minimum: "2022.07",
        command: private,
        version_arguments: &["--version"],
        version: |output| Some(format!("Snabb {}", output.lines().next()?.strip_prefix("snabb ")?)),
    }),
    learns: false,
    protocols: &[Protocol::VhostUser],
    queues_max: 1,
    start: |launch| Ok(Box::new(Snabb::start(launch)?)),
};

const NEEDS: Needs = Needs {
    // For its packets, of 10 KiB each: it takes 1000, and 2000 more when both links are full. With
    // too few pages Snabb would add some to the kernel's pool, and nothing would remove them again.
    hugepages_mib: 64,
    privileges: "root, to reserve huge pages and read their physical addresses",
    others: &["a mount namespace of its own"],
};

/// A running switch.
#[derive(Debug)]
struct Snabb {
    program: Program,
    ports: usize,
}

/// Makes a command with private counters and a private mount of huge pages. Snabb puts them in
/// `/var/run/snabb`, wherever that is, and leaves files there even when asked for its version.
fn private(program: &Path) -> Command {
    let mut command = command(program);
    calls::mount_tmpfs(&mut command, c"/var", &[c"/var/run"]);
    command
}

impl Snabb {
    fn start(launch: &Launch<'_>) -> Result<Self, LabError> {
        let script = launch.dir.write("snabb.lua", include_str!("snabb.lua"))?;
        let mut command = launch.command();
        command.arg("snsh").arg(script).arg(launch.settings.cpu.to_string());
        for port in &launch.settings.ports {
            command.arg(&port.socket).arg(if port.server { "listen" } else { "connect" });
        }
        // Snabb runs in a single thread.
        let mut program = launch.start(command, "snabb", NEEDS)?;
        program.process.wait_until_logged(launch.cancel, "its ports", "forwarding\n")?;
        Ok(Self { program, ports: launch.settings.ports.len() })
    }

    /// Reads a counter of the link from one port to its neighbour, eight bytes in a file.
    fn counter(&self, from: usize, name: &str) -> Result<u64, LabError> {
        let pid = self.program.process.pid().as_raw_nonzero();
        let link = format!("p{from}.tx -> p{}.rx", from ^ 1);
        let file = format!("/proc/{pid}/root/var/run/snabb/{pid}/links/{link}/{name}.counter");
        let failed = |what: &str| self.program.process.failed(&format!("{file}: {what}"));
        let bytes = fs::read(&file).map_err(|error| failed(&error.to_string()))?;
        let bytes = bytes.try_into().map_err(|_| failed("expected a counter of 8 bytes"))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

impl RunningSwitch for Snabb {
    fn programs(&self) -> Vec<&Program> {
        vec![&self.program]
    }

    /// Snabb counts at links. Frames that found a link full are counted, but their bytes are not.
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
