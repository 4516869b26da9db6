//! Devices of this driver that a claim has, and their parameters.

use std::fmt;

use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
};
use serde_json::{Map, Value};

/// Keys that a claim may set besides those that its class allows: they concern the claim's own
/// port.
const OWN_KEYS: [&str; 3] = ["kind", "mtu", "queues"];
/// Key with which a class lists further keys that its claims may set.
const CLAIM_KEYS: &str = "claimKeys";
/// Key that a class cannot leave to claims: a claim could take the address of a station that is not
/// its tenant's.
const CLASS_KEY: &str = "moveMac";
/// Annotation of a claim that was made from a template: its name in the pod.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

/// A claim, as far as it concerns this driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim.
    pub uid: String,
    /// Name of the claim in its pod, if it was made from a template.
    pub pod_claim: Option<String>,
    /// Allocated devices.
    pub devices: Vec<Allocated>,
}

/// An allocated device.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocated {
    /// Request of the claim, `NAME` or `NAME/ALTERNATIVE`.
    pub request: String,
    /// Pool of the device.
    pub pool: String,
    /// The device in its pool.
    pub device: String,
    /// Parameters of the class and the claim.
    pub parameters: Map<String, Value>,
}

impl Allocated {
    /// Returns the name of the request without the alternative that was chosen.
    pub fn base_request(&self) -> &str {
        base(&self.request)
    }
}

/// Returns true if `text` can be part of a path: lowercase letters, digits, hyphens and dots, with
/// a letter or digit at both ends. Users write annotations.
pub fn is_name(text: &str) -> bool {
    let is_end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let known = |b: u8| is_end(Some(b)) || b == b'-' || b == b'.';
    text.bytes().all(known) && is_end(text.bytes().next()) && is_end(text.bytes().last())
}

fn base(request: &str) -> &str {
    request.split('/').next().unwrap_or_default()
}

/// A claim that cannot be prepared as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl Allocation {
    /// Reads what `claim` has been allocated from `driver`.
    pub fn of(claim: &ResourceClaim, driver: &str) -> Result<Self, Invalid> {
        let metadata = &claim.metadata;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
        let wrong = |what: String| Invalid(format!("claim {namespace}/{name}: {what}"));
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let allocation = allocation.ok_or_else(|| wrong("it is not allocated".to_owned()))?;
        let devices = allocation.devices.as_ref();
        let config = devices.and_then(|devices| devices.config.as_deref()).unwrap_or_default();
        let results = devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default();
        let ours = results.iter().filter(|result| result.driver == driver);
        let devices = ours
            .map(|result| allocated(result, config).map_err(wrong))
            .collect::<Result<Vec<_>, _>>()?;
        if devices.is_empty() {
            return Err(wrong(format!("it has no device of driver {driver}")));
        }
        let annotations = metadata.annotations.as_ref();
        let pod_claim = annotations.and_then(|annotations| annotations.get(POD_CLAIM)).cloned();
        let uid = text(&metadata.uid);
        let names = devices.iter().flat_map(|it| [it.base_request(), it.device.as_str()]);
        for name in names.chain([uid.as_str(), name.as_str()]).chain(pod_claim.as_deref()) {
            if !is_name(name) {
                return Err(wrong(format!("{name:?} is not a name")));
            }
        }
        Ok(Self { pod_claim, devices, uid, namespace, name })
    }

    /// Returns the name by which the pod knows the claim.
    pub fn name_in_pod(&self) -> &str {
        self.pod_claim.as_deref().unwrap_or(&self.name)
    }
}

fn allocated(
    result: &DeviceRequestAllocationResult,
    config: &[DeviceAllocationConfiguration],
) -> Result<Allocated, String> {
    let request = &result.request;
    if result.admin_access == Some(true) {
        return Err(format!("request {request}: a port has no access for administrators"));
    }
    Ok(Allocated {
        parameters: parameters(result, config)
            .map_err(|what| format!("request {request}: {what}"))?,
        request: request.clone(),
        pool: result.pool.clone(),
        device: result.device.clone(),
    })
}

/// Merges the parameters of the class and of the claim, which come in this order. What protects
/// other tenants, such as the VLAN, is the class's alone, unless it allows claims to set it.
fn parameters(
    result: &DeviceRequestAllocationResult,
    config: &[DeviceAllocationConfiguration],
) -> Result<Map<String, Value>, String> {
    let mut merged = Map::new();
    let mut allowed: Vec<String> = OWN_KEYS.map(str::to_owned).into();
    for entry in config {
        let requests = entry.requests.as_deref().unwrap_or_default();
        let concerns = requests.is_empty()
            || requests.iter().any(|name| *name == result.request || name == base(&result.request));
        let opaque = entry.opaque.as_ref().filter(|opaque| opaque.driver == result.driver);
        let Some(opaque) = opaque.filter(|_| concerns) else { continue };
        let Value::Object(keys) = &opaque.parameters.0 else {
            return Err(format!("parameters: {}: give an object", opaque.parameters.0));
        };
        let is_class = entry.source == "FromClass";
        for (key, value) in keys {
            match (is_class, key.as_str()) {
                (true, CLAIM_KEYS) => allowed.extend(claim_keys(value)?),
                (true, _) => drop(merged.insert(key.clone(), value.clone())),
                (false, _) if allowed.iter().any(|name| name == key) => {
                    merged.insert(key.clone(), value.clone());
                }
                (false, _) => {
                    let allowed = allowed.join(", ");
                    return Err(format!(
                        "parameters: {key}: the class lets claims set only {allowed}"
                    ));
                }
            }
        }
    }
    Ok(merged)
}

