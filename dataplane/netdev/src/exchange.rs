//! Synchronous netlink (netlink(7)): a request and all replies to it.

use std::io;

use netlink_packet_core::{
    NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_sys::Socket;

/// Sends a request and collects replies up to its acknowledgement or the end of its dump.
pub fn exchange<M: NetlinkSerializable + NetlinkDeserializable>(
    socket: &Socket,
    request: M,
    flags: u16,
) -> io::Result<Vec<M>> {
    let mut message =
        NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(request));
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut replies = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let reply = NetlinkMessage::<M>::deserialize(rest).map_err(io::Error::other)?;
            let len = (reply.header.length as usize).next_multiple_of(4);
            rest = rest.get(len..).unwrap_or_default();
            match reply.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => {
                    return Err(io::Error::from_raw_os_error(-error.raw_code()));
                }
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(replies),
                NetlinkPayload::InnerMessage(inner) => replies.push(inner),
                _ => {}
            }
        }
    }
}
