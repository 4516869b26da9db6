//! FD.io's Vector Packet Processor, loaded only with its vhost-user and memif drivers.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::adapter::{Adapter, Found, Installed, Launch, RunningSwitch};
use super::program::{FOR_HUGEPAGES, Program, housekeeping_cpu};
use super::{Memory, Needs, PeerDir, PeerPort, PortCounters, Protocol, SwitchSettings, Wiring};
use crate::LabError;
use crate::process::{calls, command, query, run};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "vpp",
    installed: Some(INSTALLED),
    learns: true,
    protocols: &[Protocol::VhostUser, Protocol::Memif],
    queues_max: u16::MAX,
    start: |launch| Ok(Box::new(Vpp::start(launch)?)),
};

const INSTALLED: Installed = Installed {
    program: "vpp",
    folder: None,
    whose: "VPP",
    remedy: "Debian has no package, see fd.io",
    minimum: "25.10",
    command: private,
    // VPP lacks such an option: it prints an error that identifies it, and reports its version
    // while it runs.
    version_arguments: &["--version"],
    version: |output| output.contains("vlib_plugin_config").then(|| "VPP".to_owned()),
};

/// MiB for its 16384 buffers with 2 KiB of data each.
const HUGEPAGES_MIB: u32 = 64;

const OTHERS: &[&str] = &["a mount namespace of its own"];

/// Name of the first worker. The main thread only serves the CLI.
const FORWARDING_THREAD: &str = "vpp_wk_0";

/// A running switch.
#[derive(Debug)]
struct Vpp {
    program: Program,
    cli: Cli,
    /// VPP's name of each port.
    interfaces: Vec<String>,
}

/// `vppctl`, in the folder of the program, and the socket by which it reaches VPP.
#[derive(Debug)]
struct Cli {
    dir: PeerDir,
    program: PathBuf,
    socket: PathBuf,
}

impl Cli {
    /// Returns the reply to a CLI line.
    fn query(&self, line: &str) -> Result<String, LabError> {
        query(&self.dir, &mut self.line(line))
    }

    /// Returns the reply to a CLI line that sets something up.
    fn set_up(&self, line: &str) -> Result<String, LabError> {
        run(&self.dir, &mut self.line(line))
    }

    fn line(&self, line: &str) -> Command {
        let mut command = command(&self.program);
        command.arg("-s").arg(&self.socket).arg(line);
        command
    }
}

/// Makes a command with a private `/dev/shm`: VPP would leave files there through which programs
/// can talk to it.
fn private(program: &Path) -> Command {
    let mut command = command(program);
    calls::mount_tmpfs(&mut command, c"/dev/shm", &[]);
    command
}

impl Vpp {
    fn start(launch: &Launch<'_>) -> Result<Self, LabError> {
        let Launch { dir, program, settings, .. } = *launch;
        let socket = dir.join("vpp.ctl");
        let cli = Cli { dir: dir.clone(), program: program.with_file_name("vppctl"), socket };
        let configuration = dir.write("vpp.conf", &startup(dir.path(), &cli.socket, settings))?;
        let commands = dir.write("vpp.cli", &wiring(settings))?;
        let mut start = launch.command();
        start.arg("-c").arg(&configuration);
        let needs = match settings.memory {
            Memory::HugePages => {
                Needs { hugepages_mib: HUGEPAGES_MIB, privileges: FOR_HUGEPAGES, others: OTHERS }
            }
            Memory::OrdinaryPages => {
                Needs { hugepages_mib: 0, privileges: "root, to pin threads", others: OTHERS }
            }
        };
        let forwarding = launch.start(start, FORWARDING_THREAD, needs)?;
        let interfaces = interfaces(settings).collect();
        let mut vpp = Self { program: forwarding, cli, interfaces };
        let process = &mut vpp.program.process;
        process.wait_until_listening(launch.cancel, "its CLI socket", &vpp.cli.socket)?;
        let version = vpp.cli.query("show version")?;
        let Some(version) = version_of(&version) else {
            return Err(process.failed(&format!("unknown version: {version:?}")));
        };
        let found = Found { program: program.to_owned(), version };
        INSTALLED.check_version(&found).map_err(|why| LabError::peer(ADAPTER.name, why))?;
        dir.note_version(&found.version);
        let output = vpp.cli.set_up(&format!("exec {}", commands.display()))?;
        // VPP prints the names of new interfaces, and errors.
        let mut lines = output.lines().map(str::trim);
        let is_name = |line: &str| vpp.interfaces.iter().any(|name| name == line);
        match lines.find(|line| !line.is_empty() && !is_name(line)) {
            Some(wrong) => Err(vpp.program.process.failed(&format!("creating ports: {wrong}"))),
            None => Ok(vpp),
        }
    }
}

