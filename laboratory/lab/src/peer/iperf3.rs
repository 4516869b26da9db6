//! iperf3: a client that sends, and a server that receives. Their figures are those that they
//! report themselves, in JSON.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::CpuTime;
use crate::process::{Process, calls, command, installed};
use crate::{Cancel, ContainerId, Lab, LabError};

/// Name of the program.
const PROGRAM: &str = "iperf3";
/// iperf3's usual port.
const PORT: u16 = 5201;
/// Time limit for the program to print its version.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Role of an iperf3.
#[derive(Clone, Copy, Debug)]
pub enum Iperf3Role {
    /// Serves one client, from whose traffic it receives.
    Server {
        /// Address of the server.
        at: Ipv4Addr,
    },
    /// Sends.
    Client {
        /// Address of the server.
        to: Ipv4Addr,
        /// Parallel streams.
        streams: u16,
        /// Seconds to send for.
        seconds: u64,
        /// Payload bytes of a UDP datagram and datagrams per second; `None` for TCP.
        udp: Option<(usize, Option<f64>)>,
    },
}

/// A running iperf3. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Iperf3 {
    process: Process,
}

/// Report of one side on a test.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Iperf3Report {
    /// Intervals of the test, in order.
    pub intervals: Vec<Iperf3Interval>,
    end: End,
    /// Reason of a failed test.
    error: Option<String>,
    start: Start,
}

/// An interval of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Iperf3Interval {
    /// Sums over all streams.
    pub sum: Iperf3Sum,
}

/// Sums over all streams in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Iperf3Sum {
    /// End of the interval, in seconds since the test began.
    pub end: f64,
    /// Bytes of payload sent or received.
    pub bytes: u64,
    /// TCP segments sent again.
    #[serde(default)]
    pub retransmits: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct End {
    #[serde(default)]
    sender_tcp_congestion: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Start {
    #[serde(default)]
    tcp_mss: u32,
    #[serde(default)]
    tcp_mss_default: u32,
}

/// Returns true if the program is installed.
pub fn has_iperf3() -> bool {
    installed::find(PROGRAM, None).is_some()
}

impl Lab {
    /// Starts an iperf3 in the network namespace of a container, on a CPU. It reports on intervals
    /// of this length, which is 0.1 s or more.
    pub fn start_iperf3(
        &mut self,
        container: ContainerId,
        cpu: usize,
        role: Iperf3Role,
        interval: Duration,
    ) -> Result<Iperf3, LabError> {
        let (dir, cancel) = (self.dir()?, self.cancel().clone());
        let (name, namespace) = (self[container].name(), self[container].namespace());
        let dir = dir.within(namespace).map_err(LabError::doing(name.to_owned()))?;
        let missing = || LabError::peer(PROGRAM, "not installed; apt install iperf3".to_owned());
        let file = installed::find(PROGRAM, None).ok_or_else(missing)?;
        if let Some(version) =
            installed::first_answer(Command::new(&file).arg("--version"), TIMEOUT)
        {
            dir.note_version(&version);
        }
        let mut command = command(file);
        command.args(arguments(role, interval));
        calls::pin(&mut command, cpu);
        let mut process = Process::start(&dir, name, &mut command)?;
        if let Iperf3Role::Server { .. } = role {
            // It reports nothing before the end.
            let sockets = || fs::read_to_string("/proc/thread-self/net/tcp");
            process.wait_until(&cancel, "it was listening", |_| {
                namespace.enter(sockets).is_ok_and(|sockets| is_listening(&sockets, PORT))
            })?;
        }
        Ok(Iperf3 { process })
    }
}

fn arguments(role: Iperf3Role, interval: Duration) -> Vec<String> {
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let common = format!("--json --port {PORT} --interval {}", interval.as_secs_f64());
    words(match role {
        Iperf3Role::Server { at } => format!("{common} --server --one-off --bind {at}"),
        Iperf3Role::Client { to, streams, seconds, udp } => {
            let test = format!("--client {to} --parallel {streams} --time {seconds}");
            match udp {
                None => format!("{common} {test}"),
                Some((length, rate)) => {
                    // 0: as fast as possible.
                    let bits = rate.map_or(0.0, |rate| rate * length as f64 * 8.0);
                    format!("{common} {test} --udp --length {length} --bitrate {bits:.0}")
                }
            }
        }
    })
}

/// Returns true if a table of sockets (proc_net_tcp(5)) has one that listens on `port`.
fn is_listening(sockets: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    sockets.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        local.is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && state == Some(LISTEN)
    })
}