fn claim_keys(value: &Value) -> Result<Vec<String>, String> {
    let names = value.as_array().and_then(|list| {
        list.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    let names = names.ok_or_else(|| {
        format!("parameters: {CLAIM_KEYS}: {value}: give a list, for example [\"vlan\"]")
    })?;
    match names.iter().any(|name| name == CLASS_KEY) {
        true => Err(format!(
            "parameters: {CLAIM_KEYS}: {CLASS_KEY} is for classes; give it in the class"
        )),
        false => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns what a claim with these entries of `config` has for its request `a/b`.
    fn read(config: &Value) -> Result<Map<String, Value>, String> {
        let claim = json!({
            "metadata": {"namespace": "n", "name": "c", "uid": "u", "annotations": {POD_CLAIM: "p"}},
            "spec": {},
            "status": {"allocation": {"devices": {
                "results": [
                    {"driver": "other", "pool": "x", "device": "d", "request": "a/b"},
                    {"driver": "dray.dev", "pool": "node", "device": "port-1", "request": "a/b"},
                ],
                "config": config,
            }}},
        });
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        let allocation = Allocation::of(&claim, "dray.dev").map_err(|error| error.to_string())?;
        assert_eq!((allocation.name_in_pod(), allocation.devices.len()), ("p", 1));
        assert_eq!(allocation.devices[0].base_request(), "a");
        Ok(allocation.devices[0].parameters.clone())
    }

    fn entry(source: &str, requests: &[&str], parameters: &Value) -> Value {
        json!({
            "source": source, "requests": requests,
            "opaque": {"driver": "dray.dev", "parameters": parameters},
        })
    }

    #[test]
    fn claim_overrides_own_keys_of_class() {
        let keys = read(&json!([
            entry("FromClass", &[], &json!({"kind": "vhost", "vlan": 10})),
            entry("FromClaim", &["a"], &json!({"kind": "memif"})),
            entry("FromClaim", &["a/b"], &json!({"mtu": 9000})),
            entry("FromClaim", &["c"], &json!({"queues": 4})),
            {"source": "FromClaim", "opaque": {"driver": "other", "parameters": {"x": 1}}},
        ]));
        let expected = json!({"kind": "memif", "vlan": 10, "mtu": 9000});
        assert_eq!(Value::Object(keys.unwrap()), expected);
    }

    #[test]
    fn claim_sets_other_keys_only_if_class_allows() {
        let claim = entry("FromClaim", &[], &json!({"vlan": 20}));
        let error = read(&json!([claim])).unwrap_err();
        let part = "claim n/c: request a/b: parameters: vlan: the class lets claims set only kind,";
        assert!(error.starts_with(part), "{error}");
        let class = entry("FromClass", &[], &json!({"claimKeys": ["vlan"]}));
        assert_eq!(read(&json!([class, claim])).unwrap()["vlan"], 20);
        // A claim cannot allow itself anything.
        let own = entry("FromClaim", &[], &json!({"claimKeys": ["vlan"]}));
        assert!(read(&json!([own, claim])).unwrap_err().contains("claimKeys: the class lets"));
        // Another tenant's address is not a claim's own.
        let claim = entry("FromClaim", &[], &json!({"mac": "02:00:00:00:00:01"}));
        let error = read(&json!([claim])).unwrap_err();
        assert!(error.contains("mac: the class lets claims set only kind, mtu, queues"), "{error}");
        let class = entry("FromClass", &[], &json!({"claimKeys": ["mac"]}));
        assert_eq!(read(&json!([class, claim])).unwrap()["mac"], "02:00:00:00:00:01");
        let class = json!([entry("FromClass", &[], &json!({"claimKeys": ["moveMac"]}))]);
        assert!(read(&class).unwrap_err().contains("moveMac is for classes"));
        let class = entry("FromClass", &[], &json!({"moveMac": true, "claimKeys": ["mac"]}));
        assert_eq!(read(&json!([class])).unwrap()["moveMac"], true);
        let claim = json!([class, entry("FromClaim", &[], &json!({"moveMac": true}))]);
        assert!(read(&claim).unwrap_err().contains("moveMac: the class lets claims set only"));
        let error = read(&json!([entry("FromClass", &[], &json!({"claimKeys": "vlan"}))]));
        assert!(error.unwrap_err().contains("give a list"));
    }

    #[test]
    fn claim_without_port_is_refused() {
        let of = |status: Value| {
            let claim =
                json!({"metadata": {"name": "c", "uid": "u"}, "spec": {}, "status": status});
            let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
            Allocation::of(&claim, "dray.dev").unwrap_err().to_string()
        };
        assert!(of(json!({})).contains("claim /c: it is not allocated"));
        let empty = of(json!({"allocation": {"devices": {"results": []}}}));
        assert!(empty.contains("no device of driver dray.dev"), "{empty}");
        let admin = json!({"driver": "dray.dev", "pool": "p", "device": "d", "request": "r",
            "adminAccess": true});
        let admin = of(json!({"allocation": {"devices": {"results": [admin]}}}));
        assert!(admin.contains("no access for administrators"), "{admin}");
        for (request, device) in [("../r", "d"), ("r", ".."), ("r", ""), ("R", "d")] {
            let result = json!({
                "driver": "dray.dev", "pool": "p", "device": device, "request": request,
            });
            let error = of(json!({"allocation": {"devices": {"results": [result]}}}));
            assert!(error.ends_with("is not a name"), "{error}");
        }
    }
}
