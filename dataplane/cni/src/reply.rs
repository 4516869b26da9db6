//! Replies of the plugin: results, and errors with the codes of the specification.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value, json};

/// An error as the runtime gets it: one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CniError {
    pub(crate) code: u32,
    pub(crate) msg: String,
}

/// Codes of the specification; from 100, of the plugin.
pub(crate) mod code {
    pub(crate) const INCOMPATIBLE_VERSION: u32 = 1;
    pub(crate) const UNSUPPORTED_FIELD: u32 = 2;
    pub(crate) const UNKNOWN_CONTAINER: u32 = 3;
    pub(crate) const INVALID_ENVIRONMENT: u32 = 4;
    pub(crate) const IO_FAILURE: u32 = 5;
    pub(crate) const DECODING_FAILURE: u32 = 6;
    pub(crate) const INVALID_CONFIG: u32 = 7;
    pub(crate) const TRY_AGAIN_LATER: u32 = 11;
    pub(crate) const NOT_AVAILABLE: u32 = 50;
    /// The switch, the kernel or the IPAM plugin refused something.
    pub(crate) const REFUSED: u32 = 100;
    /// CHECK found something missing or changed.
    pub(crate) const CHECK_FAILED: u32 = 101;
}

impl CniError {
    pub(crate) fn new(code: u32, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into() }
    }

    /// Creates the error for an invalid configuration or request.
    pub(crate) fn invalid(msg: impl Into<String>) -> Self {
        Self::new(code::INVALID_CONFIG, msg)
    }

    /// Creates the error for a failed operation on the file or interface `what`.
    pub(crate) fn io(what: &impl ToString, error: &impl ToString) -> Self {
        let (what, error) = (what.to_string(), error.to_string());
        Self::new(code::IO_FAILURE, format!("{what}: {error}"))
    }
}

/// Standard output and exit status of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// JSON, or nothing.
    pub text: String,
    /// 0, or 1 for an error.
    pub status: u8,
}

impl Output {
    /// Returns the output for a result, or for an error that `describe` converts.
    pub(crate) fn new(
        result: Result<Option<Value>, CniError>,
        describe: impl FnOnce(CniError) -> Value,
    ) -> Self {
        let (value, status) = match result {
            Ok(None) => return Self { text: String::new(), status: 0 },
            Ok(Some(value)) => (value, 0),
            Err(error) => (describe(error), 1),
        };
        Self { text: format!("{value:#}\n"), status }
    }
}

/// Returns a result in the form of `version`: `previous`, the result of the plugins before in the
/// chain, then `interface` and the IPAM plugin's result for it.
pub(crate) fn result(
    version: &str,
    previous: Option<&Value>,
    interface: Value,
    ipam: Option<&Value>,
) -> Value {
    let list = |value: Option<&Value>, key: &str| -> Vec<Value> {
        value.and_then(|value| value[key].as_array()).cloned().unwrap_or_default()
    };
    let mut interfaces = list(previous, "interfaces");
    let index = interfaces.len();
    interfaces.push(interface);
    let mut ips = list(previous, "ips");
    ips.extend(list(ipam, "ips").into_iter().map(|mut ip| {
        ip["interface"] = json!(index);
        if version == "0.4.0" {
            let is_4 = address(&ip).is_some_and(|(address, _)| address.is_ipv4());
            ip["version"] = json!(if is_4 { "4" } else { "6" });
        }
        ip
    }));
    let mut routes = list(previous, "routes");
    routes.extend(list(ipam, "routes"));
    let mut result = Map::new();
    result.insert("cniVersion".to_owned(), json!(version));
    result.insert("interfaces".to_owned(), json!(interfaces));
    for (key, values) in [("ips", ips), ("routes", routes)] {
        if !values.is_empty() {
            result.insert(key.to_owned(), json!(values));
        }
    }
    let mut dns = [previous, ipam].into_iter().flatten().map(|from| &from["dns"]);
    let dns = dns.rfind(|dns| dns.as_object().is_some_and(|dns| !dns.is_empty()));
    if let Some(dns) = dns {
        result.insert("dns".to_owned(), dns.clone());
    }
    Value::Object(result)
}

/// Returns the address of an entry of `ips`, and the length of its network's prefix.
pub(crate) fn address(ip: &Value) -> Option<(IpAddr, u8)> {
    network(ip["address"].as_str()?)
}

/// Parses `ADDRESS/LENGTH`.
pub(crate) fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, len) = text.split_once('/')?;
    let (address, len) = (address.parse::<IpAddr>().ok()?, len.parse().ok()?);
    (len <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_has_form_of_its_version() {
        let ipam = json!({
            "cniVersion": "1.0.0",
            "ips": [
                {"address": "10.0.0.2/24", "gateway": "10.0.0.1"},
                {"address": "fd00::2/64"},
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dns": {"nameservers": ["10.0.0.53"]},
        });
        let made = |version| result(version, None, json!({"name": "eth0"}), Some(&ipam));
        assert_eq!(
            made("1.0.0"),
            json!({
                "cniVersion": "1.0.0",
                "interfaces": [{"name": "eth0"}],
                "ips": [
                    {"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 0},
                    {"address": "fd00::2/64", "interface": 0},
                ],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dns": {"nameservers": ["10.0.0.53"]},
            })
        );
        let versions = made("0.4.0")["ips"].as_array().unwrap().clone();
        let versions: Vec<_> = versions.iter().map(|ip| ip["version"].clone()).collect();
        assert_eq!(versions, ["4", "6"]);
    }

    #[test]
    fn result_is_appended_to_previous_one() {
        let previous = json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "a"}, {"name": "b"}],
            "ips": [{"address": "10.1.0.2/24", "interface": 1}],
            "dns": {},
        });
        let ipam = json!({"ips": [{"address": "10.2.0.2/24"}]});
        let result = result("1.1.0", Some(&previous), json!({"name": "c"}), Some(&ipam));
        let indices = result["ips"].as_array().unwrap().iter().map(|ip| ip["interface"].clone());
        assert_eq!(indices.collect::<Vec<_>>(), [1, 2]);
        assert_eq!(result["interfaces"].as_array().unwrap().len(), 3);
        assert_eq!(result.get("dns"), None);
    }

    #[test]
    fn only_networks_are_parsed() {
        assert_eq!(network("10.0.0.1/24"), Some(("10.0.0.1".parse().unwrap(), 24)));
        assert_eq!(network("::/0"), Some(("::".parse().unwrap(), 0)));
        for wrong in ["", "10.0.0.1", "10.0.0.1/33", "x/24", "::/129", "10.0.0.1/-1"] {
            assert_eq!(network(wrong), None, "{wrong}");
        }
    }
}
