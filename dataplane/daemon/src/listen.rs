//! A TCP address at which monitoring systems ask for metrics.

use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::str::FromStr;

use rustix::net::listen;

/// Maximum number of connections that wait in the kernel to be accepted. Beyond it, a client tries
/// again after a second: a client that connects at full speed must not fill the queue while the
/// server's thread waits for a CPU.
const BACKLOG: i32 = 4096;

/// Address and port at which metrics are served, such as `127.0.0.1:9464` or `[::1]:9464`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

/// Text that is not an address with a port.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?}: give an address and a port, such as 127.0.0.1:9464 or [::1]:9464")]
pub struct AddressError {
    text: String,
}

/// No program can listen at an address.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("metrics address {}: {what}", address.0)]
pub struct ListenError {
    address: MetricsAddress,
    what: String,
}

impl FromStr for MetricsAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        text.parse().map(Self).map_err(|_| AddressError { text: text.to_owned() })
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

dray_text::serde_as_text!(MetricsAddress);

impl MetricsAddress {
    /// Like [`listen`](Self::listen), with the socket of another process if it listens at the
    /// address.
    pub fn listen_with(self, inherited: Option<OwnedFd>) -> Result<TcpListener, ListenError> {
        let inherited = inherited.map(TcpListener::from);
        let is_there = |listener: &TcpListener| listener.local_addr().is_ok_and(|at| at == self.0);
        inherited.filter(is_there).map_or_else(|| self.listen(), Ok)
    }

    /// Listens at the address. A sandbox does not permit it later.
    pub fn listen(self) -> Result<TcpListener, ListenError> {
        let listening = TcpListener::bind(self.0).and_then(|listener| {
            listen(&listener, BACKLOG)?;
            Ok(listener)
        });
        listening.map_err(|error| {
            let what = match error.kind() {
                ErrorKind::AddrInUse => {
                    "another program listens there; give another one".to_owned()
                }
                ErrorKind::AddrNotAvailable => {
                    "not an address of this network namespace; `ip address` lists them".to_owned()
                }
                ErrorKind::PermissionDenied => {
                    "not permitted; ports below 1024 need CAP_NET_BIND_SERVICE".to_owned()
                }
                _ => error.to_string(),
            };
            ListenError { address: self, what }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_round_trips_and_names_errors() {
        for text in ["127.0.0.1:9464", "[::1]:9464", "0.0.0.0:1"] {
            assert_eq!(text.parse::<MetricsAddress>().unwrap().to_string(), text);
        }
        for text in ["", "9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:65536"] {
            let error = text.parse::<MetricsAddress>().unwrap_err().to_string();
            assert!(error.contains("such as 127.0.0.1:9464") && error.starts_with('"'), "{error}");
        }
    }

    #[test]
    fn address_that_cannot_be_used_is_an_error() {
        let first = MetricsAddress("127.0.0.1:0".parse().unwrap()).listen().unwrap();
        let taken = MetricsAddress(first.local_addr().unwrap());
        let error = taken.listen().unwrap_err().to_string();
        assert!(error.contains("another program listens there"), "{error}");
        assert!(error.contains(&taken.to_string()), "{error}");
        let foreign: MetricsAddress = "192.0.2.1:9464".parse().unwrap();
        let error = foreign.listen().unwrap_err().to_string();
        assert!(error.contains("not an address of this network namespace"), "{error}");
    }
}
