//! Generic netlink, as much as it takes to ask what is there.
//!
//! Families are listed, never asked for by name: asking for an absent one by name makes the kernel
//! load its module.

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator,
    parse_string, parse_u16, parse_u32, parse_u64,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use crate::netlink::exchange;

/// `linux/genetlink.h`
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// `linux/netdev.h`, of the family `netdev`
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// What the driver of an interface can do with XDP (`enum netdev_xdp_act`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct XdpFeatures(pub(super) u64);

/// A family of messages and its number on this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Family {
    pub(super) id: u16,
    pub(super) name: String,
}

/// A message: `struct genlmsghdr` and attributes.
struct Message {
    family: u16,
    command: u8,
    attributes: Vec<u8>,
}

impl XdpFeatures {
    /// The driver runs XDP programs itself.
    pub(super) fn is_native(self) -> bool {
        self.0 & 1 != 0
    }

    /// AF_XDP sockets get frames without a copy.
    pub(super) fn has_zero_copy(self) -> bool {
        self.0 & 8 != 0
    }
}

/// The families that the kernel has now. Needs no privilege.
pub(super) fn families() -> io::Result<Vec<Family>> {
    let replies = dump(GENL_ID_CTRL, CTRL_CMD_GETFAMILY)?;
    Ok(replies.iter().filter_map(parse_family).collect())
}

/// What each interface of this network namespace can do with XDP, by the interface's index; `None`
/// where the kernel is too old to say (before 6.3).
pub(super) fn xdp_features() -> io::Result<Option<Vec<(u32, XdpFeatures)>>> {
    let Some(family) = families()?.into_iter().find(|family| family.name == "netdev") else {
        return Ok(None);
    };
    let replies = dump(family.id, NETDEV_CMD_DEV_GET)?;
    Ok(Some(replies.iter().filter_map(parse_xdp_features).collect()))
}

fn dump(family: u16, command: u8) -> io::Result<Vec<Message>> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    exchange(&socket, Message { family, command, attributes: Vec::new() }, NLM_F_DUMP)
}

fn parse_family(message: &Message) -> Option<Family> {
    Some(Family {
        id: parse_u16(message.attribute(CTRL_ATTR_FAMILY_ID)?).ok()?,
        name: parse_string(message.attribute(CTRL_ATTR_FAMILY_NAME)?).ok()?,
    })
}

fn parse_xdp_features(message: &Message) -> Option<(u32, XdpFeatures)> {
    let index = parse_u32(message.attribute(NETDEV_A_DEV_IFINDEX)?).ok()?;
    let features = parse_u64(message.attribute(NETDEV_A_DEV_XDP_FEATURES)?).ok()?;
    Some((index, XdpFeatures(features)))
}

impl Message {
    fn attribute(&self, kind: u16) -> Option<&[u8]> {
        let mut rest = self.attributes.as_slice();
        loop {
            let attribute = NlasIterator::new(rest).next()?.ok()?;
            let end = usize::from(attribute.length());
            if attribute.kind() == kind {
                return rest.get(4..end);
            }
            rest = rest.get(end.next_multiple_of(4)..)?;
        }
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        4 + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // The version that every family takes, then two reserved bytes.
        buffer[..4].copy_from_slice(&[self.command, 1, 0, 0]);
        buffer[4..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = io::Error;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> io::Result<Self> {
        let [command, _, _, _, attributes @ ..] = payload else {
            return Err(io::Error::other("a generic netlink message without its header"));
        };
        let (family, command) = (header.message_type, *command);
        Ok(Self { family, command, attributes: attributes.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn attributes_of_any_shape() {
        let attributes =
            [attribute(1, &27_u16.to_ne_bytes()), attribute(2, b"ovs_datapath\0")].concat();
        let message = |attributes| Message { family: 0x10, command: 1, attributes };
        let family = parse_family(&message(attributes.clone())).unwrap();
        assert_eq!(family, Family { id: 27, name: "ovs_datapath".to_owned() });
        for len in 0..attributes.len() - 4 {
            assert_eq!(parse_family(&message(attributes[..len].to_vec())), None, "{len}");
        }
        let features = [attribute(1, &2_u32.to_ne_bytes()), attribute(3, &9_u64.to_ne_bytes())];
        let (index, features) = parse_xdp_features(&message(features.concat())).unwrap();
        assert!(index == 2 && features.is_native() && features.has_zero_copy());
        assert_eq!(parse_xdp_features(&message(vec![0; 64])), None);
    }

    #[test]
    fn the_controller_lists_itself() {
        let families = families().unwrap();
        assert!(families.contains(&Family { id: GENL_ID_CTRL, name: "nlctrl".to_owned() }));
    }
}
