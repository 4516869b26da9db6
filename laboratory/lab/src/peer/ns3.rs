//! The network simulator ns-3: one end of a path, as a program of `contrib/ns-3`.

use std::path::PathBuf;
use std::{env, fmt};

use dray_wire::Flow;
use rustix::process::{Signal, kill_process};
use serde::Deserialize;

use crate::process::{Process, calls, command, installed};
use crate::{Cancel, ContainerId, Lab, LabError};

/// Name of the program.
pub(crate) const PROGRAM: &str = "dray-ns3";
/// Advice where it is missing.
const ADVICE: &str = "no ns-3 program: make ns-3, see docs/ns-3.md";
/// Signal that starts a sender.
const START: Signal = Signal::USR1;

/// Part of ns-3's stack that the packets of a simulation pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ns3Layer {
    /// All: `OnOffApplication` sends UDP packets, `PacketSink` receives them.
    Udp,
    /// The device alone.
    Device,
}

/// One end of a path.
#[derive(Clone, Copy, Debug)]
pub struct Ns3End<'a> {
    /// True for the sender.
    pub sends: bool,
    /// URI of the port, or `fd:INTERFACE` for ns-3's own `FdNetDevice`.
    pub port: &'a str,
    /// Part of the stack to pass.
    pub layer: Ns3Layer,
    /// Addresses in the packets.
    pub flow: Flow,
    /// Length of the frames in bytes.
    pub size: usize,
    /// MTU of the link in bytes.
    pub mtu: u32,
    /// Frames per second; `None` for as many as possible.
    pub rate: Option<f64>,
    /// Time between two samples, in seconds.
    pub interval_s: f64,
}

/// A sample of a simulation's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ns3Sample {
    /// Time of the sample on the monotonic clock.
    pub at_ns: u64,
    /// Packets sent or received so far.
    pub packets: u64,
    /// CPU time of the simulation in its own code.
    pub user_ns: u64,
    /// CPU time of the kernel on its behalf.
    pub system_ns: u64,
}

/// Counts of a simulation that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Ns3Count {
    /// Time from the first packet to the end.
    pub seconds: f64,
    /// Packets that the device took from the sender.
    pub sent: u64,
    /// Packets that the receiver got.
    pub received: u64,
    /// Packets of the sender that the device did not take.
    pub dropped: u64,
    /// Packets that the port or the socket dropped, on their way out or in.
    pub port_dropped: u64,
}

/// A running simulation. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Ns3Program {
    process: Process,
}

/// Returns the simulation's program: in PATH, or where `make ns-3` puts it, beside the folder of
/// this program.
pub fn find_ns3() -> Option<PathBuf> {
    let built = || {
        let own = env::current_exe().ok()?;
        let folders = own.ancestors().skip(2).take(2).map(|folder| folder.join("ns3/bin"));
        folders.map(|folder| folder.join(PROGRAM)).find(|file| file.is_file())
    };
    installed::find(PROGRAM, None).or_else(built)
}

impl Lab {
    /// Starts a simulation in the network namespace of a container, or of the "host", on a CPU. A
    /// sender sends only after [`Ns3Program::begin`].
    pub fn start_ns3(
        &mut self,
        container: Option<ContainerId>,
        name: &str,
        cpu: usize,
        end: Ns3End<'_>,
    ) -> Result<Ns3Program, LabError> {
        let dir = self.dir()?;
        let container = container.map_or(self.host(), |container| &self[container]);
        let dir = dir.within(container.namespace());
        let dir = dir.map_err(LabError::doing(name.to_owned()))?;
        let file = find_ns3().ok_or_else(|| LabError::peer("ns-3", ADVICE.to_owned()))?;
        let mut command = command(file);
        command.args(arguments(&end));
        calls::pin(&mut command, cpu);
        let mut process = Process::start(&dir, name, &mut command)?;
        let cancel = self.cancel().clone();
        process.wait_until_logged(&cancel, "its port was open", "open\n")?;
        Ok(Ns3Program { process })
    }
}

