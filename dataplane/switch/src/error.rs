//! Errors of changes to a switch.

use dray_wire::MacAddr;

use crate::config::{ConfigError, PairError, PortConfig};

/// A port could not be added or removed; nothing has changed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SwitchError {
    /// A port of this name already exists.
    #[error("port {0:?}: the name is taken")]
    NameTaken(String),
    /// There is no port of this name.
    #[error("no such port: {0:?}")]
    NoSuchPort(String),
    /// An address is pinned to another port.
    #[error(
        "port {0:?}: mac: {1} is pinned to port {2:?}; an address of a VLAN belongs to one port"
    )]
    AddressTaken(String, MacAddr, String),
    /// An address to be pinned is that of a station behind another port.
    #[error(
        "port {port:?}: mac: {mac} is a station behind port {other:?}{}; give another address, or \
         --force (force=1) if it is to move", in_vlan(*.vlan)
    )]
    AddressLearned {
        /// Name of the port.
        port: String,
        /// The address.
        mac: MacAddr,
        /// Name of the port that the station is behind.
        other: String,
        /// VLAN of the station; 0 for ports without VLANs.
        vlan: u16,
    },
    /// Another port uses the same interface or socket.
    #[error("port {port:?}: {what} is already used by port {other:?}; give each port its own")]
    Shared {
        /// Name of the port.
        port: String,
        /// Interface or socket.
        what: String,
        /// Name of the port that uses it.
        other: String,
    },
    /// The port cannot mirror the named ports; the message has the reason.
    #[error("{0}")]
    Mirror(String),
    /// The configuration is not valid, or not possible beside the ports that stay.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The requested pair is not possible.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The switch already has the maximum number of ports.
    #[error("port {0:?}: the switch already has {1} ports, the maximum")]
    TooManyPorts(String, usize),
    /// Opening the port needs privileges that the switch has given up.
    #[error(
        "port {uri:?}: a sandboxed switch cannot open interfaces; give the port when the switch \
         starts, or start it with --sandbox off"
    )]
    Sandboxed {
        /// URI of the port.
        uri: String,
    },
    /// The port is a tool for tests, with which a client could end the switch.
    #[error(
        "port {uri:?}: a sandboxed switch takes impair: only from its command line or the \
         configuration that it starts with"
    )]
    TestTool {
        /// URI of the port.
        uri: String,
    },
    /// The descriptors are not of the kind that the port needs; the message has the kinds.
    #[error("{0}")]
    Descriptors(String),
    /// The port cannot be opened; the message has the port and the cause.
    #[error("{0}")]
    Open(String),
}

impl SwitchError {
    /// Returns the error if `port` needs an interface or a socket that one of `others` uses. A port
    /// with descriptors is not compared: its name may be one of another network namespace.
    pub(crate) fn shared<'p>(
        port: &PortConfig,
        others: impl IntoIterator<Item = &'p PortConfig>,
    ) -> Option<Self> {
        let mut others = others.into_iter().filter(|other| port.fd == 0 && other.fd == 0);
        others.find_map(|other| {
            let what = port.uri.common_with(&other.uri)?;
            let [port, other] = [port, other].map(|port| port.name.as_str().to_owned());
            Some(Self::Shared { port, what, other })
        })
    }
}

/// Returns words for a VLAN in a message; none for ports without VLANs.
fn in_vlan(vlan: u16) -> String {
    if vlan == 0 { String::new() } else { format!(", in VLAN {vlan}") }
}
