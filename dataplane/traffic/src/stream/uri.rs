//! `tcp:ADDRESS:PORT`: the address on which a stream's receiver listens.

use std::fmt;
use std::net::SocketAddrV4;
use std::str::FromStr;

use dray_port::query::{Query, UriError, write_query};

/// Transport of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// TCP.
    Tcp,
    /// Shared memory communications (`AF_SMC`), set up by TCP: programs use it like TCP.
    Smc,
}

impl Family {
    /// Returns the URI scheme.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Smc => "smc",
        }
    }
}

/// Address of a stream's receiver: `tcp:ADDRESS:PORT` or `smc:ADDRESS:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamUri {
    /// Transport of the stream.
    pub family: Family,
    /// Address on which the receiver listens.
    pub address: SocketAddrV4,
    /// Bytes per read or write call, 1 to [`BUFFER_MAX`](Self::BUFFER_MAX).
    pub buffer: usize,
    /// True if the sender sends without copying (`MSG_ZEROCOPY`).
    pub zerocopy: bool,
}

impl StreamUri {
    /// Maximum number of bytes per call.
    pub const BUFFER_MAX: usize = 1 << 20;
    /// The default of iperf3.
    const BUFFER: usize = 128 << 10;

    /// Creates a stream over `family` to a receiver at `address`, with the default options.
    pub fn new(family: Family, address: SocketAddrV4) -> Self {
        Self { family, address, buffer: Self::BUFFER, zerocopy: false }
    }

    /// Returns true if `text` names a stream rather than a port.
    pub fn is_stream(text: &str) -> bool {
        let scheme = text.split(':').next();
        [Family::Tcp, Family::Smc].iter().any(|family| Some(family.name()) == scheme)
    }
}

impl FromStr for StreamUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut query = Query::parse(text, query)?;
        let family = match scheme {
            "tcp" => Family::Tcp,
            "smc" => Family::Smc,
            _ => {
                let what = "streams are named tcp:ADDRESS:PORT or smc:ADDRESS:PORT".to_owned();
                return Err(query.error(what));
            }
        };
        let address = body.parse().map_err(|_| {
            query.error(format!(
                "{body:?} is not ADDRESS:PORT; {scheme}: takes the receiver's, \
                 for example {scheme}:10.0.0.2:9000"
            ))
        })?;
        let buffer = query.take("buffer", "1 to 1048576 bytes", |text| {
            text.parse().ok().filter(|bytes| (1..=Self::BUFFER_MAX).contains(bytes))
        })?;
        let zerocopy = query.flag("zerocopy", false)?;
        query.finish(scheme)?;
        Ok(Self { family, address, buffer: buffer.unwrap_or(Self::BUFFER), zerocopy })
    }
}

impl fmt::Display for StreamUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.family.name(), self.address)?;
        let buffer = (self.buffer != Self::BUFFER).then(|| ("buffer", self.buffer.to_string()));
        let zerocopy = self.zerocopy.then(|| ("zerocopy", "1".to_owned()));
        write_query(f, buffer.into_iter().chain(zerocopy))
    }
}

dray_text::serde_as_text!(StreamUri);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text_round_trips() {
        for text in
            ["tcp:10.0.0.2:9000", "smc:0.0.0.0:1", "tcp:10.0.0.2:9000?buffer=4096&zerocopy=1"]
        {
            assert!(StreamUri::is_stream(text));
            assert_eq!(text.parse::<StreamUri>().unwrap().to_string(), text);
        }
        assert!(!StreamUri::is_stream("udp:10.0.0.2:9000") && !StreamUri::is_stream("tcpx"));
    }

    #[test]
    fn errors_name_value_and_allowed_values() {
        for (text, words) in [
            ("tcp:", "\"\" is not ADDRESS:PORT"),
            ("tcp:eth0", "for example tcp:10.0.0.2:9000"),
            ("tcp:10.0.0.2:9000?buffer=0", "buffer=0: allowed is 1 to 1048576"),
            ("tcp:10.0.0.2:9000?buffer=2000000", "allowed is 1 to 1048576"),
            ("tcp:10.0.0.2:9000?zerocopy=2", "zerocopy=2: allowed is 0 or 1"),
            ("smc:10.0.0.2:9000?batch=2", "smc: takes buffer, zerocopy"),
            ("udp:10.0.0.2:9000", "tcp:ADDRESS:PORT"),
        ] {
            let message = text.parse::<StreamUri>().unwrap_err().to_string();
            assert!(message.contains(words) && message.contains(text), "{message}");
        }
    }
}
