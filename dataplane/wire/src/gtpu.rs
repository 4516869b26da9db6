//! GTP-U (3GPP TS 29.281), and the PDU session container (TS 38.415).
//!
//! ```text
//!  0      1      2           4                        8                12
//!  +------+------+-----------+------------------------+------+---+----+------------------+---
//!  | 001  | type | length,   | TEID                   | seq  |n- |next| extension headers| T-PDU
//!  | 1ESP |      | from 8 on |                        |      |pdu|type| one behind other | or IEs
//!  +------+------+-----------+------------------------+------+---+----+------------------+---
//!                                                      only where E, S or P is set
//! ```
//!
//! An extension header is a length in units of 4 bytes, its content, and the type of the next one.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The UDP port of GTP-U.
pub const PORT: u16 = 2152;
/// Length of the part of the header that is always present, in bytes.
pub const FIXED_LEN: usize = 8;
/// Length of the header with sequence number, N-PDU number and next type, in bytes.
pub const LONG_LEN: usize = 12;
/// Length of the header that [`write_gpdu`] writes with a container, in bytes.
pub const CONTAINER_LEN: usize = 16;

const VERSION_1: u8 = 0x30; // and protocol type GTP
const VERSION_MASK: u8 = 0xf0;
const FLAG_EXTENSION: u8 = 4;
const FLAG_SEQUENCE: u8 = 2;
const FLAG_N_PDU: u8 = 1;

/// Message types (TS 29.281, table 6.1-1).
pub mod message {
    /// Asks whether the peer is alive.
    pub const ECHO_REQUEST: u8 = 1;
    /// Answers an echo request.
    pub const ECHO_RESPONSE: u8 = 2;
    /// Reports that no tunnel has the TEID of a received packet.
    pub const ERROR_INDICATION: u8 = 26;
    /// Lists the supported extension headers, after an unsupported one was received.
    pub const SUPPORTED_EXTENSIONS: u8 = 31;
    /// Marks the end of the packets through a tunnel.
    pub const END_MARKER: u8 = 254;
    /// Carries a packet of the user.
    pub const G_PDU: u8 = 255;
}

/// Types of extension headers (TS 29.281, figure 5.2.1-3).
pub mod extension {
    /// No extension header follows.
    pub const NONE: u8 = 0;
    /// UDP port of the packet that caused an error indication.
    pub const UDP_PORT: u8 = 0x40;
    /// PDU session container.
    pub const PDU_SESSION: u8 = 0x85;
    /// PDCP PDU number, 16 bits, of a packet that is forwarded in a handover.
    pub const PDCP_PDU_NUMBER: u8 = 0xc0;
    /// PDCP PDU number, 18 bits.
    pub const LONG_PDCP_PDU_NUMBER: u8 = 0x82;
    /// Returns true if an endpoint that does not know the type must refuse the message. The two
    /// highest bits say which nodes must know it: none (00 and 01), endpoints (10), all on the path
    /// (11).
    pub const fn must_be_understood(kind: u8) -> bool {
        kind & 0x80 != 0
    }
}

/// Information elements that are read or written here (TS 29.281, section 8).
mod element {
    pub(super) const RECOVERY: u8 = 14;
    pub(super) const TEID_DATA_I: u8 = 16;
    pub(super) const PEER_ADDRESS: u8 = 133;
    pub(super) const EXTENSION_TYPES: u8 = 141;
}

/// The bytes are not a valid GTP-U message.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum GtpuError {
    /// The message is shorter than its headers or its length field require.
    #[error("message is truncated")]
    TooShort,
    /// Version other than 1, or GTP'.
    #[error("flags {0:#04x}: allowed are version 1 and protocol type 1")]
    Version(u8),
    /// The extension headers continue beyond the bytes given, but not beyond the message: parse
    /// again with the whole message.
    #[error("the headers continue beyond the given bytes")]
    Incomplete,
    /// An extension header has length zero, or does not fit the message.
    #[error("extension header {0:#04x} has an invalid length")]
    ExtensionLength(u8),
    /// An extension header that must be understood is unknown.
    #[error("unknown extension header {0:#04x}")]
    UnknownExtension(u8),
    /// A PDU session container of unknown type.
    #[error("PDU session container type {0}: allowed are 0 (downlink) and 1 (uplink)")]
    Container(u8),
    /// An information element is missing, or does not fit the message.
    #[error("information element {0} is missing or invalid")]
    Element(u8),
}

