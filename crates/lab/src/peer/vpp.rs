//! FD.io's Vector Packet Processor, with nothing loaded but its vhost-user driver.
//!
//! This follows its documentation and the help of its CLI, as of August 2026; the project has had no
//! VPP to run it with.

use std::path::Path;

use super::process::{command, run};
use super::program::{FOR_HUGEPAGES, Program, housekeeping_cpu};
use super::switch::Running;
use super::{Needs, PeerDir, PortCounters, SwitchSettings, Wiring, calls};
use crate::{Cancel, LabError};

pub(super) const PROGRAM: &str = "vpp";

const NEEDS: Needs = Needs {
    // For its buffers, 16384 of them with 2 KiB of data on each NUMA node. Where the pages are too few
    // it takes ordinary ones.
    hugepages_mib: 64,
    privileges: FOR_HUGEPAGES,
    others: &["a mount namespace of its own"],
};

/// The first worker's name. The main thread only listens to its CLI.
const FORWARDING_THREAD: &str = "vpp_wk_0";

/// What it calls ports, with their numbers.
const INTERFACE: &str = "VirtualEthernet0/0/";

/// A running switch.
#[derive(Debug)]
pub(super) struct Vpp {
    program: Program,
}

impl Vpp {
    pub(super) fn start(
        dir: &PeerDir,
        program: &Path,
        settings: &SwitchSettings,
        cancel: &Cancel,
    ) -> Result<Self, LabError> {
        let cli = dir.join("vpp.ctl");
        let (worker, main) = (settings.cpu, housekeeping_cpu(settings.cpu));
        let configuration = dir.write("vpp.conf", &startup(dir.path(), &cli, worker, main))?;
        let commands = dir.write("vpp.cli", &wiring(settings))?;
        let mut start = command(program);
        start.arg("-c").arg(&configuration);
        // Files that programs speak to it through; it would leave them there.
        calls::mount_tmpfs(&mut start, c"/dev/shm", &[]);
        let name = settings.kind.name();
        let mut vpp =
            Self { program: Program::start(dir, name, &mut start, FORWARDING_THREAD, NEEDS)? };
        vpp.program.process.wait_until(cancel, "its CLI socket", |_| cli.exists())?;
        let mut tell = command(program.with_file_name("vppctl"));
        tell.arg("-s").arg(&cli).arg("exec").arg(&commands);
        let said = run(dir, &mut tell)?;
        // It says the names of new interfaces, and what is wrong.
        let mut lines = said.lines().map(str::trim);
        match lines.find(|line| !line.is_empty() && !line.starts_with(INTERFACE)) {
            Some(wrong) => Err(vpp.program.process.failed(&format!("told its ports: {wrong}"))),
            None => Ok(vpp),
        }
    }
}

impl Running for Vpp {
    fn program(&self) -> &Program {
        &self.program
    }

    /// Its counters are not read: nobody has held them against ours.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        Ok(None)
    }
}

/// Its start-up configuration.
fn startup(dir: &Path, cli: &Path, worker: usize, main: usize) -> String {
    let (dir, cli) = (dir.display(), cli.display());
    format!(
        "unix {{ nodaemon nosyslog runtime-dir {dir} cli-listen {cli} }}\n\
         cpu {{ main-core {main} corelist-workers {worker} }}\n\
         buffers {{ buffers-per-numa 16384 page-size default-hugepage }}\n\
         plugins {{ plugin default {{ disable }} plugin vhost_plugin.so {{ enable }} }}\n"
    )
}

/// What its CLI is told: ports, and which frames go where.
fn wiring(settings: &SwitchSettings) -> String {
    let port = |(index, port): (usize, &super::PeerPort)| {
        let socket = port.socket.display();
        let server = if port.server { " server" } else { "" };
        let mode = match settings.wiring {
            Wiring::Pairs => format!("xconnect {INTERFACE}{index} {INTERFACE}{}", index ^ 1),
            Wiring::Learning => format!("bridge {INTERFACE}{index} 1"),
        };
        let create = format!("create vhost-user socket {socket}{server} packed\n");
        let plug = format!("set interface state {INTERFACE}{index} up\nset interface l2 {mode}\n");
        (create, plug)
    };
    // All are there before the first is wired to another.
    let (create, plug): (String, String) = settings.ports.iter().enumerate().map(port).unzip();
    create + &plug
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{Memory, PeerPort, SwitchKind};

    #[test]
    fn configuration() {
        assert_eq!(
            startup(Path::new("/run/dray/1"), Path::new("/run/dray/1/vpp.ctl"), 3, 2),
            "\
unix { nodaemon nosyslog runtime-dir /run/dray/1 cli-listen /run/dray/1/vpp.ctl }
cpu { main-core 2 corelist-workers 3 }
buffers { buffers-per-numa 16384 page-size default-hugepage }
plugins { plugin default { disable } plugin vhost_plugin.so { enable } }
"
        );
        let ports = vec![
            PeerPort::listening("/a.sock"),
            PeerPort { server: false, ..PeerPort::listening("/b.sock") },
        ];
        let mut settings = SwitchSettings {
            kind: SwitchKind::Vpp,
            cpu: 3,
            wiring: Wiring::Learning,
            memory: Memory::HugePages,
            ports,
        };
        assert_eq!(
            wiring(&settings),
            "\
create vhost-user socket /a.sock server packed
create vhost-user socket /b.sock packed
set interface state VirtualEthernet0/0/0 up
set interface l2 bridge VirtualEthernet0/0/0 1
set interface state VirtualEthernet0/0/1 up
set interface l2 bridge VirtualEthernet0/0/1 1
"
        );
        settings.wiring = Wiring::Pairs;
        let said = wiring(&settings);
        let pairs = "set interface l2 xconnect VirtualEthernet0/0/1 VirtualEthernet0/0/0\n";
        assert!(said.ends_with(pairs), "{said}");
    }
}
