//! Byte streams.

use std::net::SocketAddrV4;

use dray_lab::End;
use dray_lab::link::EndKind;
use dray_lab::runtime::{Capability::IpcLock, Privileges};
use dray_traffic::StreamUri;
use dray_traffic::stream::Family;
use dray_wire::Flow;

use super::facts::{Facts, Requirement, Unit};

/// Socket of a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(super) family: Family,
    /// True if the sender asks the kernel not to copy.
    pub(super) zerocopy: bool,
    /// True if a BPF socket map short-cuts TCP.
    pub(crate) short_cut: bool,
}

impl Stream {
    pub(super) const TCP: Self = Self { family: Family::Tcp, zerocopy: false, short_cut: false };

    pub(super) fn facts(self) -> Facts {
        let requires = match self.family {
            Family::Tcp => None,
            Family::Smc => Some(Requirement::Smc),
        };
        // Pages sent without a copy count against a limit of locked memory.
        let privileges: Privileges = if self.zerocopy { &[IpcLock] } else { &[] };
        let frames = Facts::of(EndKind::Interface);
        Facts { writes: Unit::Stream, requires, privileges, ..frames }
    }

    /// Address at `end` on which a receiver listens.
    pub(crate) fn uri(self, end: &End) -> StreamUri {
        let address = SocketAddrV4::new(end.ip, Flow::default().dst_port);
        StreamUri { zerocopy: self.zerocopy, ..StreamUri::new(self.family, address) }
    }

    /// Returns true if something else than TCP is meant to carry the bytes, though TCP could.
    pub(crate) fn bypasses_tcp(self) -> bool {
        self.short_cut || self.family == Family::Smc
    }
}
