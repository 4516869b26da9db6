//! All operations of the plugin, by `cnitool` and directly.

use serde_json::{Value, json};

use crate::common::alone;
use crate::node::{Node, Pod};

/// Returns an address of a result, without the length of its prefix.
fn address(result: &Value, at: usize) -> String {
    let address = result["ips"][at]["address"].as_str().unwrap_or_else(|| panic!("{result}"));
    address.split('/').next().unwrap().to_owned()
}

#[test]
fn two_tap_containers_reach_each_other_by_both_families() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let mut keys = json!({"ipam": node.ipam(&["10.1.0.0/16", "fd00:1::/64"]), "mtu": 1400});
    keys["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}, {"dst": "2001:db8::/32", "priority": 7}]);
    node.configure(&[node.configuration(&keys)]);
    let pods = [Pod::new(), Pod::new()];
    let results = [node.add(&pods[0], "eth0"), node.add(&pods[1], "eth0")];
    let said = pods[0].run("ip -o link show eth0");
    assert!(said.contains("mtu 1400"), "{said}");
    assert!(said.contains(results[0]["interfaces"][0]["mac"].as_str().unwrap()), "{said}");
    assert!(pods[0].run("ip route").contains("default via 10.1.0.1 dev eth0"));
    let said = pods[0].run("ip -6 route");
    assert!(said.contains("2001:db8::/32 via fd00:1::1 dev eth0 metric 7"), "{said}");
    for at in [0, 1] {
        let said = pods[0].run(&format!("ping -c 3 -i 0.2 -W 5 {}", address(&results[1], at)));
        assert!(said.contains(" 0% packet loss"), "{said}");
    }
    for pod in &pods {
        node.tool("check", pod, "eth0").unwrap();
        node.tool("status", pod, "eth0").unwrap();
    }
    // CHECK finds what is missing.
    pods[0].run(&format!("ip address del {}/16 dev eth0", address(&results[0], 0)));
    let error = node.tool("check", &pods[0], "eth0").unwrap_err();
    assert!(error.contains("interface eth0: address 10.1.0.2/16 is missing"), "{error}");
    for pod in &pods {
        node.delete(pod, "eth0");
        node.delete(pod, "eth0");
        assert!(!pod.run("ip -o link").contains("eth0"));
    }
    node.assert_clean();
}

#[test]
fn iperf3_streams_between_tap_containers() {
    let _alone = alone();
    require_cni!();
    if std::process::Command::new("iperf3").arg("--version").output().is_err() {
        return crate::common::skip("iperf3 is not installed: apt install iperf3");
    }
    let node = Node::start();
    node.configure(&[node.configuration(&json!({"ipam": node.ipam(&["10.1.0.0/16"])}))]);
    let pods = [Pod::new(), Pod::new()];
    let results = [node.add(&pods[0], "eth0"), node.add(&pods[1], "eth0")];
    let mut server = std::process::Command::new("iperf3");
    server
        .args(["-s", "-1"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let _server = pods[1].start(&mut server);
    let client = format!("iperf3 -J -t 2 -c {}", address(&results[1], 0));
    // iperf3 exits with 0 even if the connection is refused; its report then has no rate.
    let mut said = String::new();
    let mut rate = None;
    crate::common::eventually(|| {
        said = pods[0].try_run(&client).1;
        let report: Value = serde_json::from_str(&said).unwrap_or_default();
        rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
        rate.is_some()
    });
    let rate = rate.unwrap_or_else(|| panic!("{said}"));
    assert!(rate > 1e8, "{rate} bit/s");
    // Packets of 64 KiB pass whole: the offloads of the interface work.
    let ports = node.ports();
    let frames: u64 = ports.iter().map(|port| port.counters.rx_frames).sum();
    let bytes: u64 = ports.iter().map(|port| port.counters.rx_bytes).sum();
    assert!(bytes / frames > 3000, "{bytes} bytes in {frames} frames");
    for pod in &pods {
        node.delete(pod, "eth0");
    }
    node.assert_clean();
}

#[test]
fn result_has_version_of_configuration() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        node.set_version(version);
        let keys = json!({"ipam": node.ipam(&["10.1.0.0/16", "fd00:1::/64"])});
        let pod = Pod::new();
        let result = node.call("ADD", "c1", &pod.path(), &keys).unwrap();
        assert_eq!(result["cniVersion"], version);
        let interface = &result["interfaces"][0];
        assert_eq!(
            (&interface["name"], &interface["sandbox"]),
            (&json!("eth0"), &json!(pod.path()))
        );
        assert_eq!(interface.get("mtu").is_some(), version == "1.1.0");
        assert_eq!(result["ips"][1].get("version").is_some(), version == "0.4.0");
        let mut checked = keys.clone();
        checked["prevResult"] = result;
        assert_eq!(node.call("CHECK", "c1", &pod.path(), &checked), Ok(Value::Null));
        // DEL with and without the namespace and the result.
        let (keys, netns) =
            if version == "1.0.0" { (&keys, String::new()) } else { (&checked, pod.path()) };
        assert_eq!(node.call("DEL", "c1", &netns, keys), Ok(Value::Null));
        node.assert_clean();
    }
    let version = node.call("VERSION", "", "", &json!({})).unwrap();
    let all = json!(["0.4.0", "1.0.0", "1.1.0"]);
    assert_eq!(version, json!({"cniVersion": "1.1.0", "supportedVersions": all}));
}

