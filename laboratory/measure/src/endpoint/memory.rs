//! Shared-memory drivers and devices.

use dray_lab::link::EndKind;
use dray_lab::peer::Protocol;
use dray_lab::{Attachment, End};
use dray_port::PortUri;

use super::facts::Facts;

/// Layout of rings in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rings {
    /// Split virtqueues.
    Split,
    /// Packed virtqueues.
    Packed,
    Memif,
}

impl Rings {
    pub(super) fn facts(self) -> Facts {
        Facts::of(EndKind::Memory(match self {
            Self::Memif => Protocol::Memif,
            Self::Split | Self::Packed => Protocol::VhostUser,
        }))
    }

    /// URI of a port that never sleeps: a role that shares its CPU yields.
    pub(super) fn uri(self, end: &End) -> Option<PortUri> {
        let path = end.socket()?.display();
        let uri = match &end.attachment {
            Attachment::Device(_) => format!("vhost:{path}?wait=poll"),
            Attachment::Memif(_) => format!("memif:{path}?wait=poll"),
            _ => {
                let packed = u8::from(self == Self::Packed);
                format!("virtio:{path}?packed={packed}&hugepages=0&wait=poll")
            }
        };
        Some(uri.parse().expect("the lab's sockets have short names"))
    }
}
