//! Claims from the kubelet to a container: the driver as it runs on a node, a real switch, and
//! Podman containers. The kubelet and the API server are stand-ins that speak their protocols as
//! far as needed.

#[macro_use]
mod node;

mod api_server;
mod kubelet;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use dray_cni::Records;
use dray_k8s::proto::Device;
use serde_json::{Value, json};

use node::{Node, eventually};

/// Returns a claim with a port for each request, whose parameters are the claim's own.
fn claim(name: &str, requests: &[(&str, Value)]) -> Value {
    let results: Vec<_> = requests
        .iter()
        .enumerate()
        .map(|(at, (request, _))| {
            json!({"request": request, "driver": "dray.dev", "pool": "node-1", "device": format!("port-{at}")})
        })
        .collect();
    let config: Vec<_> = requests
        .iter()
        .map(|(request, parameters)| {
            json!({
                "source": "FromClaim", "requests": [request],
                "opaque": {"driver": "dray.dev", "parameters": parameters},
            })
        })
        .collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": name, "uid": format!("{name}-0000-4000")},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": results, "config": config}}},
    })
}

fn ids(devices: &[Device]) -> Vec<&str> {
    devices.iter().flat_map(|device| &device.cdi_device_ids).map(String::as_str).collect()
}

#[tokio::test]
async fn node_publishes_its_ports() {
    require_node!();
    let node = Node::start().await;
    let slice = || node.api.get("/apis/resource.k8s.io/v1/resourceslices/node-1-dray.dev");
    assert!(eventually(|| slice().is_some()).await, "{}", node.said());
    let slice = slice().unwrap();
    let spec = &slice["spec"];
    assert_eq!((&spec["driver"], &spec["nodeName"]), (&json!("dray.dev"), &json!("node-1")));
    let pool = json!({"name": "node-1", "generation": 1, "resourceSliceCount": 1});
    assert_eq!(spec["pool"], pool);
    assert_eq!(spec["devices"].as_array().unwrap().len(), 64);
    let device = &spec["devices"][63];
    assert_eq!(device["name"], "port-63");
    assert_eq!(device["attributes"]["switch"], json!({"string": "switch"}));
    assert_eq!(device["attributes"]["mtu"], json!({"int": 9000}));
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "node-uid");
}

#[tokio::test]
async fn claim_becomes_socket_in_container() {
    require_node!();
    let node = Node::start().await;
    let kubelet = node.kubelet().await;
    let mut sides = Vec::new();
    for (name, kind) in [("receiver", "vhost"), ("sender", "virtio")] {
        node.api.put_claim(&claim(name, &[("net", json!({"kind": kind, "mtu": 9000}))]));
        let devices = kubelet.prepare(name).await.unwrap();
        assert_eq!(devices.len(), 1);
        assert_eq!(
            (devices[0].pool_name.as_str(), devices[0].device_name.as_str()),
            ("node-1", "port-0")
        );
        let expected = [
            format!("dray.dev/claim={name}-0000-4000.0"),
            format!("dray.dev/claim={name}-0000-4000_net"),
        ];
        assert_eq!(ids(&devices), expected);
        sides.push(devices);
    }
    let [receiver, sender] = [0, 1].map(|at| ids(&sides[at]));
    let said = node.run_containers(&receiver, &sender);
    assert!(said.contains("received 2000 frames") && said.contains("lost 0"), "{said}");
    // Each container has printed the description of its port, a line of JSON.
    let described: Vec<Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let attributes = |of: &Value| of["requests"][0]["devices"][0]["attributes"].clone();
    assert_eq!(described.len(), 2, "{said}");
    for (file, kind) in described.iter().zip(["vhost", "virtio"]) {
        assert_eq!(file["apiVersion"], "metadata.resource.k8s.io/v1alpha1");
        let attributes = attributes(file);
        assert_eq!(
            (&attributes["kind"]["string"], &attributes["mtu"]["int"]),
            (&json!(kind), &json!(9000))
        );
    }
    let path = json!({"string": "/run/dray/receiver/net/vhost.sock"});
    assert_eq!(attributes(&described[0])["vhost-user-path"], path);
    assert!(attributes(&described[1])["vhost-user-path"].is_null());
    for name in ["receiver", "sender"] {
        kubelet.unprepare(name).await.unwrap();
    }
    node.assert_clean();
}

