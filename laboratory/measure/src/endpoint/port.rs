//! Ports of ours, by family.

use dray_lab::End;
use dray_port::{PortUri, Wait};

use super::afxdp::Afxdp;
use super::facts::Facts;
use super::memory::Rings;
use super::sockets::Socket;
use super::{netmap, tap};

/// Port of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Socket(Socket),
    Afxdp(Afxdp),
    Tap,
    Netmap,
    Memory(Rings),
}

impl Port {
    pub(super) fn facts(self) -> Facts {
        match self {
            Self::Socket(socket) => socket.facts(),
            Self::Afxdp(afxdp) => afxdp.facts(),
            Self::Tap => tap::FACTS,
            Self::Netmap => netmap::FACTS,
            Self::Memory(rings) => rings.facts(),
        }
    }

    /// URI of the port at `end` of a link whose other end is `peer`; `None` if the port does not
    /// open this kind of end.
    pub(super) fn uri(self, end: &End, peer: &End, burst: usize, wait: Wait) -> Option<PortUri> {
        match self {
            Self::Socket(socket) => socket.uri(end, peer, burst, wait),
            Self::Afxdp(afxdp) => afxdp.uri(end, wait),
            Self::Tap => tap::uri(end, wait),
            Self::Netmap => netmap::uri(end, wait),
            Self::Memory(rings) => rings.uri(end),
        }
    }
}
