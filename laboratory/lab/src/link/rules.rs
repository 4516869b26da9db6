//! A Linux bridge whose frames pass rules of netfilter, with connection tracking: those that Docker
//! writes for its bridge.

use std::fs;
use std::io;

use super::bridge;
use super::segment::{KeepAlive, Segment};
use super::wire::Filter;
use crate::modules::Modules;
use crate::process::{self, PeerDir, installed};
use crate::{LabError, NetworkNamespace};

/// Setting by which IPv4 packets in frames of bridges pass the rules for IPv4.
const SETTING: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

impl Filter {
    /// Program, and the package that has it.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Iptables => ("iptables-restore", "iptables"),
            Self::Nftables => ("nft", "nftables"),
        }
    }

    /// Returns true if this host has the program.
    pub(super) fn is_installed(self) -> bool {
        installed::find(self.program().0, None).is_some()
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
    let (program, package) = filter.program();
    let missing = || LabError::peer(program, format!("not installed; apt install {package}"));
    let mut command = process::command(installed::find(program, None).ok_or_else(missing)?);
    let bridge = bridge::name(segment.number);
    let rules = match filter {
        Filter::Iptables => {
            // Other links of the lab may have rules.
            command.arg("--noflush");
            iptables(&bridge)
        }
        Filter::Nftables => {
            command.arg("-f");
            nftables(&bridge)
        }
    };
    command.arg(dir.write(&format!("{bridge}.rules"), &rules)?);
    let dir = dir.within(host).map_err(segment.doing("network namespace"))?;
    process::run(&dir, &mut command)?;
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

/// Rules for iptables-restore(8). Docker drops everything else that is forwarded; here only frames
/// of the bridge are dropped, since a lab may have other links.
fn iptables(bridge: &str) -> String {
    format!(
        "*filter
:DOCKER -
:DOCKER-USER -
:DOCKER-ISOLATION-STAGE-1 -
:DOCKER-ISOLATION-STAGE-2 -
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o {bridge} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o {bridge} -j DOCKER
-A FORWARD -i {bridge} ! -o {bridge} -j ACCEPT
-A FORWARD -i {bridge} -o {bridge} -j ACCEPT
-A FORWARD -i {bridge} -j DROP
-A DOCKER-ISOLATION-STAGE-1 -i {bridge} ! -o {bridge} -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o {bridge} -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
*nat
:DOCKER -
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 198.18.0.0/15 ! -o {bridge} -j MASQUERADE
-A DOCKER -i {bridge} -j RETURN
COMMIT
"
    )
}

/// Rules for nft(8), equal to those for iptables.
fn nftables(bridge: &str) -> String {
    format!(
        "table ip {bridge}-filter {{
    chain docker {{ }}
    chain docker-user {{ return; }}
    chain docker-isolation-stage-2 {{
        oifname \"{bridge}\" counter drop
        return
    }}
    chain docker-isolation-stage-1 {{
        iifname \"{bridge}\" oifname != \"{bridge}\" counter jump docker-isolation-stage-2
        return
    }}
    chain forward {{
        type filter hook forward priority filter;
        jump docker-user
        jump docker-isolation-stage-1
        oifname \"{bridge}\" ct state related,established counter accept
        oifname \"{bridge}\" jump docker
        iifname \"{bridge}\" oifname != \"{bridge}\" counter accept
        iifname \"{bridge}\" oifname \"{bridge}\" counter accept
        iifname \"{bridge}\" counter drop
    }}
}}
table ip {bridge}-nat {{
    chain docker {{ iifname \"{bridge}\" counter return; }}
    chain prerouting {{
        type nat hook prerouting priority dstnat;
        fib daddr type local counter jump docker
    }}
    chain postrouting {{
        type nat hook postrouting priority srcnat;
        ip saddr 198.18.0.0/15 oifname != \"{bridge}\" counter masquerade
    }}
}}
"
    )
}
