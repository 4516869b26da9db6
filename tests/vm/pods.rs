//! Virtual functions in pods, which the SR-IOV plugin and Multus put there.

use std::path::Path;
use std::process::Command;

use dray_testvm::Vm;

use crate::common::{self, DRAY, alone};
use crate::{CARD, FIND_CARD, LIMIT};

/// Folder of the programs that `scripts/setup-engines.sh` unpacks and builds.
const ENGINES: &str = "/var/cache/dray/engines";
const IMAGE: &str = include_str!("../containers/image.sh");

/// Shell commands: start containerd with an image, with two functions for its pods by Multus, and
/// with two more in the network namespace `load`. Addresses are those that the configuration of the
/// user plane function and `dray upf-load` have.
const NODE: &str = r#"
    pci=/sys/class/net/$card/device
    echo 0 > $pci/sriov_drivers_autoprobe
    echo 4 > $functions
    number=0
    for mac in 03:01 06:01 03:00 06:00; do
        /sbin/ip link set $card vf $number mac 02:00:00:00:$mac
        eval address$number=$(basename $(readlink $pci/virtfn$number))
        number=$((number + 1))
    done
    # Their driver reads an address once.
    echo 1 > $pci/sriov_drivers_autoprobe
    for address in $address0 $address1 $address2 $address3; do
        echo $address > /sys/bus/pci/drivers_probe
    done
    /sbin/ip netns add load
    for number in 2 3; do
        interface=$(ls $pci/virtfn$number/net)
        /sbin/ip link set $interface netns load name load$number up
    done

    mkdir -p /sys/fs/cgroup /tmp/bin /tmp/net.d /tmp/containerd
    # Layers of images are put over each other there, which the guest's root file system cannot.
    /busybox mount -t tmpfs tmpfs /tmp/containerd
    /busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
    for plugin in ENGINES/usr/local/cni/multus ENGINES/usr/local/cni/sriov /var/cache/dray/cni/host-local \
        /var/cache/dray/cni/loopback; do
        ln -s $plugin /tmp/bin/
    done
    delegate() {
        echo "{\"cniVersion\": \"0.3.1\", \"type\": \"sriov\", \"name\": \"$1\", \"deviceID\": \"$2\",
               \"ipam\": {\"type\": \"host-local\", \"dataDir\": \"/tmp/ipam\",
                          \"ranges\": [[{\"subnet\": \"$3\"}]]}}"
    }
    cat > /tmp/net.d/00-multus.conf <<END
{"cniVersion": "0.3.1", "name": "pods", "type": "multus", "binDir": "/tmp/bin", "cniDir": "/tmp/multus",
 "delegates": [$(delegate n3 $address0 10.0.3.0/24), $(delegate n6 $address1 10.0.6.0/24)]}
END
    cat > /tmp/containerd.toml <<END
version = 2
root = '/tmp/containerd'
state = '/run/containerd'
[grpc]
address = '/run/containerd.sock'
[plugins.'io.containerd.internal.v1.opt']
path = '/tmp/opt'
[plugins.'io.containerd.grpc.v1.cri']
sandbox_image = 'localhost/dray:1'
disable_apparmor = true
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
[plugins.'io.containerd.grpc.v1.cri'.cni]
bin_dir = '/tmp/bin'
conf_dir = '/tmp/net.d'
END
    PATH=ENGINES/usr/local/containerd-2:$PATH
    containerd --config /tmp/containerd.toml > /tmp/containerd.log 2>&1 &
    for i in $(seq 600); do test -S /run/containerd.sock && break; sleep 0.1; done
    ctr --address /run/containerd.sock -n k8s.io images import FOLDER/image.tar > /dev/null
    export CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd.sock
    export IMAGE_SERVICE_ENDPOINT=$CONTAINER_RUNTIME_ENDPOINT
    crictl() { ENGINES/usr/bin/crictl --timeout 60s "$@" || { tail -n 20 /tmp/containerd.log; exit 1; }; }"#;

/// Shell commands: a user plane function in a pod, on both of its functions, gets packets both
/// ways; the pod gives its functions back.
const PACKETS: &str = r#"
    cp EXAMPLES/upf.toml /tmp/upf.toml
    cat > /tmp/pod.json <<END
{"metadata": {"name": "upf", "namespace": "default", "uid": "upf", "attempt": 0}, "log_directory": "/tmp/logs"}
END
    cat > /tmp/container.json <<END
{"metadata": {"name": "main"}, "image": {"image": "localhost/dray:1"}, "log_path": "upf.log",
 "command": ["dray", "upf", "--n3", "afxdp:eth0", "--n6", "afxdp:net1", "--config", "/etc/upf.toml"],
 "mounts": [{"container_path": "/etc/upf.toml", "host_path": "/tmp/upf.toml", "readonly": true}],
 "linux": {"security_context": {"capabilities": {"add_capabilities": ["NET_RAW", "NET_ADMIN", "BPF", "IPC_LOCK"]}}}}
END
    pod=$(crictl runp /tmp/pod.json)
    container=$(crictl create $pod /tmp/container.json /tmp/pod.json)
    crictl start $container > /dev/null
    for i in $(seq 600); do grep -q 'port up port=n6' /tmp/logs/upf.log && break; sleep 0.1; done
    cat /tmp/logs/upf.log
    /sbin/ip netns exec load DRAY upf-load --n3 raw:load2 --n6 raw:load3 --config /tmp/upf.toml \
        --rate 200 --duration 3
    crictl stopp $pod > /dev/null
    crictl rmp $pod > /dev/null
    ls $pci/virtfn0/net $pci/virtfn1/net"#;

#[test]
fn pod_with_two_functions_runs_a_user_plane_function_with_engines() {
    let _alone = alone();
    require_vm!();
    let plugin = Path::new(ENGINES).join("usr/local/cni/sriov");
    if !plugin.exists() {
        return common::skip(&format!(
            "{} is missing: run scripts/setup-engines.sh",
            plugin.display()
        ));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut image = Command::new("sh");
    image.args(["-c", IMAGE, "image"]).arg(folder.path()).args([DRAY, ENGINES]);
    assert!(image.status().unwrap().success());
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let folder = folder.path().to_str().unwrap();
    let script = ["set -e", FIND_CARD, NODE, PACKETS].join("\n");
    let places = [("ENGINES", ENGINES), ("EXAMPLES", examples), ("DRAY", DRAY), ("FOLDER", folder)];
    let script = places.iter().fold(script, |script, (word, place)| script.replace(word, place));
    let vm = Vm::new("pods").cpus(2).memory_mib(3072).arguments(CARD).script(&script);
    let output = vm.boot(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    for way in ["uplink: sent ", "downlink: sent "] {
        let counts = output.output.lines().find(|line| line.starts_with(way));
        assert!(counts.is_some_and(|it| it.contains("; lost 0, ")), "{output:?}");
    }
}
