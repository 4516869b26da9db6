//! Ports of peers.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use dray_wire::MacAddr;

use crate::LabError;

/// Bytes that the address of a Unix socket holds, without the terminating zero.
const SOCKET_PATH_MAX: usize = 107;

/// Protocol by which the two sides of a socket agree on shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// vhost-user, with virtqueues.
    VhostUser,
    /// memif, VPP's own.
    Memif,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VhostUser => "vhost-user",
            Self::Memif => "memif",
        })
    }
}

/// A port of a switch: the side that accesses the memory of the other, a driver or a client.
#[derive(Clone, Debug)]
pub struct PeerPort {
    /// Protocol of the port.
    pub protocol: Protocol,
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// True if the switch listens on the socket; otherwise it connects, and keeps trying.
    pub server: bool,
    /// Number of queue pairs.
    pub queues: u16,
    /// Segment of the port, from 1: a learning switch joins only the ports of one segment.
    pub segment: u16,
}

impl PeerPort {
    /// Makes a vhost-user port of the first segment with one queue pair, on which the switch
    /// listens.
    pub fn listening(socket: impl Into<PathBuf>) -> Self {
        let (protocol, socket) = (Protocol::VhostUser, socket.into());
        Self { protocol, socket, server: true, queues: 1, segment: 1 }
    }
}

/// Protocol and side of an endpoint's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The virtio driver (DPDK's `net_virtio_user`), which shares its memory.
    VirtioUser {
        /// True for packed rings, false for split ones.
        packed: bool,
        /// Number of entries of each ring; a power of two.
        queue_size: u16,
    },
    /// The back end (DPDK's `net_vhost`), the side that switches take.
    Vhost,
    /// memif (DPDK's `net_memif`): the client, which shares its memory, or the server if the
    /// endpoint listens.
    Memif {
        /// Number of entries of each ring; a power of two.
        queue_size: u16,
    },
}

/// A port of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointPort {
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// True if the endpoint listens on the socket. A virtio-user that listens is not ready before a
    /// peer has connected; one that connects fails if no peer listens.
    pub server: bool,
    /// Number of queue pairs.
    pub queues: u16,
    /// Protocol and side of the port.
    pub driver: Driver,
    /// MAC address of the port.
    pub mac: MacAddr,
    /// Destination of its frames.
    pub peer_mac: MacAddr,
}

impl EndpointPort {
    /// Makes a split virtio-user port that connects, with one pair of 256-entry queues, DPDK's
    /// defaults. Frames go from station `own` to station `peer`.
    pub fn connecting(socket: impl Into<PathBuf>, own: u64, peer: u64) -> Self {
        Self {
            socket: socket.into(),
            server: false,
            queues: 1,
            driver: Driver::VirtioUser { packed: false, queue_size: 256 },
            mac: MacAddr::local(own),
            peer_mac: MacAddr::local(peer),
        }
    }
}

/// Counters of a port since the peer started, as the peer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames received through the port.
    pub received_frames: u64,
    /// Bytes of received frames, without FCS.
    pub received_bytes: u64,
    /// Frames sent through the port.
    pub sent_frames: u64,
    /// Bytes of sent frames, without FCS.
    pub sent_bytes: u64,
}

/// Checks that a peer can have ports with these sockets and numbers of queues; a `paired` peer
/// passes frames between two ports each.
pub(super) fn check<'a>(
    peer: &str,
    ports: impl Iterator<Item = (&'a Path, u16)>,
    paired: bool,
) -> Result<(), LabError> {
    let wrong = |what| Err(LabError::peer(peer, what));
    let mut seen = BTreeSet::new();
    for (socket, queues) in ports {
        check_one(peer, socket, queues)?;
        if !seen.insert(socket) {
            // testpmd would accept that and serve only one of them.
            return wrong(format!(
                "duplicate socket {}; each port needs its own",
                socket.display()
            ));
        }
    }
    match seen.len() {
        0 => wrong("no ports; at least 1 is needed".to_owned()),
        odd if paired && odd % 2 == 1 => {
            let odd = dray_text::count(odd, "port");
            wrong(format!("{odd} cannot be paired; give an even number"))
        }
        _ => Ok(()),
    }
}

fn check_one(peer: &str, socket: &Path, queues: u16) -> Result<(), LabError> {
    let wrong = |what| Err(LabError::peer(peer, what));
    let shown = socket.display();
    let len = socket.as_os_str().len();
    if len > SOCKET_PATH_MAX {
        return wrong(format!("socket {shown} has {len} bytes; at most {SOCKET_PATH_MAX} fit"));
    }
    // Paths end up in comma-separated options, which may contain neither.
    if !socket.is_absolute() || socket.to_str().is_none_or(|path| path.contains([',', ' '])) {
        return wrong(format!(
            "socket {shown}: an absolute path without commas or spaces is needed"
        ));
    }
    if queues == 0 {
        return wrong(format!("socket {shown}: 0 queues; at least 1 is needed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_ports_are_rejected() {
        let error = |path: &str, queues| {
            check("x", [(Path::new(path), queues)].into_iter(), false).unwrap_err().to_string()
        };
        assert!(error(&format!("/{}", "a".repeat(107)), 1).contains("108 bytes; at most 107 fit"));
        assert!(error("relative", 1).contains("absolute"));
        assert!(error("/a,client=1", 1).contains("without commas"));
        assert!(error("/a", 0).contains("0 queues"));
        let ports = |names: [&'static str; 2]| names.into_iter().map(|name| (Path::new(name), 1));
        assert!(check("x", ports(["/a", "/b"]), true).is_ok());
        let twice = check("x", ports(["/a", "/a"]), true).unwrap_err().to_string();
        assert!(twice.contains("duplicate socket /a;"), "{twice}");
        assert!(check("x", ports(["/a", "/b"]).take(1), false).is_ok());
        let odd = check("x", ports(["/a", "/b"]).take(1), true).unwrap_err().to_string();
        assert!(odd.contains("1 port cannot be paired"), "{odd}");
        let none = check("x", ports(["/a", "/b"]).take(0), false).unwrap_err().to_string();
        assert!(none.contains("no ports"), "{none}");
    }
}
