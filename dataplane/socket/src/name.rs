//! Names of Unix sockets.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::net::SocketAddrUnix;

/// Name of a Unix socket, written as its path, or as `@NAME` if it is abstract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketName {
    /// A socket with a file, whose permissions say who can connect.
    File(PathBuf),
    /// A socket of the abstract namespace (unix(7)): it has no file, and every process in the
    /// same network namespace can connect. The address is a zero byte and the name, without
    /// padding, as DPDK, VPP and `socat` compute it.
    Abstract(String),
}

impl SocketName {
    /// Maximum length of a path or of an abstract name, in bytes: `sun_path` holds 108, with the
    /// zero byte that ends the one or begins the other.
    pub const LEN_MAX: usize = 107;

    /// Parses a path or `@NAME`.
    ///
    /// # Errors
    /// The name is too long or too short; the text says which.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, kind) = match text.strip_prefix('@') {
            Some(name) => (name, "abstract name"),
            None => (text, "path"),
        };
        let max = Self::LEN_MAX;
        match name.len() {
            0 => Err(format!("the socket's {kind} is empty")),
            len if len > max => {
                Err(format!("the socket's {kind} has {len} bytes: at most {max} are allowed"))
            }
            _ if kind == "path" => Ok(Self::File(name.into())),
            _ => Ok(Self::Abstract(name.to_owned())),
        }
    }

    /// Returns the address to bind or connect to.
    pub fn address(&self) -> rustix::io::Result<SocketAddrUnix> {
        match self {
            Self::File(path) => SocketAddrUnix::new(path),
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        }
    }

    /// Returns the path of the socket's file, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Abstract(_) => None,
        }
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

impl From<PathBuf> for SocketName {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_round_trips() {
        for text in ["/run/a", "a", "@a", "@/run/memif.sock", "./@a", &format!("@{:0107}", 0)] {
            let name = SocketName::parse(text).unwrap();
            assert_eq!(name.to_string(), text);
            assert_eq!(name.path().is_none(), text.starts_with('@'));
        }
    }

    #[test]
    fn abstract_address_has_no_padding() {
        let long = "x".repeat(SocketName::LEN_MAX);
        for text in ["ab", "/run/memif.sock", &long] {
            let address = SocketName::parse(&format!("@{text}")).unwrap().address().unwrap();
            assert_eq!(address.abstract_name(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn empty_and_long_names_are_refused() {
        for (text, part) in [
            ("", "path is empty"),
            ("@", "abstract name is empty"),
            (&"x".repeat(108), "path has 108 bytes: at most 107"),
            (&format!("@{:0108}", 0), "abstract name has 108 bytes: at most 107"),
        ] {
            let error = SocketName::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
