//! IPv4 networks.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A network such as `10.0.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: u32,
    prefix_len: u8,
}

/// Error for text that is not a network.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum NetworkError {
    /// Not a network.
    #[error("{0:?}: give a network such as 10.0.0.0/24, with a prefix of 8 to 30 bits")]
    NotANetwork(String),
    /// An address in a network, instead of the network.
    #[error("{0:?}: bits after the prefix are set; the network is {1}")]
    Address(String, Network),
}

impl Network {
    /// Number of bits in the prefix.
    pub fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// Returns the usable host addresses, without the network and broadcast addresses.
    pub fn hosts(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.first + 1..self.broadcast()).map(Ipv4Addr::from_bits)
    }

    /// Returns true if a host can have this address.
    pub fn has_host(self, address: Ipv4Addr) -> bool {
        (self.first + 1..self.broadcast()).contains(&address.to_bits())
    }

    /// Returns the last of [`hosts`](Self::hosts).
    pub fn last_host(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.broadcast() - 1)
    }

    fn broadcast(self) -> u32 {
        self.first | (u32::MAX >> self.prefix_len)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let parse = || {
            let (address, prefix_len) = text.split_once('/')?;
            let address: Ipv4Addr = address.parse().ok()?;
            let prefix_len: u8 = prefix_len.parse().ok().filter(|len| (8..=30).contains(len))?;
            Some((address.to_bits(), prefix_len))
        };
        let (address, prefix_len) =
            parse().ok_or_else(|| NetworkError::NotANetwork(text.to_owned()))?;
        let network = Self { first: address & !(u32::MAX >> prefix_len), prefix_len };
        if network.first != address {
            return Err(NetworkError::Address(text.to_owned(), network));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.prefix_len)
    }
}