/// Direction of users' packets through a user plane function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From users, through tunnels on N3, to N6.
    Uplink = 0,
    /// From N6, through tunnels on N3, to users.
    Downlink = 1,
}

impl Direction {
    /// Both directions, in the order of their values.
    pub const ALL: [Self; 2] = [Self::Uplink, Self::Downlink];

    /// Returns its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uplink => "uplink",
            Self::Downlink => "downlink",
        }
    }
}

/// A PDU session container (TS 38.415, section 5.5.2). Delays and sequence numbers are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// Direction of the packet.
    pub direction: Direction,
    /// QoS flow identifier, 0 to 63.
    pub qfi: u8,
    /// Downlink: true if the user must reply with the same QoS (reflective QoS indication).
    pub reflective: bool,
    /// Downlink: paging policy indicator, if present.
    pub paging_policy: Option<u8>,
}

impl Container {
    /// Parses `content`, the extension header between its length and its next type.
    fn parse(content: &[u8]) -> Result<Self, GtpuError> {
        let &[first, second, ref rest @ ..] = content else {
            return Err(GtpuError::ExtensionLength(extension::PDU_SESSION));
        };
        let qfi = second & 0x3f;
        match first >> 4 {
            0 => {
                let paging = second & 0x80 != 0;
                let missing = GtpuError::ExtensionLength(extension::PDU_SESSION);
                let paging = paging.then(|| rest.first().map(|byte| byte >> 5).ok_or(missing));
                Ok(Self {
                    direction: Direction::Downlink,
                    qfi,
                    reflective: second & 0x40 != 0,
                    paging_policy: paging.transpose()?,
                })
            }
            1 => Ok(Self {
                direction: Direction::Uplink,
                qfi,
                reflective: false,
                paging_policy: None,
            }),
            other => Err(GtpuError::Container(other)),
        }
    }
}

/// Contents of a message's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the message ([`message`]).
    pub message: u8,
    /// Tunnel endpoint identifier; 0 if the message does not belong to a tunnel.
    pub teid: u32,
    /// Sequence number.
    pub sequence: Option<u16>,
    /// N-PDU number.
    pub n_pdu: Option<u8>,
    /// PDU session container.
    pub container: Option<Container>,
    /// Length of all headers, in bytes: the offset of the payload.
    pub len: usize,
    /// Length of the payload, in bytes.
    pub payload_len: usize,
}

impl Header {
    /// Parses the headers of the message that begins with `bytes`, which may be only its first
    /// bytes; `available` is the number of bytes received in all.
    #[inline]
    pub fn parse(bytes: &[u8], available: usize) -> Result<Self, GtpuError> {
        let fixed: &[u8; FIXED_LEN] = bytes.first_chunk().ok_or(GtpuError::TooShort)?;
        let [flags, message, length_high, length_low, teid @ ..] = *fixed;
        if flags & VERSION_MASK != VERSION_1 {
            return Err(GtpuError::Version(flags));
        }
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        if FIXED_LEN + length > available {
            return Err(GtpuError::TooShort);
        }
        let mut header = Self {
            message,
            teid: u32::from_be_bytes(teid),
            sequence: None,
            n_pdu: None,
            container: None,
            len: FIXED_LEN,
            payload_len: length,
        };
        if flags & (FLAG_EXTENSION | FLAG_SEQUENCE | FLAG_N_PDU) != 0 {
            header.parse_optional(flags, bytes)?;
        }
        Ok(header)
    }

