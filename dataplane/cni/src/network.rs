//! The network configuration: keys of the specification, and the plugin's own.

use std::path::PathBuf;
use std::time::Duration;

use dray_switch::PortConfig;
use dray_switch::config::{Burst, CONTROL, Keys, Name, Rate, VlanId};
use dray_wire::MacAddr;
use serde_json::{Map, Value};

use crate::kind::{Kind, MTU_USUAL};
use crate::reply::{CniError, code};

/// Versions of the specification that the plugin implements, the newest last.
pub(crate) const VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];
/// Newest of [`VERSIONS`].
pub(crate) const NEWEST: &str = VERSIONS[VERSIONS.len() - 1];

/// A checked network configuration.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// Version of the specification that the runtime speaks.
    pub(crate) version: String,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Control socket of the switch.
    pub(crate) control: PathBuf,
    /// Name of the port; `None`: from the container's.
    pub(crate) port_name: Option<Name>,
    pub(crate) vlan: Option<VlanId>,
    pub(crate) trunk: Option<Vec<VlanId>>,
    pub(crate) native: Option<VlanId>,
    pub(crate) group: Option<Name>,
    pub(crate) mac: Option<MacAddr>,
    /// True if a container takes its address from a station that the switch has learned elsewhere.
    pub(crate) move_mac: bool,
    pub(crate) spoof_check: bool,
    pub(crate) mtu: usize,
    pub(crate) queues: u16,
    /// Limits of the frames from the container, and of those to it.
    pub(crate) rate_in: Option<Rate>,
    pub(crate) rate_out: Option<Rate>,
    /// Name of the plugin that manages addresses.
    pub(crate) ipam: Option<String>,
    /// Path of the NPWG's device information file.
    pub(crate) device_info: Option<PathBuf>,
    pub(crate) previous: Option<Value>,
    /// For GC: the attachments that remain, as container and interface. Runtimes leave out an
    /// empty list.
    pub(crate) valid: Vec<(String, String)>,
}

/// Keys of the specification and its conventions. Others with a slash are extensions that the
/// specification allows anyone to add.
const STANDARD: [&str; 14] = [
    "args",
    "capabilities",
    "cniVersion",
    "cniVersions",
    "disableCheck",
    "disableGC",
    "dns",
    "ipMasq",
    "ipam",
    "loadOnlyInlinedPlugins",
    "name",
    "prevResult",
    "runtimeConfig",
    "type",
];

/// Keys of a container's port, by whatever way it is attached.
pub(crate) const PORT_KEYS: [&str; 9] =
    ["group", "kind", "mtu", "native", "queues", "rate", "spoofCheck", "trunk", "vlan"];
/// Further keys of a claim's port.
const CLAIM_KEYS: [&str; 2] = ["mac", "moveMac"];
/// Further keys of the network configuration.
const CNI_KEYS: [&str; 4] = ["control", "mac", "moveMac", "port"];

