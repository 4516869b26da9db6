//! Opening a VXLAN port.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dray_netdev::privilege::{Capability, NET_BIND, SYS_ADMIN};
use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX};
use dray_wire::ip::{IPV4_LEN, IPV6_LEN};
use dray_wire::udp::UDP_LEN;
use dray_wire::vxlan::VXLAN_LEN;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, sockopt};

use super::memory::{Limits, Memory};
use super::receive::VxlanReceive;
use super::remotes::{Learned, Sources};
use super::sockets::Sockets;
use super::stations::Stations;
use super::transmit::VxlanTransmit;
use super::uri::{Learn, VxlanUri};
use crate::session::passed::describe;
use crate::session::snapshot::{PortSnapshot, Resumption};
use crate::socket::{enlarge_buffers, get_option, set_option};
use crate::uri::failed::{Failed, refused};
use crate::uri::netns;
use crate::uri::query::{Query, UriError};
use crate::uri::scheme::{Claim, Scheme, Socket};
use crate::{FRAME_LIMIT, PATIENCE, Port, Wait};

/// MTU of a path that is not known: Ethernet's.
const MTU_USUAL: usize = 1500;

fn fail(what: &'static str) -> impl Fn(Errno) -> Failed {
    move |errno| (what, errno.into())
}

impl Sockets {
    /// Creates the sockets in the network namespace of the calling thread.
    pub(super) fn open(uri: &VxlanUri) -> Result<Self, Failed> {
        let receiving = bound(uri.local)?;
        enlarge_buffers(receiving.as_fd()).map_err(|error| ("SO_RCVBUF", error))?;
        sockopt::set_socket_timeout(&receiving, sockopt::Timeout::Recv, Some(PATIENCE))
            .map_err(fail("SO_RCVTIMEO"))?;
        if uri.gso {
            set_option(receiving.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1)
                .map_err(|error| ("UDP_GRO", error))?;
        }
        let transmitting = (0..uri.flows).map(|_| transmitting(uri)).collect::<Result<_, _>>()?;
        Ok(Self { receiving, transmitting })
    }

    /// Checks sockets that another program has opened by [`open`](Self::open).
    pub(super) fn handed(uri: &VxlanUri, descriptors: Vec<OwnedFd>) -> Result<Self, Failed> {
        let expected = 1 + usize::from(uri.flows);
        if descriptors.len() != expected {
            let (have, flows) = (descriptors.len(), uri.flows);
            return Err(refused(format!(
                "there are {have}; give {expected}: a socket that receives, and one for each of \
                 {flows} flows"
            )));
        }
        for (index, descriptor) in descriptors.iter().enumerate() {
            let is_udp = sockopt::socket_type(descriptor) == Ok(SocketType::DGRAM)
                && sockopt::socket_domain(descriptor) == Ok(family(uri.local));
            let address = getsockname(descriptor).ok().and_then(|name| name.try_into().ok());
            let is_right = |address: SocketAddr| match index {
                0 => address == uri.local,
                _ => address.ip() == uri.local.ip(),
            };
            if !is_udp || !address.is_some_and(is_right) {
                let (what, local) = (describe(descriptor), uri.local);
                let port = if index == 0 { local.to_string() } else { local.ip().to_string() };
                return Err(refused(format!(
                    "number {} is {what}; give a UDP socket that is bound to {port}",
                    index + 1
                )));
            }
        }
        let mut descriptors = descriptors.into_iter();
        let receiving = descriptors.next().expect("one more than flows");
        Ok(Self { receiving, transmitting: descriptors.collect() })
    }

    pub(super) fn into_descriptors(self) -> Vec<OwnedFd> {
        [self.receiving].into_iter().chain(self.transmitting).collect()
    }

