//! Record of a frame in a ring: 16 bytes about it, then its bytes.
//!
//! ```text
//!  0  tick u64 | length of the frame u32 | port u16 | kind u8 | reason u8
//! ```

/// Length of the part before the frame's bytes.
pub(crate) const HEAD_LEN: usize = 16;

/// Fate of a frame at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The port received it.
    In,
    /// The port transmitted it.
    Out,
    /// It was dropped after the port had received it, for the reason of this number.
    DroppedIn(u8),
    /// It was dropped before the port could transmit it, for the reason of this number.
    DroppedOut(u8),
}

impl Kind {
    /// Returns true if the frame came from the port's peer.
    pub fn is_inbound(self) -> bool {
        matches!(self, Self::In | Self::DroppedIn(_))
    }

    /// Returns the number of the reason for a drop.
    pub fn reason(self) -> Option<u8> {
        match self {
            Self::In | Self::Out => None,
            Self::DroppedIn(reason) | Self::DroppedOut(reason) => Some(reason),
        }
    }
}

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Tick at which the data thread saw it.
    pub tick: u64,
    /// Length of the frame; there may be fewer bytes.
    pub len: u32,
    /// Number of the port.
    pub port: u16,
    /// Fate of the frame at the port.
    pub kind: Kind,
    /// First bytes of the frame.
    pub bytes: &'a [u8],
}

/// Writes the part before the bytes.
#[inline]
pub(crate) fn head(tick: u64, len: u32, port: u16, kind: Kind) -> [u8; HEAD_LEN] {
    let (kind, reason) = match kind {
        Kind::In => (0, 0),
        Kind::Out => (1, 0),
        Kind::DroppedIn(reason) => (2, reason),
        Kind::DroppedOut(reason) => (3, reason),
    };
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&tick.to_ne_bytes());
    head[8..12].copy_from_slice(&len.to_ne_bytes());
    head[12..14].copy_from_slice(&port.to_ne_bytes());
    head[14..].copy_from_slice(&[kind, reason]);
    head
}

impl<'a> Record<'a> {
    /// Reads a record; `None` if the bytes are invalid.
    pub(crate) fn read(record: &'a [u8]) -> Option<Self> {
        let (head, bytes) = record.split_first_chunk::<HEAD_LEN>()?;
        let [.., kind, reason] = *head;
        let kind = match kind {
            0 => Kind::In,
            1 => Kind::Out,
            2 => Kind::DroppedIn(reason),
            3 => Kind::DroppedOut(reason),
            _ => return None,
        };
        let len = u32::from_ne_bytes(*head[8..].first_chunk()?);
        let port = u16::from_ne_bytes(*head[12..].first_chunk()?);
        let is_right = bytes.len() <= len as usize;
        let tick = u64::from_ne_bytes(*head.first_chunk()?);
        is_right.then_some(Self { tick, len, port, kind, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_as_written() {
        for kind in [Kind::In, Kind::Out, Kind::DroppedIn(3), Kind::DroppedOut(255)] {
            let record = [&head(1 << 40, 9000, 4095, kind)[..], b"abc"].concat();
            let expected = Record { tick: 1 << 40, len: 9000, port: 4095, kind, bytes: b"abc" };
            assert_eq!(Record::read(&record), Some(expected));
            assert_eq!(Record::read(&record[..15]), None);
        }
        let short = [&head(1, 2, 3, Kind::In)[..], b"abc"].concat();
        assert_eq!(Record::read(&short), None, "more bytes than the frame has");
        assert_eq!(Record::read(&[4; 40]), None, "no such kind");
    }
}
