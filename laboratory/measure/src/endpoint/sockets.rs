//! Kernel sockets: UDP, packet and Unix datagram sockets.

use std::net::SocketAddrV4;

use dray_lab::link::EndKind;
use dray_lab::runtime::Capability::{NetAdmin, NetRaw};
use dray_lab::{Attachment, End};
use dray_port::raw::RawUri;
use dray_port::udp::UdpUri;
use dray_port::unix_datagram::UnixUri;
use dray_port::{PortUri, SocketOptions, Wait};
use dray_wire::Flow;

use super::facts::{Facts, Unit};

/// Socket of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    Udp(Calls),
    Raw(Calls),
    Unix(Calls),
}

/// Number of frames per system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    One,
    Burst,
    /// A burst per call, in memory that kernel and program both map: packet sockets only.
    Ring,
    /// A burst per call, which the kernel does not copy: UDP sockets only.
    ZeroCopy,
}

impl Socket {
    pub(super) fn facts(self) -> Facts {
        let network = Facts::of(EndKind::Interface);
        // NET_ADMIN makes socket buffers as large as in other containers.
        match self {
            Self::Udp(_) => Facts { writes: Unit::Payload, privileges: &[NetAdmin], ..network },
            Self::Raw(_) => Facts { privileges: &[NetAdmin, NetRaw], ..network },
            Self::Unix(_) => {
                Facts { opens: EndKind::UnixSocket, privileges: &[NetAdmin], ..network }
            }
        }
    }

    pub(super) fn uri(self, end: &End, peer: &End, burst: usize, wait: Wait) -> Option<PortUri> {
        let options =
            |calls| SocketOptions { batch: if calls == Calls::One { 1 } else { burst }, wait };
        Some(match self {
            Self::Udp(calls) => {
                let Flow { src_port, dst_port, .. } = Flow::default();
                let local = SocketAddrV4::new(end.ip, src_port);
                let remote = Some(SocketAddrV4::new(peer.ip, dst_port));
                let zerocopy = calls == Calls::ZeroCopy;
                PortUri::Udp(UdpUri { local, remote, options: options(calls), zerocopy })
            }
            Self::Raw(calls) => PortUri::Raw(RawUri {
                interface: end.interface()?.to_owned(),
                options: options(calls),
                // Test frames are IPv4; receiving only this EtherType saves a clone of each frame.
                ethertype: Some(0x0800),
                promisc: false,
                queues: 1,
                ring: calls == Calls::Ring,
                offload: true,
            }),
            Self::Unix(calls) => {
                let Attachment::Datagrams { here, there } = &end.attachment else { return None };
                PortUri::Unix(UnixUri {
                    socket: here.clone().into(),
                    peer: Some(there.clone().into()),
                    access: Default::default(),
                    options: options(calls),
                })
            }
        })
    }
}
