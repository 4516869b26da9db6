//! A stand-in for a network card of the "host": one end of a veth pair whose other end is up as
//! well, with no station behind it.

use dray_wire::MacAddr;

use super::segment::{Host, Segment};
use crate::LabError;
use crate::netlink::NewInterface;

/// Name of a segment's parent on the "host".
pub(super) fn name(segment: u32) -> String {
    format!("p{segment}")
}

/// The other end of a parent's wire.
pub(super) struct Outside {
    pub(super) index: u32,
    pub(super) mac: MacAddr,
}

impl Segment<'_> {
    /// Creates a "host" interface that containers' interfaces can share. Returns its index, and the
    /// other end of its wire.
    pub(super) fn create_parent(&self) -> Result<(u32, Outside), LabError> {
        let [here, mac] = self.links[0].ends.each_ref().map(|end| end.id.card_mac());
        let [parent, index] = self.create_host_pair(self.number, [here, mac])?;
        Ok((parent, Outside { index, mac }))
    }

    /// Creates a veth pair on the "host" with both ends up; returns their indices.
    pub(super) fn create_host_pair(
        &self,
        number: u32,
        macs: [MacAddr; 2],
    ) -> Result<[u32; 2], LabError> {
        let Host { namespace, netlink } = self.host();
        let names = [name(number), format!("q{number}")];
        let end = |side: usize| NewInterface {
            namespace,
            name: &names[side],
            mac: Some(macs[side]),
            mtu: self.mtu,
        };
        netlink.create_veth(end(0), end(1)).map_err(self.doing("parent"))?;
        let mut indices = [0; 2];
        for (index, name) in indices.iter_mut().zip(&names) {
            *index = netlink.interface(name).map_err(self.doing("parent"))?.index;
            netlink.set_up(*index).map_err(self.doing("parent"))?;
        }
        names.iter().try_for_each(|name| self.wait_until_running(netlink, name))?;
        Ok(indices)
    }
}