impl Network {
    /// Parses and checks a configuration.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, CniError> {
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            CniError::new(code::DECODING_FAILURE, format!("network configuration: {error}"))
        })?;
        let Value::Object(keys) = value else {
            let what = "network configuration: give a JSON object";
            return Err(CniError::new(code::DECODING_FAILURE, what));
        };
        Self::of(&keys)
    }

    fn of(keys: &Map<String, Value>) -> Result<Self, CniError> {
        let version = check_version(keys)?;
        check_known(keys, &CNI_KEYS, "the plugin takes", |key| {
            STANDARD.contains(&key) || key.contains('/')
        })?;
        let runtime = keys.get("runtimeConfig").unwrap_or(&Value::Null);
        let rate = parsed(keys, "rate")?;
        let bandwidth = &runtime["bandwidth"];
        let other = ["trunk", "native"].into_iter().find(|key| given(keys, key).is_some());
        if let (Some(_), Some(other)) = (given(keys, "vlan"), other) {
            return Err(invalid(other, &keys[other], "give either vlan or trunk"));
        }
        Ok(Self {
            version,
            name: text_of(keys, "name")?
                .ok_or_else(|| invalid("name", &Value::Null, "give the network's name"))?,
            kind: kind(keys)?,
            control: match text_of(keys, "control")? {
                Some(path) if path.starts_with('/') => path.into(),
                Some(path) => {
                    let what = "give the absolute path of the switch's control socket";
                    return Err(invalid("control", &path.into(), what));
                }
                None => dray_daemon::default_control(CONTROL),
            },
            port_name: parsed(keys, "port")?,
            vlan: vlan(keys, "vlan")?,
            trunk: trunk(keys)?,
            native: vlan(keys, "native")?,
            group: parsed(keys, "group")?,
            mac: mac(keys, runtime)?,
            move_mac: flag(keys, "moveMac", false)?,
            spoof_check: flag(keys, "spoofCheck", true)?,
            mtu: number(keys, "mtu", 68, 9000)?.map_or(MTU_USUAL, |mtu| mtu as usize),
            queues: number(keys, "queues", 1, 16)?.map_or(1, |queues| queues as u16),
            rate_in: limit(bandwidth, "egressRate", "egressBurst")?.or(rate),
            rate_out: limit(bandwidth, "ingressRate", "ingressBurst")?.or(rate),
            ipam: ipam(keys.get("ipam").unwrap_or(&Value::Null))?,
            device_info: match &runtime["CNIDeviceInfoFile"] {
                Value::Null => None,
                Value::String(path) if path.starts_with('/') => Some(path.into()),
                other => {
                    let what = "give the absolute path of a file";
                    return Err(invalid("runtimeConfig.CNIDeviceInfoFile", other, what));
                }
            },
            previous: keys.get("prevResult").filter(|previous| !previous.is_null()).cloned(),
            valid: valid(keys)?,
        })
    }

    /// Checks the parameters of a claim, which may have [`PORT_KEYS`] and [`CLAIM_KEYS`].
    pub(crate) fn of_claim(parameters: &Map<String, Value>) -> Result<Self, CniError> {
        check_known(parameters, &CLAIM_KEYS, "a claim takes", |_| false)?;
        let mut keys = parameters.clone();
        for (key, value) in [("cniVersion", NEWEST), ("name", "claim")] {
            keys.insert(key.to_owned(), value.into());
        }
        keys.entry("kind").or_insert_with(|| Kind::Vhost.name().into());
        let network = Self::of(&keys)?;
        if network.kind == Kind::Tap {
            let what = "a claim is prepared before its container's network namespace exists; give one \
                        of memif, virtio, vhost";
            return Err(invalid("kind", &network.kind.name().into(), what));
        }
        Ok(network)
    }

    /// Returns the port of the switch with this address.
    pub(crate) fn port(
        &self,
        name: Name,
        uri: &str,
        fd: u16,
        mac: MacAddr,
    ) -> Result<PortConfig, CniError> {
        let uri = uri.parse().map_err(|error| CniError::invalid(format!("{error}")))?;
        let mut keys = Keys::new(name, uri);
        keys.fd = fd;
        keys.vlan = self.vlan;
        keys.trunk = self.trunk.clone();
        keys.native = self.native;
        keys.group = self.group.clone();
        keys.mac = Some(vec![mac]);
        keys.spoof_check = Some(self.spoof_check);
        keys.rate_in = self.rate_in;
        keys.rate_out = self.rate_out;
        PortConfig::try_from(keys).map_err(|error| CniError::invalid(error.to_string()))
    }
}

/// Returns the version to speak.
fn check_version(keys: &Map<String, Value>) -> Result<String, CniError> {
    let wrong = match keys.get("cniVersion") {
        Some(Value::String(version)) if VERSIONS.contains(&version.as_str()) => {
            return Ok(version.clone());
        }
        Some(version) => format!("{version} is not supported"),
        None => "missing".to_owned(),
    };
    let what = format!("cniVersion: {wrong}; give one of {}", VERSIONS.join(", "));
    Err(CniError::new(code::INCOMPATIBLE_VERSION, what))
}

