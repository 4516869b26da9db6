//! Veth pairs: from container to container, or from a host to a container.

use super::end::End;
use super::segment::{Host, KeepAlive, Segment};
use crate::LabError;
use crate::netlink::NewInterface;

/// Makes a pair for each link, with one end in each container.
pub(super) fn wire(segment: &Segment<'_>) -> Result<KeepAlive, LabError> {
    for link in segment.links {
        let [a, b] = link.ends.each_ref().map(|end| segment.interface_at(end));
        let netlink = segment.lab[link.ends[0].container].netlink();
        netlink.create_veth(a, b).map_err(segment.doing("veth pair"))?;
    }
    Ok(None)
}

impl Segment<'_> {
    /// Makes a pair from `host` to an end; returns the index of the interface on the host.
    pub(super) fn create_port(&self, host: Host<'_>, end: &End) -> Result<u32, LabError> {
        let name = port_name(end);
        let doing = |what| self.doing(&format!("{what} {name}"));
        let mac = Some(end.id.port_mac());
        let port = NewInterface { namespace: host.namespace, name: &name, mac, mtu: self.mtu };
        let created = host.netlink.create_veth(port, self.interface_at(end));
        created.map_err(doing("veth pair"))?;
        let index = host.netlink.interface(&name).map_err(doing("interface"))?.index;
        host.netlink.set_up(index).map_err(doing("set up"))?;
        Ok(index)
    }

    /// Waits until `host` can send frames to an end that is up.
    pub(super) fn wait_for_port(&self, host: Host<'_>, end: &End) -> Result<(), LabError> {
        self.wait_until_running(host.netlink, &port_name(end))
    }
}

/// Name of the host's interface that leads to `end`.
pub(super) fn port_name(end: &End) -> String {
    format!("v{}", end.id)
}
