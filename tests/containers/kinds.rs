//! Frames between containers, by each kind of attachment.

use std::path::Path;
use std::process::{Command, Stdio};

use dray_switch::{DropReason, PortState};
use serde_json::{Value, json};

use crate::common::{DRAY, alone, eventually};
use crate::node::{Node, Pod};

/// Number of frames that are sent and checked.
const FRAMES: u64 = 10_000;

fn mac(result: &Value) -> &str {
    result["interfaces"][0]["mac"].as_str().unwrap()
}

/// Returns a command that runs a role as an ordinary user. In its mount namespace, the directory of
/// a `vhost` attachment is at `/mnt`, as a container runtime mounts it.
fn role(directory: Option<&Path>, words: &str) -> Command {
    let mount = directory.map_or(String::new(), |directory| {
        format!("mount --bind {} /mnt && ", directory.display())
    });
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]).stdin(Stdio::null()).stdout(Stdio::null()).arg(format!(
        "{mount}umask 0002 && exec setpriv --reuid 65534 --regid 65534 --clear-groups {DRAY} {words}"
    ));
    command
}

/// Returns the port that a program in the container uses, and the directory that it needs.
fn port(kind: &str, result: &Value) -> (String, Option<String>) {
    let socket = result["interfaces"][0]["socketPath"].as_str().unwrap();
    match Path::new(socket).parent().filter(|_| socket.starts_with('/')) {
        Some(directory) => {
            ("virtio:/mnt/vhost.sock?server=1".to_owned(), Some(directory.display().to_string()))
        }
        None if kind == "memif" => (format!("memif:{socket}"), None),
        None => (format!("virtio:{socket}"), None),
    }
}

#[test]
fn frames_pass_between_shared_memory_containers() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    for kinds in [["virtio", "virtio"], ["vhost", "virtio"], ["vhost", "vhost"], ["memif", "memif"]]
    {
        exchange(&node, kinds, || ());
    }
}

/// The switch has neither root's number nor capabilities, so it reaches a container's socket only
/// by the access control list of its directory.
#[test]
fn switch_of_another_user_serves_containers_before_and_after_a_restart() {
    let _alone = alone();
    require_cni!();
    let node = Node::start_as("4242:4243");
    for kinds in [["vhost", "virtio"], ["vhost", "memif"]] {
        exchange(&node, kinds, || ());
    }
    exchange(&node, ["vhost", "virtio"], || {
        node.kill_switch();
        node.start_switch();
    });
    exchange(&node, ["vhost", "virtio"], || node.take_over());
    let users = node.users();
    assert!(
        !users.is_empty() && users.iter().all(|user| user == "4242\t4242\t4242\t4242"),
        "{users:?}"
    );
}

/// Sends frames from a container of the second kind to one of the first, which are added before
/// `between`.
fn exchange(node: &Node, kinds: [&str; 2], between: impl FnOnce()) {
    let keys = |kind: &str| json!({"kind": kind, "ipam": node.ipam(&["10.1.0.0/16"])});
    let pods = [Pod::new(), Pod::new()];
    let results: Vec<Value> = (0..2)
        .map(|at| {
            let name = format!("c{at}");
            node.call("ADD", &name, &pods[at].path(), &keys(kinds[at])).unwrap()
        })
        .collect();
    between();
    let [to, from] = [port(kinds[0], &results[0]), port(kinds[1], &results[1])];
    let words = format!("receive --port {} --count {FRAMES} -t 60", to.0);
    let mut receiver = pods[0].start(&mut role(to.1.as_deref().map(Path::new), &words));
    let name = results[0]["interfaces"][0]["mac"].clone();
    let runs = || {
        node.ports()
            .iter()
            .any(|port| port.state == PortState::Running && json!(port.config.macs.first()) == name)
    };
    assert!(eventually(runs), "{:?}", node.ports());
    let words = format!(
        // The switch drops frames while the receiver gets no CPU time.
        "send --port {} --count {} --rate 50k --src-mac {} --dst-mac {}",
        from.0,
        3 * FRAMES,
        mac(&results[1]),
        mac(&results[0]),
    );
    let sent = pods[1].start(&mut role(from.1.as_deref().map(Path::new), &words)).0.wait();
    assert!(sent.unwrap().success());
    assert!(receiver.0.wait().unwrap().success(), "{:?}", node.ports());
    for (at, pod) in pods.iter().enumerate() {
        let mut checked = keys(kinds[at]);
        checked["prevResult"] = results[at].clone();
        node.call("CHECK", &format!("c{at}"), &pod.path(), &checked).unwrap();
        node.call("DEL", &format!("c{at}"), &pod.path(), &keys(kinds[at])).unwrap();
    }
    node.assert_clean();
}

