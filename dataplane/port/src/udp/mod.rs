//! `udp:LOCAL-REMOTE`: a UDP socket. The kernel writes and parses the headers; the port removes
//! them from transmitted frames and adds equal ones to received payloads, so that its frames look
//! like those of any other port.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::Arc;

use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX};
use dray_wire::{Flow, MacAddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use dray_netdev::privilege::{Capability, NET_BIND};

use crate::socket::{
    Restore, SocketOptions, SocketReceive, SocketTransmit, Unfinished, enlarge_buffers, get_option,
    set_option,
};
use crate::uri::failed::Failed;
use crate::uri::query::{Query, UriError, write_query};
use crate::uri::scheme::{Scheme, Socket};
use crate::{PATIENCE, Port, Wait};

/// Name of a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpUri {
    /// The address that the socket is bound to.
    pub local: SocketAddrV4,
    /// The address that the socket is connected to; without one the port only receives.
    pub remote: Option<SocketAddrV4>,
    /// Batch size and how to wait.
    pub options: SocketOptions,
    /// True to transmit payloads without the kernel's copy (`MSG_ZEROCOPY`).
    pub zerocopy: bool,
}

impl UdpUri {
    /// Returns the headers of arriving frames, as far as a socket can know them.
    fn flow(&self) -> Flow {
        let remote = self.remote.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        Flow {
            src_mac: MacAddr([0; 6]),
            dst_mac: MacAddr([0; 6]),
            src_ip: *remote.ip(),
            dst_ip: *self.local.ip(),
            src_port: remote.port(),
            dst_port: self.local.port(),
        }
    }
}

impl Scheme for UdpUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let address = |text: &str| {
            text.parse().map_err(|_| {
                query.error(format!(
                    "{text:?} is not ADDRESS:PORT; udp: takes LOCAL or LOCAL-REMOTE, \
                     for example udp:10.0.0.1:9000-10.0.0.2:9000"
                ))
            })
        };
        let (local, remote) = match body.split_once('-') {
            Some((local, remote)) => (address(local)?, Some(address(remote)?)),
            None => (address(body)?, None),
        };
        let options = SocketOptions::parse(query)?;
        let zerocopy = query.flag("zerocopy", false)?;
        Ok(Self { local, remote, options, zerocopy })
    }

    /// Binds the socket, and connects it if a remote address is given.
    fn open(&self, _: Option<Socket>) -> Result<Port, Failed> {
        let fail = |what| move |errno: rustix::io::Errno| (what, errno.into());
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(fail("socket"))?;
        rustix::net::bind(&socket, &self.local).map_err(fail("bind"))?;
        let mut frame_max = FRAME_MAX;
        if let Some(remote) = self.remote {
            // Fragments would be other frames than the requested ones.
            set_option(
                socket.as_fd(),
                libc::IPPROTO_IP,
                libc::IP_MTU_DISCOVER,
                libc::IP_PMTUDISC_DO,
            )
            .map_err(|error| ("IP_MTU_DISCOVER", error))?;
            rustix::net::connect(&socket, &remote).map_err(fail("connect"))?;
            let mtu: libc::c_int = get_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU)
                .map_err(|error| ("IP_MTU", error))?;
            frame_max = frame_max.min(mtu.unsigned_abs() as usize + ETHERNET_LEN);
        }
        enlarge_buffers(socket.as_fd()).map_err(|error| ("SO_RCVBUF", error))?;
        for direction in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, direction, Some(PATIENCE))
                .map_err(fail("SO_RCVTIMEO"))?;
        }
        let (socket, restore) = (Arc::new(socket), Restore::Headers(self.flow()));
        let mut rx = SocketReceive::new(socket.clone(), self.options, restore);
        let mut tx = SocketTransmit::new(socket.clone(), self.options, true, frame_max);
        if self.zerocopy {
            let unfinished = Unfinished::new(socket);
            let unfinished = Arc::new(unfinished.map_err(|error| ("SO_ZEROCOPY", error))?);
            (rx, tx) = (rx.with_zerocopy(unfinished.clone()), tx.with_zerocopy(unfinished));
        }
        Ok(Port { rx: vec![Box::new(rx)], tx: vec![Box::new(tx)], link: None })
    }

    fn capabilities(&self, what: &str) -> &'static [Capability] {
        match what {
            "bind" => &[NET_BIND],
            _ => &[],
        }
    }

    fn wait(&self) -> Wait {
        self.options.wait
    }

    fn only_receives(&self) -> bool {
        self.remote.is_none()
    }

    fn is_one_flow(&self) -> bool {
        true
    }
}

impl fmt::Display for UdpUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp:{}", self.local)?;
        if let Some(remote) = self.remote {
            write!(f, "-{remote}")?;
        }
        let mut pairs = self.options.pairs();
        if self.zerocopy {
            pairs.push(("zerocopy", "1".to_owned()));
        }
        write_query(f, pairs)
    }
}