#[test]
fn plugin_works_before_and_after_others_in_a_chain() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = json!({"ipam": node.ipam(&["10.1.0.0/16"]), "capabilities": {"mac": true}});
    node.configure(&[
        json!({"type": "loopback"}),
        node.configuration(&keys),
        json!({"type": "tuning", "mtu": 1300}),
    ]);
    let pod = Pod::new();
    let mac = "02:00:00:00:aa:01";
    let said = node.tool_with("add", &pod, "net1", &json!({"mac": mac})).unwrap();
    let result: Value = serde_json::from_str(&said).unwrap();
    let names: Vec<_> =
        result["interfaces"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["lo", "net1"]);
    assert_eq!(result["interfaces"][1]["mac"], mac);
    let ours = result["ips"].as_array().unwrap().iter().find(|ip| ip["interface"] == 1).unwrap();
    assert_eq!(ours["address"], "10.1.0.2/16");
    assert!(pod.run("ip -o link show net1").contains("mtu 1300"));
    node.tool("check", &pod, "net1").unwrap();
    node.delete(&pod, "net1");
    node.assert_clean();
}

#[test]
fn repeated_add_replaces_the_first() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = json!({"ipam": node.ipam(&["10.1.0.0/29"]), "vlan": 10});
    let pod = Pod::new();
    // More often than there are addresses.
    for _ in 0..8 {
        node.call("ADD", "c1", &pod.path(), &keys).unwrap();
        assert_eq!(node.ports().len(), 1);
        assert_eq!(node.records(), ["c1:eth0.json"]);
    }
    assert_eq!(pod.run("ip -4 -o address show eth0").lines().count(), 1);
    for _ in 0..2 {
        node.call("DEL", "c1", &pod.path(), &keys).unwrap();
    }
    node.assert_clean();
}

#[test]
fn garbage_collection_keeps_valid_attachments() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = json!({"ipam": node.ipam(&["10.1.0.0/16"])});
    let pods = [Pod::new(), Pod::new(), Pod::new()];
    for (number, pod) in pods.iter().enumerate() {
        node.call("ADD", &format!("c{number}"), &pod.path(), &keys).unwrap();
    }
    let mut valid = keys.clone();
    valid["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    for _ in 0..2 {
        assert_eq!(node.call("GC", "", "", &valid), Ok(Value::Null));
        let names: Vec<_> =
            node.ports().into_iter().map(|port| port.config.name.to_string()).collect();
        assert_eq!(names, ["c1.eth0"]);
        assert!(pods[1].run("ip -o link").contains("eth0"));
        assert!(!pods[0].run("ip -o link").contains("eth0"));
    }
    node.call("GC", "", "", &keys).unwrap();
    node.assert_clean();
    // cnitool names none that are valid.
    node.configure(&[node.configuration(&keys)]);
    node.add(&pods[0], "eth0");
    node.tool("gc", &pods[0], "eth0").unwrap();
    node.assert_clean();
}

#[test]
fn switch_that_is_down_fails_add_and_status_but_not_del() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = json!({"ipam": node.ipam(&["10.1.0.0/16"])});
    let pod = Pod::new();
    assert_eq!(node.call("STATUS", "", "", &keys), Ok(Value::Null));
    node.call("ADD", "c1", &pod.path(), &keys).unwrap();
    node.kill_switch();
    let error = node.call("STATUS", "", "", &keys).unwrap_err();
    assert_eq!(error["code"], 50);
    let message = error["msg"].as_str().unwrap();
    assert!(message.contains("no program listens at") && message.contains("start `dray switch`"));
    let other = Pod::new();
    assert_eq!(node.call("ADD", "c2", &other.path(), &keys).unwrap_err()["code"], 11);
    assert_eq!(node.records(), ["c1:eth0.json"]);
    for _ in 0..2 {
        assert_eq!(node.call("DEL", "c1", &pod.path(), &keys), Ok(Value::Null));
    }
    assert!(!pod.run("ip -o link").contains("eth0"));
    node.start_switch();
    node.assert_clean();
}

