//! Virtual functions of network cards, which QEMU's `igb` has, with addresses and VLANs, and its
//! virtio-net, whose driver needs no copies for AF_XDP.

use dray_lab::Runtime;
use dray_lab::peer::SwitchKind;
use dray_results::{Outcome, Results};
use dray_testvm::Vm;

use crate::common::{self, DRAY, alone};
use crate::{CARD, FIND_CARD, LIMIT};

/// Two containers with one function each; the second one echoes.
const PAIR: &str = "\
[[containers]]
name = 'a'
[[containers]]
name = 'b'
run = 'dray echo --port udp:10.0.0.2:9000-10.0.0.1:9000'
[[links]]
kind = 'sriov'
parent = 'CARD'
ends = ['a', 'b']
network = '10.0.0.0/24'";

const FUNCTIONS: &str = "functions = { macs = ['02:00:00:00:00:aa', '02:00:00:00:00:bb'], vlan = 7, \
                         spoof_check = false, trust = true }";

/// Returns what `ip link show` prints about function `number` of a card (iproute2's `ip`; the
/// script's own is BusyBox's).
fn function(said: &str, number: usize) -> &str {
    let line = said.lines().find(|line| line.trim_start().starts_with(&format!("vf {number} ")));
    line.unwrap_or_else(|| panic!("no function {number}: {said}")).trim()
}

