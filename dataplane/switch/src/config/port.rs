//! Configuration of one port: the same keys in TOML, in JSON and on the command line.

use std::collections::BTreeSet;
use std::str::FromStr;

use dray_port::{PortUri, UriError};
use dray_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::keys::{KEYS, Keys};
use super::name::Name;
use super::rate::{Burst, FrameRate, Rate};
use super::reserved::Reserved;
use super::vlan::Vlan;

/// A port of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Keys", try_from = "Keys")]
pub struct PortConfig {
    /// Name of the port in the switch.
    pub name: Name,
    /// URI of the port.
    pub uri: PortUri,
    /// Number of file descriptors that another program opens for the port and passes to the switch
    /// over its control socket; 0 if the switch opens the port itself.
    pub fd: u16,
    /// VLANs of the port (learning mode).
    pub vlan: Vlan,
    /// Isolation group (learning mode): ports of the same group do not exchange frames with each
    /// other, only with ports outside it. Other switches call such ports protected or isolated,
    /// and the group a split-horizon group.
    pub group: Option<Name>,
    /// Port to exchange frames with (patch mode). Without this key: the next port that names none
    /// either.
    pub pair: Option<Name>,
    /// Ports that this one mirrors: its peer is sent copies of what these receive and send. The
    /// port takes no part in switching, and takes nothing from its peer.
    pub mirror: Vec<Name>,
    /// Addresses pinned to the port (learning mode), in all its VLANs: the switch never learns
    /// them at another port, never forgets them, and drops frames of other ports that claim
    /// them.
    pub macs: Vec<MacAddr>,
    /// True if frames from any other source address are dropped; only with [`macs`](Self::macs).
    pub spoof_check: bool,
    /// Maximum rate that the peer may send.
    pub rate_in: Option<Rate>,
    /// Maximum rate that the peer is sent.
    pub rate_out: Option<Rate>,
    /// Maximum rate of the peer's frames that are flooded, to groups or to unknown stations, and
    /// of its addresses that are learned (learning mode).
    pub storm: Option<FrameRate>,
    /// True if frames to reserved addresses (01:80:c2:00:00:00 to 0f) are relayed between this
    /// port and others that do so (learning mode).
    pub forwards_reserved: bool,
    /// How far the port may be ahead of these rates.
    pub burst: Option<Burst>,
}

impl PortConfig {
    /// Returns the addresses to be pinned to the port, each with the VLANs in which they are; 0
    /// stands for ports without VLANs.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = (MacAddr, u16)> {
        self.macs.iter().flat_map(|mac| self.vlan.ids().map(|vlan| (*mac, vlan)))
    }
}

/// Maximum number of addresses pinned to one port.
pub const MACS_MAX: usize = 256;

/// The keys do not describe a valid port.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PortError {
    /// Invalid key, or keys that exclude each other.
    #[error("port {port:?}: {what}")]
    Keys {
        /// Name of the port, or the text that failed to parse.
        port: String,
        /// Description of the error.
        what: String,
    },
    /// Invalid URI.
    #[error(transparent)]
    Uri(#[from] UriError),
}

impl TryFrom<Keys> for PortConfig {
    type Error = PortError;

