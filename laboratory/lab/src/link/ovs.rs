//! Open vSwitch, with a veth pair to each container: on the "host", or on two hosts that a VXLAN
//! tunnel of theirs joins.

use std::io;

use super::address::PREFIX_LEN;
use super::end::End;
use super::hosts::{SecondHost, card_name};
use super::segment::{Host, Segment};
use super::veth;
use crate::LabError;
use crate::modules::Modules;
use crate::peer::{Bridge, BridgePort, Datapath, PeerDir, PeerSwitch, Vxlan};

pub(super) fn start(
    segment: &Segment<'_>,
    dir: &PeerDir,
    datapath: Datapath,
    cpu: usize,
) -> Result<PeerSwitch, LabError> {
    let host = segment.host();
    let bridge = bridge(segment, dir, host, segment.ends(), (datapath, cpu))?;
    segment.set_up()?;
    segment.ends().try_for_each(|end| segment.wait_for_port(host, end))?;
    PeerSwitch::start_bridges(&[bridge], segment.lab.cancel())
}

/// Starts a switch on each of two hosts. Both use one CPU. Their directories keep the hosts.
pub(super) fn start_on_hosts(
    segment: &Segment<'_>,
    dir: &PeerDir,
    datapath: Datapath,
    cpu: usize,
) -> Result<PeerSwitch, LabError> {
    let second = SecondHost::connect(segment)?;
    if datapath == Datapath::Kernel {
        second.set_addresses(segment)?;
    }
    let ids = segment.ids();
    let bridge_at = |side: usize| -> Result<_, LabError> {
        let host = second.hosts(segment)[side];
        let bridge = bridge(segment, dir, host, segment.ends_at(side), (datapath, cpu))?;
        let tunnel = Vxlan {
            netlink: host.netlink,
            vni: segment.number,
            card: card_name(segment),
            ends: [side, 1 - side].map(|side| (ids[side].card_mac(), ids[side].card_ip())),
            prefix_len: PREFIX_LEN,
            stations: segment.ends_at(1 - side).map(|end| end.station).collect(),
        };
        Ok(Bridge { tunnel: Some(tunnel), ..bridge })
    };
    let bridges = [bridge_at(0)?, bridge_at(1)?];
    second.set_up_ports(segment)?;
    PeerSwitch::start_bridges(&bridges, segment.lab.cancel())
}

/// Makes veth pairs from `host` to `ends`, and describes the bridge that joins them.
fn bridge<'s>(
    segment: &Segment<'_>,
    dir: &PeerDir,
    host: Host<'_>,
    ends: impl Iterator<Item = &'s End>,
    (datapath, cpu): (Datapath, usize),
) -> Result<Bridge<'s>, LabError> {
    if datapath == Datapath::Kernel {
        let found = host.namespace.enter(has_kernel_datapath);
        if !found.map_err(segment.doing("families of netlink"))? {
            let remedy = Modules::of_running_kernel().remedy("openvswitch", "CONFIG_OPENVSWITCH");
            return Err(LabError::NotInKernel { what: "openvswitch".to_owned(), remedy });
        }
    }
    let mut ports = Vec::new();
    for end in ends {
        segment.create_port(host, end)?;
        if datapath != Datapath::Kernel {
            segment.compute_checksums(end)?;
        }
        // An addressed end is its own station.
        ports.push(BridgePort { interface: veth::port_name(end), station: end.station });
    }
    let dir = dir.within(host.namespace).map_err(segment.doing("network namespace"))?;
    Ok(Bridge { dir, datapath, cpu, ports, tunnel: None })
}

fn has_kernel_datapath() -> io::Result<bool> {
    Ok(dray_netdev::families()?.iter().any(|family| family.name == "ovs_datapath"))
}