    /// Returns the lengths of frames that the paths to all remotes carry.
    pub(super) fn frame_limits(&self, uri: &VxlanUri) -> Result<Limits, Failed> {
        let ip_len = if uri.local.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let longest_of = |mtu: usize| mtu.saturating_sub(ip_len + UDP_LEN + VXLAN_LEN);
        let mtu_of = |longest: usize| longest.min(FRAME_MAX).saturating_sub(ETHERNET_LEN);
        let paths = uri
            .remotes
            .iter()
            .map(|remote| path_mtu(&self.transmitting[0], *remote).map(|mtu| (mtu, remote.ip())));
        let paths: Vec<_> = paths.collect::<Result<_, _>>()?;
        let Some((path_mtu, remote)) = paths.into_iter().min() else {
            // The user may know the paths to hosts that are to be learned.
            let longest = longest_of(MTU_USUAL);
            let frame_max = uri.mtu.unwrap_or(mtu_of(longest)) + ETHERNET_LEN;
            return Ok(Limits { frame_max, longest: longest.max(frame_max) });
        };
        let longest = longest_of(path_mtu);
        let (mtu, mtu_max) = (uri.mtu.unwrap_or(mtu_of(longest)), mtu_of(longest));
        if mtu > mtu_max {
            let what = format!(
                "{mtu}: the path to {remote} carries packets of {path_mtu} bytes; allowed is at \
                 most {mtu_max}"
            );
            return Err(("mtu", io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        Ok(Limits { frame_max: mtu + ETHERNET_LEN, longest: longest.min(FRAME_LIMIT) })
    }
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn bound(address: SocketAddr) -> Result<OwnedFd, Failed> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family(address), SocketType::DGRAM, flags, None)
        .map_err(fail("socket"))?;
    rustix::net::bind(&socket, &address).map_err(fail("bind"))?;
    Ok(socket)
}

/// Creates a socket for one flow, with a source port that the kernel chooses.
fn transmitting(uri: &VxlanUri) -> Result<OwnedFd, Failed> {
    let socket = bound(SocketAddr::new(uri.local.ip(), 0))?;
    enlarge_buffers(socket.as_fd()).map_err(|error| ("SO_SNDBUF", error))?;
    // This socket only sends: datagrams that arrive there must take no memory.
    sockopt::set_socket_recv_buffer_size(&socket, 0).map_err(fail("SO_RCVBUF"))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))
        .map_err(fail("SO_SNDTIMEO"))?;
    // RFC 7348, section 4.3: the ends of a tunnel must not fragment.
    let (level, name, value) = match uri.local {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
    };
    let set = set_option(socket.as_fd(), level, name, value);
    set.map_err(|error| ("IP_MTU_DISCOVER", error))?;
    Ok(socket)
}

/// Returns the MTU of the path to a remote, as far as the kernel knows it. The source port of
/// `socket` may change.
fn path_mtu(socket: &OwnedFd, remote: SocketAddr) -> Result<usize, Failed> {
    rustix::net::connect(socket, &remote).map_err(|errno| {
        let what = format!("{}: {}", remote.ip(), io::Error::from(errno));
        ("remote", io::Error::new(io::Error::from(errno).kind(), what))
    })?;
    let (level, name) = match remote {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mtu: libc::c_int =
        get_option(socket.as_fd(), level, name).map_err(|error| ("IP_MTU", error))?;
    rustix::net::connect_unspec(socket).map_err(fail("remote"))?;
    Ok(mtu.unsigned_abs() as usize)
}

/// Makes a port of the sockets.
fn port(uri: &VxlanUri, sockets: Sockets) -> Result<Port, Failed> {
    let memory = Memory::create(sockets.frame_limits(uri)?).map_err(|error| ("memory", error))?;
    Ok(resumed(uri, sockets, memory))
}

/// Makes a port of the sockets and the memory of another process.
fn resumed(uri: &VxlanUri, sockets: Sockets, memory: Memory) -> Port {
    let remotes = &uri.remotes[..];
    let learned = Learned::new(memory.clone(), uri.local);
    let sources = match uri.learn {
        Learn::Listed => Sources::listed(remotes),
        Learn::Any => Sources::any(remotes, learned.clone(), uri.age_s),
    };
    // All stations are behind the one remote.
    let is_single = uri.learn == Learn::Listed && remotes.len() == 1;
    let stations = (!is_single).then(|| Arc::new(Stations::new(memory.clone(), uri.age_s)));
    let (sockets, limits) = (Arc::new(sockets), memory.limits());
    let tx = VxlanTransmit::new(
        sockets.clone(),
        uri.vni,
        uri.gso,
        limits,
        remotes,
        learned,
        stations.clone(),
    );
    let rx = VxlanReceive::new(sockets, memory, uri.vni, uri.wait, sources, stations);
    Port { rx: vec![Box::new(rx)], tx: vec![Box::new(tx)], link: None }
}

impl Scheme for VxlanUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        Self::read(body, query)
    }

    fn open(&self, _: Option<Socket>) -> Result<Port, Failed> {
        let sockets = netns::open_in(self.netns.as_deref(), || Sockets::open(self))?;
        port(self, sockets)
    }

    fn open_with(&self, descriptors: Vec<OwnedFd>) -> Result<Port, Failed> {
        port(self, Sockets::handed(self, descriptors)?)
    }

    fn resume(
        &self,
        snapshot: PortSnapshot,
        _: bool,
    ) -> Result<(Port, Option<Resumption>), Failed> {
        let (mut descriptors, _) = snapshot.into_devices();
        let memory = descriptors.pop().ok_or_else(|| refused("there are none".to_owned()))?;
        let sockets = Sockets::handed(self, descriptors)?;
        let memory = Memory::of(memory).map_err(|error| ("memory", error))?;
        Ok((resumed(self, sockets, memory), None))
    }

    fn prepare(&self) -> Result<Vec<OwnedFd>, Failed> {
        let sockets = netns::open_in(self.netns.as_deref(), || Sockets::open(self))?;
        // Errors in the MTU are reported here, too.
        sockets.frame_limits(self)?;
        Ok(sockets.into_descriptors())
    }

    fn capabilities(&self, what: &str) -> &'static [Capability] {
        match what {
            "bind" => &[NET_BIND],
            "network namespace" => &[SYS_ADMIN],
            _ => &[],
        }
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Address(self.netns.as_deref(), self.local))
    }
}
