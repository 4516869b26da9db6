//! Open vSwitch on the "host", with a veth pair to each container.

use std::io;

use super::end::{Link, LinkOptions};
use super::kind::LinkKind;
use super::segment::Segment;
use super::veth;
use crate::modules::Modules;
use crate::peer::{Bridge, BridgePort, Datapath, PeerDir, PeerSwitch};
use crate::{ContainerId, Lab, LabError};

pub(super) fn link(
    lab: &mut Lab,
    (kind, datapath): (LinkKind, Datapath),
    pairs: &[[ContainerId; 2]],
    options: LinkOptions,
) -> Result<Vec<Link>, LabError> {
    let dir = lab.dir()?;
    let mut switch = None;
    let links = lab.link_interfaces(kind, pairs, options, |segment| {
        switch = Some(start(segment, &dir, datapath, options.switch_cpu)?);
        Ok(None)
    })?;
    switch.into_iter().for_each(|switch| lab.set_switch(switch));
    Ok(links)
}

fn start(
    segment: &Segment<'_>,
    dir: &PeerDir,
    datapath: Datapath,
    cpu: usize,
) -> Result<PeerSwitch, LabError> {
    let host = segment.host();
    let dir = dir.within(host.namespace).map_err(segment.doing("network namespace"))?;
    if datapath == Datapath::Kernel {
        let found = host.namespace.enter(has_kernel_datapath);
        if !found.map_err(segment.doing("families of netlink"))? {
            let remedy = Modules::of_running_kernel().remedy("openvswitch", "CONFIG_OPENVSWITCH");
            return Err(LabError::NotInKernel { what: "openvswitch".to_owned(), remedy });
        }
    }
    for end in segment.ends() {
        segment.create_port(host, end)?;
        if datapath != Datapath::Kernel {
            segment.compute_checksums(end)?;
        }
    }
    segment.set_up()?;
    segment.ends().try_for_each(|end| segment.wait_for_port(host, end))?;
    let port = |end| BridgePort { interface: veth::port_name(end), station: end.station };
    // An addressed end is its own station.
    let bridge = Bridge { datapath, cpu, ports: segment.ends().map(port).collect() };
    PeerSwitch::start_bridge(&dir, &bridge, segment.lab.cancel())
}

fn has_kernel_datapath() -> io::Result<bool> {
    Ok(dray_netdev::families()?.iter().any(|family| family.name == "ovs_datapath"))
}
