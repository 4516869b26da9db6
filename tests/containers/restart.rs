//! Programs that end at any time: the switch, the plugin, containers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{DRAY, alone, eventually};
use crate::node::{Node, Pod};

/// Returns the names of the switch's ports.
fn names(node: &Node) -> Vec<String> {
    let mut names: Vec<_> =
        node.ports().into_iter().map(|port| port.config.name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn ports_come_back_when_switch_is_killed_and_started() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let keys = json!({"ipam": node.ipam(&["10.1.0.0/16"]), "queues": 2});
    let pods = [Pod::new(), Pod::new()];
    for (number, pod) in pods.iter().enumerate() {
        node.call("ADD", &format!("c{number}"), &pod.path(), &keys).unwrap();
    }
    let gone = Pod::new();
    node.call("ADD", "gone", &gone.path(), &json!({"kind": "virtio"})).unwrap();
    for _ in 0..2 {
        node.kill_switch();
        node.start_switch();
        assert_eq!(names(&node), ["c0.eth0", "c1.eth0", "gone.eth0"], "{}", node.said());
        pods[0].run("ping -c 3 -i 0.2 -W 5 10.1.0.3");
    }
    assert!(node.said().contains("containers have their ports again ports=3"), "{}", node.said());
    // A container that ends while the switch is down is not attached again; the plugin forgets it.
    node.kill_switch();
    drop(gone);
    node.start_switch();
    assert_eq!(names(&node), ["c0.eth0", "c1.eth0"], "{}", node.said());
    assert!(node.said().contains("gone:eth0: "), "{}", node.said());
    node.call("STATUS", "", "", &keys).unwrap();
    assert_eq!(node.records().len(), 2);
    // An operator restores the port of a switch without privileges.
    node.client().remove_port(&"c0.eth0".parse().unwrap()).unwrap();
    let restore = || {
        let mut command = Command::new(DRAY);
        let output = command.args(["cni", "restore"]).env("DRAY_CONTROL_DIR", node.at("run"));
        String::from_utf8(output.output().unwrap().stdout).unwrap()
    };
    assert_eq!(restore(), "c0.eth0\n");
    assert_eq!(restore(), "");
    pods[0].run("ping -c 3 -i 0.2 -W 5 10.1.0.3");
    for (number, pod) in pods.iter().enumerate() {
        node.call("DEL", &format!("c{number}"), &pod.path(), &keys).unwrap();
    }
    node.assert_clean();
}

#[test]
fn container_that_ends_without_del_is_reaped() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    node.warm_up();
    let before = node.descriptors();
    for kind in ["tap", "virtio", "vhost", "memif"] {
        let pod = Pod::new();
        node.call("ADD", "c1", &pod.path(), &json!({"kind": kind})).unwrap();
        drop(pod);
        let other = Pod::new();
        node.call("ADD", "c2", &other.path(), &json!({})).unwrap();
        assert_eq!(names(&node), ["c2.eth0"], "{kind}");
        node.call("DEL", "c2", &other.path(), &json!({})).unwrap();
        node.assert_clean();
    }
    assert!(
        eventually(|| node.descriptors().len() <= before.len()),
        "{:?} {before:?}",
        node.descriptors()
    );
}

/// A small generator of numbers (xorshift), so that a failure can be repeated.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// ADD and DEL in random order, some of them killed at a random time, and so is the switch. A
/// number of rounds in `DRAY_CNI_ROUNDS` replaces the usual one.
#[test]
fn random_adds_and_dels_with_kills_leave_nothing() {
    let _alone = alone();
    require_cni!();
    let rounds = std::env::var("DRAY_CNI_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let node = Node::start();
    node.warm_up();
    let before = node.descriptors();
    let ipam = node.ipam(&["10.1.0.0/16"]);
    let pods: Vec<_> = (0..4).map(|_| Pod::new()).collect();
    let mut chance = Chance(0x5eed);
    for round in 0..rounds.unwrap_or(60) {
        let at = chance.below(pods.len() as u64) as usize;
        let kind = ["tap", "virtio", "vhost", "memif"][chance.below(4) as usize];
        let keys = json!({"kind": kind, "ipam": ipam});
        let verb = ["ADD", "DEL"][chance.below(2) as usize];
        let mut command = node.plugin(verb, &format!("c{at}"), &pods[at].path(), &keys);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        if chance.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(chance.below(30_000)));
            let _ = child.kill();
        }
        if chance.below(20) == 0 {
            node.kill_switch();
            node.start_switch();
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // A killed process may have written its result; a switch that is killed is an error of ADD,
        // and so is an address that the IPAM plugin of a killed ADD, which goes on,
        // reserves meanwhile.
        let is_killed = output.status.code().is_none();
        let is_transient =
            said.contains("\"code\": 11") || said.contains("duplicate allocation is not allowed");
        assert!(is_killed || output.status.success() || is_transient, "{round}: {said}");
    }
    for (at, pod) in pods.iter().enumerate() {
        node.call("DEL", &format!("c{at}"), &pod.path(), &json!({"ipam": ipam})).unwrap();
        let links = pod.run("ip -o link");
        assert_eq!(links.lines().count(), 1, "{links}");
    }
    // An IPAM plugin whose caller was killed reserves an address nevertheless.
    node.call("GC", "", "", &json!({"ipam": ipam})).unwrap();
    node.assert_clean();
    assert!(
        eventually(|| node.descriptors().len() <= before.len()),
        "{:?} {before:?}",
        node.descriptors()
    );
}