#[test]
fn errors_have_codes_and_leave_nothing() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let ipam = node.ipam(&["10.1.0.0/16"]);
    let pod = Pod::new();
    pod.run("ip link add eth0 type veth peer name other");
    let (netns, own) = (pod.path(), "/proc/self/ns/net");
    for (keys, netns, code, part) in [
        (json!({"kind": "veth"}), netns.as_str(), 7, "kind: \"veth\": give one of tap, memif"),
        (json!({"vlna": 1}), &netns, 2, "did you mean vlan?"),
        (json!({"mtu": 9001}), &netns, 7, "mtu: 9001: give 68 to 9000"),
        (json!({"cniVersion": "0.3.0"}), &netns, 1, "\"0.3.0\" is not supported"),
        (json!({"ipam": {"type": "nosuch"}}), &netns, 7, "no plugin \"nosuch\" in CNI_PATH"),
        (json!({"control": "/nosuch/x.sock"}), &netns, 11, "no program listens at /nosuch/x.sock"),
        (json!({"ipam": ipam}), &netns, 4, "the container already has this interface"),
        (json!({}), "/nosuch", 3, "CNI_NETNS=/nosuch: No such file"),
        (json!({}), "/etc/passwd", 4, "CNI_NETNS=/etc/passwd: Invalid argument"),
        (json!({}), own, 4, "the plugin's own namespace"),
        (json!({}), "", 4, "CNI_NETNS: missing"),
    ] {
        let error = node.call("ADD", "c1", netns, &keys).unwrap_err();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["msg"].as_str().unwrap().contains(part), "{error}");
        assert_eq!(error.as_object().unwrap().len(), 3, "{error}");
        node.assert_clean();
    }
    assert!(pod.run("ip -o link").contains("eth0@other"));
    // What another container has.
    let first = Pod::new();
    let mac = "02:00:00:00:bb:01";
    node.call("ADD", "c1", &first.path(), &json!({"mac": mac, "port": "fw"})).unwrap();
    for (keys, code, part) in [
        (json!({"mac": mac, "ipam": ipam}), 100, "is pinned to port \"fw\""),
        (json!({"port": "fw", "ipam": ipam}), 7, "port: \"fw\" is that of container c1"),
    ] {
        let pod = Pod::new();
        let error = node.call("ADD", "c2", &pod.path(), &keys).unwrap_err();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["msg"].as_str().unwrap().contains(part), "{error}");
        assert!(!pod.run("ip -o link").contains("eth0"));
        assert_eq!(node.records(), ["c1:eth0.json"]);
    }
    node.call("DEL", "c1", &first.path(), &json!({})).unwrap();
    node.assert_clean();
}

/// A station that has moved to this node, as a virtual machine that was migrated, is still learned
/// elsewhere.
#[test]
fn address_moves_only_if_the_network_allows_it() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let (elsewhere, pod) = (Pod::new(), Pod::new());
    let mac = "02:00:00:00:cc:01";
    node.call("ADD", "c1", &elsewhere.path(), &json!({"spoofCheck": false, "port": "up"})).unwrap();
    elsewhere.run(&format!("ip link set eth0 address {mac}"));
    elsewhere.run("ip address add 10.9.0.1/24 dev eth0");
    elsewhere.run("ip link set eth0 up");
    let behind = || {
        elsewhere.try_run("ping -c 1 -W 1 10.9.0.2");
        let table = node.client().table(None).unwrap();
        let entry = table.into_iter().find(|entry| entry.mac.to_string() == mac);
        entry.map(|entry| (entry.port.to_string(), entry.pinned))
    };
    assert!(crate::common::eventually(|| behind() == Some(("up".to_owned(), false))));
    // A tenant cannot move it.
    for keys in [
        json!({"mac": mac}),
        json!({"runtimeConfig": {"mac": mac, "moveMac": true}}),
        json!({"mac": mac, "args": {"cni": {"moveMac": true}}, "runtimeConfig": {"force": true}}),
    ] {
        let mut add = node.plugin("ADD", "c2", &pod.path(), &keys);
        let said = add.env("CNI_ARGS", "IgnoreUnknown=1;moveMac=true;force=1").output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.contains("port \\\"up\\\"") && said.contains("\"code\""), "{said}");
    }
    node.call("ADD", "c2", &pod.path(), &json!({"mac": mac, "moveMac": true, "port": "vm"}))
        .unwrap();
    assert_eq!(behind(), Some(("vm".to_owned(), true)));
    // Pinned addresses stay pinned.
    let other = Pod::new();
    let keys = json!({"mac": mac, "moveMac": true});
    let error = node.call("ADD", "c3", &other.path(), &keys).unwrap_err();
    assert!(error["msg"].as_str().unwrap().contains("is pinned to port \"vm\""), "{error}");
}
