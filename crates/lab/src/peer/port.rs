//! The ports of peers.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use dray_wire::MacAddr;

use crate::LabError;

/// The address of a Unix socket holds so many bytes besides the closing zero.
const SOCKET_PATH_MAX: usize = 107;

/// How the two sides of a socket agree on the memory that they share.
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

/// A port of a switch: the side that reaches into the memory of the other, a driver's or a client's.
#[derive(Clone, Debug)]
pub struct PeerPort {
    /// What is spoken there.
    pub protocol: Protocol,
    /// The Unix socket.
    pub socket: PathBuf,
    /// Whether the switch listens there; otherwise it connects, and keeps trying.
    pub server: bool,
    /// Pairs of queues.
    pub queues: u16,
}

impl PeerPort {
    /// A vhost-user port of one queue pair, where the switch listens.
    pub fn listening(socket: impl Into<PathBuf>) -> Self {
        Self { protocol: Protocol::VhostUser, socket: socket.into(), server: true, queues: 1 }
    }
}

/// What an endpoint speaks, and which side it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The virtio driver (DPDK's `net_virtio_user`), which shares its memory.
    VirtioUser {
        /// Packed rings instead of split ones.
        packed: bool,
        /// Entries of each ring; a power of two.
        queue_size: u16,
    },
    /// The back end (DPDK's `net_vhost`), as switches are.
    Vhost,
    /// memif (DPDK's `net_memif`): its client, who shares its memory, or the server where it listens.
    Memif {
        /// Entries of each ring; a power of two.
        queue_size: u16,
    },
}

/// A port of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointPort {
    /// The Unix socket.
    pub socket: PathBuf,
    /// Whether the endpoint listens there. A virtio-user that listens is not ready before somebody
    /// has connected; one that connects fails if nobody listens.
    pub server: bool,
    /// Pairs of queues.
    pub queues: u16,
    /// Which side it is.
    pub driver: Driver,
    /// Its own address.
    pub mac: MacAddr,
    /// Whom its frames are for.
    pub peer_mac: MacAddr,
}

impl EndpointPort {
    /// A split virtio-user port of one pair of 256-entry queues, which connects: what DPDK does
    /// unless it is told otherwise. Frames go from station `own` to station `peer`.
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

/// What went through a port since the peer started, as the peer counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that came in through it.
    pub received_frames: u64,
    /// Their bytes, without FCS.
    pub received_bytes: u64,
    /// Frames that went out through it.
    pub sent_frames: u64,
    /// Their bytes, without FCS.
    pub sent_bytes: u64,
}

/// Whether a peer can have ports with these sockets and numbers of queues, and where `paired` passes
/// frames between two each.
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
            // testpmd would take that and serve one of them.
            return wrong(format!("socket {} twice; each port needs its own", socket.display()));
        }
    }
    match seen.len() {
        0 => wrong("no ports; at least 1 is needed".to_owned()),
        odd if paired && odd % 2 == 1 => {
            wrong(format!("{odd} ports cannot be paired; give an even number"))
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
    // Both end up in comma-separated options.
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
    fn ports_that_cannot_be_are_named() {
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
        assert!(twice.contains("socket /a twice"), "{twice}");
        assert!(check("x", ports(["/a", "/b"]).take(1), false).is_ok());
        let odd = check("x", ports(["/a", "/b"]).take(1), true).unwrap_err().to_string();
        assert!(odd.contains("1 ports cannot be paired"), "{odd}");
        let none = check("x", ports(["/a", "/b"]).take(0), false).unwrap_err().to_string();
        assert!(none.contains("no ports"), "{none}");
    }
}