/// Refuses keys that are neither [`PORT_KEYS`] nor `more` nor `is_standard`; `taker` begins the
/// list of those that are allowed.
fn check_known(
    keys: &Map<String, Value>,
    more: &[&'static str],
    taker: &str,
    is_standard: impl Fn(&str) -> bool,
) -> Result<(), CniError> {
    let known = with_port_keys(more);
    let is_known = |key: &str| known.contains(&key) || is_standard(key);
    let Some((key, value)) = keys.iter().find(|(key, _)| !is_known(key)) else { return Ok(()) };
    let (hint, known) = (dray_text::hint(key, known.iter().copied()), known.join(", "));
    let what = format!("{key}: {value}: unknown key{hint} {taker} {known}");
    Err(CniError::new(code::UNSUPPORTED_FIELD, what))
}

/// Returns [`PORT_KEYS`] and `more`, sorted.
pub(crate) fn with_port_keys(more: &[&'static str]) -> Vec<&'static str> {
    let mut keys = [&PORT_KEYS, more].concat();
    keys.sort_unstable();
    keys
}

fn invalid(key: &str, value: &Value, what: &str) -> CniError {
    let what = match value {
        Value::Null => format!("{key}: missing; {what}"),
        value => format!("{key}: {value}: {what}"),
    };
    CniError::invalid(what)
}

/// Returns the value of a key that is given.
fn given<'k>(keys: &'k Map<String, Value>, key: &str) -> Option<&'k Value> {
    keys.get(key).filter(|value| !value.is_null())
}

fn text_of(keys: &Map<String, Value>, key: &str) -> Result<Option<String>, CniError> {
    match given(keys, key) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(other) => Err(invalid(key, other, "give a text")),
    }
}

/// Returns a value that has a form as text.
fn parsed<T: std::str::FromStr<Err: ToString>>(
    keys: &Map<String, Value>,
    key: &str,
) -> Result<Option<T>, CniError> {
    let Some(text) = text_of(keys, key)? else { return Ok(None) };
    let invalid = |error: T::Err| CniError::invalid(format!("{key}: {}", error.to_string()));
    text.parse().map(Some).map_err(invalid)
}

fn number(
    keys: &Map<String, Value>,
    key: &str,
    min: u64,
    max: u64,
) -> Result<Option<u64>, CniError> {
    let Some(value) = given(keys, key) else { return Ok(None) };
    match value.as_u64() {
        Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
        _ => Err(invalid(key, value, &format!("give {min} to {max}"))),
    }
}

fn flag(keys: &Map<String, Value>, key: &str, usual: bool) -> Result<bool, CniError> {
    match given(keys, key) {
        None => Ok(usual),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(invalid(key, other, "give true or false")),
    }
}

fn kind(keys: &Map<String, Value>) -> Result<Kind, CniError> {
    let names = Kind::ALL.map(Kind::name);
    match given(keys, "kind") {
        None => Ok(Kind::Tap),
        Some(value) => serde_json::from_value(value.clone())
            .map_err(|_| invalid("kind", value, &format!("give one of {}", names.join(", ")))),
    }
}

fn vlan(keys: &Map<String, Value>, key: &str) -> Result<Option<VlanId>, CniError> {
    let Some(value) = given(keys, key) else { return Ok(None) };
    let vlan = value.as_i64().and_then(|number| VlanId::try_from(number).ok());
    vlan.map(Some).ok_or_else(|| invalid(key, value, "give 1 to 4094"))
}

fn trunk(keys: &Map<String, Value>) -> Result<Option<Vec<VlanId>>, CniError> {
    let Some(value) = given(keys, "trunk") else { return Ok(None) };
    let wrong = || invalid("trunk", value, "give VLANs of 1 to 4094, for example [10, 20]");
    let vlans = value.as_array().filter(|list| !list.is_empty()).ok_or_else(wrong)?;
    let vlan = |value: &Value| VlanId::try_from(value.as_i64()?).ok();
    vlans.iter().map(vlan).collect::<Option<_>>().map(Some).ok_or_else(wrong)
}

/// Returns the address that the runtime asks for, else that of the configuration.
fn mac(keys: &Map<String, Value>, runtime: &Value) -> Result<Option<MacAddr>, CniError> {
    let (key, value) = match (&runtime["mac"], given(keys, "mac")) {
        (Value::Null, None) => return Ok(None),
        (Value::Null, Some(value)) => ("mac", value),
        (value, _) => ("runtimeConfig.mac", value),
    };
    let mac = value.as_str().and_then(station);
    mac.map(Some).ok_or_else(|| invalid(key, value, STATION))
}

/// Advice for an invalid address of a container.
pub(crate) const STATION: &str = "give the address of a station, for example 02:00:00:00:00:01";

/// Parses the address of a container.
pub(crate) fn station(text: &str) -> Option<MacAddr> {
    text.parse::<MacAddr>().ok().filter(|mac| mac.is_station())
}