#[test]
fn unprivileged_testpmd_is_a_memif_client() {
    let _alone = alone();
    require_cni!();
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        return crate::common::skip("dpdk-testpmd is not installed: apt install dpdk-dev");
    }
    let node = Node::start();
    let pods = [Pod::new(), Pod::new()];
    let keys = json!({"kind": "memif"});
    let results: Vec<_> = (0..2)
        .map(|at| node.call("ADD", &format!("c{at}"), &pods[at].path(), &keys).unwrap())
        .collect();
    let said = std::fs::File::create(node.at("testpmd.log")).unwrap();
    let mut testpmd = Command::new("setpriv");
    testpmd.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "dpdk-testpmd"]);
    testpmd.args(["--no-pci", "--no-huge", "-m", "256", "--no-shconf", "--no-telemetry"]);
    testpmd.args(["--lcores", "0@0,1@1"]);
    let device = format!(
        "net_memif0,role=client,socket=dray/eth0,socket-abstract=yes,mac={}",
        mac(&results[0])
    );
    testpmd.args(["--vdev", &device, "--", "--forward-mode=macswap", "--total-num-mbufs=4096"]);
    testpmd.args(["--auto-start", "--stats-period=1"]);
    testpmd.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
    let _testpmd = pods[0].start(&mut testpmd);
    let log = || std::fs::read_to_string(node.at("testpmd.log")).unwrap();
    let runs = || node.ports()[0].state == PortState::Running;
    assert!(eventually(runs), "{:?} {}", node.ports()[0], log());
    let words = format!(
        "send --port memif:@dray/eth0 --count {FRAMES} --rate 5k --src-mac {} --dst-mac {}",
        mac(&results[1]),
        mac(&results[0]),
    );
    assert!(pods[1].start(&mut role(None, &words)).0.wait().unwrap().success());
    // It sends each frame back, from its own address to the sender's, as far as it keeps up.
    let all = FRAMES;
    let is_complete = || {
        let counters = node.ports().remove(0).counters;
        let full = counters.drops.get(DropReason::ReceiverFull);
        counters.tx_frames + full == all && counters.rx_frames > all / 10
    };
    assert!(eventually(is_complete), "{:?} {}", node.ports(), log());
    for (at, pod) in pods.iter().enumerate() {
        node.call("DEL", &format!("c{at}"), &pod.path(), &keys).unwrap();
    }
    node.assert_clean();
}

#[test]
fn device_info_and_socket_path_describe_the_kind() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let file = node.at("devinfo/cni/a.json");
    for (kind, socket, info) in [
        ("tap", None, None),
        ("virtio", Some("@dray/eth0"), Some(("vhost-user", "mode", "client"))),
        ("memif", Some("@dray/eth0"), Some(("memif", "role", "slave"))),
        ("vhost", Some("/run/vhost/c1.eth0/vhost.sock"), Some(("vhost-user", "mode", "server"))),
    ] {
        let pod = Pod::new();
        let keys = json!({"kind": kind, "runtimeConfig": {"CNIDeviceInfoFile": file}});
        let result = node.call("ADD", "c1", &pod.path(), &keys).unwrap();
        let path = &result["interfaces"][0]["socketPath"];
        match socket {
            None => assert!(path.is_null()),
            Some(socket) => assert!(path.as_str().unwrap().ends_with(socket), "{path}"),
        }
        let written =
            std::fs::read(&file).ok().map(|text| serde_json::from_slice::<Value>(&text).unwrap());
        match info {
            None => assert_eq!(written, None),
            Some((name, key, value)) => {
                let written = written.unwrap();
                assert_eq!(
                    (&written["type"], &written["version"]),
                    (&json!(name), &json!("1.1.0"))
                );
                assert_eq!((&written[name][key], &written[name]["path"]), (&json!(value), path));
            }
        }
        node.call("DEL", "c1", &pod.path(), &keys).unwrap();
        assert!(!file.exists());
        node.assert_clean();
    }
}

