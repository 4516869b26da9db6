//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet (MAC-48) address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Returns the locally administered unicast address `02:xx:xx:xx:xx:xx` with `id` in its low 40
    /// bits.
    pub fn local(id: u64) -> Self {
        let b = id.to_be_bytes();
        Self([0x02, b[3], b[4], b[5], b[6], b[7]])
    }

    /// Returns true if this is a group address, such as broadcast.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns true if this can be the address of a single station: the only kind that may be the
    /// source of a frame.
    #[inline]
    pub fn is_station(self) -> bool {
        !self.is_group() && self.0 != [0; 6]
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six two-digit hexadecimal octets joined by colons.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("MAC address {0:?}: give six hexadecimal octets, for example 02:00:00:00:00:01")]
pub struct ParseMacError(String);

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseMacError(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or_else(error)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(error());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() { Err(error()) } else { Ok(Self(octets)) }
    }
}

dray_text::serde_as_text!(MacAddr);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_round_trips(octets: [u8; 6]) {
            let mac = MacAddr(octets);
            prop_assert_eq!(mac.to_string().parse::<MacAddr>(), Ok(mac));
        }

        #[test]
        fn parsing_any_text_never_panics(text in "\\PC{0,24}") {
            let _ = text.parse::<MacAddr>();
        }
    }

    #[test]
    fn nearly_valid_text_is_refused() {
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "02:00:00:00:00:+1"]
        {
            assert_eq!(text.parse::<MacAddr>(), Err(ParseMacError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn local_addresses_are_unicast_and_distinct() {
        assert_eq!(MacAddr::local(0x0102_0304_0506).to_string(), "02:02:03:04:05:06");
        assert_ne!(MacAddr::local(1), MacAddr::local(2));
    }
}
