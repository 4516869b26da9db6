//! SDF filters in the form of IPFilterRule (RFC 6733, section 4.3.1), as TS 29.212 and TS 29.244
//! restrict it: `permit out PROTOCOL from REMOTE [PORTS] to LOCAL [PORTS]`.
//!
//! A filter is written for downlink packets (to the user); uplink packets are matched with the ends
//! swapped. A filter therefore has a remote end (the server's) and a local end (the user's).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use dray_wire::ip::{self, protocol};
use smallvec::SmallVec;

/// Addresses of one version with a common prefix; [`Prefix::ANY`] contains both versions.
///
/// IPv4 addresses are mapped into the IPv6 number space ([`ip::number`]). A few IPv6 prefixes, such
/// as `::/0`, contain the whole mapped range, so a prefix also records whether it excludes IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    value: u128,
    mask: u128,
    /// True if IPv4 addresses are excluded.
    only_v6: bool,
}

/// The text is not a valid prefix.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?}: give an address, or a prefix such as 10.0.0.0/8 or 2001:db8::/32")]
pub struct PrefixError(String);

impl Prefix {
    /// All addresses.
    pub const ANY: Self = Self { value: 0, mask: 0, only_v6: false };

    /// Returns true if the prefix contains the address ([`ip::number`]).
    #[inline]
    pub fn contains(&self, number: u128) -> bool {
        number & self.mask == self.value && !(self.only_v6 && ip::as_ipv4(number).is_some())
    }

    /// Returns the prefix length, counted as in an IPv6 address.
    pub(crate) fn bits(&self) -> u32 {
        self.mask.leading_ones()
    }

    /// Returns the first and last address ([`ip::number`]) of each of its one or two ranges.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u128, u128)> + use<> {
        let (first, last) = (self.value, self.value | !self.mask);
        let v4 = Self::of_v4();
        let (v4_first, v4_last) = (v4.value, v4.value | !v4.mask);
        let ranges = match self.only_v6 {
            false => [Some((first, last)), None],
            true => [Some((first, v4_first - 1)), Some((v4_last + 1, last))],
        };
        ranges.into_iter().flatten()
    }

    /// Returns the prefix of all IPv4 addresses.
    fn of_v4() -> Self {
        let value = ip::number(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        Self { value, mask: u128::MAX << 32, only_v6: false }
    }

    /// Returns the first address and the mask if the prefix contains only IPv4 addresses.
    pub(crate) fn as_ipv4(&self) -> Option<(u32, u32)> {
        let v4 = Self::of_v4();
        let within = self.mask & v4.mask == v4.mask && v4.contains(self.value);
        within.then_some((self.value as u32, self.mask as u32))
    }

    /// Returns the first address.
    pub(crate) fn first(&self) -> IpAddr {
        ip::address(self.value)
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self { value: ip::number(address), mask: u128::MAX, only_v6: false }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let error = || PrefixError(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let whole: u32 = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(whole), |length| length.parse().map_err(|_| error()))?;
        let host = whole.checked_sub(length).ok_or_else(error)?;
        let mask = u128::MAX.checked_shl(host).unwrap_or(0);
        let value = ip::number(address) & mask;
        let only_v6 = address.is_ipv6() && Self::of_v4().value & mask == value && length < 96;
        Ok(Self { value, mask, only_v6 })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.mask.count_ones();
        match ip::as_ipv4(self.value) {
            Some(address) if bits >= 96 => write!(f, "{address}/{}", bits - 96),
            _ => write!(f, "{}/{bits}", std::net::Ipv6Addr::from(self.value)),
        }
    }
}

dray_text::serde_as_text!(Prefix);

/// One end of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Addresses of this end.
    pub addresses: Prefix,
    /// Ports of this end; empty: any port, and packets without ports.
    pub ports: SmallVec<[RangeInclusive<u16>; 1]>,
}

impl End {
    #[inline]
    fn matches(&self, address: u128, port: Option<u16>) -> bool {
        self.addresses.contains(address)
            && (self.ports.is_empty()
                || port.is_some_and(|port| self.ports.iter().any(|range| range.contains(&port))))
    }
}

/// An SDF filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Upper-layer protocol; `None`: any.
    pub protocol: Option<u8>,
    /// The server's end.
    pub remote: End,
    /// The user's end.
    pub local: End,
}