    #[inline]
    fn parse_optional(&mut self, flags: u8, bytes: &[u8]) -> Result<(), GtpuError> {
        let whole = FIXED_LEN + self.payload_len;
        if whole < LONG_LEN {
            return Err(GtpuError::TooShort);
        }
        let optional = bytes.get(FIXED_LEN..LONG_LEN).ok_or(GtpuError::Incomplete)?;
        // Each field is valid only if its own flag is set.
        if flags & FLAG_SEQUENCE != 0 {
            self.sequence = Some(u16::from_be_bytes([optional[0], optional[1]]));
        }
        if flags & FLAG_N_PDU != 0 {
            self.n_pdu = Some(optional[2]);
        }
        self.len = LONG_LEN;
        let mut kind = if flags & FLAG_EXTENSION != 0 { optional[3] } else { extension::NONE };
        // Each header has at least 4 bytes, so their number is bounded by the message's length.
        while kind != extension::NONE {
            let wrong = GtpuError::ExtensionLength(kind);
            if self.len >= whole {
                return Err(wrong);
            }
            let units = *bytes.get(self.len).ok_or(GtpuError::Incomplete)?;
            let end = self.len + 4 * usize::from(units);
            if units == 0 || end > whole {
                return Err(wrong);
            }
            let content = bytes.get(self.len + 1..end).ok_or(GtpuError::Incomplete)?;
            let (next, content) = content.split_last().ok_or(wrong)?;
            match kind {
                extension::PDU_SESSION => self.container = Some(Container::parse(content)?),
                // Only the PDCP layer of a gNB uses these; nothing beyond N6 does.
                extension::UDP_PORT
                | extension::PDCP_PDU_NUMBER
                | extension::LONG_PDCP_PDU_NUMBER => {}
                other if extension::must_be_understood(other) => {
                    return Err(GtpuError::UnknownExtension(other));
                }
                _ => {}
            }
            (kind, self.len) = (*next, end);
        }
        self.payload_len = whole - self.len;
        Ok(())
    }
}

/// Writes the header of a user's packet of `payload_len` bytes into the tunnel `teid`, with a
/// downlink or uplink container if one is given, and returns its length: [`FIXED_LEN`] or
/// [`CONTAINER_LEN`].
///
/// # Panics
/// If `out` is shorter than that, or the message longer than 65,535 bytes.
#[inline]
pub fn write_gpdu(
    out: &mut [u8],
    teid: u32,
    container: Option<Container>,
    payload_len: usize,
) -> usize {
    let len = if container.is_some() { CONTAINER_LEN } else { FIXED_LEN };
    let length = u16::try_from(len - FIXED_LEN + payload_len).expect("a length of 16 bits");
    let flags = if container.is_some() { VERSION_1 | FLAG_EXTENSION } else { VERSION_1 };
    let fixed = u64::from(flags) << 56
        | u64::from(message::G_PDU) << 48
        | u64::from(length) << 32
        | u64::from(teid);
    out[..FIXED_LEN].copy_from_slice(&fixed.to_be_bytes());
    if let Some(container) = container {
        let kind = match container.direction {
            Direction::Downlink => 0,
            Direction::Uplink => 0x10,
        };
        let second = container.qfi & 0x3f | u8::from(container.reflective) << 6;
        let rest = [0, 0, 0, extension::PDU_SESSION, 1, kind, second, extension::NONE];
        out[FIXED_LEN..CONTAINER_LEN].copy_from_slice(&rest);
    }
    len
}

/// Returns a message with a sequence number and no extension header.
fn with_sequence(kind: u8, teid: u32, sequence: u16, elements: &[u8]) -> Vec<u8> {
    let length = (LONG_LEN - FIXED_LEN + elements.len()) as u16;
    let mut bytes = vec![VERSION_1 | FLAG_SEQUENCE, kind];
    bytes.extend(length.to_be_bytes());
    bytes.extend(teid.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0, extension::NONE]);
    bytes.extend(elements);
    bytes
}

/// Returns an echo request, which asks a peer whether it is alive.
pub fn echo_request(sequence: u16) -> Vec<u8> {
    with_sequence(message::ECHO_REQUEST, 0, sequence, &[])
}