/// A killed ADD leaves a record that it has not finished: DEL of the container removes it, and so
/// does GC where the runtime calls no DEL.
#[test]
fn unfinished_record_is_removed() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    node.warm_up();
    let pod = Pod::new();
    for (verb, container) in [("DEL", "c0"), ("GC", "")] {
        fs::write(node.at("run/cni").join("c0:eth0.json.new"), "{").unwrap();
        node.call(verb, container, &pod.path(), &json!({})).unwrap();
        node.assert_clean();
    }
}

/// A network namespace with a name, as ip-netns(8) makes it.
struct Named(String);

impl Named {
    fn new(name: &str) -> Self {
        let named = Self(format!("dray-{}-{name}", std::process::id()));
        named.ip("add");
        named
    }

    fn ip(&self, verb: &str) {
        let status = Command::new("ip").args(["netns", verb, &self.0]).status().unwrap();
        assert!(status.success(), "ip netns {verb} {}", self.0);
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    fn inode(&self) -> u64 {
        fs::metadata(self.path()).unwrap().ino()
    }

    /// Replaces the namespace; the next one of this name gets the same inode number, unless another
    /// process takes that each time.
    fn replace(&self) {
        let before = self.inode();
        for _ in 0..50 {
            self.ip("del");
            self.ip("add");
            if self.inode() == before {
                return;
            }
        }
    }

    fn ping(&self, address: &str) -> bool {
        let ping = ["netns", "exec", &self.0, "ping", "-c", "3", "-i", "0.2", "-W", "5", address];
        Command::new("ip").args(ping).stdout(Stdio::null()).status().unwrap().success()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn namespace_with_used_inode_number_is_another_container() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    // Each container has a range of one address, whoever had it before.
    let keys = |container: &str, address: &str, mac: Option<&str>| {
        let range = json!({"subnet": "10.9.0.0/24", "rangeStart": address, "rangeEnd": address});
        let data = node.at(&format!("ipam-{container}"));
        let ipam = json!({"type": "host-local", "dataDir": data, "ranges": [[range]]});
        match mac {
            Some(mac) => json!({"ipam": ipam, "mac": mac}),
            None => json!({"ipam": ipam}),
        }
    };
    let of_a = keys("id-a", "10.9.0.2", None);
    let (a, b) = (Named::new("a"), Named::new("b"));
    node.call("ADD", "id-a", &a.path(), &of_a).unwrap();
    let add = |container: &str, mac: Option<&str>| {
        let result = node.call("ADD", container, &b.path(), &keys(container, "10.9.0.3", mac));
        let result = result.unwrap_or_else(|error| panic!("{container}: {error}"));
        assert!(eventually(|| a.ping("10.9.0.3")), "{container} is not reachable");
        assert_eq!(node.records().len(), 2, "{:?}", node.records());
        result["interfaces"][0]["mac"].as_str().unwrap().to_owned()
    };
    // No DEL in between: the runtime was killed. Then the same address, and the same MAC address.
    add("id-b", None);
    b.replace();
    let mac = add("id-b2", None);
    b.replace();
    assert_eq!(add("id-b3", Some(&mac)), mac);
    node.call("DEL", "id-a", &a.path(), &of_a).unwrap();
    node.call("DEL", "id-b3", &b.path(), &keys("id-b3", "10.9.0.3", None)).unwrap();
    node.assert_clean();
}

#[test]
fn record_of_earlier_version_keeps_its_container() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    let (pod, keys) = (Pod::new(), json!({"kind": "tap"}));
    node.call("ADD", "c0", &pod.path(), &keys).unwrap();
    // Device and inode, as until now.
    let path = node.at("run/cni/c0:eth0.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let identity = record["identity"].clone();
    assert!(identity["cookie"]["number"].is_u64(), "{identity}");
    record["identity"] = json!([identity["device"], identity["inode"]]);
    std::fs::write(&path, record.to_string()).unwrap();
    node.kill_switch();
    node.start_switch();
    assert_eq!(names(&node), ["c0.eth0"], "{}", node.said());
    node.call("STATUS", "", "", &keys).unwrap();
    assert_eq!(node.records().len(), 1);
    node.call("DEL", "c0", &pod.path(), &keys).unwrap();
    node.assert_clean();
}
