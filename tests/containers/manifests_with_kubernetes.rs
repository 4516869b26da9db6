//! The manifests for Kubernetes.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::alone;
use crate::node::{Node, Pod};

/// Python with the validator, installed by `scripts/setup-kubernetes.sh`.
const PYTHON: &str = "/var/cache/dray/kubernetes/venv/bin/python3";
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/containers/validate.py");

/// Returns false, and counts the test as skipped, if the validator is not installed.
fn has_validator() -> bool {
    let exists = Path::new(PYTHON).exists();
    if !exists {
        crate::common::skip("kubernetes-validate: scripts/setup-kubernetes.sh installs it");
    }
    exists
}

/// Validates files against the Kubernetes 1.34 schemas. Returns the networks' configurations, or
/// the first error.
fn validate(files: &[String]) -> Result<Vec<Value>, String> {
    let output = Command::new(PYTHON).args([SCRIPT, "1.34"]).args(files).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let lines = String::from_utf8(output.stdout).unwrap();
    Ok(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn manifests_are_valid_and_their_networks_work() {
    let _alone = alone();
    require_cni!();
    if !has_validator() {
        return;
    }
    let names = std::fs::read_dir(MANIFESTS).unwrap();
    let files: Vec<_> = names.map(|name| name.unwrap().path().display().to_string()).collect();
    let networks = validate(&files).unwrap_or_else(|error| panic!("{error}"));
    let node = Node::start();
    let mut kinds = Vec::new();
    for (number, mut network) in networks.into_iter().enumerate() {
        if !network["ipam"].is_null() {
            network["ipam"]["dataDir"] = json!(node.at("ipam"));
        }
        let pod = Pod::new();
        let container = format!("c{number}");
        let result = node.call("ADD", &container, &pod.path(), &network).unwrap();
        assert_eq!(result["cniVersion"], network["cniVersion"]);
        node.call("DEL", &container, &pod.path(), &network).unwrap();
        kinds.push(network["kind"].as_str().unwrap().to_string());
    }
    assert_eq!(kinds, ["tap", "memif", "virtio", "vhost"]);
    node.assert_clean();
}

#[test]
fn service_monitor_must_lead_to_a_container_port() {
    if !has_validator() {
        return;
    }
    let read = |name: &str| std::fs::read_to_string(format!("{MANIFESTS}/{name}")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let validated = |switch: &str, monitoring: &str| {
        let files = [("switch.yaml", switch), ("monitoring.yaml", monitoring)];
        validate(&files.map(|(name, text)| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        }))
    };
    let (switch, monitoring) = (read("switch.yaml"), read("monitoring.yaml"));
    assert_eq!(validated(&switch, &monitoring), Ok(Vec::new()));
    let error = validated(&switch.replace("name: metrics", "name: other"), &monitoring);
    assert!(error.clone().unwrap_err().contains("leads to metrics"), "{error:?}");
    let error = validated(&switch, &monitoring.replace("targetPort: metrics", "targetPort: x"));
    assert!(error.clone().unwrap_err().contains("leads to x"), "{error:?}");
}

#[test]
fn validator_names_unknown_fields() {
    if !has_validator() {
        return;
    }
    let good = std::fs::read_to_string(format!("{MANIFESTS}/switch.yaml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("switch.yaml");
    std::fs::write(&bad, good.replace("hostNetwork:", "hostNetworks:")).unwrap();
    let error = validate(&[bad.display().to_string()]).unwrap_err();
    assert!(error.contains("DaemonSet") && error.contains("hostNetworks"), "{error}");
}
