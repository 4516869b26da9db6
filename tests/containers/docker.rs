//! Containers of Docker, in networks of `dray docker-plugin`.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::common::{alone, eventually};
use crate::machine::{Inside, Machine, check_devices, rate};

/// A machine with Docker and the plugin.
struct Host {
    machine: Machine,
    _dockerd: Inside,
    plugin: Option<Inside>,
}

impl Host {
    fn start() -> Self {
        let machine = Machine::start();
        let socket = machine.at("docker.sock");
        let settings = json!({
            "hosts": [format!("unix://{}", socket.display())],
            "data-root": "/var/lib/docker",
            "exec-root": "/run/docker",
            "pidfile": "/run/docker.pid",
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "cgroup-parent": machine.control_group(),
            "bridge": "none",
            "iptables": false,
            "ip6tables": false,
            "ip-forward": false,
            "userland-proxy": false,
            "features": {"cdi": true},
        });
        fs::write(machine.at("docker.json"), settings.to_string()).unwrap();
        let mut command = machine.command("dockerd");
        command.arg("--config-file").arg(machine.at("docker.json"));
        let dockerd = machine.start_daemon("dockerd", &mut command, &socket);
        let mut host = Self { machine, _dockerd: dockerd, plugin: None };
        host.start_plugin();
        let image = host.machine.at("layer.tar");
        host.run(&["import", image.to_str().unwrap(), "dray:1"]);
        host
    }

    fn start_plugin(&mut self) {
        // At Docker's usual place, to which the link leads from outside of the machine.
        let mut command = self.machine.dray();
        command.arg("docker-plugin");
        self.plugin = Some(self.machine.spawn("plugin", &mut command));
        let says = || self.machine.said("plugin").contains("Docker finds the driver at");
        assert!(eventually(says), "{}", self.machine.said("plugin"));
    }

    /// Kills the plugin with SIGKILL and starts it again.
    fn restart_plugin(&mut self) {
        self.plugin = None;
        fs::remove_file(self.machine.at("plugin.log")).unwrap();
        self.start_plugin();
    }

    fn docker(&self, words: &[&str]) -> Command {
        let socket = format!("unix://{}", self.machine.at("docker.sock").display());
        let mut command = self.machine.command("docker");
        command.env("DOCKER_HOST", socket).args(words);
        command
    }

    fn try_run(&self, words: &[&str]) -> Result<String, String> {
        crate::node::output_of(&mut self.docker(words))
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let said = self.try_run(words);
        said.unwrap_or_else(|said| {
            panic!("docker {}: {said} {}", words.join(" "), self.machine.said("dockerd"))
        })
    }

    /// Creates the network `fast` with these options.
    fn create_network(&self, options: &[&str]) -> Result<String, String> {
        let words = ["network", "create", "--driver", "dray", "--subnet", "10.90.0.0/16"];
        self.try_run(&[&words[..], options, &["fast"]].concat())
    }

    fn start_container(&self, name: &str, command: &[&str]) {
        let words = ["run", "--detach", "--name", name, "--network", "fast", "dray:1"];
        self.run(&[&words[..], command].concat());
    }

    fn address(&self, name: &str) -> String {
        let format = "{{.NetworkSettings.Networks.fast.IPAddress}}";
        self.run(&["inspect", "--format", format, name])
    }

    #[track_caller]
    fn assert_ping(&self, from: &str, to: &str) {
        let said = self.run(&["exec", from, "ping", "-c", "3", "-i", "0.2", "-W", "5", to]);
        assert!(said.contains(" 0% packet loss"), "{said}");
    }
}

