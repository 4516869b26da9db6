//! A checked topology: what is to be created.

use std::net::Ipv4Addr;

use super::network::Network;
use crate::LinkKind;
use crate::link::Functions;

/// Name of the container that represents the host and is in every lab.
pub const HOST: &str = "host";

/// A checked topology file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Default name of a lab with this topology.
    pub name: String,
    /// Containers, without the host.
    pub containers: Vec<ContainerPlan>,
    /// Links, in the order in which they are created.
    pub links: Vec<LinkPlan>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPlan {
    /// Name of the container, and its host name inside.
    pub name: String,
    /// CPUs that it may use; empty = all CPUs of the lab.
    pub cpus: Vec<usize>,
    /// Shell command line, started once all links exist.
    pub run: Option<String>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Kind of the link.
    pub kind: LinkKind,
    /// Ends: two, or more if the kind joins more than two.
    pub ends: Vec<EndPlan>,
    /// IPv4 network of its ends, if they have addresses.
    pub network: Option<Network>,
    /// MTU of its interfaces, in bytes.
    pub mtu: u32,
    /// CPU of its switch, if it has one.
    pub cpu: Option<usize>,
    /// Network card of the machine whose virtual functions become the ends, for kinds that need a
    /// card.
    pub parent: Option<String>,
    /// Settings of those virtual functions.
    pub functions: Functions,
    /// True if the programs at its ends attach their own XDP programs.
    pub xdp_programs: bool,
}

/// End of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndPlan {
    /// Name of the container.
    pub container: String,
    /// Port number in that container, from 0, in the order of the links.
    pub port: usize,
    /// Name of the port in the container: an interface's name, or `socketN`.
    pub name: String,
    /// Address in the link's network.
    pub address: Option<Ipv4Addr>,
}

impl Topology {
    /// Returns the ports of a container, each with its link.
    pub fn ports(&self, container: &str) -> impl Iterator<Item = (&LinkPlan, &EndPlan)> {
        let ends = self.links.iter().flat_map(|link| link.ends.iter().map(move |end| (link, end)));
        ends.filter(move |(_, end)| end.container == container)
    }

    /// Returns true if a link ends at the host.
    pub fn has_host(&self) -> bool {
        self.ports(HOST).next().is_some()
    }
}

impl LinkPlan {
    /// Returns an end's address with the prefix length, such as `10.0.0.1/24`.
    pub fn address(&self, end: &EndPlan) -> Option<String> {
        let (network, address) = (self.network?, end.address?);
        Some(format!("{address}/{}", network.prefix_len()))
    }
}