/// Burst, in bits, from which on the runtime means that none was asked for: what Kubernetes, CRI-O
/// and containerd give with each rate is the maximum of a 32-bit number.
const BURST_NONE: u64 = i32::MAX as u64;

/// Parses a limit of the capability `bandwidth`, in bits per second and bits; a rate of 0 means no
/// limit, a burst of 0 the switch's own.
fn limit(bandwidth: &Value, rate: &str, burst: &str) -> Result<Option<Rate>, CniError> {
    let number = |key: &str, what| match &bandwidth[key] {
        Value::Null => Ok(0),
        value => {
            let wrong = || invalid(&format!("runtimeConfig.bandwidth.{key}"), value, what);
            value.as_u64().ok_or_else(wrong)
        }
    };
    let (bits, burst) = (number(rate, RATES)?, number(burst, BURSTS)?);
    if bits == 0 {
        return Ok(None);
    }
    let wrong = |_| invalid(&format!("runtimeConfig.bandwidth.{rate}"), &bandwidth[rate], RATES);
    let limit: Rate = format!("{bits}bit").parse().map_err(wrong)?;
    let time = || Burst::nearest(Duration::from_micros(burst.saturating_mul(1_000_000) / bits));
    let own = (1..BURST_NONE).contains(&burst).then(time);
    Ok(Some(Rate { burst: own, ..limit }))
}

const RATES: &str = "give 1000 to 1000000000000 bits per second";
const BURSTS: &str = "give a number of bits";

fn ipam(section: &Value) -> Result<Option<String>, CniError> {
    match (section, &section["type"]) {
        (Value::Null, _) => Ok(None),
        (Value::Object(keys), Value::Null) if keys.is_empty() => Ok(None),
        // It is looked for in the folders of CNI_PATH, and nowhere else.
        (_, Value::String(name)) if !name.is_empty() && !name.contains('/') => {
            Ok(Some(name.clone()))
        }
        (_, other) => {
            Err(invalid("ipam.type", other, "give the name of a plugin, for example host-local"))
        }
    }
}

