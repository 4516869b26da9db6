//! Virtual machines of the lab: they run a script and report its outcome, they end in time, and
//! their network cards can be connected to a vhost-user switch.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::guests::guest;
use common::{DRAY, alone};
use dray_lab::LinkKind;
use dray_measure::{Endpoint, Technique};
use dray_results::{Outcome, Results, Verdict};
use dray_testvm::{VhostUser, Vm};
use dray_wire::MacAddr;

/// Upper bound for a machine's run; far longer than any machine takes on a busy host.
const LIMIT: Duration = Duration::from_secs(600);

/// QEMU arguments for a network card with virtual functions; nothing is connected to its other end.
const CARD: [&str; 6] = [
    "-device",
    "pcie-root-port,id=root,chassis=1",
    "-netdev",
    "hubport,id=n,hubid=0",
    "-device",
    "igb,bus=root,netdev=n",
];

/// Shell commands: wait until the card is up, then set `card` to its name and `functions` to the
/// file with the number of its virtual functions.
const FIND_CARD: &str = "
    modprobe -a igb igbvf
    card=$(ls /sys/bus/pci/drivers/igb/*/net/)
    functions=/sys/class/net/$card/device/sriov_numvfs
    /busybox ip link set $card up
    for i in $(seq 100); do
        test $(cat /sys/class/net/$card/operstate) = up && break
        sleep 0.1
    done";

/// Returns from the calling test if `scripts/setup-vm.sh` has not run.
macro_rules! require_vm {
    () => {
        if let Err(why) = Vm::check() {
            common::skip(&why.to_string());
            return;
        }
    };
}

mod functions;
mod netmap;
mod placement;
mod pods;

#[test]
fn vm_returns_script_output_and_status() {
    let _alone = alone();
    require_vm!();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "of the host\n").unwrap();
    let script = format!(
        "cat {0}; echo of the guest > {0}; cat {0}; modprobe ipvlan && echo loaded; nproc; exit 203",
        file.display()
    );
    let vm = Vm::new("script").cpus(2).script(&script);
    let output = vm.boot(LIMIT).unwrap();
    assert_eq!(output.output, "of the host\nof the guest\nloaded\n2\n", "{output:?}");
    assert_eq!(output.status, 203);
    assert_eq!(fs::read_to_string(&file).unwrap(), "of the host\n");
}

#[test]
fn vm_kernel_has_required_modules() {
    let _alone = alone();
    require_vm!();
    // Commands come from the host, and may be older than the kernel: netkit and AF_XDP are built
    // in.
    let script = "
        set -ex
        modprobe -a ipvlan macvlan macvtap vxlan geneve openvswitch gtp vfio-pci igb igbvf
        grep -q netkit_xmit /proc/kallsyms
        grep -q xsk_sendmsg /proc/kallsyms
        # If the kernel gets SMC, add a test of an SMC stream here.
        if grep -q ' smc_' /proc/kallsyms || modprobe smc; then exit 1; fi
        echo 7 > /sys/class/net/eth0/device/sriov_numvfs
        ls /sys/bus/pci/drivers/igbvf/ | grep -c :
        ls /sys/kernel/iommu_groups | grep -q .";
    let vm = Vm::new("rich")
        .iommu()
        .arguments(["-device", "pcie-root-port,id=root,chassis=1", "-device", "igb,bus=root"])
        .script(script);
    let output = vm.boot(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    assert!(output.output.contains("\n7\n"), "{output:?}");
}

#[test]
fn vm_timeout_ends_hanging_script() {
    let _alone = alone();
    require_vm!();
    let mut vm = Vm::new("hanging").script("echo begun; sleep 1000000").start().unwrap();
    vm.wait_until_output("begun", LIMIT).unwrap();
    assert_eq!(machines().len(), 1);
    let error = vm.wait(Duration::from_secs(1)).unwrap_err().to_string();
    // A slow kernel may write to its console until then, which the error quotes as well.
    assert!(error.starts_with("virtual machine hanging: did not end within 1s; "), "{error}");
    assert!(error.ends_with("last output of its script: begun"), "{error}");
    assert_eq!(machines(), Vec::<String>::new());
}

#[test]
fn vm_dies_with_its_thread() {
    let _alone = alone();
    require_vm!();
    std::thread::spawn(|| std::mem::forget(Vm::new("orphan").script("sleep 100").start().unwrap()))
        .join()
        .unwrap();
    let deadline = Instant::now() + LIMIT;
    while !machines().is_empty() {
        assert!(Instant::now() < deadline, "still there");
        sleep(Duration::from_millis(20));
    }
}

/// The link of pods, and what is said of a kernel that lacks a module for it.
#[test]
fn link_of_pods_needs_the_bpf_classifier() {
    let _alone = alone();
    require_vm!();
    let script = format!(
        "modprobe -a tun veth || exit 1
         {DRAY} bench streams --quick --duration 0.5 --json - --technique switch-pod/tcp || exit 1
         modules=/lib/modules/$(uname -r)
         rmmod cls_bpf && rm $(find $modules -name 'cls_bpf.ko*') $modules/modules.dep.bin || exit 1
         sed -i /cls_bpf/d $modules/modules.dep
         {DRAY} doctor | grep -A 1 ' bypass '
         {DRAY} bench streams --quick --technique switch-pod/tcp 2>&1"
    );
    let output = Vm::new("pods").cpus(2).memory_mib(1024).script(&script).boot(LIMIT).unwrap();
    let said = &output.output;
    let mut values =
        serde_json::Deserializer::from_str(&said[said.find('{').unwrap()..]).into_iter();
    let results: Results = values.next().unwrap().unwrap();
    let measured = results.streams[0].measured().unwrap();
    let switch = measured.setting.switch.as_ref().unwrap();
    assert!(switch.bypassed_ratio.unwrap() > 0.99, "{measured:?}");
    assert_eq!(measured.counters_agree, Some(true), "{measured:?}");
    assert!(
        said.contains("pods of kind tap, as in the link switch-pod, cannot be made;"),
        "{said}"
    );
    let why = "the kernel needs CONFIG_NET_CLS_BPF";
    assert_eq!((output.status, said.matches(why).count()), (1, 1), "{said}");
}

#[test]
fn qemu_error_is_reported() {
    let _alone = alone();
    require_vm!();
    let missing = VhostUser::connect(Path::new("/nosuch,socket"), MacAddr::local(1));
    let error = Vm::new("alone").vhost_user(missing).boot(LIMIT).unwrap_err().to_string();
    assert!(error.contains("Failed to connect to '/nosuch,socket'"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn guests_reach_each_other_across_switch() {
    let _alone = alone();
    require_vm!();
    let folder = tempfile::tempdir().unwrap();
    let sockets = ["1", "2"].map(|name| folder.path().join(name));
    let Some(_switch) = Switch::start(&sockets) else { return };
    let mut quiet = guest(1, &sockets[0], false, "sleep 1000000");
    // The other guest may drop requests until its card is up.
    let script = "until /busybox ping -c 1 -w 5 10.0.0.1; do :; done";
    let pinging = guest(2, &sockets[1], false, script);
    quiet.wait_until_output("02:00:00:00:00:01\n", LIMIT).unwrap();
    let output = pinging.wait(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{}", output.output);
    assert!(output.output.contains("bytes from 10.0.0.1"), "{}", output.output);
}

/// Frames go between cards without a copy at either end if the drivers can: a role prints what the
/// kernel reports (`getsockopt(XDP_OPTIONS)`) in its first line.
#[test]
fn afxdp_zero_copy_and_virtual_functions() {
    let _alone = alone();
    require_vm!();
    let script = format!(
        "set -e
         modprobe -a igb igbvf
         # Names are given in the order of addresses on the bus within each driver.
         card() {{ ls -d /sys/bus/$1/drivers/$2/*/net/* | sed 's,.*/,,' | sort | sed -n $3p; }}
         v1=$(card virtio virtio_net 1) v2=$(card virtio virtio_net 2)
         i1=$(card pci igb 1) i2=$(card pci igb 2)
         echo 1 > /sys/class/net/$i2/device/sriov_numvfs
         for i in $(seq 50); do vf=$(card pci igbvf 1); test -n \"$vf\" && break; sleep 0.1; done
         for i in all $v1 $v2 $i1 $i2 $vf; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; done
         for i in $v1 $v2 $i1 $i2 $vf; do /busybox ip link set $i up promisc on; done
         pass() {{
             echo \"$1 to $2, $3\"
             {DRAY} receive --port \"afxdp:$2?$3\" --duration 12 --json > received &
             for i in $(seq 100); do
                 grep -qs role /proc/$!/task/*/comm && break
                 sleep 0.1
             done
             sleep 1
             {DRAY} send --port \"afxdp:$1?$3\" --size 64 --rate 500 --duration 2 --dst-mac $4 > sent
             kill -INT $!
             wait $!
             grep -E '\"(received|lost|corrupt)\"' received | head -3
         }}
         mac() {{ cat /sys/class/net/$1/address; }}
         cd /tmp
         pass $v1 $v2 mode=zerocopy $(mac $v2)
         # A virtual function comes up after its card, and again after each change of the card.
         for i in $(seq 100); do
             test $(cat /sys/class/net/$vf/operstate) = up && break
             sleep 0.1
         done
         pass $i1 $vf xdp=generic $(mac $vf)
         pass $i1 $i2 mode=zerocopy $(mac $i2)
         ! {DRAY} receive --port \"afxdp:$vf?mode=zerocopy\" --duration 1
         # A link that goes down and up, which resets the card, ends no role.
         {DRAY} receive --port \"afxdp:$i2?mode=zerocopy&wait=poll\" --duration 60 --json > received &
         for i in $(seq 100); do grep -qs role /proc/$!/task/*/comm && break; sleep 0.1; done
         sleep 1
         for i in 1 2 3; do /busybox ip link set $i2 down; sleep 0.1; /busybox ip link set $i2 up; done
         for i in $(seq 100); do test $(cat /sys/class/net/$i2/operstate) = up && break; sleep 0.1; done
         {DRAY} send --port \"afxdp:$i1?mode=zerocopy\" --rate 500 --duration 4 --dst-mac $(mac $i2) > sent
         kill -INT $!
         wait $!
         echo after a flap
         grep -E '\"(received|lost|corrupt)\"' received | head -3
         "
    );
    let netdev = |name: &str, hub: u8| format!("hubport,id={name},hubid={hub}");
    // Offloads leave frames in a form that XDP programs cannot parse.
    let virtio = |name: &str| {
        format!(
            "virtio-net-pci,netdev={name},disable-legacy=on,iommu_platform=on,guest_csum=off,\
             guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,guest_uso4=off,guest_uso6=off"
        )
    };
    let mut vm = Vm::new("af-xdp").cpus(2).memory_mib(1024).iommu();
    for (index, name) in ["v1", "v2"].into_iter().enumerate() {
        let mac = format!("{},mac=02:00:00:00:01:0{index}", virtio(name));
        vm = vm.arguments(["-netdev", &netdev(name, 0), "-device", &mac]);
    }
    for (index, name) in ["i1", "i2"].into_iter().enumerate() {
        let root = format!("pcie-root-port,id=root{index},chassis={}", index + 1);
        let card = format!("igb,bus=root{index},netdev={name},mac=02:00:00:00:02:0{index}");
        vm = vm.arguments(["-device", &root, "-netdev", &netdev(name, 1), "-device", &card]);
    }
    let output = vm.script(&script).boot(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{}\n{}", output.output, output.console);
    let said = output.output;
    for (from, to, options, agreed, lost_max) in [
        ("eth0", "eth1", "mode=zerocopy", "xdp native, zero copy", 0),
        ("eth2", "eth4", "xdp=generic", "xdp generic, copy", 0),
        // A card of this kind restarts when a socket is bound to it.
        ("eth2", "eth3", "mode=zerocopy", "xdp native, zero copy", 100),
    ] {
        let title = format!("{from} to {to}, {options}\n");
        let part = said.split_once(&title).unwrap_or_else(|| panic!("{title}: {said}")).1;
        for interface in [from, to] {
            let line = format!("afxdp:{interface}?{options}: {agreed}, need wakeup");
            assert!(part.contains(&line), "{line}: {said}");
        }
        let number = |name: &str| {
            let rest = part.split_once(&format!("\"{name}\": ")).unwrap().1;
            rest.split_once(',').unwrap().0.parse::<u64>().unwrap()
        };
        // Of the 1000 frames that are due, a sender under emulation may not get to the last ones.
        assert!(number("received") >= 900 && number("corrupt") == 0, "{title}: {said}");
        assert!(number("lost") <= lost_max, "{title}: {said}");
    }
    assert!(said.contains("afxdp:eth4?mode=zerocopy: XDP program: the driver cannot"), "{said}");
    // Only generic programs see frames of the kernel that lack checksums. This card can leave VLAN
    // tags in frames; its virtual functions cannot.
    let completes = "xdp generic, copy, need wakeup, checksums of local kernels completed";
    assert!(said.contains(&format!("afxdp:eth2?xdp=generic: {completes}\n")), "{said}");
    assert!(said.contains(&format!("afxdp:eth4?xdp=generic: {completes}, VLAN")), "{said}");
    assert!(!said.contains("zero copy, need wakeup, "), "{said}");
    let after = said.split_once("after a flap\n").unwrap_or_else(|| panic!("{said}")).1;
    assert!(!after.contains("\"received\": 0,"), "{said}");
}

/// A lab on links that the host may lack. The card has one end more than requested, because ends
/// are created in pairs.
const BY_HAND: &str = "\
[[containers]]
name = 'a'
[[containers]]
name = 'b'
run = 'dray echo --port udp:10.0.0.2:9000-10.0.0.1:9000'
[[containers]]
name = 'c'
run = 'dray echo --port udp:10.0.1.2:9000-10.0.1.1:9000'
[[containers]]
name = 'd'
run = 'dray echo --port udp:10.0.1.3:9000-10.0.1.1:9000'
[[links]]
kind = 'ovs/kernel'
ends = ['a', 'b']
network = '10.0.0.0/24'
[[links]]
kind = 'sriov'
parent = 'CARD'
ends = ['a', 'c', 'd']
network = '10.0.1.0/24'";

/// Links for which many kernels lack the module. The machine is slow, so its rates mean nothing,
/// but its frame counts have to balance.
#[test]
fn counters_balance_over_links_in_vm() {
    let _alone = alone();
    require_vm!();
    let [l2, l2_private, _, l3, _, l3_vepa, l3s, ..] = LinkKind::IPVLAN;
    let others = [LinkKind::NETKIT_L2, LinkKind::NETKIT_L3, LinkKind::OVS_KERNEL, LinkKind::SRIOV];
    let all = [&LinkKind::IPVLAN[..], &others].concat();
    // A UDP socket does not learn of dropped frames, and over L3 most programs have no other
    // endpoint.
    let some = [&[l2, l3, l3s, l2_private, l3_vepa][..], &others].concat();
    let few = [l2, LinkKind::NETKIT_L2];
    let techniques = [
        Technique::by_link(&all, &[Endpoint::RAW_MMSG]),
        Technique::by_link(&some, &[Endpoint::UDP]),
        Technique::by_link(&few, &[Endpoint::AFXDP_GENERIC]),
    ];
    let techniques = techniques.concat();
    let words: Vec<_> = techniques.iter().map(Technique::to_string).collect();
    let script = format!(
        "modprobe -a ipvlan openvswitch || exit 1
         {FIND_CARD}
         # A killed run does not give the card back; the next clean-up does.
         {DRAY} bench --quick --technique sriov/raw --parent $card > /dev/null 2>&1 &
         for i in $(seq 600); do test $(cat $functions) = 2 && break; sleep 0.05; done
         test $(cat $functions) = 2 || exit 1
         kill -9 $!
         wait
         {DRAY} lab clean > /dev/null || exit 1
         test $(cat $functions) = 0 || exit 1
         # By hand as well.
         cat > /tmp/hand.toml <<END
{BY_HAND}
END
         sed -i s,CARD,$card, /tmp/hand.toml
         {DRAY} lab up /tmp/hand.toml > /dev/null || exit 1
         test $(cat $functions) = 4 || exit 1
         for ways in 10.0.0.1:9000-10.0.0.2 10.0.1.1:9000-10.0.1.2 10.0.1.1:9000-10.0.1.3; do
             said=$({DRAY} lab exec a -- {DRAY} ping --port udp:$ways:9000 --duration 0.5) || exit 1
             case $said in *' 0 came back'*) exit 1;; esac
         done
         {DRAY} lab down > /dev/null || exit 1
         test $(cat $functions) = 0 || exit 1
         # A user plane function between such interfaces, which deliver nothing to its users.
         {DRAY} bench shyamkumar2022-fig6 --quick --duration 0.5 --trials 1 --rate 1k --json /tmp/upf.json \
             --technique ipvlan/l2/raw-mmsg,ipvlan/l3/raw-mmsg > /dev/null || exit 1
         for expected in 'counters_agree.: true,2' 'lost.: 0,2' 'measured uplink only,4'; do
             test $(grep -c \"${{expected%,*}}\" /tmp/upf.json) = ${{expected#*,}} || {{ cat /tmp/upf.json; exit 1; }}
         done
         {DRAY} bench --quick --duration 0.5 --size 200 --rate 1k --parent $card --json - \
             --technique {words} || exit 1
         test $(cat $functions) = 0",
        words = words.join(",")
    );
    let output = Vm::new("links")
        .cpus(2)
        .memory_mib(1024)
        .arguments(CARD)
        .script(&script)
        .boot(LIMIT)
        .unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    let json = output.output.find('{').map(|at| &output.output[at..]);
    let results: Results = serde_json::from_str(json.unwrap()).unwrap();
    assert_eq!(results.results.len(), techniques.len());
    for technique in techniques {
        let name = technique.to_string();
        let row = results.results.iter().find(|row| row.technique == name).unwrap();
        match &row.outcome {
            Outcome::Isolated { isolation } => {
                assert!(technique.link.isolates, "{row:?}");
                assert_eq!(isolation.verdict, Verdict::Isolated, "{row:?}");
                // Frames that are not sent are dropped by the interface itself.
                let all = [isolation.left, isolation.dropped].contains(&isolation.offered);
                assert!(all, "{row:?}");
            }
            Outcome::Measured(measured) => {
                assert!(!technique.link.isolates && !measured.counters_disagree(), "{row:?}");
                assert!(measured.received > 0 && measured.corrupt == 0, "{row:?}");
            }
            Outcome::Skipped { skipped } => panic!("{technique}: {skipped}"),
        }
    }
}

/// Returns the virtual machines that this process runs.
fn machines() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    // Ignore a process that ends meanwhile.
    let stats =
        processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    let ours = format!(" {} ", std::process::id());
    let is_ours = |stat: &String| {
        let (name, rest) = stat.rsplit_once(") ").unwrap();
        let (state, rest) = rest.split_at(1);
        // A zombie has already ended. QEMU may be run by the C library that it needs.
        let is_qemu = name.contains("(qemu-system") || name.contains("(ld-linux");
        is_qemu && state != "Z" && rest.starts_with(&ours)
    };
    stats.filter(is_ours).collect()
}

/// Switch between the guests: DPDK's testpmd, which forwards between two vhost-user sockets.
struct Switch(Child);

impl Switch {
    /// Skips the test if testpmd is not installed.
    fn start(sockets: &[PathBuf; 2]) -> Option<Self> {
        let device = |index: usize| format!("net_vhost{index},iface={}", sockets[index].display());
        let process = Command::new("dpdk-testpmd")
            .args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256"])
            .args(["--vdev", &device(0), "--vdev", &device(1)])
            .args(["--", "--forward-mode=io", "--total-num-mbufs=8192"])
            // testpmd exits as soon as its input has something to read.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if process.is_err() {
            common::skip("dpdk-testpmd is not installed; apt install dpdk-dev");
        }
        process.ok().map(Self)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
