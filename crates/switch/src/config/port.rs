//! One port's configuration: the same keys in TOML, in JSON and on the command line.

use std::str::FromStr;

use dray_port::{PortUri, UriError};
use serde::{Deserialize, Serialize};

use super::name::Name;
use super::vlan::{Vlan, VlanId};

/// A port of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Keys", try_from = "Keys")]
pub struct PortConfig {
    /// Its name in the switch.
    pub name: Name,
    /// How it is reached.
    pub uri: PortUri,
    /// Its VLANs (learning mode).
    pub vlan: Vlan,
    /// Its isolation group (learning mode): ports of the same group do not exchange frames with each
    /// other, only with the ports outside it. Other switches call such ports protected or isolated,
    /// and the group a split-horizon group.
    pub group: Option<Name>,
    /// The port that it exchanges frames with (patch mode). Without one: the next port without one.
    pub pair: Option<Name>,
}

impl PortConfig {
    /// A port without any of the optional keys.
    pub fn new(name: Name, uri: PortUri) -> Self {
        Self { name, uri, vlan: Vlan::Unaware, group: None, pair: None }
    }
}

/// The keys as they are written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// Its name.
    pub name: Name,
    /// How it is reached.
    pub uri: PortUri,
    /// Access port of this VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// Trunk port of these VLANs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<Vec<VlanId>>,
    /// The trunk's VLAN without tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<VlanId>,
    /// Isolation group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// The other port, in patch mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<Name>,
}

/// The keys do not make a port.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PortError {
    /// A key, or keys that exclude each other.
    #[error("port {port:?}: {what}")]
    Keys {
        /// Its name, or the text that it was to be made of.
        port: String,
        /// What was wrong.
        what: String,
    },
    /// Its URI.
    #[error(transparent)]
    Uri(#[from] UriError),
}

impl TryFrom<Keys> for PortConfig {
    type Error = PortError;

    fn try_from(keys: Keys) -> Result<Self, PortError> {
        let Keys { name, uri, vlan, trunk, native, group, pair } = keys;
        let error = |what: &str| {
            Err(PortError::Keys { port: name.as_str().to_owned(), what: what.to_owned() })
        };
        let vlan = match (vlan, trunk, native) {
            (Some(_), Some(_), _) => return error("vlan and trunk: give one of them"),
            (_, None, Some(_)) => return error("native: a trunk's only, so give trunk as well"),
            (_, Some(tags), _) if tags.is_empty() => {
                return error("trunk: give at least one VLAN");
            }
            (_, Some(tags), native) => {
                let tagged = tags.into_iter().filter(|tag| Some(*tag) != native).collect();
                Vlan::Trunk { tagged, native }
            }
            (Some(vlan), None, None) => Vlan::Access(vlan),
            (None, None, None) => Vlan::Unaware,
        };
        Ok(Self { name, uri, vlan, group, pair })
    }
}

impl From<PortConfig> for Keys {
    fn from(port: PortConfig) -> Self {
        let PortConfig { name, uri, vlan, group, pair } = port;
        let (vlan, trunk, native) = match vlan {
            Vlan::Unaware => (None, None, None),
            Vlan::Access(vlan) => (Some(vlan), None, None),
            Vlan::Trunk { tagged, native } => {
                // Never empty, so that it is read back as a trunk.
                let tags = tagged.into_iter().chain(native).collect();
                (None, Some(tags), native)
            }
        };
        Self { name, uri, vlan, trunk, native, group, pair }
    }
}

/// `10+20`, as written on the command line, or `10,20` where a comma means nothing else.
pub fn parse_trunk(text: &str) -> Result<Vec<VlanId>, super::vlan::VlanError> {
    text.split(['+', ',']).map(str::parse).collect()
}

