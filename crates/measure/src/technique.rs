//! Techniques: a link and how the programs at its ends do their I/O.

use std::fmt;

use dray_lab::{End, LinkKind};
use dray_port::raw::RawUri;
use dray_port::udp::UdpUri;
use dray_port::{PortUri, SocketOptions, Wait};
use dray_wire::Flow;

/// How a program in a container does its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// UDP sockets, one frame per call.
    Udp,
    /// UDP sockets, a burst per call.
    UdpMmsg,
    /// Packet sockets, one frame per call.
    Raw,
    /// Packet sockets, a burst per call.
    RawMmsg,
}

impl Endpoint {
    /// Every endpoint, in the order of `ara2019`'s table.
    pub const ALL: [Self; 4] = [Self::Udp, Self::UdpMmsg, Self::Raw, Self::RawMmsg];

    /// The word for it on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::UdpMmsg => "udp-mmsg",
            Self::Raw => "raw",
            Self::RawMmsg => "raw-mmsg",
        }
    }

    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Self::Udp => "UDP sockets, send/recv",
            Self::UdpMmsg => "UDP sockets, sendmmsg/recvmmsg",
            Self::Raw => "raw sockets, send/recv",
            Self::RawMmsg => "raw sockets, sendmmsg/recvmmsg",
        }
    }

    /// Whether the ends of its link need IP addresses.
    pub fn is_addressed(self) -> bool {
        matches!(self, Self::Udp | Self::UdpMmsg)
    }

    /// Whether all frames of a port are one flow, because the kernel writes their headers.
    pub fn is_one_flow(self) -> bool {
        matches!(self, Self::Udp | Self::UdpMmsg)
    }

    /// The port at `end` of a link whose other end is `peer`.
    pub fn port(self, end: &End, peer: &End, burst: usize, wait: Wait) -> PortUri {
        let batch = match self {
            Self::Udp | Self::Raw => 1,
            Self::UdpMmsg | Self::RawMmsg => burst,
        };
        let options = SocketOptions { batch, wait };
        match self {
            Self::Udp | Self::UdpMmsg => {
                let Flow { src_port, dst_port, .. } = Flow::default();
                let local = std::net::SocketAddrV4::new(end.ip, src_port);
                let remote = Some(std::net::SocketAddrV4::new(peer.ip, dst_port));
                PortUri::Udp(UdpUri { local, remote, options })
            }
            Self::Raw | Self::RawMmsg => PortUri::Raw(RawUri {
                interface: end.interface.clone(),
                options,
                // Test frames are IPv4; asking for just that saves a clone of each.
                ethertype: Some(0x0800),
                promisc: false,
            }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A link and an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Technique {
    /// How the containers are wired.
    pub link: LinkKind,
    /// How the programs in them do their I/O.
    pub endpoint: Endpoint,
}

/// A word that names no technique.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown technique {given:?}: give LINK, ENDPOINT or LINK/ENDPOINT with links {}, endpoints {}",
    LinkKind::ALL.map(LinkKind::name).join(" "),
    Endpoint::ALL.map(Endpoint::name).join(" ")
)]
pub struct UnknownTechnique {
    given: String,
}

impl Technique {
    /// Every technique.
    pub fn all() -> impl Iterator<Item = Self> {
        LinkKind::ALL
            .into_iter()
            .flat_map(|link| Endpoint::ALL.into_iter().map(move |endpoint| Self { link, endpoint }))
    }

    /// The techniques that `text` names: a link, an endpoint, or both as `LINK/ENDPOINT`.
    pub fn select(text: &str) -> Result<Vec<Self>, UnknownTechnique> {
        let matches = |technique: &Self| {
            let (link, endpoint) = (technique.link.name(), technique.endpoint.name());
            match text.split_once('/') {
                Some(parts) => parts == (link, endpoint),
                None => text == link || text == endpoint,
            }
        };
        let found: Vec<_> = Self::all().filter(matches).collect();
        if found.is_empty() { Err(UnknownTechnique { given: text.to_owned() }) } else { Ok(found) }
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.link, self.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_technique_is_named_by_its_own_text_only() {
        for technique in Technique::all() {
            assert_eq!(Technique::select(&technique.to_string()).unwrap(), [technique]);
        }
        assert_eq!(Technique::select("veth").unwrap().len(), Endpoint::ALL.len());
        assert_eq!(Technique::select("raw").unwrap().len(), LinkKind::ALL.len());
    }

    #[test]
    fn what_is_unknown_is_named_with_what_is_allowed() {
        for text in ["", "tokenring", "veth/", "/udp", "udp/veth", "veth/udp/x"] {
            let message = Technique::select(text).unwrap_err().to_string();
            assert!(
                message.contains(&format!("{text:?}")) && message.contains("udp-mmsg"),
                "{message}"
            );
        }
    }
}