fn arguments(end: &Ns3End<'_>) -> Vec<String> {
    let &Ns3End { sends, port, layer, flow, size, mtu, rate, interval_s } = end;
    let own = if sends { flow } else { flow.reversed() };
    let layer = match layer {
        Ns3Layer::Udp => "udp",
        Ns3Layer::Device => "device",
    };
    let role = if sends { "sender" } else { "receiver" };
    let pair = |name: &str, value: &dyn fmt::Display| format!("--{name}={value}");
    let mut arguments = vec![
        pair("port", &port),
        pair("role", &role),
        pair("layer", &layer),
        pair("mac", &own.src_mac),
        pair("peerMac", &own.dst_mac),
        pair("address", &own.src_ip),
        pair("peer", &own.dst_ip),
        pair("sourcePort", &flow.src_port),
        pair("destinationPort", &flow.dst_port),
        pair("size", &size),
        pair("mtu", &mtu),
        pair("interval", &interval_s),
        pair("rate", &rate.unwrap_or(0.0)),
    ];
    if sends {
        arguments.push("--paused=1".to_owned());
    }
    arguments
}

impl Ns3Program {
    /// Waits until frames can pass its port.
    pub fn wait_until_ready(&mut self, cancel: &Cancel) -> Result<(), LabError> {
        self.process.wait_until_logged(cancel, "its link was up", "ready\n")
    }

    /// Makes a sender send.
    pub fn begin(&self) -> Result<(), LabError> {
        let sent = kill_process(self.process.pid(), START);
        sent.map_err(|errno| self.process.failed(&format!("SIGUSR1: {errno}")))
    }

    /// Ends the simulation, and returns its samples and its counts.
    pub fn end(&mut self, cancel: &Cancel) -> Result<(Vec<Ns3Sample>, Ns3Count), LabError> {
        // It may have ended, which the wait tells.
        let _ = kill_process(self.process.pid(), Signal::TERM);
        self.process.wait_until_done(cancel)?;
        let log = self.process.log();
        let count = log.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let count = count.ok_or_else(|| self.process.failed("ended without a line of counts"))?;
        Ok((log.lines().filter_map(sample).collect(), count))
    }
}

/// Reads a line: `sample NANOSECONDS PACKETS USER SYSTEM`.
fn sample(line: &str) -> Option<Ns3Sample> {
    let mut numbers = line.strip_prefix("sample ")?.split(' ').map(|word| word.parse().ok());
    let mut next = || numbers.next().flatten();
    let (at_ns, packets) = (next()?, next()?);
    Some(Ns3Sample { at_ns, packets, user_ns: next()?, system_ns: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_programs_lines() {
        let expected = Ns3Sample { at_ns: 12, packets: 3, user_ns: 40, system_ns: 5 };
        assert_eq!(sample("sample 12 3 40 5"), Some(expected));
        for line in ["sample 12 3 40", "sample a 3 40 5", "open", "sample"] {
            assert_eq!(sample(line), None, "{line}");
        }
        let line = r#"{"role": "sender", "sent": 7, "received": 0, "bytes": 448, "seconds": 0.5,
            "dropped": 2, "port_dropped": 1}"#;
        let count: Ns3Count = serde_json::from_str(line).unwrap();
        assert_eq!(
            count,
            Ns3Count { seconds: 0.5, sent: 7, received: 0, dropped: 2, port_dropped: 1 }
        );
    }

    #[test]
    fn receiver_swaps_addresses_of_the_flow() {
        let end = Ns3End {
            sends: false,
            port: "fd:eth0",
            layer: Ns3Layer::Udp,
            flow: Flow { src_port: 1, dst_port: 2, ..Flow::default() },
            size: 64,
            mtu: 1500,
            rate: None,
            interval_s: 0.1,
        };
        let words = arguments(&end).join(" ");
        let expected = "--address=198.18.0.2 --peer=198.18.0.1 --sourcePort=1 --destinationPort=2";
        assert!(words.contains(expected) && !words.contains("paused"), "{words}");
        assert!(arguments(&Ns3End { sends: true, ..end }).contains(&"--paused=1".to_owned()));
    }
}