/// Returns the response to an echo request of the same number.
pub fn echo_response(sequence: u16) -> Vec<u8> {
    // The recovery counter is for GTP's control plane: zero here (section 7.2.2).
    with_sequence(message::ECHO_RESPONSE, 0, sequence, &[element::RECOVERY, 0])
}

/// Returns an error indication, which tells a peer that there is no tunnel `teid` at `local`; the
/// peer's packet came from the UDP port `port`.
pub fn error_indication(teid: u32, local: IpAddr, port: u16) -> Vec<u8> {
    let mut elements = vec![element::TEID_DATA_I];
    elements.extend(teid.to_be_bytes());
    elements.push(element::PEER_ADDRESS);
    match local {
        IpAddr::V4(address) => {
            elements.extend(4u16.to_be_bytes());
            elements.extend(address.octets());
        }
        IpAddr::V6(address) => {
            elements.extend(16u16.to_be_bytes());
            elements.extend(address.octets());
        }
    }
    let mut bytes = with_sequence(message::ERROR_INDICATION, 0, 0, &[]);
    let [high, low] = port.to_be_bytes();
    bytes[0] |= FLAG_EXTENSION;
    bytes[LONG_LEN - 1] = extension::UDP_PORT;
    bytes.extend([1, high, low, extension::NONE]);
    bytes.extend(elements);
    let length = (bytes.len() - FIXED_LEN) as u16;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Returns the tunnel and the address of an error indication; `payload` follows its headers.
pub fn parse_error_indication(payload: &[u8]) -> Result<(u32, IpAddr), GtpuError> {
    let wrong = GtpuError::Element;
    let (mut teid, mut address) = (None, None);
    let mut rest = payload;
    while let Some((&kind, behind)) = rest.split_first() {
        // Types below 128 have a fixed length (section 8.1).
        let (skip, len) = match kind {
            element::RECOVERY => (0, 1),
            element::TEID_DATA_I => (0, 4),
            128.. => {
                let length = behind.first_chunk().ok_or(wrong(kind))?;
                (2, usize::from(u16::from_be_bytes(*length)))
            }
            _ => return Err(wrong(kind)),
        };
        let value = behind.get(skip..skip + len).ok_or(wrong(kind))?;
        match (kind, <[u8; 4]>::try_from(value), <[u8; 16]>::try_from(value)) {
            (element::TEID_DATA_I, Ok(value), _) => teid = Some(u32::from_be_bytes(value)),
            (element::PEER_ADDRESS, Ok(value), _) => address = Some(value.into()),
            (element::PEER_ADDRESS, _, Ok(value)) => address = Some(value.into()),
            (element::PEER_ADDRESS, ..) => return Err(wrong(kind)),
            _ => {}
        }
        rest = &behind[skip + len..];
    }
    let teid = teid.ok_or(wrong(element::TEID_DATA_I))?;
    Ok((teid, address.ok_or(wrong(element::PEER_ADDRESS))?))
}

/// Returns an end marker, the last message through the tunnel `teid`.
pub fn end_marker(teid: u32) -> Vec<u8> {
    let mut bytes = vec![VERSION_1, message::END_MARKER, 0, 0];
    bytes.extend(teid.to_be_bytes());
    bytes
}

/// Returns the list of supported extension headers, in reply to an unsupported one.
pub fn supported_extensions(sequence: u16) -> Vec<u8> {
    let types = [
        extension::UDP_PORT,
        extension::LONG_PDCP_PDU_NUMBER,
        extension::PDU_SESSION,
        extension::PDCP_PDU_NUMBER,
    ];
    // This is the only element whose length field has one byte (section 8.5).
    let elements = [&[element::EXTENSION_TYPES, types.len() as u8][..], &types].concat();
    with_sequence(message::SUPPORTED_EXTENSIONS, 0, sequence, &elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Returns an extension header: type, and content filled up to whole units.
    fn extension_header() -> impl Strategy<Value = (u8, Vec<u8>)> {
        let kind = prop_oneof![Just(0x85), Just(0x40), 1u8..0x80, Just(0xc0), Just(0x82)];
        (kind, 1usize..5, any::<u8>(), any::<bool>()).prop_map(|(kind, units, byte, uplink)| {
            let mut content = vec![byte; 4 * units - 2];
            if kind == extension::PDU_SESSION {
                content[0] = if uplink { 0x10 } else { 0 };
                content[1] &= 0x7f;
            }
            (kind, content)
        })
    }

    /// Builds a message according to the standard's figures, flag by flag.
    fn build(
        s: Option<u16>,
        pn: Option<u8>,
        extensions: Option<&[(u8, Vec<u8>)]>,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut flags = 0x30;
        let mut rest = Vec::new();
        if s.is_some() || pn.is_some() || extensions.is_some() {
            // A field whose flag is not set may hold anything.
            rest.extend(s.unwrap_or(0xdead).to_be_bytes());
            rest.push(pn.unwrap_or(0xbe));
            flags |= u8::from(s.is_some()) << 1 | u8::from(pn.is_some());
            match extensions {
                None => rest.push(0x85),
                Some(all) => {
                    flags |= 4;
                    for (kind, content) in all {
                        rest.extend([*kind, (content.len() / 4 + 1) as u8]);
                        rest.extend(content);
                    }
                    rest.push(0);
                }
            }
        }
        rest.extend(payload);
        let mut bytes = vec![flags, 255];
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend([1, 2, 3, 4]);
        bytes.extend(rest);
        bytes
    }

    proptest! {
        #[test]
        fn all_flags_and_extension_chains_are_parsed(
            s: Option<u16>, pn: Option<u8>,
            extensions in prop::option::of(prop::collection::vec(extension_header(), 0..6)),
            payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let bytes = build(s, pn, extensions.as_deref(), &payload);
            let header = Header::parse(&bytes, bytes.len()).unwrap();
            prop_assert_eq!((header.message, header.teid), (message::G_PDU, 0x0102_0304));
            prop_assert_eq!((header.sequence, header.n_pdu), (s, pn));
            prop_assert_eq!(&bytes[header.len..header.len + header.payload_len], &payload[..]);
            let last = extensions.iter().flatten().rev().find(|(kind, _)| *kind == 0x85);
            let container = last.map(|(_, content)| Container {
                direction: if content[0] == 0 { Direction::Downlink } else { Direction::Uplink },
                qfi: content[1] & 0x3f,
                reflective: content[0] == 0 && content[1] & 0x40 != 0,
                paging_policy: None,
            });
            prop_assert_eq!(header.container, container);
            // A message cut anywhere in its headers asks for the rest.
            for cut in FIXED_LEN..header.len {
                prop_assert_eq!(Header::parse(&bytes[..cut], bytes.len()), Err(GtpuError::Incomplete));
            }
            prop_assert_eq!(Header::parse(&bytes[..header.len], bytes.len()), Ok(header));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Header::parse(&bytes[..cut], cut), Err(GtpuError::TooShort));
            }
            // Bytes after the message do not belong to it.
            let longer = [&bytes[..], &[0; 9]].concat();
            prop_assert_eq!(Header::parse(&longer, longer.len()), Ok(header));
        }

        #[test]
        fn written_gpdu_round_trips(teid: u32, qfi in 0u8..64, reflective: bool, uplink: bool, some: bool, len in 0usize..9000) {
            let container = some.then_some(Container {
                direction: if uplink { Direction::Uplink } else { Direction::Downlink },
                qfi,
                reflective: reflective && !uplink,
                paging_policy: None,
            });
            let mut out = [0; CONTAINER_LEN];
            let header_len = write_gpdu(&mut out, teid, container, len);
            let header = Header::parse(&out[..header_len], header_len + len).unwrap();
            let expected = Header {
                message: message::G_PDU, teid, sequence: None, n_pdu: None, container,
                len: header_len, payload_len: len,
            };
            prop_assert_eq!(header, expected);
        }

        #[test]
        fn parsing_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..80), valid: bool) {
            if valid && bytes.len() > 4 {
                bytes[0] = 0x30 | bytes[0] & 7;
                bytes[2] = 0;
            }
            if let Ok(header) = Header::parse(&bytes, bytes.len()) {
                prop_assert!(header.len + header.payload_len <= bytes.len());
            }
            let _ = parse_error_indication(&bytes);
        }

        #[test]
        fn error_indication_round_trips(teid: u32, v4: [u8; 4], v6: [u8; 16], port: u16) {
            for address in [IpAddr::from(v4), IpAddr::from(v6)] {
                let bytes = error_indication(teid, address, port);
                let header = Header::parse(&bytes, bytes.len()).unwrap();
                prop_assert_eq!((header.message, header.teid), (message::ERROR_INDICATION, 0));
                let payload = &bytes[header.len..];
                prop_assert_eq!(payload.len(), header.payload_len);
                prop_assert_eq!(parse_error_indication(payload), Ok((teid, address)));
                for cut in 0..payload.len() {
                    prop_assert!(parse_error_indication(&payload[..cut]).is_err());
                }
            }
        }
    }

    #[test]
    fn every_invalid_field_has_its_error() {
        let right = build(None, None, Some(&[(0x85, vec![0x10, 9])]), &[]);
        let with = |at: usize, value: u8| {
            let mut bytes = right.clone();
            bytes[at] = value;
            Header::parse(&bytes, bytes.len())
        };
        assert_eq!(with(0, 0x54), Err(GtpuError::Version(0x54)), "version 2");
        assert_eq!(with(0, 0x24), Err(GtpuError::Version(0x24)), "GTP'");
        assert_eq!(with(3, 200), Err(GtpuError::TooShort));
        assert_eq!(with(3, 3), Err(GtpuError::TooShort), "no room for the flags' fields");
        assert_eq!(with(12, 0), Err(GtpuError::ExtensionLength(0x85)));
        assert_eq!(with(12, 2), Err(GtpuError::ExtensionLength(0x85)));
        assert_eq!(
            with(15, 0x85),
            Err(GtpuError::ExtensionLength(0x85)),
            "the next one is missing"
        );
        assert_eq!(with(11, 0x84), Err(GtpuError::UnknownExtension(0x84)));
        assert_eq!(with(13, 0x20), Err(GtpuError::Container(2)));
        let paging = build(None, None, Some(&[(0x85, vec![0, 0x89])]), &[]);
        let short = Err(GtpuError::ExtensionLength(0x85));
        assert_eq!(Header::parse(&paging, paging.len()), short, "no room for the indicator");
        assert_eq!(parse_error_indication(&[99, 0]), Err(GtpuError::Element(99)));
    }

    #[test]
    fn messages_match_the_standard_layout() {
        assert_eq!(echo_request(0x1234), [0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0]);
        assert_eq!(echo_response(7), [0x32, 2, 0, 6, 0, 0, 0, 0, 0, 7, 0, 0, 14, 0]);
        assert_eq!(end_marker(0x0a0b_0c0d), [0x30, 254, 0, 0, 0xa, 0xb, 0xc, 0xd]);
        assert_eq!(
            supported_extensions(1),
            [0x32, 31, 0, 10, 0, 0, 0, 0, 0, 1, 0, 0, 141, 4, 0x40, 0x82, 0x85, 0xc0]
        );
        let v4 = Ipv4Addr::new(10, 0, 0, 1).into();
        assert_eq!(
            error_indication(0x0102_0304, v4, 2152)[12..],
            [1, 8, 0x68, 0, 16, 1, 2, 3, 4, 133, 0, 4, 10, 0, 0, 1]
        );
        let v6 = Ipv6Addr::LOCALHOST.into();
        assert_eq!(error_indication(1, v6, 1).len(), 12 + 4 + 5 + 3 + 16);
    }
}
