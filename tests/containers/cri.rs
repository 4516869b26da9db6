//! Pods of containerd, started through the Container Runtime Interface as the kubelet does.

use std::fs;
use std::process::Command;

use dray_switch::PortState;
use serde_json::{Value, json};

use crate::common::{alone, eventually};
use crate::machine::{Inside, Machine, rate};
use crate::node::TOOLS;

/// Number of frames that are sent and checked.
const FRAMES: u64 = 10_000;
/// A user without privileges.
const NOBODY: u32 = 65534;

/// A machine with containerd, whose pods have a network of our plugin.
struct Cluster {
    machine: Machine,
    _containerd: Inside,
}

struct Pod {
    name: String,
    sandbox: String,
    container: String,
}

impl Cluster {
    /// Starts containerd 1.7. Pods get ports by a configuration of the plugin with these keys.
    fn start(keys: &Value) -> Self {
        Self::start_version("/usr/bin", "1.0.0", keys)
    }

    /// Starts the containerd of a folder, with networks of this version of the specification.
    fn start_version(programs: &str, version: &str, keys: &Value) -> Self {
        let machine = Machine::start();
        for name in ["bin", "net.d"] {
            fs::create_dir(machine.at(name)).unwrap();
        }
        std::os::unix::fs::symlink(machine.at("dray"), machine.at("bin/dray-cni")).unwrap();
        for plugin in ["host-local", "loopback"] {
            fs::copy(format!("{TOOLS}/{plugin}"), machine.at("bin").join(plugin)).unwrap();
        }
        let mut plugin = json!({
            "type": "dray-cni",
            "ipam": {
                "type": "host-local",
                "dataDir": machine.at("ipam"),
                "ranges": [[{"subnet": "10.1.0.0/16"}]],
            },
        });
        plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let list = json!({"cniVersion": version, "name": "dray", "plugins": [plugin]});
        fs::write(machine.at("net.d/10-dray.conflist"), list.to_string()).unwrap();
        let folder = machine.at("").display().to_string();
        // A machine without AppArmor and huge pages, which may not make a process less likely to be
        // killed, can run pods too.
        let configuration = format!(
            "version = 2\n\
             [grpc]\n\
             address = '{folder}containerd.sock'\n\
             [plugins.'io.containerd.grpc.v1.cri']\n\
             sandbox_image = 'localhost/dray:1'\n\
             disable_apparmor = true\n\
             restrict_oom_score_adj = true\n\
             tolerate_missing_hugetlb_controller = true\n\
             [plugins.'io.containerd.grpc.v1.cri'.cni]\n\
             bin_dir = '{folder}bin'\n\
             conf_dir = '{folder}net.d'\n"
        );
        fs::write(machine.at("containerd.toml"), configuration).unwrap();
        let socket = machine.at("containerd.sock");
        let mut command = machine.command(format!("{programs}/containerd"));
        // It finds its other program there.
        command.env("PATH", format!("{programs}:/usr/sbin:/usr/bin:/sbin:/bin"));
        command.arg("--config").arg(machine.at("containerd.toml"));
        let containerd = machine.start_daemon("containerd", &mut command, &socket);
        let image = machine.at("image.tar");
        let (socket, image) = (socket.to_str().unwrap(), image.to_str().unwrap());
        machine.run(&["ctr", "--address", socket, "-n", "k8s.io", "images", "import", image]);
        Self { machine, _containerd: containerd }
    }

    fn crictl(&self, words: &[&str]) -> Command {
        let endpoint = format!("unix://{}", self.machine.at("containerd.sock").display());
        let mut command = self.machine.command("crictl");
        command.env("CONTAINER_RUNTIME_ENDPOINT", &endpoint);
        // Two seconds, unless it is told otherwise, are little on a busy machine.
        command.env("IMAGE_SERVICE_ENDPOINT", &endpoint).args(["--timeout", "60s"]).args(words);
        command
    }

    /// Calls containerd. Returns what `crictl` writes to its output, or all if it fails.
    fn try_call(&self, words: &[&str]) -> Result<String, String> {
        crate::node::output_of(&mut self.crictl(words))
    }

    #[track_caller]
    fn call(&self, words: &[&str]) -> String {
        let said = self.try_call(words);
        said.unwrap_or_else(|said| panic!("crictl {}: {said}", words.join(" ")))
    }