/// Returns the attachments that remain, by either of the keys that runtimes use.
fn valid(keys: &Map<String, Value>) -> Result<Vec<(String, String)>, CniError> {
    let names = ["cni.dev/valid-attachments", "cni.dev/attachments"];
    let Some((key, value)) = names.iter().find_map(|key| Some((*key, given(keys, key)?))) else {
        return Ok(Vec::new());
    };
    let wrong = || {
        invalid(key, value, "give a list such as [{\"containerID\": \"a\", \"ifname\": \"eth0\"}]")
    };
    let pair = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        Some((text("containerID")?, text("ifname")?))
    };
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter().map(pair).collect::<Option<_>>().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a configuration with these keys besides the required ones.
    fn parse(more: &Value) -> Result<Network, CniError> {
        let mut value = json!({"cniVersion": "1.1.0", "name": "n", "type": "dray-cni"});
        let keys = value.as_object_mut().unwrap();
        keys.extend(more.as_object().unwrap().clone());
        Network::parse(value.to_string().as_bytes())
    }

    #[test]
    fn defaults_are_tap_with_spoof_check() {
        let network = parse(&json!({})).unwrap();
        assert_eq!((network.kind, network.spoof_check), (Kind::Tap, true));
        assert_eq!((network.mtu, network.queues, network.ipam), (1500, 1, None));
    }

    #[test]
    fn capabilities_override_keys() {
        let network = parse(&json!({
            "mac": "02:00:00:00:00:01",
            "rate": "1Gbit",
            "runtimeConfig": {
                "mac": "02:00:00:00:00:02",
                "bandwidth": {"ingressRate": 5000, "ingressBurst": 1000},
                "CNIDeviceInfoFile": "/a/b",
            },
        }));
        let network = network.unwrap();
        assert_eq!(network.mac.unwrap().to_string(), "02:00:00:00:00:02");
        assert_eq!(network.rate_in.unwrap().to_string(), "1Gbit");
        assert_eq!(network.rate_out.unwrap().to_string(), "5kbit/200ms");
        assert_eq!(network.device_info, Some("/a/b".into()));
    }

    /// Container runtimes send the largest burst by default. A pod that got it would exceed its
    /// rate for long.
    #[test]
    fn burst_is_honoured_unless_runtime_made_it_up() {
        for (rate, burst, expected) in [
            (100_000_000_u64, 0, "100Mbit"),
            (100_000_000, 1_000_000, "100Mbit/10ms"),
            (100_000_000, 50_000_000, "100Mbit/500ms"),
            (10_000_000_000, 1, "10Gbit/1us"),
            (1000, 1_000_000_000, "1kbit/10s"),
            (100_000_000, 2_147_483_647, "100Mbit"),
            (10_000_000_000, u64::from(u32::MAX), "10Gbit"),
            (1_000_000_000, u64::from(u32::MAX) * 8, "1Gbit"),
        ] {
            let both = json!({
                "ingressRate": rate, "ingressBurst": burst, "egressRate": 2 * rate,
                "egressBurst": 2 * burst,
            });
            let network = parse(&json!({"runtimeConfig": {"bandwidth": both}})).unwrap();
            assert_eq!(network.rate_out.unwrap().to_string(), expected);
            assert_eq!(network.rate_in.unwrap().burst, network.rate_out.unwrap().burst);
        }
    }

    #[test]
    fn both_keys_of_valid_attachments_are_read() {
        let list = json!([{"containerID": "a", "ifname": "eth0"}]);
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            let network = parse(&json!({key: list})).unwrap();
            assert_eq!(network.valid, [("a".to_owned(), "eth0".to_owned())]);
        }
        assert!(parse(&json!({})).unwrap().valid.is_empty());
    }

    #[test]
    fn error_names_key_value_and_what_is_allowed() {
        for (keys, code, part) in [
            (json!({"cniVersion": "0.3.1"}), 1, "\"0.3.1\" is not supported; give one of 0.4.0"),
            (json!({"vlna": 3}), 2, "vlna: 3: unknown key: did you mean vlan?"),
            (json!({"kind": "veth"}), 7, "kind: \"veth\": give one of tap, memif, virtio, vhost"),
            (json!({"vlan": 0}), 7, "vlan: 0: give 1 to 4094"),
            (json!({"vlan": "5"}), 7, "vlan: \"5\": give 1 to 4094"),
            (json!({"vlan": 5, "trunk": [1]}), 7, "trunk: [1]: give either vlan or trunk"),
            (json!({"trunk": []}), 7, "trunk: []: give VLANs"),
            (json!({"mtu": 65000}), 7, "mtu: 65000: give 68 to 9000"),
            (json!({"queues": 17}), 7, "queues: 17: give 1 to 16"),
            (json!({"spoofCheck": "no"}), 7, "spoofCheck: \"no\": give true or false"),
            (
                json!({"mac": "01:00:00:00:00:01"}),
                7,
                "mac: \"01:00:00:00:00:01\": give the address",
            ),
            (json!({"port": "a b"}), 7, "port: name \"a b\": give 1 to 64"),
            (json!({"group": 7}), 7, "group: 7: give a text"),
            (json!({"rate": "fast"}), 7, "rate: rate \"fast\": give frames or bits"),
            (
                json!({"runtimeConfig": {"bandwidth": {"egressRate": 1}}}),
                7,
                "runtimeConfig.bandwidth.egressRate: 1: give 1000 to",
            ),
            (
                json!({"runtimeConfig": {"bandwidth": {"egressRate": 1000, "egressBurst": -1}}}),
                7,
                "runtimeConfig.bandwidth.egressBurst: -1: give a number of bits",
            ),
            (json!({"control": "a.sock"}), 7, "control: \"a.sock\": give the absolute path"),
            (json!({"ipam": {}, "name": ""}), 7, "name: \"\": give a text"),
            (
                json!({"ipam": {"type": "../x"}}),
                7,
                "ipam.type: \"../x\": give the name of a plugin",
            ),
            (json!({"ipam": {"x": 1}}), 7, "ipam.type: missing; give the name"),
            (json!({"cni.dev/attachments": [1]}), 7, "cni.dev/attachments: [1]: give a list"),
        ] {
            let error = parse(&keys).unwrap_err();
            assert_eq!(error.code, code, "{}", error.msg);
            assert!(error.msg.contains(part), "{}", error.msg);
        }
        for (text, code) in [("", 6), ("{", 6), ("[]", 6), ("{}", 1)] {
            assert_eq!(Network::parse(text.as_bytes()).unwrap_err().code, code, "{text}");
        }
    }
}
