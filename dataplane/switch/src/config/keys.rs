//! Keys of a port: one description for TOML, JSON, `--port` and the options of a command.

use std::str::FromStr;

use dray_port::PortUri;
use dray_wire::{MacAddr, ParseMacError};
use serde::{Deserialize, Serialize};

use super::name::Name;
use super::rate::{Burst, FrameRate, Rate};
use super::reserved::Reserved;
use super::vlan::{VlanId, parse_trunk, trunk};

/// An optional key of a port.
#[derive(Debug)]
pub struct Key {
    /// Name of the key.
    pub name: &'static str,
    /// Placeholder for its value in help.
    pub value: &'static str,
    /// Description for help.
    pub about: &'static str,
    set: fn(Option<&mut Keys>, &str) -> Result<bool, String>,
}

impl Key {
    /// Parses a value and stores it. Returns true if the key had a value before.
    pub fn set(&self, keys: &mut Keys, value: &str) -> Result<bool, String> {
        (self.set)(Some(keys), value)
    }

    /// Checks a value.
    pub fn check(&self, value: &str) -> Result<(), String> {
        (self.set)(None, value).map(drop)
    }
}

/// Defines [`Keys`] and [`KEYS`]: each key with its description, its name and type, the placeholder
/// for its value and the parser.
macro_rules! keys {
    ($(
        $(#[doc = $about:literal])+
        $(#[serde($serde:meta)])?
        $name:ident: $kind:ty = $value:literal, $parse:expr;
    )+) => {
        /// Keys of a port as written in a configuration.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Keys {
            /// Name of the port.
            pub name: Name,
            /// URI of the port.
            pub uri: PortUri,
            /// Number of file descriptors that come with the request; only over the control socket.
            #[serde(default, skip_serializing_if = "is_zero")]
            pub fd: u16,
            $(
                $(#[doc = $about])+
                #[serde(default, skip_serializing_if = "Option::is_none" $(, $serde)?)]
                pub $name: Option<$kind>,
            )+
        }

        impl Keys {
            /// Creates a port with none of the optional keys.
            pub fn new(name: Name, uri: PortUri) -> Self {
                Self { name, uri, fd: 0, $($name: None),+ }
            }
        }

        /// The optional keys.
        pub const KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            value: $value,
            about: concat!($($about),+).trim_ascii_start(),
            set: |keys, value| {
                let value: $kind = $parse(value).map_err(|error| error.to_string())?;
                Ok(keys.is_some_and(|keys| keys.$name.replace(value).is_some()))
            },
        }),+];
    };
}

keys! {
    /// Access port of this VLAN: frames carry no tag.
    vlan: VlanId = "VLAN", VlanId::from_str;
    /// Trunk port of these VLANs, such as 10+20: frames carry their tag.
    #[serde(deserialize_with = "trunk")]
    trunk: Vec<VlanId> = "VLANS", parse_trunk;
    /// VLAN of the trunk whose frames carry no tag.
    native: VlanId = "VLAN", VlanId::from_str;
    /// Isolation group: ports of one group do not exchange frames with each other.
    group: Name = "NAME", Name::from_str;
    /// Port to exchange frames with, in patch mode; without it, the next free one.
    pair: Name = "NAME", Name::from_str;
    /// Ports, such as a+b: this port gets copies of what they receive and send, and takes no part
    /// in switching.
    mirror: Vec<Name> = "PORTS", parse_names;
    /// Addresses, as MAC or MAC+MAC, that are pinned to the port: frames from other ports that
    /// claim them are dropped.
    mac: Vec<MacAddr> = "MACS", parse_macs;
    /// With pinned addresses: drop frames from any other source address, or not [default: true].
    spoof_check: bool = "BOOL", parse_bool;
    /// Maximum rate at which the peer may send, such as 1Mpps, 10Gbit, or both as 10Gbit+1Mpps, and
    /// a burst of its own as 10Gbit/50ms.
    rate_in: Rate = "RATE", Rate::from_str;
    /// Maximum rate at which frames are sent to the peer.
    rate_out: Rate = "RATE", Rate::from_str;
    /// Maximum rate at which the peer's frames are flooded and its addresses learned, such as
    /// 1kpps.
    storm: FrameRate = "RATE", FrameRate::from_str;
    /// forward: relay frames to reserved addresses (01:80:c2:00:00:00 to 0f), as of LLDP and
    /// 802.1X, between ports that have this key.
    reserved: Reserved = "forward", Reserved::from_str;
    /// Burst size as a time: the port may send at once as many bytes and frames as these rates
    /// allow in it [default: 10ms].
    burst: Burst = "TIME", Burst::from_str;
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// Parses a list of addresses: `52:54:00:00:00:01+52:54:00:00:00:02`, as on the command line, or
/// with commas where a comma has no other meaning.
fn parse_macs(text: &str) -> Result<Vec<MacAddr>, ParseMacError> {
    text.split(['+', ',']).map(str::parse).collect()
}

/// Parses a list of names: `a+b`.
fn parse_names(text: &str) -> Result<Vec<Name>, String> {
    let name = |name: &str| name.parse().map_err(|error| format!("{error}"));
    text.split('+').map(name).collect()
}

fn parse_bool(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_| "give true or false")
}