/// The text is not a valid filter.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "filter {text:?}: {what}; for example \"permit out 17 from 203.0.113.0/24 5000-6000 to assigned\""
)]
pub struct FilterError {
    text: String,
    what: String,
}

/// The fields of a packet that filters look at, with its two ends named by role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) protocol: u8,
    /// Address and port of the server.
    pub(crate) remote: (u128, Option<u16>),
    /// Address and port of the user.
    pub(crate) local: (u128, Option<u16>),
}

impl Filter {
    /// Returns true if the packet matches the filter.
    #[inline]
    pub(crate) fn matches(&self, ends: &Ends) -> bool {
        self.protocol.is_none_or(|protocol| protocol == ends.protocol)
            && self.remote.matches(ends.remote.0, ends.remote.1)
            && self.local.matches(ends.local.0, ends.local.1)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let error = |what: String| FilterError { text: text.to_owned(), what };
        let mut words = text.split_whitespace().peekable();
        let expect = |word: &str, words: &mut std::iter::Peekable<_>| match words.next() {
            Some(found) if found == word => Ok(()),
            Some(found) => Err(error(format!("{found:?} instead of {word:?}"))),
            None => Err(error(format!("{word:?} is missing"))),
        };
        expect("permit", &mut words)?;
        expect("out", &mut words)?;
        let protocol = match words.next() {
            Some("ip") => None,
            Some("icmp") => Some(protocol::ICMP),
            Some("tcp") => Some(protocol::TCP),
            Some("udp") => Some(protocol::UDP),
            Some("sctp") => Some(protocol::SCTP),
            Some("icmpv6") => Some(protocol::ICMPV6),
            Some(number) => Some(number.parse().map_err(|_| {
                error(format!(
                    "protocol {number:?}: give ip, icmp, tcp, udp, sctp, icmpv6 or 0 to 255"
                ))
            })?),
            None => return Err(error("the protocol is missing".to_owned())),
        };
        expect("from", &mut words)?;
        let remote = end(&mut words, &[("any", Prefix::ANY)]).map_err(error)?;
        expect("to", &mut words)?;
        // The session's own addresses are checked for every packet, so `assigned` needs no check
        // here.
        let own = [("assigned", Prefix::ANY), ("any", Prefix::ANY)];
        let local = end(&mut words, &own).map_err(error)?;
        match words.next() {
            None => Ok(Self { protocol, remote, local }),
            Some(more) => Err(error(format!("unexpected {more:?} at the end"))),
        }
    }
}

/// Parses `ADDRESS [PORTS]`; the address is a name in `known` or a prefix.
fn end<'t>(
    words: &mut std::iter::Peekable<impl Iterator<Item = &'t str>>,
    known: &[(&str, Prefix)],
) -> Result<End, String> {
    let word = words.next().ok_or("an address is missing")?;
    let addresses = match known.iter().find(|(name, _)| *name == word) {
        Some((_, prefix)) => *prefix,
        None => word.parse().map_err(|error: PrefixError| error.to_string())?,
    };
    let is_port = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let ports = match words.next_if(is_port) {
        Some(list) => list.split(',').map(ports).collect::<Result<_, _>>()?,
        None => SmallVec::new(),
    };
    Ok(End { addresses, ports })
}

/// Parses `80` or `5000-6000`.
fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("ports {text:?}: give a port, or a range such as 5000-6000")),
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("permit out ")?;
        match self.protocol {
            None => f.write_str("ip")?,
            Some(number) => write!(f, "{number}")?,
        }
        for (word, end, any) in [("from", &self.remote, "any"), ("to", &self.local, "assigned")] {
            match end.addresses == Prefix::ANY {
                true => write!(f, " {word} {any}")?,
                false => write!(f, " {word} {}", end.addresses)?,
            }
            for (number, range) in end.ports.iter().enumerate() {
                f.write_str(if number == 0 { " " } else { "," })?;
                match range.start() == range.end() {
                    true => write!(f, "{}", range.start())?,
                    false => write!(f, "{}-{}", range.start(), range.end())?,
                }
            }
        }
        Ok(())
    }
}