impl Iperf3 {
    /// Returns the CPU time of the program.
    pub fn cpu_time(&self) -> Result<CpuTime, LabError> {
        self.process.cpu_time("")
    }

    /// When the program was started.
    pub fn started(&self) -> Instant {
        self.process.started()
    }

    /// Waits for the end of the test; returns the program's report.
    pub fn end(&mut self, cancel: &Cancel) -> Result<Iperf3Report, LabError> {
        self.process.wait_until_done(cancel)?;
        let report = parse(&self.process.log());
        report.map_err(|what| self.process.failed(&what))
    }
}

fn parse(text: &str) -> Result<Iperf3Report, String> {
    let report: Iperf3Report =
        serde_json::from_str(text).map_err(|error| format!("its report is unknown: {error}"))?;
    match report.error {
        Some(error) => Err(error),
        None if report.intervals.is_empty() => Err("its report has no intervals".to_owned()),
        None => Ok(report),
    }
}

impl Iperf3Report {
    /// Bytes of payload sent or received in the whole test.
    pub fn bytes(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.sum.bytes).sum()
    }

    /// TCP segments sent again in the whole test.
    pub fn retransmits(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.sum.retransmits).sum()
    }

    /// Bytes until `seconds` after the beginning of the test: within an interval, as if they had
    /// passed evenly.
    pub fn bytes_until(&self, seconds: f64) -> u64 {
        let (mut begin, mut bytes) = (0.0, 0.0);
        for Iperf3Interval { sum } in &self.intervals {
            if sum.end > seconds {
                let share = (seconds - begin).max(0.0) / (sum.end - begin);
                return (bytes + sum.bytes as f64 * share) as u64;
            }
            (begin, bytes) = (sum.end, bytes + sum.bytes as f64);
        }
        bytes as u64
    }

    /// Congestion control of TCP; empty for UDP.
    pub fn congestion(&self) -> &str {
        &self.end.sender_tcp_congestion
    }

    /// Maximum segment size of TCP in bytes.
    pub fn segment_max(&self) -> u32 {
        self.start.tcp_mss.max(self.start.tcp_mss_default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let text = r#"{"start": {"version": "iperf 3.12", "tcp_mss_default": 1448},
            "intervals": [
                {"streams": [], "sum": {"start": 0, "end": 0.5, "bytes": 100, "retransmits": 2}},
                {"streams": [], "sum": {"start": 0.5, "end": 1.5, "bytes": 400, "retransmits": 1}}],
            "end": {"sender_tcp_congestion": "cubic"}}"#;
        let report = parse(text).unwrap();
        assert_eq!((report.bytes(), report.retransmits()), (500, 3));
        assert_eq!((report.congestion(), report.segment_max()), ("cubic", 1448));
        let until = [-1.0, 0.0, 0.25, 0.5, 1.0, 1.5, 9.0].map(|s| report.bytes_until(s));
        assert_eq!(until, [0, 0, 50, 100, 300, 500, 500]);
    }

    #[test]
    fn failed_tests_are_errors() {
        let failed = r#"{"start": {}, "intervals": [], "end": {}, "error": "unable to connect"}"#;
        assert_eq!(parse(failed).unwrap_err(), "unable to connect");
        let empty = r#"{"start": {}, "intervals": [], "end": {}}"#;
        assert_eq!(parse(empty).unwrap_err(), "its report has no intervals");
        assert!(parse("iperf3: no").unwrap_err().starts_with("its report is unknown"));
    }

    #[test]
    fn listening_sockets_are_found() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n   \
                       0: 060012C6:1451 00000000:0000 0A 00000000:00000000 00:00000000 0\n   \
                       1: 060012C6:1452 050012C6:1451 01 00000000:00000000 00:00000000 0\n";
        assert!(is_listening(sockets, 0x1451));
        assert!(!is_listening(sockets, 0x1452), "connected, not listening");
        assert!(!is_listening("", 0x1451));
    }

    #[test]
    fn datagrams_have_a_length_and_a_rate() {
        let to = Ipv4Addr::new(198, 18, 0, 6);
        let line = |udp| {
            let role = Iperf3Role::Client { to, streams: 2, seconds: 3, udp };
            arguments(role, Duration::from_millis(500)).join(" ")
        };
        let common = "--json --port 5201 --interval 0.5 --client 198.18.0.6 --parallel 2 --time 3";
        assert_eq!(line(None), common);
        assert_eq!(line(Some((1472, None))), format!("{common} --udp --length 1472 --bitrate 0"));
        let paced = format!("{common} --udp --length 125 --bitrate 1000000");
        assert_eq!(line(Some((125, Some(1000.0)))), paced);
    }
}
