//! Networks that a runtime creates for its containers.

use std::net::Ipv4Addr;
use std::process::Command;

use super::engine::Engine;
use super::kind::Runtime;
use super::{docker, podman};
use crate::namespace::Init;
use crate::process::Process;
use crate::{Cancel, LabError};

/// Network driver, as `docker` and `podman` call it; in LXC, the type of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A Linux bridge with a veth pair for each container.
    Bridge,
    /// A Linux bridge with rules of netfilter that the engine writes.
    FilteredBridge,
    /// macvlan in bridge mode.
    Macvlan,
    /// ipvlan in L2 mode.
    IpvlanL2,
    /// ipvlan in L3 mode.
    IpvlanL3,
}

/// Parameters of a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network<'a> {
    /// Network driver.
    pub(crate) driver: Driver,
    /// Interface of the "host" that the network needs: the parent, or for LXC the bridge.
    pub(crate) base: Option<&'a str>,
    /// MTU in bytes.
    pub(crate) mtu: u32,
}

/// Returns the name of a network, by its number.
fn name(number: usize) -> String {
    format!("dray{number}")
}

/// Addresses of the containers, from the shared address space for carriers (RFC 6598), so that they
/// do not overlap with those of a [link](crate::link).
const FIRST: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);
const PREFIX_LEN: u8 = 16;

/// Returns the first address of a network, by its number.
fn subnet(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + ((number as u32) << (32 - PREFIX_LEN)))
}

/// Returns the address of a lab's container in a network, by their numbers.
pub(crate) fn address(number: usize, container: usize) -> Ipv4Addr {
    // The first address is the engine's.
    Ipv4Addr::from_bits(subnet(number).to_bits() + 2 + container as u32)
}

impl Driver {
    /// Returns the engines' name for the driver.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bridge | Self::FilteredBridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::IpvlanL2 | Self::IpvlanL3 => "ipvlan",
        }
    }

    /// Returns the mode of the driver of that name; empty for a bridge.
    fn mode(self) -> &'static str {
        match self {
            Self::Bridge | Self::FilteredBridge => "",
            Self::Macvlan => "bridge",
            Self::IpvlanL2 => "l2",
            Self::IpvlanL3 => "l3",
        }
    }

    /// Returns true if the network is a bridge.
    pub(crate) fn is_bridge(self) -> bool {
        matches!(self, Self::Bridge | Self::FilteredBridge)
    }

    /// Returns true if the network is created on a parent interface.
    pub(crate) fn has_parent(self) -> bool {
        !self.is_bridge()
    }
}

impl Engine {
    /// Creates the first network, which all containers of the engine join.
    pub(crate) fn make_network(
        &mut self,
        network: Network<'_>,
        host: &Init,
        cancel: &Cancel,
    ) -> Result<(), LabError> {
        self.network = Some(if self.runtime == Runtime::Lxc {
            // The containers' configurations define the network.
            lxc_lines(network)
        } else {
            self.create_network(0, network, host, cancel)?;
            name(0)
        });
        Ok(())
    }

    /// Creates a network, by its number.
    pub(crate) fn create_network(
        &self,
        number: usize,
        network: Network<'_>,
        host: &Init,
        cancel: &Cancel,
    ) -> Result<(), LabError> {
        let client = self.network_client()?;
        self.run_client(create_command(client, self.runtime, number, network), host, cancel)
    }

    /// Lets a running container join a network, by its number, with this address.
    pub(crate) fn connect(
        &self,
        number: usize,
        container: &str,
        address: Ipv4Addr,
        host: &Init,
        cancel: &Cancel,
    ) -> Result<(), LabError> {
        let mut client = self.network_client()?;
        client.args(["network", "connect", "--ip", &*address.to_string(), &*name(number)]);
        client.arg(container);
        self.run_client(client, host, cancel)
    }

