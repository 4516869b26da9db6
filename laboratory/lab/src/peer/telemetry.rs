//! DPDK's telemetry socket: requests are paths, replies are JSON, one packet each.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use serde::Deserialize;

use super::PortCounters;

/// Maximum length of a reply, in bytes.
const ANSWER_MAX: usize = 1 << 14;

/// A connection to a DPDK program.
#[derive(Debug)]
pub(super) struct Telemetry(OwnedFd);

/// The fields of `/ethdev/stats` that we read.
#[derive(Deserialize)]
struct Stats {
    ipackets: u64,
    opackets: u64,
    ibytes: u64,
    obytes: u64,
}

impl Telemetry {
    /// Connects to a program with the given runtime directory and `--file-prefix`.
    pub(super) fn connect(runtime: &Path, prefix: &str) -> io::Result<Self> {
        let path = runtime.join("dpdk").join(prefix).join("dpdk_telemetry.v2");
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(5)))?;
        connect(&socket, &SocketAddrUnix::new(&path)?)?;
        let telemetry = Self(socket);
        // DPDK sends a greeting first.
        telemetry.answer()?;
        Ok(telemetry)
    }

    /// Reads the counters of a port.
    pub(super) fn counters(&self, port: usize) -> io::Result<PortCounters> {
        send(&self.0, format!("/ethdev/stats,{port}").as_bytes(), SendFlags::NOSIGNAL)?;
        parse(&self.answer()?)
    }

    fn answer(&self) -> io::Result<Vec<u8>> {
        let mut answer = vec![0; ANSWER_MAX];
        let (len, _) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(len);
        Ok(answer)
    }
}

fn parse(answer: &[u8]) -> io::Result<PortCounters> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "/ethdev/stats")]
        stats: Option<Stats>,
    }
    let answer: Answer = serde_json::from_slice(answer)?;
    let stats = answer.stats.ok_or_else(|| io::Error::other("no such DPDK port"))?;
    Ok(PortCounters {
        received_frames: stats.ipackets,
        received_bytes: stats.ibytes,
        sent_frames: stats.opackets,
        sent_bytes: stats.obytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_port_statistics() {
        let text = r#"{"/ethdev/stats":{"ipackets":1,"opackets":2,"ibytes":64,"obytes":128,
            "imissed":0,"q_ipackets":[1,0]}}"#;
        let counters = parse(text.as_bytes()).unwrap();
        assert_eq!((counters.received_frames, counters.sent_bytes), (1, 128));
        assert!(parse(br#"{"/ethdev/stats":null}"#).is_err());
        assert!(parse(b"").is_err());
    }
}
