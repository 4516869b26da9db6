//! Sources of connections, addresses or users, and how often each connects.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dray_netdev::peer_user;
use rustix::net::SocketAddrAny;

/// Address or user that a connection is from. Each has its share of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// Address on a network. A host has a whole prefix of 64 bits in IPv6.
    Address(IpAddr),
    /// User at the other end of a Unix socket.
    User(Option<u32>),
}

/// Maximum number of addresses that are remembered; each is for a second.
const ADDRESSES_MAX: usize = 1024;

/// Connections per second of each source.
#[derive(Default)]
pub(crate) struct Rates {
    /// Times at which the connections so far have used up the rate.
    due: HashMap<Source, Instant>,
}

impl Source {
    /// Returns the source that connected `socket` from `address`.
    pub(crate) fn of(address: Option<SocketAddrAny>, socket: impl AsFd) -> Self {
        match address.map(SocketAddr::try_from) {
            Some(Ok(address)) => Self::of_ip(address.ip()),
            _ => Self::User(peer_user(socket).ok()),
        }
    }

    fn of_ip(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            address => address,
        })
    }
}

impl Rates {
    /// Counts a connection from `source` at the time `now`; returns false if it is one too many for
    /// a rate of `rate` per second, of which those of a second may come at once.
    pub(crate) fn admits(&mut self, source: Source, rate: u32, now: Instant) -> bool {
        if self.due.len() >= ADDRESSES_MAX && !self.due.contains_key(&source) {
            self.due.retain(|_, due| *due > now);
            // More addresses than that within a second: the rate of all together bounds them.
            if self.due.len() >= ADDRESSES_MAX {
                return true;
            }
        }
        let second = Duration::from_secs(1);
        let due = self.due.entry(source).or_insert(now);
        let next = (*due).max(now) + second / rate;
        if next > now + second {
            return false;
        }
        *due = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> Source {
        Source::of_ip(address.parse().unwrap())
    }

    #[test]
    fn hosts_of_ipv6_are_told_apart_by_prefix() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }

    #[test]
    fn rate_of_one_address_leaves_others_alone() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        let [noisy, quiet] = ["192.0.2.1", "192.0.2.2"].map(client);
        let admitted = (0..1000).filter(|_| rates.admits(noisy, 50, now)).count();
        assert_eq!(admitted, 50);
        assert!(rates.admits(quiet, 50, now));
        let later = now + Duration::from_millis(100);
        let admitted = (0..1000).filter(|_| rates.admits(noisy, 50, later)).count();
        assert!((4..=6).contains(&admitted), "{admitted}");
    }

    #[test]
    fn remembered_addresses_are_bounded() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        for number in 0..5000 {
            rates.admits(
                Source::of_ip(IpAddr::from([10, 0, (number >> 8) as u8, number as u8])),
                50,
                now,
            );
        }
        assert_eq!(rates.due.len(), ADDRESSES_MAX);
        assert!(rates.admits(client("192.0.2.1"), 50, now + Duration::from_secs(2)));
        assert_eq!(rates.due.len(), 1);
    }
}