    /// Starts a pod with one container, which runs a command.
    fn run_pod(&self, name: &str, user: u32, words: &str) -> Pod {
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "attempt": 0},
            "log_directory": self.machine.at("logs"),
            "linux": {"cgroup_parent": self.machine.control_group()},
        });
        let container = json!({
            "metadata": {"name": "main"},
            "image": {"image": "localhost/dray:1"},
            "command": words.split(' ').collect::<Vec<_>>(),
            "log_path": format!("{name}.log"),
            "linux": {"security_context": {"run_as_user": {"value": user}}},
        });
        let write = |kind: &str, value: Value| {
            let path = self.machine.at(&format!("{name}-{kind}.json"));
            fs::write(&path, value.to_string()).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (pod, container) = (write("pod", pod), write("container", container));
        let sandbox = self.call(&["runp", &pod]);
        let container = self.call(&["create", &sandbox, &container, &pod]);
        self.call(&["start", &container]);
        Pod { name: name.to_owned(), sandbox, container }
    }

    fn exec(&self, pod: &Pod, words: &str) -> Result<String, String> {
        let words: Vec<_> = words.split(' ').collect();
        self.try_call(&[&["exec", &pod.container][..], &words].concat())
    }

    /// Returns what a pod's container has written.
    fn logs(&self, pod: &Pod) -> String {
        fs::read_to_string(self.machine.at(&format!("logs/{}.log", pod.name))).unwrap_or_default()
    }

    /// Returns the exit status of a pod's container once it has ended.
    fn status(&self, pod: &Pod) -> Option<i64> {
        let said = self.call(&["inspect", &pod.container]);
        let status: Value = serde_json::from_str(&said).unwrap();
        let has_ended = status["status"]["state"] == "CONTAINER_EXITED";
        has_ended.then(|| status["status"]["exitCode"].as_i64()).flatten()
    }

    fn address(&self, pod: &Pod) -> String {
        let said = self.call(&["inspectp", &pod.sandbox]);
        let status: Value = serde_json::from_str(&said).unwrap();
        status["status"]["network"]["ip"].as_str().unwrap().to_owned()
    }

    /// Returns the port of a pod.
    fn port(&self, pod: &Pod) -> dray_switch::PortStatus {
        let is_its = |port: &dray_switch::PortStatus| {
            port.config.name.as_str() == format!("{}.eth0", &pod.sandbox[..48])
        };
        self.machine.ports().into_iter().find(is_its).unwrap()
    }

    fn mac(&self, pod: &Pod) -> String {
        self.port(pod).config.macs[0].to_string()
    }

    fn remove(&self, pod: &Pod) {
        self.call(&["stopp", &pod.sandbox]);
        self.call(&["rmp", &pod.sandbox]);
    }

    #[track_caller]
    fn assert_ping(&self, pod: &Pod, to: &str) {
        let said = self.exec(pod, &format!("ping -c 3 -i 0.2 -W 5 {to}")).unwrap();
        assert!(said.contains(" 0% packet loss"), "{said}");
    }
}

#[test]
fn tap_pods_survive_deletion_of_others_and_restart_of_switch() {
    let _alone = alone();
    require_engines!();
    for (folder, version) in [("/usr/bin", "1.0.0"), ("/usr/local/containerd-2", "1.1.0")] {
        check_tap_pods(&Cluster::start_version(folder, version, &json!({"kind": "tap"})));
    }
}

fn check_tap_pods(cluster: &Cluster) {
    let pods = [
        cluster.run_pod("one", 0, "sleep 1000000"),
        cluster.run_pod("two", 0, "/usr/bin/iperf3 -s"),
        cluster.run_pod("three", 0, "/usr/bin/iperf3 -s"),
    ];
    let [one, two, three] = &pods;
    let to = |pod| cluster.address(pod);
    cluster.assert_ping(one, &to(two));
    let client = format!("/usr/bin/iperf3 -J -t 1 -c {}", to(two));
    let is_fast =
        || cluster.exec(one, &client).is_ok_and(|said| rate(&said).is_some_and(|r| r > 1e8));
    assert!(eventually(is_fast));
    // A pod is deleted while TCP packets flow to it.
    let words = ["exec", &one.container, "/usr/bin/iperf3", "-t", "60", "-c", &to(two)];
    let client = cluster.machine.spawn("iperf3", &mut cluster.crictl(&words));
    let has_frames = || cluster.port(two).counters.tx_frames > 100_000;
    assert!(eventually(has_frames), "{:?} {}", cluster.port(two), cluster.machine.said("iperf3"));
    cluster.remove(two);
    assert_eq!(cluster.machine.ports().len(), 2);
    cluster.assert_ping(one, &to(three));
    drop(client);
    for _ in 0..2 {
        cluster.machine.kill_switch();
        cluster.machine.start_switch();
        assert_eq!(cluster.machine.ports().len(), 2, "{}", cluster.machine.said("switch"));
        cluster.assert_ping(one, &to(three));
    }
    for pod in [one, three] {
        cluster.remove(pod);
    }
    cluster.machine.assert_clean();
}