impl RunningSwitch for Vpp {
    fn programs(&self) -> Vec<&Program> {
        vec![&self.program]
    }

    /// VPP counts frames that found a ring full as sent and as lost. Lost frames are subtracted
    /// from sent ones; lost bytes cannot be, because VPP does not count them.
    fn counters(&self) -> Result<Option<Vec<PortCounters>>, LabError> {
        let of = |name: &String| {
            let counted = self.cli.query(&format!("show interface {name}"))?;
            let device = self.cli.query(&format!("show hardware-interfaces {name} verbose"))?;
            Ok(Some(counters(&counted, &device)))
        };
        self.interfaces.iter().map(of).collect()
    }
}

/// Extracts the version from the output of `show version`.
fn version_of(output: &str) -> Option<String> {
    let (_, rest) = output.split_once("vpp v")?;
    Some(format!("VPP {}", rest.split_whitespace().next()?))
}

/// VPP's names of the ports, in order.
fn interfaces(settings: &SwitchSettings) -> impl Iterator<Item = String> {
    let mut vhost_user = 0..;
    settings.ports.iter().enumerate().map(move |(index, port)| match port.protocol {
        Protocol::VhostUser => {
            format!("VirtualEthernet0/0/{}", vhost_user.next().expect("one number per port"))
        }
        Protocol::Memif => format!("memif{}/0", memif_socket(index)),
    })
}

/// Number of a port's socket. Number 0 is taken.
fn memif_socket(index: usize) -> usize {
    index + 1
}

/// Builds VPP's start-up configuration.
fn startup(dir: &Path, cli: &Path, settings: &SwitchSettings) -> String {
    let (dir, cli) = (dir.display(), cli.display());
    let (worker, main) = (settings.cpu, housekeeping_cpu(settings.cpu));
    let pages = match settings.memory {
        Memory::HugePages => "default-hugepage",
        Memory::OrdinaryPages => "4K",
    };
    format!(
        "unix {{ nodaemon nosyslog runtime-dir {dir} cli-listen {cli} }}\n\
         cpu {{ main-core {main} corelist-workers {worker} }}\n\
         buffers {{ buffers-per-numa 16384 page-size {pages} }}\n\
         plugins {{ plugin default {{ disable }} plugin vhost_plugin.so {{ enable }} plugin \
         memif_plugin.so {{ enable }} }}\n"
    )
}

/// Builds the CLI commands that create the ports and wire them.
fn wiring(settings: &SwitchSettings) -> String {
    let names: Vec<String> = interfaces(settings).collect();
    let create = |(index, port): (usize, &PeerPort)| {
        let socket = port.socket.display();
        match port.protocol {
            Protocol::VhostUser => {
                let server = if port.server { " server" } else { "" };
                format!("create vhost-user socket {socket}{server} packed\n")
            }
            Protocol::Memif => {
                let id = memif_socket(index);
                format!(
                    "create memif socket id {id} filename {socket}\n\
                     create interface memif id 0 socket-id {id} master\n"
                )
            }
        }
    };
    let plug = |(index, name): (usize, &String)| {
        let mode = match settings.wiring {
            Wiring::Pairs => format!("xconnect {name} {}", names[index ^ 1]),
            Wiring::Learning => format!("bridge {name} {}", settings.ports[index].segment),
        };
        format!("set interface state {name} up\nset interface l2 {mode}\n")
    };
    // All ports must exist before the first is wired to another.
    let create: String = settings.ports.iter().enumerate().map(create).collect();
    create + &names.iter().enumerate().map(plug).collect::<String>()
}

