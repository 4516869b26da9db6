//! Frames that the kernel passes from container to container, past the switch.

use std::process::{Command, Stdio};

use dray_switch::{BypassStatus, DropReason, PortStatus};
use serde_json::{Value, json};

use crate::common::{DRAY, alone, eventually};
use crate::node::{Node, Pod};

/// Sends five frames from one address to another, with tags of VLAN 10 by IEEE 802.1Q, 802.1ad and
/// of before.
const TAGGED: &str = r#"
import socket, sys
address = lambda text: bytes.fromhex(text.replace(":", ""))
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("eth0", 0))
for kind in (b"\x81\x00", b"\x88\xa8", b"\x91\x00", b"\x92\x00", b"\x93\x00"):
    out.send(address(sys.argv[2]) + address(sys.argv[1]) + kind + b"\x00\x0a\x08\x00" + bytes(46))
"#;

/// Returns keys with addresses that differ from container to container.
fn keys(node: &Node, more: &Value) -> Value {
    let mut keys = json!({"ipam": node.ipam(&["10.1.0.0/16"])});
    keys.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    keys
}

/// Gives each of the containers `c0`, `c1` and so on an interface.
#[track_caller]
fn add(node: &Node, pods: &[Pod], keys: &Value) {
    for (at, pod) in pods.iter().enumerate() {
        node.call("ADD", &format!("c{at}"), &pod.path(), keys).unwrap();
    }
}

/// Removes these interfaces.
#[track_caller]
fn delete(node: &Node, pods: &[Pod], keys: &Value) {
    for (at, pod) in pods.iter().enumerate() {
        node.call("DEL", &format!("c{at}"), &pod.path(), keys).unwrap();
    }
}

fn port(node: &Node, container: &str) -> PortStatus {
    let name = format!("{container}.eth0");
    let is_its = |port: &PortStatus| port.config.name.as_str() == name;
    node.ports().into_iter().find(is_its).unwrap()
}

fn bypass(node: &Node, container: &str) -> BypassStatus {
    port(node, container).bypass.unwrap()
}

/// Returns a counter of the container's interface.
fn counted(pod: &Pod, counter: &str) -> u64 {
    let said = pod.run("ip -s -j link show eth0");
    let said: Value = serde_json::from_str(&said).unwrap();
    let (side, name) = counter.split_once('_').unwrap();
    said[0]["stats64"][side][name].as_u64().unwrap()
}

/// Frames that workers of the switch have received.
fn worked(node: &Node) -> u64 {
    node.client().status().unwrap().workers.iter().map(|worker| worker.frames).sum()
}

fn ping(pod: &Pod, to: &str) {
    let said = pod.run(&format!("ping -c 20 -i 0.01 -W 5 {to}"));
    assert!(said.contains(" 0% packet loss"), "{said}");
}

#[test]
fn every_frame_is_counted_once_whichever_way_it_takes() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = keys(&node, &json!({}));
    let pods = [Pod::new(), Pod::new()];
    for pod in &pods {
        // The kernel would announce the interface before the switch has the port.
        pod.run("sysctl -q -w net.ipv6.conf.default.disable_ipv6=1");
    }
    add(&node, &pods, &keys);
    assert!(bypass(&node, "c0").is_open && bypass(&node, "c1").is_open);
    // Requests for addresses go to all containers, and pass the switch.
    ping(&pods[0], "10.1.0.3");
    let before = (worked(&node), bypass(&node, "c0"));
    assert!(before.0 > 0);
    ping(&pods[0], "10.1.0.3");
    let now = bypass(&node, "c0");
    assert!(now.rx_frames >= before.1.rx_frames + 20 && now.tx_frames >= before.1.tx_frames + 20);
    assert!(worked(&node) < before.0 + 10);
    let agree = || {
        pods.iter().enumerate().all(|(at, pod)| {
            // Frames on their way are counted on one side only.
            let sent = counted(pod, "tx_packets");
            let counters = port(&node, &format!("c{at}")).counters;
            let received = counted(pod, "rx_packets");
            (counters.rx_frames, counters.tx_frames) == (sent, received)
        })
    };
    assert!(eventually(agree), "{:?}", node.ports());
    // The bypass stays open while the switch is another process, and after it was killed.
    node.take_over();
    let after = bypass(&node, "c0");
    assert!(after.is_open && after.rx_frames >= now.rx_frames, "{after:?}");
    ping(&pods[0], "10.1.0.3");
    assert!(eventually(agree), "{:?}", node.ports());
    node.kill_switch();
    ping(&pods[1], "10.1.0.2");
    node.start_switch();
    ping(&pods[1], "10.1.0.2");
    let counters = port(&node, "c1").counters;
    assert!((20..40).contains(&counters.rx_frames), "{counters:?}");
    delete(&node, &pods, &keys);
    node.assert_clean();
}

