//! Podman containers in networks of the netavark plugin.

use std::fs;
use std::process::Command;

use dray_switch::PortState;
use serde_json::Value;

use crate::common::{alone, eventually};
use crate::machine::{Machine, check_devices, rate};

struct Host(Machine);

impl Host {
    fn start() -> Self {
        let machine = Machine::start();
        let plugins = machine.at("netavark");
        fs::create_dir(&plugins).unwrap();
        std::os::unix::fs::symlink(machine.at("dray"), plugins.join("dray-netavark")).unwrap();
        let configuration = format!(
            "[network]\nnetavark_plugin_dirs = [\"{}\"]\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n",
            plugins.display()
        );
        fs::write(machine.at("containers.conf"), configuration).unwrap();
        let host = Self(machine);
        let image = host.0.at("layer.tar");
        host.run(&["import", "--quiet", image.to_str().unwrap(), "dray:1"]);
        host
    }

    fn podman(&self, words: &[&str]) -> Command {
        let mut command = self.0.command("podman");
        command.env("CONTAINERS_CONF", self.0.at("containers.conf"));
        command.env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1").args(words);
        command
    }

    fn try_run(&self, words: &[&str]) -> Result<String, String> {
        crate::node::output_of(&mut self.podman(words))
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let said = self.try_run(words);
        said.unwrap_or_else(|said| panic!("podman {}: {said}", words.join(" ")))
    }

    /// Creates the network `name`.
    fn create_network(&self, name: &str, options: &[&str]) -> Result<String, String> {
        let words = ["network", "create", "--driver", "dray-netavark"];
        self.try_run(&[&words[..], options, &[name]].concat())
    }

    fn try_start(&self, name: &str, options: &[&str], command: &[&str]) -> Result<String, String> {
        let group = self.0.control_group();
        let words = ["run", "--detach", "--name", name, "--cgroup-parent", &group];
        // For ping of busybox.
        let words = [&words[..], &["--cap-add", "NET_RAW"]].concat();
        self.try_run(&[&words[..], options, &["dray:1"], command].concat())
    }

    #[track_caller]
    fn start_container(&self, name: &str, network: &str, command: &[&str]) {
        let started = self.try_start(name, &["--network", network], command);
        started.unwrap_or_else(|said| panic!("{name}: {said}"));
    }

    fn inspect(&self, name: &str, network: &str) -> Value {
        let said = self.run(&["inspect", name]);
        let said: Value = serde_json::from_str(&said).unwrap();
        said[0]["NetworkSettings"]["Networks"][network].clone()
    }

    fn address(&self, name: &str) -> String {
        self.inspect(name, "fast")["IPAddress"].as_str().unwrap().to_owned()
    }