#[test]
fn docker_containers_survive_end_of_others_plugin_and_switch() {
    let _alone = alone();
    require_engines!();
    let mut host = Host::start();
    host.create_network(&["-o", "mtu=1400"]).unwrap();
    host.start_container("one", &["sleep", "1000000"]);
    host.start_container("two", &["/usr/bin/iperf3", "-s"]);
    host.start_container("three", &["/usr/bin/iperf3", "-s"]);
    let (two, three) = (host.address("two"), host.address("three"));
    host.assert_ping("one", &two);
    let said = host.run(&["exec", "one", "ip", "link", "show", "eth0"]);
    assert!(said.contains("mtu 1400"), "{said}");
    // The host has no bridge for these containers.
    let links = host.machine.run(&["ip", "-o", "link"]);
    assert!(!links.contains("docker_gwbridge") && !links.contains("dray-"), "{links}");
    let client = ["exec", "one", "/usr/bin/iperf3", "-J", "-t", "1", "-c", &two];
    let is_fast = || host.try_run(&client).is_ok_and(|said| rate(&said).is_some_and(|r| r > 1e8));
    assert!(eventually(is_fast));
    // A container is removed while TCP packets flow to it.
    let words = ["exec", "one", "/usr/bin/iperf3", "-t", "60", "-c", &two];
    let client = host.machine.spawn("iperf3", &mut host.docker(&words));
    let frames = || host.machine.ports().iter().map(|port| port.counters.tx_frames).max().unwrap();
    let before = frames();
    assert!(eventually(|| frames() > before + 50_000), "{}", host.machine.said("iperf3"));
    host.run(&["rm", "--force", "two"]);
    assert_eq!(host.machine.ports().len(), 2);
    drop(client);
    host.assert_ping("one", &three);
    // Ports come back with the switch.
    host.machine.kill_switch();
    host.machine.start_switch();
    assert_eq!(host.machine.ports().len(), 2, "{}", host.machine.said("switch"));
    host.assert_ping("one", &three);
    // The plugin knows networks and containers after it was killed.
    host.restart_plugin();
    host.assert_ping("one", &three);
    host.start_container("four", &["sleep", "1000000"]);
    host.assert_ping("four", &three);
    host.run(&["restart", "--time", "0", "four"]);
    host.assert_ping("four", &three);
    // One may change the address of its interface.
    let words = ["run", "--rm", "--network", "fast", "--cap-add", "NET_ADMIN", "dray:1", "ip"];
    let change = ["link", "set", "eth0", "address", "02:00:00:00:00:ab"];
    host.run(&[&words[..], &change].concat());
    for name in ["one", "three", "four"] {
        host.run(&["rm", "--force", name]);
    }
    host.run(&["network", "rm", "fast"]);
    host.machine.assert_clean();
}

#[test]
fn docker_errors_name_option_switch_and_address() {
    let _alone = alone();
    require_engines!();
    let host = Host::start();
    for (options, part) in [
        (&["-o", "vlna=5"][..], "option vlna=5: unknown: did you mean vlan?"),
        (&["-o", "vlan=5000"], "option vlan: 5000: give 1 to 4094"),
        (&["-o", "kind=memif"], "option kind=memif: give tap;"),
    ] {
        let error = host.create_network(options).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    host.create_network(&[]).unwrap();
    let run = |options: &[&str]| {
        let words = ["run", "--detach", "--network", "fast"];
        host.try_run(&[&words[..], options, &["dray:1", "sleep", "1000000"]].concat())
    };
    let mac = ["--mac-address", "02:00:00:00:00:aa"];
    let one = run(&mac).unwrap();
    let error = run(&mac).unwrap_err();
    assert!(error.contains("02:00:00:00:00:aa"), "{error}");
    host.machine.kill_switch();
    let error = run(&[]).unwrap_err();
    assert!(error.contains("no program listens at"), "{error}");
    // Without a switch, containers can be removed.
    host.run(&["rm", "--force", &one]);
    host.machine.start_switch();
    assert!(host.machine.ports().is_empty());
    let left = host.run(&["ps", "--all", "--quiet"]);
    for container in left.lines() {
        host.run(&["rm", "--force", container]);
    }
    host.machine.assert_clean();
}

#[test]
fn compose_example_connects_its_services() {
    let _alone = alone();
    require_engines!();
    let host = Host::start();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/docker/compose.yaml");
    let path = host.machine.at("compose.yaml");
    fs::copy(file, &path).unwrap();
    host.run(&["tag", "dray:1", "busybox:latest"]);
    let socket = format!("unix://{}", host.machine.at("docker.sock").display());
    let compose = |words: &[&str]| {
        let mut command = host.machine.command("docker-compose");
        command.env("DOCKER_HOST", &socket).arg("--file").arg(&path).args(words);
        let output = command.output().unwrap();
        let said = crate::node::text(&output);
        assert!(output.status.success(), "{words:?}: {said}");
        said
    };
    compose(&["up", "--detach"]);
    assert_eq!(host.machine.ports().len(), 2);
    let said = compose(&["exec", "-T", "one", "ping", "-c", "3", "-W", "5", "two"]);
    assert!(said.contains(" 0% packet loss"), "{said}");
    compose(&["down"]);
    host.machine.assert_clean();
}

#[test]
fn device_of_docker_is_socket_of_port() {
    let _alone = alone();
    require_engines!();
    let host = Host::start();
    check_devices(&host.machine, |words| host.try_run(words), &[]);
}