/// `NAME=URI[,vlan=10][,trunk=10+20][,native=1][,group=NAME][,pair=NAME]`.
impl FromStr for PortConfig {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let error = |what: String| PortError::Keys { port: text.to_owned(), what };
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| error("give NAME=URI, for example a=raw:eth0".to_owned()))?;
        let mut parts = rest.split(',');
        let uri = parts.next().unwrap_or_default();
        let mut keys = Keys {
            name: name.parse().map_err(|e| error(format!("{e}")))?,
            uri: uri.parse()?,
            vlan: None,
            trunk: None,
            native: None,
            group: None,
            pair: None,
        };
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| error(format!("{part:?} is not of the form key=value")))?;
            let wrong = |e: &dyn std::fmt::Display| error(format!("{key}={value}: {e}"));
            let twice = match key {
                "vlan" => keys.vlan.replace(value.parse().map_err(|e| wrong(&e))?).is_some(),
                "trunk" => keys.trunk.replace(parse_trunk(value).map_err(|e| wrong(&e))?).is_some(),
                "native" => keys.native.replace(value.parse().map_err(|e| wrong(&e))?).is_some(),
                "group" => keys.group.replace(value.parse().map_err(|e| wrong(&e))?).is_some(),
                "pair" => keys.pair.replace(value.parse().map_err(|e| wrong(&e))?).is_some(),
                _ => {
                    let known = "vlan, trunk, native, group, pair";
                    return Err(error(format!("unknown key {key:?}; a port takes {known}")));
                }
            };
            if twice {
                return Err(error(format!("key {key:?} is given twice")));
            }
        }
        keys.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_and_json_mean_the_same() {
        for (text, json) in [
            ("a=null:", r#"{"name":"a","uri":"null:"}"#),
            (
                "a=raw:eth0?batch=64,vlan=10,group=g",
                r#"{"name":"a","uri":"raw:eth0?batch=64","vlan":10,"group":"g"}"#,
            ),
            ("a=null:,trunk=10+20", r#"{"name":"a","uri":"null:","trunk":[10,20]}"#),
            (
                "a=null:,trunk=10+20,native=1,pair=b",
                r#"{"name":"a","uri":"null:","trunk":[10,20,1],"native":1,"pair":"b"}"#,
            ),
            ("a=null:,trunk=1,native=1", r#"{"name":"a","uri":"null:","trunk":[1],"native":1}"#),
        ] {
            let port: PortConfig = text.parse().unwrap();
            assert_eq!(serde_json::to_string(&port).unwrap(), json);
            assert_eq!(serde_json::from_str::<PortConfig>(json).unwrap(), port);
        }
    }

    #[test]
    fn errors_name_what_was_given_and_what_is_allowed() {
        for (text, parts) in [
            ("null:", ["\"null:\"", "NAME=URI"]),
            ("=null:", ["\"\"", "1 to 64"]),
            ("a b=null:", ["\"a b\"", "1 to 64"]),
            ("a=foo:", ["\"foo\"", "raw:eth0"]),
            ("a=null:,vlan=0", ["vlan=0", "1 to 4094"]),
            ("a=null:,vlan=4095", ["vlan=4095", "1 to 4094"]),
            ("a=null:,vlan=x", ["vlan=x", "1 to 4094"]),
            ("a=null:,trunk=", ["trunk=", "1 to 4094"]),
            ("a=null:,trunk=1+", ["trunk=1+", "1 to 4094"]),
            ("a=null:,native=1", ["native", "trunk"]),
            ("a=null:,vlan=1,trunk=2", ["vlan and trunk", "one of them"]),
            ("a=null:,vlan=1,vlan=2", ["\"vlan\"", "twice"]),
            ("a=null:,vlan", ["\"vlan\"", "key=value"]),
            ("a=null:,colour=red", ["\"colour\"", "vlan, trunk"]),
            ("a=null:,pair=.", ["pair=.", "1 to 64"]),
        ] {
            let message = text.parse::<PortConfig>().unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{text}: {message}");
            }
            assert_eq!(message.lines().count(), 1);
        }
    }
}