#[test]
fn failed_add_leaves_the_bypass_of_running_containers() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let own = keys(&node, &json!({}));
    let pods = [Pod::new(), Pod::new(), Pod::new()];
    add(&node, &pods[..2], &own);
    ping(&pods[0], "10.1.0.3");
    let mac = port(&node, "c0").config.macs[0].to_string();
    // The switch refuses the address after the interface was made; the second request fails before
    // that.
    for (pod, part) in [(&pods[2], "is pinned to port"), (&pods[1], "already has this interface")] {
        let keys = keys(&node, &json!({"mac": mac}));
        let error = node.call("ADD", "twin", &pod.path(), &keys).unwrap_err();
        assert!(error["msg"].as_str().unwrap().contains(part), "{error}");
    }
    for _ in 0..2 {
        let before = bypass(&node, "c0");
        ping(&pods[0], "10.1.0.3");
        let now = bypass(&node, "c0");
        assert!(now.is_open && now.rx_frames >= before.rx_frames + 20, "{now:?}");
        assert!(now.tx_frames >= before.tx_frames + 20, "{now:?}");
        // The table still has its entry.
        node.kill_switch();
        node.start_switch();
    }
    delete(&node, &pods[..2], &own);
    node.assert_clean();
}

#[test]
fn captures_see_frames_that_otherwise_bypass_the_switch() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = keys(&node, &json!({}));
    let pods = [Pod::new(), Pod::new(), Pod::new()];
    add(&node, &pods, &keys);
    ping(&pods[0], "10.1.0.3");
    let mut capture = Command::new(DRAY);
    capture
        .args(["capture", "c0.eth0", "--count", "40", "--filter", "icmp", "-w", "-"])
        .env("DRAY_CONTROL_DIR", node.at("run"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut capture = capture.spawn().unwrap();
    // It does not see what passed before it began.
    let has_ended = || {
        ping(&pods[0], "10.1.0.3");
        capture.try_wait().unwrap().is_some()
    };
    assert!(eventually(has_ended));
    let output = capture.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.len() > 40 * 98, "{}", output.stdout.len());
    assert!(eventually(|| bypass(&node, "c0").is_open));
    // A mirror of a port sees its frames, too; those of other ports pass in the kernel.
    let mirror = "m=null:,mirror=c0.eth0".parse().unwrap();
    node.client().add_port(&mirror).unwrap();
    assert!(!bypass(&node, "c0").is_open && bypass(&node, "c1").is_open);
    let before = bypass(&node, "c1");
    ping(&pods[0], "10.1.0.3");
    assert_eq!(bypass(&node, "c1"), before);
    ping(&pods[2], "10.1.0.3");
    assert!(bypass(&node, "c1").rx_frames > before.rx_frames);
    let mirrored = || {
        let all = node.ports();
        all.iter().find(|port| port.config.name.as_str() == "m").unwrap().counters.tx_frames
    };
    assert!(eventually(|| mirrored() >= 40), "{}", mirrored());
    node.client().remove_port(&mirror.name).unwrap();
    assert!(bypass(&node, "c0").is_open);
    delete(&node, &pods, &keys);
    node.assert_clean();
}