    fn try_from(keys: Keys) -> Result<Self, PortError> {
        let Keys { name, uri, fd, vlan, trunk, native, group, pair, .. } = keys;
        let Keys { mirror, mac, spoof_check, rate_in, rate_out, storm, reserved, burst, .. } = keys;
        let error = |what: &str| {
            Err(PortError::Keys { port: name.as_str().to_owned(), what: what.to_owned() })
        };
        let vlan = match (vlan, trunk, native) {
            (Some(_), Some(_), _) => return error("vlan and trunk: give only one of them"),
            (_, None, Some(_)) => return error("native: only for trunk ports; give trunk as well"),
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
        if vlan != Vlan::Unaware && uri.loses_tags() {
            return error(
                "ethertype: its frames arrive without VLAN tags; leave out either the VLANs or \
                          ethertype",
            );
        }
        if let Some(what) = mac.as_deref().and_then(wrong_macs) {
            return error(&what);
        }
        if mac.is_none() && spoof_check.is_some() {
            return error("spoof_check: give mac as well, with the allowed source addresses");
        }
        if burst.is_some() && rate_in.is_none() && rate_out.is_none() && storm.is_none() {
            return error("burst: applies to rate_in, rate_out or storm; give one of them as well");
        }
        let others = [
            ("vlan", vlan != Vlan::Unaware),
            ("group", group.is_some()),
            ("pair", pair.is_some()),
            ("mac", mac.is_some()),
            ("rate_in", rate_in.is_some()),
            ("storm", storm.is_some()),
            ("reserved", reserved.is_some()),
        ];
        if let (Some(_), Some((key, _))) = (&mirror, others.iter().find(|(_, is_given)| *is_given))
        {
            return error(&format!("mirror and {key}: give only one of them"));
        }
        let mirror = match mirror {
            Some(ports) if ports.is_empty() => return error("mirror: give at least one port"),
            Some(ports) if ports.contains(&name) => {
                return error("mirror: a port cannot mirror itself; give other ports");
            }
            ports => ports.unwrap_or_default(),
        };
        let spoof_check = spoof_check.unwrap_or(mac.is_some());
        let macs = mac.unwrap_or_default();
        Ok(Self {
            name,
            uri,
            fd,
            vlan,
            group,
            pair,
            mirror,
            macs,
            spoof_check,
            rate_in,
            rate_out,
            storm,
            forwards_reserved: reserved.is_some(),
            burst,
        })
    }
}

/// Returns what is wrong with addresses to be pinned, if anything.
fn wrong_macs(macs: &[MacAddr]) -> Option<String> {
    if macs.is_empty() {
        return Some("mac: give at least one address".to_owned());
    }
    if macs.len() > MACS_MAX {
        return Some(format!("mac: {} addresses; at most {MACS_MAX} are allowed", macs.len()));
    }
    let mut seen = BTreeSet::new();
    macs.iter().find_map(|mac| match mac {
        MacAddr([0, 0, 0, 0, 0, 0]) => Some(format!("mac: {mac} is not a station's address")),
        mac if mac.is_group() => {
            Some(format!("mac: {mac} is a group address; give addresses of stations"))
        }
        mac => (!seen.insert(*mac)).then(|| format!("mac: {mac} is given twice")),
    })
}

impl From<PortConfig> for Keys {
    fn from(port: PortConfig) -> Self {
        let PortConfig { name, uri, fd, vlan, group, pair, .. } = port;
        let PortConfig { mirror, macs, spoof_check, rate_in, rate_out, storm, .. } = port;
        let PortConfig { forwards_reserved, burst, .. } = port;
        let (vlan, trunk, native) = match vlan {
            Vlan::Unaware => (None, None, None),
            Vlan::Access(vlan) => (Some(vlan), None, None),
            Vlan::Trunk { tagged, native } => {
                // Never empty, so it is read back as a trunk.
                let tags = tagged.into_iter().chain(native).collect();
                (None, Some(tags), native)
            }
        };
        // True is the default, so the key is left out.
        let spoof_check = (!macs.is_empty() && !spoof_check).then_some(false);
        let mac = (!macs.is_empty()).then_some(macs);
        let mirror = (!mirror.is_empty()).then_some(mirror);
        Self {
            name,
            uri,
            fd,
            vlan,
            trunk,
            native,
            group,
            pair,
            mirror,
            mac,
            spoof_check,
            rate_in,
            rate_out,
            storm,
            reserved: forwards_reserved.then_some(Reserved),
            burst,
        }
    }
}

/// Parses `NAME=URI[,vlan=10][,trunk=10+20][,native=1][,group=NAME][,pair=NAME]
/// [,mirror=NAME+NAME][,mac=MAC+MAC][,spoof_check=false][,rate_in=10Gbit+1Mpps][,rate_out=RATE][,
/// storm=1kpps][,reserved=forward][,burst=10ms]`.
impl FromStr for PortConfig {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let error = |what: String| PortError::Keys { port: text.to_owned(), what };
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| error("give NAME=URI, for example a=raw:eth0".to_owned()))?;
        let mut parts = rest.split(',');
        let uri = parts.next().unwrap_or_default();
        let name = name.parse().map_err(|e| error(format!("{e}")))?;
        let mut keys = Keys::new(name, uri.parse()?);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                error(format!("{part:?}: give key=value; lists are written as trunk=10+20"))
            })?;
            let Some(found) = KEYS.iter().find(|known| known.name == key) else {
                let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
                let hint = dray_text::hint(key, known.iter().copied());
                let known = known.join(", ");
                return Err(error(format!("unknown key {key:?}{hint} a port takes {known}")));
            };
            let twice = found.set(&mut keys, value);
            if twice.map_err(|what| error(format!("{key}={value}: {what}")))? {
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
    fn port_text_and_json_are_equivalent() {
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
            ("a=null:,reserved=forward", r#"{"name":"a","uri":"null:","reserved":"forward"}"#),
            ("a=null:,mirror=b+c", r#"{"name":"a","uri":"null:","mirror":["b","c"]}"#),
            ("a=null:,trunk=1,native=1", r#"{"name":"a","uri":"null:","trunk":[1],"native":1}"#),
            (
                "a=null:,mac=52:54:00:00:00:01+02:00:00:00:00:02,storm=1000pps",
                r#"{"name":"a","uri":"null:","mac":["52:54:00:00:00:01","02:00:00:00:00:02"],"storm":"1kpps"}"#,
            ),
            (
                "a=null:,mac=52:54:00:00:00:01,spoof_check=false,rate_out=10Gbit+1Mpps,burst=5ms",
                r#"{"name":"a","uri":"null:","mac":["52:54:00:00:00:01"],"spoof_check":false,"rate_out":"10Gbit+1Mpps","burst":"5ms"}"#,
            ),
        ] {
            let port: PortConfig = text.parse().unwrap();
            assert_eq!(serde_json::to_string(&port).unwrap(), json);
            assert_eq!(serde_json::from_str::<PortConfig>(json).unwrap(), port);
        }
    }

    #[test]
    fn trunk_takes_list_or_text_of_command_line() {
        for trunk in ["[10,20]", "\"10+20\"", "\"10,20\""] {
            let json = format!(r#"{{"name":"a","uri":"null:","trunk":{trunk}}}"#);
            let port: PortConfig = serde_json::from_str(&json).unwrap();
            assert_eq!(port.vlan.to_string(), "10+20");
        }
        for (trunk, part) in [
            ("10", "expected VLANs, as in [10, 20] or \"10+20\""),
            ("\"10-20\"", "VLANs \"10-20\": give 1 to 4094, several as 10+20"),
            ("[0]", "VLAN 0: give 1 to 4094"),
        ] {
            let json = format!(r#"{{"name":"a","uri":"null:","trunk":{trunk}}}"#);
            let message = serde_json::from_str::<PortConfig>(&json).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn port_errors_name_value_and_allowed_values() {
        for (text, parts) in [
            ("null:", ["\"null:\"", "NAME=URI"]),
            ("=null:", ["\"\"", "1 to 64"]),
            ("a b=null:", ["\"a b\"", "1 to 64"]),
            ("a=foo:", ["\"foo\"", "raw:eth0"]),
            ("a=null:,vlan=0", ["vlan=0", "1 to 4094"]),
            ("a=null:,vlan=4095", ["vlan=4095", "1 to 4094"]),
            ("a=null:,vlan=x", ["vlan=x", "1 to 4094"]),
            ("a=null:,trunk=", ["trunk=", "1 to 4094"]),
            ("a=null:,trunk=1+", ["trunk=1+", "several as 10+20"]),
            ("a=null:,trunk=10-20", ["trunk=10-20", "several as 10+20"]),
            ("a=null:,trunk=10,20", ["\"20\": give key=value", "trunk=10+20"]),
            ("a=null:,vlna=10", ["\"vlna\": did you mean vlan?", "vlan, trunk"]),
            ("a=null:,native=1", ["native", "trunk"]),
            ("a=null:,vlan=1,trunk=2", ["vlan and trunk", "one of them"]),
            ("a=raw:eth0?ethertype=0x0800,vlan=1", ["ethertype", "VLAN tags"]),
            ("a=null:,vlan=1,vlan=2", ["\"vlan\"", "twice"]),
            ("a=null:,vlan", ["\"vlan\"", "key=value"]),
            ("a=null:,colour=red", ["\"colour\"", "vlan, trunk"]),
            ("a=null:,pair=.", ["pair=.", "1 to 64"]),
            ("a=null:,mirror=", ["mirror=", "1 to 64"]),
            ("a=null:,mirror=b+a", ["mirror", "other ports"]),
            ("a=null:,mirror=b,vlan=1", ["mirror and vlan", "only one"]),
            ("a=null:,mac=", ["mac=", "six hexadecimal"]),
            ("a=null:,mac=52:54:00:00:00:01+x", ["mac=52", "\"x\""]),
            ("a=null:,mac=ff:ff:ff:ff:ff:ff", ["mac: ff:ff", "a group address"]),
            ("a=null:,mac=00:00:00:00:00:00", ["mac: 00:00", "not a station's"]),
            ("a=null:,mac=02:00:00:00:00:01+02:00:00:00:00:01", ["mac: 02:00", "twice"]),
            ("a=null:,spoof_check=true", ["spoof_check", "give mac"]),
            ("a=null:,spoof_check=1", ["spoof_check=1", "true or false"]),
            ("a=null:,rate_in=0pps", ["rate_in=0pps", "1pps to 1Gpps"]),
            ("a=null:,rate_out=0bit", ["rate_out=0bit", "1kbit to"]),
            ("a=null:,rate_in=fast", ["rate_in=fast", "10Gbit+1Mpps"]),
            ("a=null:,storm=0pps", ["storm=0pps", "1pps to"]),
            ("a=null:,storm=1Gbit", ["storm=1Gbit", "1pps to"]),
            ("a=null:,burst=10ms", ["burst", "rate_in, rate_out or storm"]),
            ("a=null:,reserved=yes", ["reserved=yes", "give forward"]),
            ("a=null:,storm=1kpps,burst=0s", ["burst=0s", "1us to 10s"]),
        ] {
            let message = text.parse::<PortConfig>().unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{text}: {message}");
            }
            assert_eq!(message.lines().count(), 1);
        }
    }
}
