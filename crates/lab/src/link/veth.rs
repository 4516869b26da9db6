//! Veth pairs: from container to container, or from the "host" to each container.

use super::{End, Held, Segment};
use crate::LabError;
use crate::netlink::VethEnd;

/// Makes a pair for each link, with one end in each container.
pub(super) fn wire(segment: &Segment<'_>) -> Result<Held, LabError> {
    for link in segment.links {
        let [a, b] = &link.ends;
        let netlink = segment.lab[a.container].netlink();
        netlink
            .create_veth(segment.veth_end(a), segment.veth_end(b), segment.mtu)
            .map_err(segment.doing("veth pair"))?;
    }
    Ok(None)
}

impl Segment<'_> {
    /// Makes a pair from the "host" to each end; the indices of the interfaces on the "host", in the
    /// order of the [ends](Self::ends).
    pub(super) fn create_ports(&self) -> Result<Vec<u32>, LabError> {
        let host = self.lab.host();
        let create = |end: &End| {
            let name = port_name(end);
            let doing = |what| self.doing(&format!("{what} {name}"));
            let mac = end.place.port_mac();
            let port = VethEnd { namespace: host.namespace(), name: &name, mac };
            let netlink = host.netlink();
            netlink.create_veth(port, self.veth_end(end), self.mtu).map_err(doing("veth pair"))?;
            let index = netlink.interface(&name).map_err(doing("interface"))?.index;
            netlink.set_up(index).map_err(doing("set up"))?;
            Ok(index)
        };
        self.ends().map(create).collect()
    }

    /// Sets up all ends, and waits until the "host" can send them frames.
    pub(super) fn set_up_ports(&self) -> Result<(), LabError> {
        self.set_up()?;
        let netlink = self.lab.host().netlink();
        self.ends().try_for_each(|end| self.wait_until_running(netlink, &port_name(end)))
    }

    fn veth_end<'a>(&'a self, end: &'a End) -> VethEnd<'a> {
        let namespace = self.lab[end.container].namespace();
        VethEnd { namespace, name: end.name(), mac: end.mac }
    }
}

/// The interface on the "host" that leads to `end`.
fn port_name(end: &End) -> String {
    format!("v{}", end.place)
}
