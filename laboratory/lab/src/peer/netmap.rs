//! netmap's own programs: `pkt-gen` at the ends of a path, and `bridge` in between.

use std::time::Duration;

use dray_wire::Flow;
use rustix::process::{Signal, kill_process};

use super::CpuTime;
use crate::process::{Process, calls, command, installed};
use crate::{Cancel, Lab, LabError};

/// Role of a netmap program.
#[derive(Clone, Copy, Debug)]
pub enum NetmapRole<'a> {
    /// Sends frames until it is stopped.
    Sender {
        /// Port to send to.
        port: &'a str,
        /// Length of the frames in bytes.
        size: usize,
        /// Addresses in the frames.
        flow: Flow,
        /// Frames per second; `None` for as many as possible.
        rate: Option<f64>,
    },
    /// Receives frames and drops them.
    Receiver {
        /// Port to receive from.
        port: &'a str,
    },
    /// Passes frames between two ports.
    Forwarder {
        /// The ports.
        ports: [&'a str; 2],
    },
}

/// A running netmap program. It is killed when this value is dropped.
#[derive(Debug)]
pub struct NetmapProgram {
    process: Process,
    /// Prefix of its last line.
    total: &'static str,
}

impl Lab {
    /// Starts a netmap program on a CPU, in the network namespace of the "host". It counts its
    /// frames once per `interval`.
    pub fn start_netmap(
        &mut self,
        name: &str,
        role: NetmapRole<'_>,
        cpu: usize,
        interval: Duration,
    ) -> Result<NetmapProgram, LabError> {
        let dir = self.dir()?.within(self.host().namespace());
        let dir = dir.map_err(LabError::doing(name.to_owned()))?;
        let (program, total) = match role {
            NetmapRole::Sender { .. } => ("pkt-gen", "Sent "),
            NetmapRole::Receiver { .. } => ("pkt-gen", "Received "),
            NetmapRole::Forwarder { .. } => ("bridge", ""),
        };
        // Another program is called bridge as well.
        let file = installed::find("pkt-gen", None).map(|file| file.with_file_name(program));
        let file = file.filter(|file| file.exists()).ok_or_else(|| {
            let what = "not installed; it is part of netmap, docs/netmap.md says how to build it";
            LabError::peer(program, what.to_owned())
        })?;
        let mut command = command(file);
        command.args(["-w", "0"]);
        let full = |port: &str| format!("netmap:{port}");
        match role {
            NetmapRole::Forwarder { ports } => {
                let [a, b] = ports.map(full);
                command.args(["-i", &*a, "-i", &*b]);
            }
            NetmapRole::Sender { port, .. } | NetmapRole::Receiver { port } => {
                let interval = interval.as_millis().to_string();
                command.args(["-N", "-T", &*interval, "-i", &*full(port), "-f"]);
            }
        }
        match role {
            NetmapRole::Sender { size, flow, rate, .. } => {
                let (from, to) = (flow.src_mac.to_string(), flow.dst_mac.to_string());
                command.args(["tx", "-l", &*size.to_string(), "-S", &*from, "-D", &*to]);
                command.args(rate.iter().flat_map(|rate| ["-R".to_owned(), format!("{rate:.0}")]));
            }
            NetmapRole::Receiver { .. } => {
                command.arg("rx");
            }
            NetmapRole::Forwarder { .. } => {}
        }
        calls::pin(&mut command, cpu);
        let mut process = Process::start(&dir, name, &mut command)?;
        let cancel = self.cancel().clone();
        process.wait_until_logged(&cancel, "its ports", "Ready")?;
        Ok(NetmapProgram { process, total })
    }
}

impl NetmapProgram {
    /// Returns the number of frames that the program has counted so far.
    pub fn frames(&self) -> u64 {
        let log = self.process.log();
        total(&log, self.total).unwrap_or_else(|| log.lines().filter_map(counted).sum())
    }

    /// Returns the CPU time of the program.
    pub fn cpu_time(&self) -> Result<CpuTime, LabError> {
        self.process.cpu_time("")
    }

    /// Ends the program, so that [`frames`](Self::frames) returns all of its frames.
    pub fn stop(&mut self, cancel: &Cancel) -> Result<(), LabError> {
        // It may have ended, which the wait tells.
        let _ = kill_process(self.process.pid(), Signal::INT);
        self.process.wait_until_done(cancel)
    }

    /// Waits until the program has counted its first frames: at a given rate, `pkt-gen` begins two
    /// seconds after its start.
    pub fn wait_until_working(&mut self, cancel: &Cancel) -> Result<(), LabError> {
        let works = |process: &Process| process.log().lines().filter_map(counted).sum::<u64>() > 0;
        self.process.wait_until(cancel, "its first frames", works)
    }
}

/// Returns the frames that a line counts: `... 497 pps (498 pkts 238944 bps in 1001109 usec) ...`.
fn counted(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" pkts")?;
    let (_, number) = before.rsplit_once('(')?;
    number.trim().parse::<f64>().ok().map(|frames| frames as u64)
}

/// Returns the frames of the line that begins with `words`: `Sent 1000 packets 60000 bytes ...`.
fn total(log: &str, words: &str) -> Option<u64> {
    let rest = log.lines().rev().find_map(|line| line.strip_prefix(words));
    rest?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_from_the_programs_lines() {
        let lines = "505.580343 main_thread [2781] 497 pps (498 pkts 238944 bps in 1001109 usec) \
                     2.79 avg_batch 1012 min_space\nReceiving from vale0:b: 1 queues\n";
        assert_eq!(lines.lines().filter_map(counted).collect::<Vec<_>>(), [498]);
        assert_eq!(total(lines, "Received "), None);
        let ended = format!("{lines}Received 1000 packets 64000 bytes 433 events 64 bytes each\n");
        assert_eq!(total(&ended, "Received "), Some(1000));
    }
}