#[tokio::test]
async fn prepared_claim_stays_as_it_is() {
    require_node!();
    let node = Node::start().await;
    let kubelet = node.kubelet().await;
    let requests = [("a", json!({"kind": "memif"})), ("b", json!({"vlan": 7})), ("c", json!({}))];
    let mut wanted = claim("one", &requests);
    wanted["status"]["allocation"]["devices"]["config"][1]["source"] = json!("FromClass");
    node.api.put_claim(&wanted);
    let devices = kubelet.prepare("one").await.unwrap();
    let ports = node.ports();
    assert_eq!(ports.len(), 3);
    // A container has a file there.
    let directory = node.at("run/vhost/one-0000-4000.1");
    fs::write(directory.join("mark"), "").unwrap();
    let memif = node.at("run/vhost/one-0000-4000.0/memif.sock");
    let is_socket = |path: &Path| fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
    assert!(is_socket(&memif));
    assert_eq!(kubelet.prepare("one").await.unwrap(), devices);
    node.restart_driver();
    let kubelet = node.kubelet().await;
    assert_eq!(kubelet.prepare("one").await.unwrap(), devices);
    assert!(directory.join("mark").exists());
    assert_eq!(node.ports().len(), 3);
    // A switch that was killed gets the ports back, and memif's socket with them.
    node.restart_switch();
    let names = |ports: &[Value]| {
        let mut names: Vec<_> = ports.iter().map(|port| port["name"].to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&node.ports()), names(&ports));
    assert!(is_socket(&memif) && directory.join("mark").exists());
    // Records can be read by `dray cni list`.
    assert_eq!(Records::at(node.at("run/cni")).all().unwrap().len(), 3);
    for _ in 0..2 {
        kubelet.unprepare("one").await.unwrap();
    }
    node.assert_clean();
}

#[tokio::test]
async fn driver_ends_when_kubelet_refuses_it() {
    require_node!();
    let node = Node::start().await;
    node.kubelet().await;
    kubelet::Kubelet::refuse(&node.at("registry")).await;
    assert!(eventually(|| node.driver_has_failed()).await, "{}", node.said());
    assert!(!node.at("registry/dray.dev-reg.sock").exists());
}

#[tokio::test]
async fn claim_that_cannot_be_prepared_leaves_nothing() {
    require_node!();
    let node = Node::start().await;
    let kubelet = node.kubelet().await;
    for (name, requests, part) in [
        ("tap", vec![("a", json!({"kind": "tap"}))], "kind: \"tap\": a claim is prepared before"),
        ("vlan", vec![("a", json!({"vlan": 7}))], "vlan: the class lets claims set only kind"),
        ("second", vec![("a", json!({})), ("b", json!({"mtu": 1}))], "mtu: 1: give 68 to 9000"),
        (
            "address",
            vec![("a", json!({})), ("b", json!({"mac": "02:00:00:00:00:01"}))],
            "mac: the class lets claims set only kind",
        ),
    ] {
        node.api.put_claim(&claim(name, &requests));
        let error = kubelet.prepare(name).await.unwrap_err();
        assert!(error.contains(part), "{name}: {error}");
        node.assert_clean();
    }
    let error = kubelet.prepare("nosuch").await.unwrap_err();
    assert!(error.starts_with("claim default/nosuch: API server: /apis/"), "{error}");
    assert_eq!(error.matches("not found").count(), 1, "{error}");
    let mut other = claim("other", &[("a", json!({}))]);
    other["metadata"]["uid"] = json!("another");
    node.api.put_claim(&other);
    let error = kubelet.prepare("other").await.unwrap_err();
    assert!(error.contains("its UID is another, not other-0000-4000"), "{error}");
    assert!(kubelet.unprepare_uid("../../x").await.unwrap_err().contains("give letters"));
    // Without a switch nothing can be prepared, and everything be removed.
    node.api.put_claim(&claim("one", &[("a", json!({"kind": "memif"}))]));
    kubelet.prepare("one").await.unwrap();
    node.kill_switch();
    node.api.put_claim(&claim("two", &[("a", json!({}))]));
    let error = kubelet.prepare("two").await.unwrap_err();
    assert!(error.contains("no program listens at"), "{error}");
    kubelet.unprepare("one").await.unwrap();
    node.restart_switch();
    node.assert_clean();
    for part in [
        " INFO  claim prepared claim=default/one devices=1\n",
        " WARN  claim not prepared claim=default/two reason=",
        " INFO  claim released claim=default/any\n",
    ] {
        let said = node.said();
        assert!(said.contains(part), "{part}: {said}");
    }
}
