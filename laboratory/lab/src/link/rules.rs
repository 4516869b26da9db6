//! A Linux bridge whose frames pass rules of netfilter, with connection tracking: those that Docker
//! writes for its bridge.

use std::fs;
use std::io;
use std::process::Command;

use super::bridge;
use super::segment::{KeepAlive, Segment};
use super::wire::Filter;
use crate::modules::Modules;
use crate::process::{self, PeerDir, installed};
use crate::{LabError, NetworkNamespace};

/// Setting by which IPv4 packets in frames of bridges pass the rules for IPv4.
const SETTING: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

impl Filter {
    /// Programs that run a command and load a file of rules, and the package that has them.
    fn programs(self) -> ([&'static str; 2], &'static str) {
        match self {
            Self::Iptables => (["iptables", "iptables-restore"], "iptables"),
            Self::Nftables => (["nft", "nft"], "nftables"),
        }
    }

    /// Returns true if this host has the programs.
    pub(super) fn is_installed(self) -> bool {
        self.programs().0.iter().all(|program| installed::find(program, None).is_some())
    }

    /// Arguments of a command that makes the chain or table of [`common`](Self::common), and fails
    /// if there is one.
    fn new_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Iptables => &["--new-chain", "DOCKER-USER"],
            Self::Nftables => &["create", "table", "ip", "docker-filter"],
        }
    }

    fn run(self, dir: &PeerDir, arguments: &[&str]) -> Result<String, LabError> {
        let ([program, _], _) = self.programs();
        process::run(dir, self.command(program)?.args(arguments))
    }

    /// Adds rules to those that are there.
    fn load(self, dir: &PeerDir, file: &str, rules: &str) -> Result<String, LabError> {
        let ([_, program], _) = self.programs();
        let option = match self {
            Self::Iptables => "--noflush",
            Self::Nftables => "--file",
        };
        process::run(dir, self.command(program)?.arg(option).arg(dir.write(file, rules)?))
    }

    fn command(self, program: &str) -> Result<Command, LabError> {
        let (_, package) = self.programs();
        let missing = || LabError::peer(program, format!("not installed; apt install {package}"));
        Ok(process::command(installed::find(program, None).ok_or_else(missing)?))
    }

    /// Rules that Docker writes once.
    fn common(self) -> &'static str {
        match self {
            Self::Iptables => {
                "*filter
:DOCKER -
:DOCKER-USER -
:DOCKER-ISOLATION-STAGE-1 -
:DOCKER-ISOLATION-STAGE-2 -
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
*nat
:DOCKER -
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
COMMIT
"
            }
            Self::Nftables => {
                "table ip docker-filter {
    chain docker { }
    chain docker-user { return; }
    chain docker-isolation-stage-2 { return; }
    chain docker-isolation-stage-1 { return; }
    chain forward {
        type filter hook forward priority filter;
        jump docker-user
        jump docker-isolation-stage-1
    }
}
table ip docker-nat {
    chain docker { }
    chain prerouting {
        type nat hook prerouting priority dstnat;
        fib daddr type local counter jump docker
    }
    chain postrouting { type nat hook postrouting priority srcnat; }
}
"
            }
        }
    }

    /// Rules that Docker writes for a bridge and its networks. Docker drops everything else that is
    /// forwarded; here only frames of the bridge are dropped, since a lab may have other links.
    fn of_bridge(self, bridge: &str, networks: &[String]) -> String {
        match self {
            Self::Iptables => format!(
                "*filter
-A FORWARD -o {bridge} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o {bridge} -j DOCKER
-A FORWARD -i {bridge} ! -o {bridge} -j ACCEPT
-A FORWARD -i {bridge} -o {bridge} -j ACCEPT
-A FORWARD -i {bridge} -j DROP
-I DOCKER-ISOLATION-STAGE-1 -i {bridge} ! -o {bridge} -j DOCKER-ISOLATION-STAGE-2
-I DOCKER-ISOLATION-STAGE-2 -o {bridge} -j DROP
COMMIT
*nat
-A POSTROUTING -s {} ! -o {bridge} -j MASQUERADE
-I DOCKER -i {bridge} -j RETURN
COMMIT
",
                networks.join(",")
            ),
            // Equal to those for iptables.
            Self::Nftables => format!(
                "add rule ip docker-filter forward oifname {bridge} \
                    ct state related,established counter accept
add rule ip docker-filter forward oifname {bridge} jump docker
add rule ip docker-filter forward iifname {bridge} oifname != {bridge} counter accept
add rule ip docker-filter forward iifname {bridge} oifname {bridge} counter accept
add rule ip docker-filter forward iifname {bridge} counter drop
insert rule ip docker-filter docker-isolation-stage-1 iifname {bridge} oifname != {bridge} \
    counter jump docker-isolation-stage-2
insert rule ip docker-filter docker-isolation-stage-2 oifname {bridge} counter drop
add rule ip docker-nat postrouting ip saddr {{ {} }} oifname != {bridge} counter masquerade
insert rule ip docker-nat docker iifname {bridge} counter return
",
                networks.join(", ")
            ),
        }
    }
}

pub(super) fn wire(
    segment: &Segment<'_>,
    dir: &PeerDir,
    filter: Filter,
) -> Result<KeepAlive, LabError> {
    let held = bridge::wire(segment)?;
    let host = segment.host().namespace;
    pass_frames(host).map_err(|error| not_in_kernel(segment, error))?;
    let dir = dir.within(host).map_err(segment.doing("network namespace"))?;
    let bridge = bridge::name(segment.number);
    let networks: Vec<_> = segment.ends_at(0).map(|end| end.id.network()).collect();
    // The first command fails if a link of the lab has made the chain or table.
    if filter.run(&dir, filter.new_arguments()).is_ok() {
        filter.load(&dir, "docker.rules", filter.common())?;
    }
    filter.load(&dir, &format!("{bridge}.rules"), &filter.of_bridge(&bridge, &networks))?;
    Ok(held)
}

/// Makes frames of bridges in `host` pass rules for IPv4.
pub(super) fn pass_frames(host: &NetworkNamespace) -> io::Result<()> {
    host.enter(|| fs::write(SETTING, "1"))
}

/// Returns the error if [`pass_frames`] fails.
pub(super) fn not_in_kernel(segment: &Segment<'_>, error: io::Error) -> LabError {
    if error.kind() != io::ErrorKind::NotFound {
        return segment.doing(SETTING)(error);
    }
    LabError::NotInKernel {
        what: "br_netfilter".to_owned(),
        remedy: Modules::of_running_kernel().remedy("br_netfilter", "CONFIG_BRIDGE_NETFILTER"),
    }
}