#[test]
fn bypass_leads_past_no_rule_of_the_switch() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let pods: Vec<_> = (0..8).map(|_| Pod::new()).collect();
    let add = |at: usize, more: Value| {
        let keys = keys(&node, &more);
        let result = node.call("ADD", &format!("c{at}"), &pods[at].path(), &keys).unwrap();
        let address = result["ips"][0]["address"].as_str().unwrap();
        address.split('/').next().unwrap().to_owned()
    };
    let reaches = |from: usize, to: &str, options: &str| {
        pods[from].try_run(&format!("ping -c 2 -i 0.1 -W 0.5 {options}{to}")).0
    };
    // Isolation groups, VLANs.
    let a = add(0, json!({"group": "a"}));
    let b = add(1, json!({"group": "a"}));
    let c = add(2, json!({"group": "c"}));
    let d = add(3, json!({"vlan": 10}));
    let e = add(4, json!({"vlan": 10}));
    assert!(bypass(&node, "c0").is_open && bypass(&node, "c3").is_open);
    assert!(!reaches(0, &b, ""));
    assert!(reaches(0, &c, ""));
    assert!(!reaches(0, &d, "") && reaches(3, &e, ""));
    // Known addresses, so that no request for them is needed, nor made later where frames are
    // counted.
    let mac = |at: usize| port(&node, &format!("c{at}")).config.macs[0].to_string();
    let know = |from: usize, to: usize, address: &str| {
        let mac = mac(to);
        pods[from].run(&format!("ip neigh replace {address} lladdr {mac} dev eth0 nud permanent"));
    };
    know(0, 2, &c);
    know(2, 0, &a);
    for (from, to, address) in [(0, 1, &b), (0, 3, &d)] {
        know(from, to, address);
        assert!(!reaches(from, address, ""));
    }
    let isolated = || port(&node, "c0").counters.drops.get(DropReason::Isolated);
    assert!(eventually(|| isolated() >= 2), "{:?}", node.ports());
    // A forged source address, and a tag.
    let before = bypass(&node, "c0");
    let send = |from: &str| {
        let words = format!("--src-mac {from} --dst-mac {}", mac(2));
        pods[0].run(&format!("{DRAY} send --port raw:eth0 --count 10 --rate 1k {words}"));
    };
    send(&mac(0));
    assert_eq!(bypass(&node, "c0").rx_frames, before.rx_frames + 10);
    let before = bypass(&node, "c0");
    send("02:00:00:00:ee:01");
    let spoofed = || port(&node, "c0").counters.drops.get(DropReason::Spoofed);
    assert!(eventually(|| spoofed() == 10), "{:?}", port(&node, "c0"));
    assert_eq!(bypass(&node, "c0").rx_frames, before.rx_frames);
    let before = port(&node, "c3");
    let mut tagged = Command::new("python3");
    let sent = tagged.args(["-c", TAGGED, &mac(3), &mac(4)]).stdin(Stdio::null());
    assert!(pods[3].start(sent).0.wait().unwrap().success());
    let received = || port(&node, "c3").counters.rx_frames - before.counters.rx_frames;
    assert!(eventually(|| received() == 5), "{:?}", port(&node, "c3"));
    assert_eq!(bypass(&node, "c3"), before.bypass.unwrap());
    assert_ne!(port(&node, "c3").counters.drops.get(DropReason::VlanNotAllowed), 0);
    // A rate; a packet too long for its receiver.
    let f = add(5, json!({"rate": "1Gbit"}));
    assert!(!bypass(&node, "c5").is_open);
    assert!(reaches(0, &f, ""));
    let _ = add(6, json!({"mtu": 4000}));
    let g = add(7, json!({"mtu": 1400}));
    assert!(reaches(6, &g, ""));
    let before = bypass(&node, "c7").tx_frames;
    assert!(!reaches(6, &g, "-M do -s 3000 "));
    assert_eq!(bypass(&node, "c7").tx_frames, before);
    assert!(port(&node, "c7").counters.drops.get(DropReason::TooLong) >= 2);
    delete(&node, &pods, &keys(&node, &json!({})));
    node.assert_clean();
}