/// Parses the counters from the output of `show interface` and `show hardware-interfaces` for one
/// port. Zero counters are missing from the output.
fn counters(counted: &str, device: &str) -> PortCounters {
    let after = |text: &str, label: &str| -> Option<u64> {
        text.split_once(label)?.1.split_whitespace().next()?.parse().ok()
    };
    let counter = |label| after(counted, label).unwrap_or(0);
    // A vhost-user port reports frames that found a ring full in the former output, a memif port in
    // the latter.
    let lost = counter("drops") + after(device, "no tx slot:").unwrap_or(0);
    PortCounters {
        received_frames: counter("rx packets"),
        received_bytes: counter("rx bytes"),
        sent_frames: counter("tx packets").saturating_sub(lost),
        sent_bytes: counter("tx bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::SwitchKind;

    fn settings(ports: Vec<PeerPort>) -> SwitchSettings {
        SwitchSettings {
            kind: SwitchKind::Vpp,
            cpu: 60_000,
            sleeps: false,
            wiring: Wiring::Learning,
            memory: Memory::HugePages,
            ports,
        }
    }

    #[test]
    fn parses_vpp_output() {
        let version = "vpp v25.10-release built by root on vm at 2026-11-22T14:30:59\n";
        assert_eq!(version_of(version).as_deref(), Some("VPP 25.10-release"));
        let counted = "\
              Name   Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count
memif1/0              1      up          9000/0/0/0     rx packets                     5
                                                        rx bytes                     300
                                                        tx packets                     7
                                                        tx bytes                     420
                                                        drops                          1
";
        let device =
            "MEMIF interface\n   packets sent: 5\n   no tx slot: 1\n   max no tx slot: 1\n";
        let expected = PortCounters {
            received_frames: 5,
            received_bytes: 300,
            sent_frames: 5,
            sent_bytes: 420,
        };
        assert_eq!(counters(counted, device), expected);
        assert_eq!(counters("", ""), PortCounters::default());
    }

    #[test]
    fn writes_vpp_configuration() {
        let mut settings = settings(vec![
            PeerPort::listening("/a.sock"),
            PeerPort { protocol: Protocol::Memif, ..PeerPort::listening("/m.sock") },
            PeerPort { server: false, ..PeerPort::listening("/b.sock") },
        ]);
        let output = startup(Path::new("/run/dray/1"), Path::new("/run/dray/1/vpp.ctl"), &settings);
        assert!(output.contains("corelist-workers 60000 }"), "{output}");
        assert!(output.contains("page-size default-hugepage }"), "{output}");
        assert_eq!(
            wiring(&settings),
            "\
create vhost-user socket /a.sock server packed
create memif socket id 2 filename /m.sock
create interface memif id 0 socket-id 2 master
create vhost-user socket /b.sock packed
set interface state VirtualEthernet0/0/0 up
set interface l2 bridge VirtualEthernet0/0/0 1
set interface state memif2/0 up
set interface l2 bridge memif2/0 1
set interface state VirtualEthernet0/0/1 up
set interface l2 bridge VirtualEthernet0/0/1 1
"
        );
        settings.wiring = Wiring::Pairs;
        settings.ports.pop();
        let output = wiring(&settings);
        let pairs = "set interface l2 xconnect memif2/0 VirtualEthernet0/0/0\n";
        assert!(output.ends_with(pairs), "{output}");
    }
}
