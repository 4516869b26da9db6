//! Open vSwitch on the "host", with a veth pair to each container.

use std::io;

use super::segment::Segment;
use super::veth;
use crate::LabError;
use crate::modules::Modules;
use crate::peer::{Bridge, BridgePort, Datapath, PeerDir, PeerSwitch};

pub(super) fn start(
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
