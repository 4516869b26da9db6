//! Name of a netmap port.

use std::fmt;
use std::path::PathBuf;

use crate::uri::failed::Failed;
use crate::uri::netns;
use crate::uri::query::{Query, UriError, write_query};
use crate::uri::scheme::{Claim, Scheme, Socket};
use crate::{Port, Wait};

/// Maximum length of a port's name: `NETMAP_REQ_IFNAMSIZ` without the terminating zero.
const NAME_MAX: usize = 63;
/// Maximum length of an interface's name: `IFNAMSIZ` without the terminating zero.
const INTERFACE_MAX: usize = 15;
/// Maximum distance between the start of a buffer and of its frame.
const OFFSET_MAX: u32 = 1024;

/// Name of a netmap port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetmapUri {
    /// Netmap's name of the port, without the suffix for host rings.
    pub name: String,
    /// Kind of port that the name stands for.
    pub kind: Kind,
    /// Number of the memory region that the port is to have; `None`: the one that netmap chooses.
    /// Ports of one region pass frames to each other without a copy.
    pub memory: Option<u16>,
    /// Distance between the start of a buffer and of its frame, in bytes.
    pub offset: u32,
    /// File of the network namespace that has the port; `None`: the calling thread's.
    pub netns: Option<PathBuf>,
    /// How to wait for frames.
    pub wait: Wait,
}

/// Kind of a netmap port, which follows from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `eth0`: all ring pairs of an interface.
    Interface,
    /// `eth0^`: the rings between an interface and the host's network stack.
    Host,
    /// `vale0:a`: a port of a VALE switch.
    Vale,
    /// `x{1` or `x}1`: one end of a pipe.
    Pipe,
}

impl Kind {
    /// Returns the kind in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Host => "host rings",
            Self::Vale => "VALE port",
            Self::Pipe => "pipe",
        }
    }
}

/// Returns the name and kind that the body of a URI stands for, if it is valid.
fn parse_name(body: &str) -> Option<(&str, Kind)> {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b'?';
    let parts = |separators: &[char]| {
        let (base, id) = body.split_once(separators)?;
        (!base.is_empty() && !id.is_empty() && !id.contains(['{', '}', '^'])).then_some(base)
    };
    if body.is_empty() || body.len() > NAME_MAX || !body.bytes().all(plain) {
        return None;
    }
    if body.contains(['{', '}']) {
        return parts(&['{', '}']).map(|_| (body, Kind::Pipe));
    }
    if body.starts_with("vale") {
        return parts(&[':']).map(|_| (body, Kind::Vale));
    }
    let (name, kind) = match body.strip_suffix('^') {
        Some(name) => (name, Kind::Host),
        None => (body, Kind::Interface),
    };
    let fits = (1..=INTERFACE_MAX).contains(&name.len());
    (fits && !name.contains(['^', ':'])).then_some((name, kind))
}

impl Scheme for NetmapUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let Some((name, kind)) = parse_name(body) else {
            return Err(query.error(format!(
                "{body:?} is not a netmap port: give an interface (netmap:eth0), its host rings \
                 (netmap:eth0^), a port of a VALE switch (netmap:vale0:a) or an end of a pipe \
                 (netmap:x{{1 and netmap:x}}1)"
            )));
        };
        let memory = query.take("memory", "the number of a memory region, from 1", |text| {
            text.parse().ok().filter(|id| *id > 0)
        })?;
        let allowed = "0 to 1024 bytes, a multiple of 8";
        let offset = query.take("offset", allowed, |text| {
            text.parse().ok().filter(|offset| *offset <= OFFSET_MAX && offset % 8 == 0)
        })?;
        let netns = netns::parse(query)?;
        Ok(Self {
            name: name.to_owned(),
            kind,
            memory,
            offset: offset.unwrap_or(0),
            netns,
            wait: Wait::parse(query)?,
        })
    }

    fn open(&self, _: Option<Socket>) -> Result<Port, Failed> {
        netns::open_in(self.netns.as_deref(), || self.open_rings())
    }

    fn peer(&self) -> Option<String> {
        Some(format!("netmap port {}", self.body()))
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn claim(&self) -> Option<Claim<'_>> {
        // The host rings of an interface do not get the frames of its network.
        (self.kind != Kind::Host).then_some(Claim::Interface(&self.name))
    }
}

impl NetmapUri {
    /// Number of the memory region that all interfaces have.
    pub const COMMON_MEMORY: u16 = 1;

    /// Returns the body of the URI.
    pub(super) fn body(&self) -> String {
        let suffix = if self.kind == Kind::Host { "^" } else { "" };
        format!("{}{suffix}", self.name)
    }
}

impl fmt::Display for NetmapUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "netmap:{}", self.body())?;
        let pairs = [
            self.memory.map(|id| ("memory", id.to_string())),
            (self.offset > 0).then(|| ("offset", self.offset.to_string())),
            self.netns.as_ref().map(|path| ("netns", path.display().to_string())),
            self.wait.pair(),
        ];
        write_query(f, pairs.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_follows_from_port_name() {
        for (body, expected) in [
            ("eth0", Some(("eth0", Kind::Interface))),
            ("eth0.7", Some(("eth0.7", Kind::Interface))),
            ("eth0^", Some(("eth0", Kind::Host))),
            ("vale0:a", Some(("vale0:a", Kind::Vale))),
            ("valeX:eth0", Some(("valeX:eth0", Kind::Vale))),
            ("x{1", Some(("x{1", Kind::Pipe))),
            ("vale0:a}1", Some(("vale0:a}1", Kind::Pipe))),
            ("", None),
            ("^", None),
            ("eth0^^", None),
            ("eth0:1", None),
            ("vale0", None),
            ("vale0:", None),
            ("x{", None),
            ("}1", None),
            ("x{1}2", None),
            ("a/b", None),
            ("sixteen-letters-", None),
        ] {
            assert_eq!(parse_name(body), expected, "{body}");
        }
        assert_eq!(parse_name(&format!("vale0:{}", "a".repeat(58))), None);
    }
}