#[test]
fn virtual_functions_are_configured_and_restored() {
    let _alone = alone();
    require_vm!();
    let script = format!(
        "set -e
         {FIND_CARD}
         ls /sys/class/net > /tmp/before
         cat > /tmp/usual.toml <<END
{PAIR}
END
         sed -i s,CARD,$card, /tmp/usual.toml
         (cat /tmp/usual.toml; echo \"{FUNCTIONS}\") > /tmp/asked.toml
         dray() {{ {DRAY} \"$@\"; }}
         for lab in usual asked; do
             dray lab up /tmp/$lab.toml
             echo \"== $lab\"
             /sbin/ip -d link show $card
             for end in a b; do
                 echo \"$end has $(dray lab exec $end -- cat /sys/class/net/eth0/address)\"
             done
             echo \"ping: $(dray lab exec a -- \
                 {DRAY} ping --port udp:10.0.0.1:9000-10.0.0.2:9000 --duration 0.5)\"
             # A trusted function may change its address.
             dray lab exec a -- ip link set eth0 address 02:00:00:00:00:cc && echo changed || echo kept
             dray lab down $lab
             test $(cat $functions) = 0
             ls /sys/class/net | cmp - /tmp/before
         done
         echo 2 > $functions
         echo == after
         /sbin/ip -d link show $card
         for i in $(seq 100); do
             test $(ls -d /sys/bus/pci/drivers/igbvf/*/net/* | wc -l) = 2 && break
             sleep 0.1
         done
         echo \"at the host: $(ls -d /sys/bus/pci/drivers/igbvf/*/net/* | wc -l)\""
    );
    let vm = Vm::new("functions").memory_mib(1024).arguments(CARD).script(&script);
    let output = vm.boot(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    let said = &output.output;
    let part = |name: &str| {
        let rest = said.split_once(&format!("== {name}\n")).unwrap_or_else(|| panic!("{said}")).1;
        rest.split("\n== ").next().unwrap()
    };

    let usual = part("usual");
    for number in [0, 1] {
        let line = function(usual, number);
        // The lab assigns addresses and VLANs itself; these are the first link's.
        for what in [", vlan 1, ", ", spoof checking on, ", ", trust off"] {
            assert!(line.contains(what), "{what}: {line}");
        }
    }
    assert!(usual.contains("\nkept\n") && !usual.contains(" 0 came back"), "{usual}");

    let asked = part("asked");
    for (number, end, mac) in [(0, "a", "02:00:00:00:00:aa"), (1, "b", "02:00:00:00:00:bb")] {
        let line = function(asked, number);
        let ether = format!("link/ether {mac} ");
        for what in [&ether, ", vlan 7, ", ", spoof checking off, ", ", trust on"] {
            assert!(line.contains(what), "{what}: {line}");
        }
        assert!(asked.contains(&format!("\n{end} has {mac}\n")), "{asked}");
    }
    assert!(asked.contains("\nchanged\n") && !asked.contains(" 0 came back"), "{asked}");

    let after = part("after");
    for number in [0, 1] {
        let line = function(after, number);
        assert!(!line.contains("vlan") && !line.contains("link/ether 02:00:00:00:00:"), "{line}");
        assert!(line.contains(", spoof checking on, ") && line.contains(", trust off"), "{line}");
    }
    assert!(after.contains("at the host: 2"), "{after}");
}

/// Two links of a lab on one card, a link that DPDK cannot have yet, and a run that is cancelled.
#[test]
fn links_of_one_card_have_vlans_and_give_functions_back() {
    let _alone = alone();
    require_vm!();
    let second = PAIR.split_once("[[links]]").unwrap().1.replace("'b'", "'c'");
    let echo = "[[containers]]
name = 'c'
run = 'dray echo --port udp:10.0.1.2:9000-10.0.1.1:9000'";
    let second = second.replace("10.0.0.0", "10.0.1.0");
    let script = format!(
        "set -e
         {FIND_CARD}
         cat > /tmp/two.toml <<END
{PAIR}
[[links]]{second}
{echo}
END
         sed -i s,CARD,$card, /tmp/two.toml
         {DRAY} lab up /tmp/two.toml
         test $(cat $functions) = 4
         /sbin/ip link show $card
         for ways in 10.0.0.1:9000-10.0.0.2 10.0.1.1:9000-10.0.1.2; do
             echo \"ping: $({DRAY} lab exec a -- \
                 {DRAY} ping --port udp:$ways:9000 --duration 0.5)\"
         done
         {DRAY} lab down
         test $(cat $functions) = 0
         bench() {{ {DRAY} bench \"$@\" --quick --parent $card 2>&1; }}
         bench ara2019-fig3 --size 64 --technique sriov/dpdk || true
         test $(cat $functions) = 0
         {DRAY} bench --quick --duration 30 --parent $card --technique sriov/raw >/dev/null 2>&1 &
         for i in $(seq 600); do test $(cat $functions) = 2 && break; sleep 0.1; done
         test $(cat $functions) = 2
         kill -INT $!
         ! wait $!
         test $(cat $functions) = 0"
    );
    let vm = Vm::new("links-of-card").cpus(2).memory_mib(1024).arguments(CARD).script(&script);
    let output = vm.boot(LIMIT).unwrap();
    let said = &output.output;
    assert_eq!(output.status, 0, "{output:?}");
    for (number, vlan) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
        let line = function(said, number);
        assert!(line.contains(&format!(", vlan {vlan}, ")), "{line}");
    }
    let pings: Vec<_> = said.lines().filter(|line| line.starts_with("ping: ")).collect();
    assert!(pings.len() == 2 && !pings.iter().any(|ping| ping.contains(" 0 came back")), "{said}");
    assert!(said.contains("nothing could be measured: sriov/dpdk: no"), "{said}");
}

/// Number of testpmd bursts that a sender sends.
const BURSTS: usize = 4;

/// DPDK's own driver behind an IOMMU, in two containers: frames pass from one function's user space
/// to the other's through the card's switch, each once.
#[test]
fn dpdk_passes_frames_between_virtual_functions() {
    let _alone = alone();
    require_vm!();
    if let Err(why) = SwitchKind::Testpmd.find() {
        common::skip(&why);
        return;
    }
    let script = format!(
        "set -e
         {FIND_CARD}
         modprobe -a vfio-pci vfio_iommu_type1
         # Prevents the kernel from sending frames.
         echo 1 > /proc/sys/net/ipv6/conf/$card/disable_ipv6
         device=/sys/class/net/$card/device
         echo 0 > $device/sriov_drivers_autoprobe
         echo 2 > $functions
         for number in 0 1; do
             /sbin/ip link set $card vf $number mac 02:00:00:00:00:0$number
             address=$(basename $(readlink -f $device/virtfn$number))
             echo vfio-pci > /sys/bus/pci/devices/$address/driver_override
             echo $address > /sys/bus/pci/drivers_probe
         done
         echo 64 > /proc/sys/vm/nr_hugepages
         printf \"[[containers]]\\nname = 'f0'\\n[[containers]]\\nname = 'f1'\\n\" > /tmp/two.toml
         {DRAY} lab up /tmp/two.toml
         cd /tmp
         await() {{ for i in $(seq 300); do eval \"$1\" && return; sleep 0.2; done; cat f0 f1; exit 1; }}
         # Runs testpmd in the container of function $1, with commands on standard input.
         testpmd() {{
             {DRAY} lab exec f$1 -- stdbuf -oL dpdk-testpmd --lcores=1@0,2@1 --in-memory \
                 --file-prefix=f$1 -a $(basename $(readlink -f $device/virtfn$1)) -- --interactive \
                 --forward-mode=rxonly --total-num-mbufs=4096 --eth-peer=0,02:00:00:00:00:0$2 > f$1 2>&1
         }}
         ready() {{ await \"grep -q 'testpmd> ' f$1\"; }}
         (ready 1; echo start; await 'test -e sent'; sleep 1; echo stop
          echo show port stats 0; echo quit) | testpmd 1 0 &
         ready 1
         (ready 0; echo start tx_first {BURSTS}; sleep 1; echo stop
          echo show port stats 0; echo quit) | testpmd 0 1
         touch sent
         wait
         cat f0; echo == receiver; cat f1
         {DRAY} lab down"
    );
    let output = Vm::new("dpdk")
        .cpus(2)
        .memory_mib(1536)
        .iommu()
        .arguments(CARD)
        .script(&script)
        .boot(LIMIT)
        .unwrap();
    let said = &output.output;
    assert_eq!(output.status, 0, "{output:?}");
    let (sender, receiver) = said.split_once("== receiver\n").unwrap_or_else(|| panic!("{said}"));
    let frames = 32 * BURSTS;
    for (side, count) in [(sender, "TX"), (receiver, "RX")] {
        // Counted by forwarding, by all ports, and by this port's driver.
        let count = format!("  {count}-packets: {frames} ");
        assert_eq!(side.matches(&count).count(), 3, "{count}: {said}");
        assert!(side.contains("net_e1000_igb_vf") && side.contains("Using IOMMU type 1"), "{said}");
    }
}

/// Shell commands: set `card` to the name of the virtio card that is up, and `functions` to the
/// file with the number of its virtual functions.
pub(crate) const FIND_VIRTIO_CARD: &str = "
    modprobe -a vfio-pci vfio_iommu_type1
    for functions in /sys/bus/pci/devices/*/sriov_numvfs; do
        test $(cat ${functions%/*}/sriov_totalvfs) = 0 || break
    done
    card=$(ls ${functions%/*}/virtio*/net)
    for name in all default; do echo 1 > /proc/sys/net/ipv6/conf/$name/disable_ipv6; done
    /busybox ip link set $card up";

/// Shell commands: mount control groups, and measure the user plane function in a Docker container.
const DOCKER: &str = "
    mkdir -p /sys/fs/cgroup
    /busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
    bench shyamkumar2022-fig6 --rate 500 --technique sriov/afxdp --runtime docker";

/// Every technique of virtual functions, whole systems of the papers among them: frames pass
/// without copies, by DPDK through vfio, through forwarders, and through a user plane function with
/// 8000 sessions: each way, both ways at the same time, and in a Docker container.
#[test]
fn functions_are_measured_without_copies() {
    let _alone = alone();
    require_vm!();
    let dpdk = if SwitchKind::Testpmd.find().is_ok() { ",sriov/dpdk" } else { "" };
    let has_docker = Runtime::Docker.version().is_ok();
    let docker = if has_docker { DOCKER } else { "" };
    let script = format!(
        "set -e
         {FIND_VIRTIO_CARD}
         {DRAY} doctor | grep ' SR-IOV '
         bench() {{
             echo \"== $1\"
             {DRAY} bench \"$@\" --quick --duration 0.5 --trials 1 --parent $card --json - 2>errors || {{
                 cat errors
                 exit 1
             }}
             test $(cat $functions) = 0
         }}
         cd /tmp
         bench all --size 200 --rate 500 --technique sriov/udp,sriov/afxdp,sriov/afxdp-deferred
         bench casoni2013-sender-load --technique sriov/raw-mmsg,sriov/afxdp{dpdk}
         bench shyamkumar2022-fig6 --rate 500 --technique sriov/afxdp
         {docker}"
    );
    let vm = Vm::new("functions").cpus(2).memory_mib(2048).card(6).script(&script);
    let output = vm.boot(LIMIT).unwrap();
    let said = &output.output;
    assert_eq!(output.status, 0, "{output:?}");
    assert!(said.contains("0 of 6 virtual functions created"), "{said}");
    let results = |text: &str| -> Results {
        let (_, json) = text.split_once('\n').unwrap_or_else(|| panic!("{said}"));
        let mut values = serde_json::Deserializer::from_str(json).into_iter();
        values.next().unwrap().unwrap()
    };
    let all: Vec<_> = said.split("== ").skip(1).map(results).collect();
    assert_eq!(all.len(), 3 + usize::from(has_docker), "{said}");
    let rows = all.iter().flat_map(|results| &results.results);
    let (mut chains, mut refused, mut ways) = (0, 0, 0);
    for row in rows {
        let name = format!("{} {} {}", row.technique, row.topology, row.forwarders);
        match &row.outcome {
            Outcome::Measured(measured) => {
                assert!(measured.received > 0 && measured.corrupt == 0, "{name}: {measured:?}");
                assert_ne!(measured.counters_agree, Some(false), "{name}: {measured:?}");
                chains += usize::from(row.forwarders > 0);
                ways += usize::from(row.topology == "upf");
                if row.endpoint.starts_with("afxdp") {
                    let roles = &measured.setting.agreements;
                    let ports = roles.values().flatten().inspect(|port| {
                        assert_eq!(port.features[..2], ["xdp native", "zero copy"], "{name}");
                    });
                    assert!(ports.count() >= 2, "{name}: {roles:?}");
                }
            }
            // A chain of n forwarders has n + 1 links.
            Outcome::Skipped { skipped } => {
                let needed = 2 * (row.forwarders + 1);
                let why = format!("{needed} virtual functions needed, but the card has at most 6");
                assert!(skipped.ends_with(&why), "{name}: {skipped}");
                refused += 1;
            }
            Outcome::Isolated { .. } => panic!("{name}"),
        }
    }
    let techniques = if dpdk.is_empty() { 2 } else { 3 };
    // Uplink, downlink, and both at the same time.
    let all_ways = 3 * (1 + usize::from(has_docker));
    assert_eq!((chains, refused, ways), (2 * techniques, 6 * techniques, all_ways));
}