dray_text::serde_as_text!(Filter);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(protocol: u8, remote: (&str, Option<u16>), local: (&str, Option<u16>)) -> Ends {
        let number = |address: &str| ip::number(address.parse().unwrap());
        Ends { protocol, remote: (number(remote.0), remote.1), local: (number(local.0), local.1) }
    }

    #[test]
    fn filter_matches_only_its_packets() {
        let udp = |remote, remote_port, local_port| {
            ends(17, (remote, Some(remote_port)), ("10.45.0.1", Some(local_port)))
        };
        for (text, matching, others) in [
            (
                "permit out ip from any to assigned",
                vec![udp("1.2.3.4", 1, 2), ends(1, ("2001:db8::1", None), ("2001:db8::2", None))],
                vec![],
            ),
            (
                "permit out 17 from 203.0.113.0/24 80,5000-6000 to assigned 9",
                vec![udp("203.0.113.9", 80, 9), udp("203.0.113.0", 6000, 9)],
                vec![
                    udp("203.0.114.9", 80, 9),
                    udp("203.0.113.9", 81, 9),
                    udp("203.0.113.9", 80, 10),
                    ends(6, ("203.0.113.9", Some(80)), ("10.45.0.1", Some(9))),
                    ends(17, ("203.0.113.9", None), ("10.45.0.1", None)),
                ],
            ),
            (
                "permit out ip from 2001:db8::/32 to 10.45.0.1",
                vec![ends(6, ("2001:db8::9", None), ("10.45.0.1", None))],
                vec![ends(6, ("2001:db9::9", None), ("10.45.0.1", None)), udp("1.1.1.1", 1, 1)],
            ),
            (
                "permit out ip from ::/0 to any",
                vec![ends(6, ("2001:db8::1", None), ("10.45.0.1", None))],
                vec![udp("1.1.1.1", 1, 1)],
            ),
            (
                "permit out ip from 0.0.0.0/0 to any",
                vec![udp("1.1.1.1", 1, 1)],
                vec![ends(6, ("2001:db8::1", None), ("10.45.0.1", None))],
            ),
        ] {
            let filter: Filter = text.parse().unwrap();
            assert!(matching.iter().all(|ends| filter.matches(ends)), "{text}");
            assert!(!others.iter().any(|ends| filter.matches(ends)), "{text}");
            assert_eq!(filter.to_string().parse(), Ok(filter));
        }
    }

    #[test]
    fn filter_errors_name_value_and_example() {
        for (text, part) in [
            ("", "\"permit\" is missing"),
            ("deny out ip from any to any", "\"deny\" instead of \"permit\""),
            ("permit in ip from any to any", "\"in\" instead of \"out\""),
            ("permit out", "protocol is missing"),
            ("permit out 256 from any to any", "protocol \"256\""),
            ("permit out ip from 10.0.0.0/33 to any", "10.0.0.0/33"),
            ("permit out ip from !10.0.0.0/8 to any", "!10.0.0.0/8"),
            ("permit out ip from assigned to any", "assigned"),
            ("permit out ip from any 0-70000 to any", "0-70000"),
            ("permit out ip from any 9-3 to any", "9-3"),
            ("permit out ip from any 80, to any", "ports \"\""),
            ("permit out ip from any", "\"to\" is missing"),
            ("permit out ip from any to any setup", "\"setup\" at the end"),
        ] {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("permit out 17"), "{text}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_parses_or_is_refused(
            text in "(permit|x)? ?(out)? ?(ip|[0-9]{0,4})? ?(from)? ?[0-9a-f.:/]{0,20} ?[0-9,-]{0,12} ?(to)? ?(any|assigned)?",
        ) {
            if let Ok(filter) = text.parse::<Filter>() {
                prop_assert_eq!(filter.to_string().parse(), Ok(filter));
            }
        }

        #[test]
        fn prefix_contains_addresses_with_its_bits(address: [u8; 4], other: [u8; 4], length in 0u32..=32) {
            let prefix: Prefix = format!("{}/{length}", IpAddr::from(address)).parse().unwrap();
            let bits = |address: [u8; 4]| u64::from(u32::from_be_bytes(address)) >> (32 - length);
            let number = ip::number(other.into());
            prop_assert_eq!(prefix.contains(number), bits(address) == bits(other));
            let in_range = prefix.ranges().any(|(first, last)| (first..=last).contains(&number));
            prop_assert_eq!(prefix.contains(number), in_range);
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
    }
}
