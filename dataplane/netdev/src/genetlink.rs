//! Generic netlink, as far as queries need it.
//!
//! netlink-packet-generic wraps a typed message for each command; for six commands, this is
//! shorter.
//!
//! Families are listed, never requested by name: requesting an absent one by name makes the kernel
//! load its module.

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator,
    parse_string, parse_u16,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use crate::exchange;

/// `linux/genetlink.h`
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// A message family and its number on this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Number of the family.
    pub id: u16,
    /// Name of the family.
    pub name: String,
}

/// A socket in one network namespace.
pub(crate) struct Genetlink(Socket);

/// A message: `struct genlmsghdr` and attributes.
pub(crate) struct Message {
    family: u16,
    command: u8,
    attributes: Vec<u8>,
}

/// Returns the families that the kernel has now. Needs no privilege.
pub fn families() -> io::Result<Vec<Family>> {
    Genetlink::open()?.families()
}

impl Genetlink {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Returns the number of the family called `name`, if it exists.
    pub(crate) fn family(&self, name: &str) -> io::Result<Option<u16>> {
        let families = self.families()?;
        Ok(families.into_iter().find(|family| family.name == name).map(|family| family.id))
    }

    fn families(&self) -> io::Result<Vec<Family>> {
        let replies = self.exchange(Message::new(GENL_ID_CTRL, CTRL_CMD_GETFAMILY), NLM_F_DUMP)?;
        Ok(replies.iter().filter_map(parse_family).collect())
    }

    /// Sends a request; returns its replies.
    pub(crate) fn exchange(&self, request: Message, flags: u16) -> io::Result<Vec<Message>> {
        exchange(&self.0, request, flags)
    }
}

fn parse_family(message: &Message) -> Option<Family> {
    Some(Family {
        id: parse_u16(message.attribute(CTRL_ATTR_FAMILY_ID)?).ok()?,
        name: parse_string(message.attribute(CTRL_ATTR_FAMILY_NAME)?).ok()?,
    })
}

impl Message {
    pub(crate) fn new(family: u16, command: u8) -> Self {
        Self { family, command, attributes: Vec::new() }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.attributes.extend(attribute(kind, value));
        self
    }

    pub(crate) fn attribute(&self, kind: u16) -> Option<&[u8]> {
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

/// Bytes of an attribute, padded.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + 8);
    bytes.extend((value.len() as u16 + 4).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Kind of an attribute that consists of attributes.
pub(crate) fn nested(kind: u16) -> u16 {
    kind | libc::NLA_F_NESTED as u16
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        4 + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // Version 1, which every family accepts, then two reserved bytes.
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

    #[test]
    fn attributes_are_parsed_with_padding() {
        let message =
            Message::new(0x10, 1).with(1, &27_u16.to_ne_bytes()).with(2, b"ovs_datapath\0");
        let family = Some(Family { id: 27, name: "ovs_datapath".to_owned() });
        assert_eq!(parse_family(&message), family);
        // The padding after the last attribute counts as well.
        for len in 0..message.attributes.len() - 4 {
            let attributes = message.attributes[..len].to_vec();
            assert_eq!(parse_family(&Message { attributes, ..message }), None, "{len}");
        }
    }

    #[test]
    fn controller_lists_itself() {
        let families = families().unwrap();
        assert!(families.contains(&Family { id: GENL_ID_CTRL, name: "nlctrl".to_owned() }));
    }
}
