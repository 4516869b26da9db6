//! Kinds of attachment.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// MTU of an interface, unless the configuration has another one.
pub(crate) const MTU_USUAL: usize = 1500;

/// How the program in the container uses its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Plain sockets, through an interface behind which the switch has a TAP interface.
    Tap,
    /// A client of memif, at an abstract socket.
    Memif,
    /// A front end of vhost-user that connects, at an abstract socket: dray's `virtio:` port.
    Virtio,
    /// A front end of vhost-user that listens, in a directory: DPDK's `server=1`, QEMU.
    Vhost,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Tap, Self::Memif, Self::Virtio, Self::Vhost];

    /// Returns the name of the kind in a network configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::Memif => "memif",
            Self::Virtio => "virtio",
            Self::Vhost => "vhost",
        }
    }

    /// Returns the name of the socket in a directory.
    pub fn socket_name(self) -> &'static str {
        match self {
            Self::Memif => "memif.sock",
            _ => "vhost.sock",
        }
    }

    /// Returns the URI of the switch's port, and the socket that the program in the container uses:
    /// in the directory, if there is one.
    pub(crate) fn uri(self, parts: &UriParts<'_>) -> (String, Option<String>) {
        let UriParts { interface, ends, directory, queues, mtu } = *parts;
        let more = |first| match queues {
            1 => String::new(),
            queues => format!("{first}queues={queues}"),
        };
        let file = |directory: &PathBuf| directory.join(self.socket_name()).display().to_string();
        let socket = match (self, directory) {
            (Self::Tap, _) | (Self::Vhost, None) => None,
            (_, Some(directory)) => Some(file(directory)),
            (Self::Memif | Self::Virtio, None) => Some(format!("@dray/{interface}")),
        };
        let at = socket.as_deref().unwrap_or_default();
        // Only the container has the directory, and its users are not known.
        let mode = |first| match directory {
            Some(_) => format!("{first}mode=0666"),
            None => String::new(),
        };
        let uri = match self {
            Self::Tap => {
                let (tap, netns) = ends;
                format!("tap:{tap}?mtu={mtu}{}&netns={}", more('&'), netns.display())
            }
            Self::Memif => format!("memif:{at}?role=server{}{}", more('&'), mode('&')),
            Self::Virtio if queues == 1 => format!("vhost:{at}{}", mode('?')),
            Self::Virtio => format!("vhost:{at}{}{}", more('?'), mode('&')),
            Self::Vhost => format!("vhost:{at}?client=1{}", more('&')),
        };
        (uri, socket)
    }

    /// Returns the content of the NPWG's device information file (its specification, 1.1.0), where
    /// the kind has one. Its roles say who creates the socket: `client` and `slave` mean the host.
    pub(crate) fn device_info(self, socket: &str) -> Option<Value> {
        let info = |kind: &str, what: Value| json!({"type": kind, "version": "1.1.0", kind: what});
        match self {
            Self::Tap => None,
            Self::Memif => {
                Some(info("memif", json!({"role": "slave", "path": socket, "mode": "ethernet"})))
            }
            Self::Virtio => Some(info("vhost-user", json!({"mode": "client", "path": socket}))),
            Self::Vhost => Some(info("vhost-user", json!({"mode": "server", "path": socket}))),
        }
    }
}

/// Parameters of a port's URI.
pub(crate) struct UriParts<'a> {
    pub(crate) interface: &'a str,
    /// The switch's TAP interface, and the file of its network namespace.
    pub(crate) ends: (&'a str, &'a Path),
    /// Directory for the socket, if it is to be a file.
    pub(crate) directory: Option<&'a PathBuf>,
    pub(crate) queues: u16,
    pub(crate) mtu: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_socket_and_device_info() {
        let ends = ("tap1", Path::new("/run/dray/cni/netns"));
        let directory = PathBuf::from("/run/dray/vhost/p");
        let of = |kind: Kind, queues| {
            let directory = (kind == Kind::Vhost).then_some(&directory);
            kind.uri(&UriParts { interface: "net1", ends, directory, queues, mtu: 1500 })
        };
        let tap = "tap:tap1?mtu=1500&queues=2&netns=/run/dray/cni/netns".to_owned();
        assert_eq!(of(Kind::Tap, 2), (tap, None));
        let at = Some("@dray/net1".to_owned());
        assert_eq!(of(Kind::Memif, 1), ("memif:@dray/net1?role=server".to_owned(), at.clone()));
        assert_eq!(of(Kind::Virtio, 1), ("vhost:@dray/net1".to_owned(), at));
        let (uri, socket) = of(Kind::Vhost, 2);
        assert_eq!(uri, "vhost:/run/dray/vhost/p/vhost.sock?client=1&queues=2");
        assert_eq!(socket.as_deref(), Some("/run/dray/vhost/p/vhost.sock"));
        assert_eq!(Kind::Tap.device_info(""), None);
        let info = |kind: Kind| kind.device_info("@a").unwrap();
        assert_eq!(info(Kind::Memif)["memif"]["role"], "slave");
        assert_eq!(info(Kind::Virtio)["vhost-user"]["mode"], "client");
        assert_eq!(info(Kind::Vhost)["vhost-user"]["mode"], "server");
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
