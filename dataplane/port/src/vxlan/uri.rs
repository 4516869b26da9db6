//! The URI of a VXLAN port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX};
use dray_wire::vxlan::{VNI_MAX, VXLAN_PORT};

use crate::Wait;
use crate::uri::netns;
use crate::uri::query::{Query, UriError, write_query};

/// Maximum number of hosts in the list `remote`.
const REMOTES_MAX: usize = 256;
/// Maximum of `flows`: with the receiving socket, as many descriptors as a request to the switch
/// can have.
const FLOWS_MAX: u8 = 15;
const FLOWS_USUAL: u8 = 8;
const AGE_USUAL_S: u32 = 300;
const AGE_MAX_S: u32 = 1 << 20;
const MTU_MIN: usize = 68;
const MTU_MAX: usize = FRAME_MAX - ETHERNET_LEN;

/// Hosts that a VXLAN port accepts frames from, and learns stations behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learn {
    /// Hosts of the list `remote`.
    Listed,
    /// Any host that knows the VNI.
    Any,
}

/// Name of a VXLAN port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VxlanUri {
    /// Address and UDP port of this host.
    pub local: SocketAddr,
    /// VXLAN network identifier.
    pub vni: u32,
    /// Hosts that frames are flooded to.
    pub remotes: Vec<SocketAddr>,
    /// Hosts that frames are accepted from.
    pub learn: Learn,
    /// Time after which a silent station is forgotten, in seconds.
    pub age_s: u32,
    /// MTU of the network; `None`: what the paths to the remotes carry.
    pub mtu: Option<usize>,
    /// Number of outer source ports, among which flows are divided.
    pub flows: u8,
    /// True to let the kernel cut messages into datagrams, and merge them.
    pub gso: bool,
    /// File of the network namespace that has the local address; `None`: the calling thread's.
    pub netns: Option<PathBuf>,
    /// How to wait for frames.
    pub wait: Wait,
}

/// Parses `ADDRESS` or `ADDRESS:PORT`.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = |text: &str| text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, VXLAN_PORT));
    let address = text.parse().ok().or_else(|| bare(text))?;
    // A scope would need an interface.
    let has_scope = matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0);
    (address.port() != 0 && !has_scope).then_some(address)
}

/// Returns true if the address is that of one host, and needs no interface to be understood.
fn is_of_host(ip: IpAddr) -> bool {
    let is_local_link = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !ip.is_unspecified() && !ip.is_multicast() && !is_local_link
}

/// An address as the URI has it: without the usual port.
struct Short(SocketAddr);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.port() {
            VXLAN_PORT => self.0.ip().fmt(f),
            _ => self.0.fmt(f),
        }
    }
}

impl VxlanUri {
    /// Parses the body of the URI and the keys of `query`.
    pub(super) fn read(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let Some(local) = address(body) else {
            return Err(query.error(format!(
                "{body:?} is not ADDRESS or ADDRESS:PORT of this host; for example \
                 vxlan:10.0.0.1?vni=7&remote=10.0.0.2+10.0.0.3"
            )));
        };
        let vni = query
            .take("vni", "0 to 16777215", |text| text.parse().ok().filter(|vni| *vni <= VNI_MAX))?;
        let list = |text: &str| -> Option<Vec<_>> { text.split('+').map(address).collect() };
        let allowed = "ADDRESS or ADDRESS:PORT of 1 to 256 hosts, joined by +";
        let remotes = query
            .take("remote", allowed, |text| list(text).filter(|list| list.len() <= REMOTES_MAX))?;
        let learn = query.take("learn", "listed or any", |text| match text {
            "listed" => Some(Learn::Listed),
            "any" => Some(Learn::Any),
            _ => None,
        })?;
        let number = |min: u32, max: u32| {
            move |text: &str| text.parse().ok().filter(|n| (min..=max).contains(n))
        };
        let age = query.take("age", "1 to 1048576 seconds", number(1, AGE_MAX_S))?;
        let mtu = number(MTU_MIN as u32, MTU_MAX as u32);
        let mtu = query.take("mtu", "68 to 9000, in bytes", mtu)?;
        let flows = query.take("flows", "1 to 15", number(1, FLOWS_MAX.into()))?;
        let uri = Self {
            local,
            remotes: remotes.unwrap_or_default(),
            learn: learn.unwrap_or(Learn::Listed),
            age_s: age.unwrap_or(AGE_USUAL_S),
            mtu: mtu.map(|mtu| mtu as usize),
            flows: flows.map_or(FLOWS_USUAL, |flows| flows as u8),
            gso: query.flag("gso", true)?,
            netns: netns::parse(query)?,
            wait: Wait::parse(query)?,
            vni: vni.ok_or_else(|| query.error("no network: give vni=0 to 16777215".to_owned()))?,
        };
        uri.check(query)
    }

    fn check(self, query: &Query<'_>) -> Result<Self, UriError> {
        let fail = |what: String| Err(query.error(what));
        let local = self.local;
        if !is_of_host(local.ip()) {
            let ip = local.ip();
            return fail(format!(
                "{ip}: allowed is an address of this host, not of a group or link"
            ));
        }
        if self.remotes.is_empty() && self.learn == Learn::Listed {
            let what = "no remote: give remote=ADDRESS+ADDRESS of the other hosts, or learn=any";
            return fail(what.to_owned());
        }
        for (index, remote) in self.remotes.iter().enumerate() {
            let (text, ip) = (Short(*remote), remote.ip());
            if !is_of_host(ip) {
                return fail(format!(
                    "remote={text}: allowed are addresses of hosts, not of groups or links"
                ));
            }
            if ip.is_ipv4() != local.is_ipv4() {
                let version = if local.is_ipv4() { "IPv4" } else { "IPv6" };
                return fail(format!("remote={text}: allowed is {version}, as the local address"));
            }
            if ip == local.ip() {
                return fail(format!("remote={text}: this is the local address"));
            }
            if self.remotes[..index].iter().any(|other| other.ip() == ip) {
                return fail(format!("remote={text}: this address is given twice"));
            }
        }
        Ok(self)
    }
}

impl fmt::Display for VxlanUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vxlan:{}", Short(self.local))?;
        let remotes: Vec<_> =
            self.remotes.iter().map(|remote| Short(*remote).to_string()).collect();
        let pairs = [
            Some(("vni", self.vni.to_string())),
            (!remotes.is_empty()).then(|| ("remote", remotes.join("+"))),
            (self.learn == Learn::Any).then(|| ("learn", "any".to_owned())),
            (self.age_s != AGE_USUAL_S).then(|| ("age", self.age_s.to_string())),
            self.mtu.map(|mtu| ("mtu", mtu.to_string())),
            (self.flows != FLOWS_USUAL).then(|| ("flows", self.flows.to_string())),
            (!self.gso).then(|| ("gso", "0".to_owned())),
            self.netns.as_ref().map(|path| ("netns", path.display().to_string())),
            self.wait.pair(),
        ];
        write_query(f, pairs.into_iter().flatten())
    }
}