#[test]
fn keys_become_settings_of_the_port() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = |more: Value| {
        let mut keys = json!({"ipam": node.ipam(&["10.1.0.0/16"])});
        keys.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        keys
    };
    let all = keys(json!({
        "port": "fw", "trunk": [10, 20], "native": 1, "group": "g", "mac": "02:00:00:00:cc:01",
        "spoofCheck": false, "queues": 16, "rate": "10Gbit",
        "runtimeConfig": {"bandwidth": {"ingressRate": 1_000_000}},
    }));
    let pod = Pod::new();
    node.call("ADD", "c1", &pod.path(), &all).unwrap();
    let status = serde_json::to_value(&node.ports()[0]).unwrap();
    for (key, expected) in [
        ("name", json!("fw")),
        ("trunk", json!([10, 20, 1])),
        ("native", json!(1)),
        ("group", json!("g")),
        ("mac", json!(["02:00:00:00:cc:01"])),
        ("spoof_check", json!(false)),
        ("rate_in", json!("10Gbit")),
        ("rate_out", json!("1Mbit")),
        ("queues", json!(16)),
        ("fd", json!(17)),
    ] {
        assert_eq!(status[key], expected, "{status}");
    }
    node.call("DEL", "c1", &pod.path(), &all).unwrap();
    // Containers of two VLANs do not reach each other; those of one do.
    let pods = [Pod::new(), Pod::new(), Pod::new()];
    for (at, (pod, vlan)) in pods.iter().zip([10, 10, 20]).enumerate() {
        node.call("ADD", &format!("v{at}"), &pod.path(), &keys(json!({"vlan": vlan}))).unwrap();
    }
    pods[0].run("ping -c 1 -W 5 10.1.0.4");
    assert!(!pods[0].try_run("ping -c 2 -i 0.2 -W 1 10.1.0.5").0);
    for (at, pod) in pods.iter().enumerate() {
        node.call("DEL", &format!("v{at}"), &pod.path(), &keys(json!({}))).unwrap();
    }
    node.assert_clean();
}

#[test]
fn frames_with_another_source_address_are_dropped() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let pods = [Pod::new(), Pod::new()];
    for (spoof_check, reaches) in [(true, false), (false, true)] {
        let keys = json!({"ipam": node.ipam(&["10.1.0.0/16"]), "spoofCheck": spoof_check});
        let results: Vec<_> = (0..2)
            .map(|at| node.call("ADD", &format!("c{at}"), &pods[at].path(), &keys).unwrap())
            .collect();
        let to = results[1]["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap();
        pods[0].run(&format!("ping -c 1 -W 5 {to}"));
        pods[0].run("ip link set eth0 address 02:00:00:00:dd:01");
        let (reached, _) = pods[0].try_run(&format!("ping -c 2 -i 0.3 -W 1 {to}"));
        assert_eq!(reached, reaches);
        let spoofed = node.ports()[0].counters.drops.get(DropReason::Spoofed);
        assert_eq!(spoofed > 0, spoof_check);
        for (at, pod) in pods.iter().enumerate() {
            node.call("DEL", &format!("c{at}"), &pod.path(), &keys).unwrap();
        }
        node.assert_clean();
    }
}