#[test]
fn unprivileged_testpmd_pod_reflects_frames() {
    let _alone = alone();
    require_engines!();
    if !std::path::Path::new("/usr/bin/dpdk-testpmd").exists() {
        return crate::common::skip("dpdk-testpmd is not installed: apt install dpdk-dev");
    }
    let cluster = Cluster::start(&json!({"kind": "memif"}));
    // The pod's address is known only when it runs, so the command reads it from the configuration
    // of the port: testpmd keeps the address that the command gives.
    let words = "sleep 1000000";
    let [testpmd, sender] = ["testpmd", "sender"].map(|name| cluster.run_pod(name, NOBODY, words));
    let said = cluster.exec(&testpmd, "/bin/busybox id -u").unwrap();
    assert_eq!(said, NOBODY.to_string());
    let device = format!(
        "net_memif0,role=client,socket=dray/eth0,socket-abstract=yes,mac={}",
        cluster.mac(&testpmd)
    );
    let words = [
        "exec",
        &testpmd.container,
        "/usr/bin/dpdk-testpmd",
        "--no-pci",
        "--no-huge",
        "-m",
        "256",
        "--no-shconf",
        "--no-telemetry",
        "--lcores",
        "0@0,1@1",
        "--vdev",
        &device,
        "--",
        "--forward-mode=macswap",
        "--total-num-mbufs=4096",
        "--auto-start",
        "--stats-period=1",
    ];
    let _testpmd = cluster.machine.spawn("testpmd", &mut cluster.crictl(&words));
    let runs = || cluster.port(&testpmd).state == PortState::Running;
    let said = || cluster.machine.said("testpmd");
    assert!(eventually(runs), "{:?} {}", cluster.port(&testpmd), said());
    let ping = |count: &str| {
        let (from, to) = (cluster.mac(&sender), cluster.mac(&testpmd));
        let words = "-J -i 0 --port memif:@dray/eth0 --count";
        cluster.exec(
            &sender,
            &format!("/bin/dray ping {words} {count} --src-mac {from} --dst-mac {to}"),
        )
    };
    // Testpmd forwards some time after it has connected.
    let received = |report: &str| -> Option<u64> {
        let report: Value = serde_json::from_str(report).ok()?;
        report["ping"]["receive"]["received"].as_u64()
    };
    let reaches = || ping("1").is_ok_and(|report| received(&report) == Some(1));
    assert!(eventually(reaches), "{}", said());
    // Each frame comes back, and is checked, before the next one is sent.
    let report = ping(&FRAMES.to_string()).unwrap_or_else(|error| panic!("{error} {}", said()));
    let report: Value = serde_json::from_str(&report).unwrap();
    let count = FRAMES;
    for (half, key) in [("send", "sent"), ("receive", "received")] {
        assert_eq!(report["ping"][half][key].as_u64(), Some(count), "{report}");
    }
    for pod in [&testpmd, &sender] {
        cluster.remove(pod);
    }
    cluster.machine.assert_clean();
}

#[test]
fn frames_pass_between_virtio_pods() {
    let _alone = alone();
    require_engines!();
    let cluster = Cluster::start(&json!({"kind": "virtio"}));
    let words = format!("/bin/dray receive --port virtio:@dray/eth0 --count {FRAMES} -t 60");
    let receiver = cluster.run_pod("receiver", NOBODY, &words);
    let runs = || cluster.port(&receiver).state == PortState::Running;
    assert!(eventually(runs), "{:?} {}", cluster.port(&receiver), cluster.logs(&receiver));
    let sender = cluster.run_pod("sender", NOBODY, "sleep 1000000");
    let words = format!(
        // The switch drops frames while the receiver gets no CPU time.
        "/bin/dray send --port virtio:@dray/eth0 --count {} --rate 50k --src-mac {} --dst-mac {}",
        3 * FRAMES,
        cluster.mac(&sender),
        cluster.mac(&receiver),
    );
    cluster.exec(&sender, &words).unwrap();
    assert!(eventually(|| cluster.status(&receiver).is_some()), "{}", cluster.logs(&receiver));
    assert_eq!(cluster.status(&receiver), Some(0), "{}", cluster.logs(&receiver));
    for pod in [&receiver, &sender] {
        cluster.remove(pod);
    }
    cluster.machine.assert_clean();
}