    fn mac(&self, name: &str, network: &str) -> String {
        self.inspect(name, network)["MacAddress"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn assert_ping(&self, from: &str, to: &str) {
        let said = self.run(&["exec", from, "ping", "-c", "3", "-i", "0.2", "-W", "5", to]);
        assert!(said.contains(" 0% packet loss"), "{said}");
    }

    fn remove(&self, names: &[&str]) {
        self.run(&[&["rm", "--force", "--time", "0"][..], names].concat());
    }
}

const SUBNET: [&str; 2] = ["--subnet", "10.92.0.0/16"];

#[test]
fn podman_containers_survive_end_of_others_and_of_switch() {
    let _alone = alone();
    require_engines!();
    let host = Host::start();
    let options = [&SUBNET[..], &["-o", "mtu=1400", "-o", "defaultRoute=true"]].concat();
    host.create_network("fast", &options).unwrap();
    host.start_container("one", "fast", &["sleep", "1000000"]);
    host.start_container("two", "fast", &["/usr/bin/iperf3", "-s"]);
    host.start_container("three", "fast", &["/usr/bin/iperf3", "-s"]);
    let (two, three) = (host.address("two"), host.address("three"));
    host.assert_ping("one", &two);
    let said = host.run(&["exec", "one", "ip", "link", "show", "eth0"]);
    assert!(said.contains("mtu 1400") && said.contains(&host.mac("one", "fast")), "{said}");
    let said = host.run(&["exec", "one", "ip", "route"]);
    assert!(said.contains("default via 10.92.0.1 dev eth0"), "{said}");
    let client = ["exec", "one", "/usr/bin/iperf3", "-J", "-t", "1", "-c", &two];
    let is_fast = || host.try_run(&client).is_ok_and(|said| rate(&said).is_some_and(|r| r > 1e8));
    assert!(eventually(is_fast));
    // A container is removed while TCP packets flow to it.
    let words = ["exec", "one", "/usr/bin/iperf3", "-t", "60", "-c", &two];
    let client = host.0.spawn("iperf3", &mut host.podman(&words));
    let frames = || host.0.ports().iter().map(|port| port.counters.tx_frames).max().unwrap();
    let before = frames();
    assert!(eventually(|| frames() > before + 50_000), "{}", host.0.said("iperf3"));
    host.remove(&["two"]);
    assert_eq!(host.0.ports().len(), 2);
    drop(client);
    host.assert_ping("one", &three);
    host.0.kill_switch();
    host.0.start_switch();
    assert_eq!(host.0.ports().len(), 2, "{}", host.0.said("switch"));
    host.assert_ping("one", &three);
    host.run(&["network", "disconnect", "fast", "one"]);
    assert_eq!(host.0.ports().len(), 1);
    host.run(&["network", "connect", "fast", "one"]);
    host.assert_ping("one", &three);
    host.remove(&["one", "three"]);
    host.run(&["network", "rm", "fast"]);
    host.0.assert_clean();
}

#[test]
fn frames_pass_between_podman_containers_without_mount() {
    let _alone = alone();
    require_engines!();
    let host = Host::start();
    for kind in ["virtio", "memif"] {
        let option = format!("kind={kind}");
        host.create_network(kind, &["--ipam-driver", "none", "-o", &option]).unwrap();
        let port = format!("{kind}:@dray/eth0");
        let nobody = ["--user", "65534", "--network", kind];
        let receive = ["/bin/dray", "receive", "--port", &port, "--count", "10000", "-t", "60"];
        host.try_start("receiver", &nobody, &receive).unwrap();
        let runs = || host.0.ports()[0].state == PortState::Running;
        assert!(eventually(runs), "{:?} {:?}", host.0.ports(), host.try_run(&["logs", "receiver"]));
        host.try_start("sender", &nobody, &["sleep", "1000000"]).unwrap();
        let (to, from) = (host.mac("receiver", kind), host.mac("sender", kind));
        // The switch drops frames while the receiver gets no CPU time.
        let send = ["exec", "sender", "/bin/dray", "send", "--port", &port, "--count", "30000"];
        host.run(&[&send[..], &["--rate", "50k", "--src-mac", &from, "--dst-mac", &to]].concat());
        assert_eq!(host.run(&["wait", "receiver"]), "0", "{:?}", host.0.ports());
        host.remove(&["receiver", "sender"]);
        host.0.assert_clean();
    }
}

#[test]
fn podman_errors_name_option_switch_and_address() {
    let _alone = alone();
    require_engines!();
    let host = Host::start();
    for (options, part) in [
        (&["-o", "vlna=5"][..], "option vlna=5: unknown: did you mean vlan?"),
        (&["-o", "kind=vhost"], "option kind=vhost: give tap or memif or virtio"),
        (&[], "give --subnet"),
    ] {
        let error = host.create_network("fast", options).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    host.create_network("fast", &SUBNET).unwrap();
    let sleep = ["sleep", "1000000"];
    let mac = ["--network", "fast", "--mac-address", "02:00:00:00:00:aa"];
    host.try_start("one", &mac, &sleep).unwrap();
    let error = host.try_start("two", &mac, &sleep).unwrap_err();
    assert!(error.contains("02:00:00:00:00:aa"), "{error}");
    let publish = ["--network", "fast", "--publish", "8080:80"];
    let error = host.try_start("three", &publish, &sleep).unwrap_err();
    assert!(error.contains("leave out --publish"), "{error}");
    host.0.kill_switch();
    let error = host.try_start("four", &["--network", "fast"], &sleep).unwrap_err();
    assert!(error.contains("no program listens at"), "{error}");
    // Without a switch, containers can be removed.
    host.remove(&["one"]);
    host.0.start_switch();
    for name in ["two", "three", "four"] {
        let _ = host.try_run(&["rm", "--force", name]);
    }
    host.0.assert_clean();
}

#[test]
fn device_of_podman_is_socket_of_port() {
    let _alone = alone();
    require_engines!();
    let host = Host::start();
    let group = host.0.control_group();
    check_devices(&host.0, |words| host.try_run(words), &["--cgroup-parent", &group]);
}