    /// Returns the command that manages networks.
    fn network_client(&self) -> Result<Command, LabError> {
        match self.runtime {
            Runtime::Docker => Ok(docker::client(self)),
            Runtime::Podman => Ok(podman::client(self)),
            other => Err(LabError::Runtime {
                runtime: other.name(),
                what: "its containers have one network, but this topology needs several; use \
                       docker or podman"
                    .to_owned(),
            }),
        }
    }

    fn run_client(
        &self,
        mut command: Command,
        host: &Init,
        cancel: &Cancel,
    ) -> Result<(), LabError> {
        let name = format!("{} network", self.runtime);
        let mut client = Process::start_within(host, &self.dir, &name, &mut command)?;
        client.wait_until_done(cancel)
    }
}

fn create_command(
    mut command: Command,
    runtime: Runtime,
    number: usize,
    network: Network<'_>,
) -> Command {
    let Network { driver, base, mtu } = network;
    let subnet = format!("{}/{PREFIX_LEN}", subnet(number));
    command.args(["network", "create", "--driver", driver.name(), "--subnet", &*subnet]);
    let mut option = |name: &str, value: &str| {
        command.arg("--opt").arg(format!("{name}={value}"));
    };
    let is_docker = runtime == Runtime::Docker;
    // Other interfaces inherit their parent's MTU.
    if driver.is_bridge() {
        option(if is_docker { "com.docker.network.driver.mtu" } else { "mtu" }, &mtu.to_string());
    }
    base.into_iter().for_each(|parent| option("parent", parent));
    if !driver.mode().is_empty() {
        let name = if is_docker { &format!("{}_mode", driver.name()) } else { "mode" };
        option(name, driver.mode());
    }
    if !is_docker {
        // The network has no route outside, so it needs no firewall, and no container resolves
        // names.
        command.args(["--internal", "--disable-dns"]);
    }
    command.arg(name(number));
    command
}

/// Returns the lines of a container's configuration, without the address.
fn lxc_lines(Network { driver, base, mtu }: Network<'_>) -> String {
    let kind = match driver {
        Driver::Bridge | Driver::FilteredBridge => "veth",
        other => other.name(),
    };
    let base = base.expect("LXC makes nothing but the containers' interfaces");
    let mode = match driver {
        Driver::Bridge | Driver::FilteredBridge => String::new(),
        other => format!("lxc.net.0.{kind}.mode = {}\n", other.mode()),
    };
    format!(
        "lxc.net.0.type = {kind}\n\
         {mode}\
         lxc.net.0.link = {base}\n\
         lxc.net.0.name = eth0\n\
         lxc.net.0.flags = up\n\
         lxc.net.0.mtu = {mtu}\n"
    )
}

/// Returns the line with an LXC container's address.
pub(super) fn lxc_address(address: Ipv4Addr) -> String {
    format!("lxc.net.0.ipv4.address = {address}/{PREFIX_LEN}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_arguments_of_each_engine() {
        let network = |driver, base| Network { driver, base, mtu: 9000 };
        let arguments = |runtime, network| {
            let command = create_command(Command::new("engine"), runtime, 1, network);
            let words = command.get_args().map(|word| word.to_str().unwrap().to_owned());
            words.skip(2).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            arguments(Runtime::Docker, network(Driver::Bridge, None)),
            "--driver bridge --subnet 100.65.0.0/16 --opt com.docker.network.driver.mtu=9000 dray1"
        );
        assert_eq!(
            arguments(Runtime::Docker, network(Driver::IpvlanL3, Some("p0"))),
            "--driver ipvlan --subnet 100.65.0.0/16 --opt parent=p0 --opt ipvlan_mode=l3 dray1"
        );
        assert_eq!(
            arguments(Runtime::Podman, network(Driver::Macvlan, Some("p0"))),
            "--driver macvlan --subnet 100.65.0.0/16 --opt parent=p0 --opt mode=bridge --internal \
             --disable-dns dray1"
        );
        let lines = lxc_lines(network(Driver::Bridge, Some("br0")));
        assert!(lines.starts_with("lxc.net.0.type = veth\nlxc.net.0.link = br0\n"), "{lines}");
    }
}
