//! `netmap:` ports in a machine that has netmap's module: between each other, and with netmap's own
//! programs.

use std::path::Path;
use std::sync::OnceLock;

use dray_lab::peer::find_ns3;
use dray_results::{Outcome, Results};
use dray_testvm::{Vm, VmOutput};

use crate::LIMIT;
use crate::common::{self, DRAY, alone};

/// Number of frames that a run sends.
const FRAMES: &str = "1000";

/// Containers on one switch, of which one sends frames back.
const BY_HAND: &str = "\
[[containers]]
name = 'a'
[[containers]]
name = 'b'
run = 'dray echo --port \"$PORT0\"'
[[links]]
kind = 'vale'
ends = ['a', 'b']";

/// Shell commands. `pass NAME TO FROM ARGUMENTS...` sends frames from one port to another, and
/// prints what both ends said. The background processes that forward between them end with it.
const FUNCTIONS: &str = r#"
    mkdir /run/netmap && cd /run/netmap
    ip() { /sbin/ip "$@"; }
    await() { for i in $(seq 200); do grep -qs "$2" $1 && return; sleep 0.05; done; cat $1; }
    receive() { rm -f received; dray receive --port "$1" --count $2 --duration 20 > received 2>&1 & receiver=$!; await received waiting; }
    pass() {
        echo "== $1"; receive "$2" 1000; from=$3; shift 3
        dray send --port "$from" --count 1000 --rate 4000 --duration 15 "$@" > sent 2>&1
        wait $receiver
        cat received sent
        for pid in $forwarders; do kill -INT $pid; wait $pid; done
        [ -z "$forwarders" ] || cat forwarder.*
        rm -f forwarder.*
        forwarders=
    }
    forward() {
        rm -f forwarder.$1
        dray forward --from "$1" --to "$2" > forwarder.$1 2>&1 &
        forwarder=$!
        forwarders="$forwarders $forwarder"
        await forwarder.$1 waiting
    }
    veths() {
        ip link add v1 type veth peer name v2
        for name in v1 v2; do
            echo 1 > /proc/sys/net/ipv6/conf/$name/disable_ipv6
            ip link set $name up
        done
    }
"#;

/// Folder of the kernel that `scripts/setup.sh vm` unpacks for netmap's module.
const KERNEL: &str = "/var/cache/dray/vm-netmap";

/// Returns the folder with netmap's module and programs, which `NETMAP` names.
fn netmap() -> Option<String> {
    let folder = std::env::var("NETMAP").ok()?;
    let has_module = Path::new(&folder).join("netmap.ko").exists();
    has_module.then_some(folder)
}

/// Returns from the calling test if netmap is not there: it is in no package.
macro_rules! require_netmap {
    () => {
        if netmap().is_none() {
            common::note_skip("NETMAP names no folder with netmap's module (docs/netmap.md)");
            return;
        }
    };
}

/// Returns the part of the output that follows `== NAME`.
fn part<'s>(said: &'s str, name: &str) -> &'s str {
    let title = format!("== {name}\n");
    let rest = said.split_once(&title).unwrap_or_else(|| panic!("{name}: {said}")).1;
    rest.split("\n== ").next().unwrap()
}

/// Runs one machine for all tests, and returns its output.
fn machine() -> &'static VmOutput {
    static OUTPUT: OnceLock<VmOutput> = OnceLock::new();
    OUTPUT.get_or_init(run)
}

fn run() -> VmOutput {
    let netmap = netmap().expect("a folder");
    let simulations = find_ns3().map_or("", |_| "ns3,vale/ns3-netmap");
    let script = format!(
        r#"
        ln -s {DRAY} /usr/local/bin/dray
        {FUNCTIONS}
        echo "== no module"
        dray receive --port netmap:vale0:b --duration 1
        dray bench --quick --technique vale
        dray doctor | grep -A1 netmap
        insmod {netmap}/netmap.ko buf_num=32768 || exit 1

        pass vale netmap:vale0:b netmap:vale0:a
        pass pipe 'netmap:x}}1' 'netmap:x{{1?wait=poll'
        pass jumbo-vale netmap:vale0:b netmap:vale0:a --size 9014
        pass offset 'netmap:x}}1' 'netmap:x{{1?offset=64' --size 9014
        veths
        pass veth netmap:v2 netmap:v1 --size 1514
        pass to-host raw:v1 'netmap:v1^'
        # The stack's frames come to a host ring only while a port has the interface.
        forward 'netmap:v1^' netmap:v1
        pass from-host netmap:v2 raw:v1
        # All pipes are in one region, so the forwarders exchange buffers.
        for i in 1 2 3; do forward "netmap:x}}$i?memory=1" "netmap:x{{$((i + 1))?memory=1"; done
        pass chain 'netmap:x}}4?memory=1' 'netmap:x{{1?memory=1'
        # A forwarder that is killed takes no buffers with it.
        forward 'netmap:x}}1?memory=1' 'netmap:x{{2?memory=1'
        dray send --port 'netmap:x{{1?memory=1' --duration 30 > /dev/null 2>&1 & sender=$!
        await 'forwarder.netmap:x}}1?memory=1' pps
        kill -9 $forwarder; forwarders=; kill -INT $sender; wait
        forward 'netmap:x}}1?memory=1' 'netmap:x{{2?memory=1'
        pass killed 'netmap:x}}2?memory=1' 'netmap:x{{1?memory=1'
        # Buffers of one region, and of several.
        forward 'netmap:vale0:b?memory=1' 'netmap:vale1:a?memory=1'
        forward netmap:vale1:b netmap:v1
        pass mixed netmap:v2 netmap:vale0:a
        dray switch --mode patch --port a='netmap:vale0:s?memory=1' --port b='netmap:vale1:s?memory=1' \
            > forwarder.switch 2>&1 &
        forwarders=$!
        for i in $(seq 100); do dray switch ports > /dev/null 2>&1 && break; sleep 0.1; done
        pass switch netmap:vale1:b netmap:vale0:a

        # netmap's own forwarder.
        {netmap}/bridge -w 0 -i vale0:b -i vale1:a > forwarder.bridge 2>&1 &
        forwarders=$!
        await forwarder.bridge 'Ready to go'
        pass bridge netmap:vale1:b netmap:vale0:a

        echo "== from pkt-gen"
        receive netmap:vale0:b 1
        timeout 20 {netmap}/pkt-gen -i vale0:a -f tx -n 1000 -l 100 -w 0 2>&1 | grep Sent
        sleep 1; kill -INT $receiver; wait
        cat received
        echo "== to pkt-gen"
        timeout 20 {netmap}/pkt-gen -i vale0:b -f rx -n 1000 -w 0 > pktgen 2>&1 &
        await pktgen 'Wait 0'
        sleep 1
        dray send --port netmap:vale0:a --count 1000 --rate 2000 --size 100
        wait
        grep Received pktgen

        echo "== removed"
        receive netmap:v2 100000
        dray send --port netmap:v1 --rate 500 --duration 30 > sent 2>&1 &
        await received 'pps'
        ip link del v1
        wait
        cat received sent
        echo "== refused"
        veths
        receive netmap:v2 100000
        taken=$receiver
        dray receive --port netmap:v2 --duration 1
        receive netmap:vale0:b 100000
        cat received
        # v2 is open, and has the region of all interfaces; that of the VALE port is another one.
        dray receive --port 'netmap:v1?memory=77' --duration 1
        dray receive --port 'netmap:v2^?memory=2' --duration 1
        dray receive --port netmap:nowhere --duration 1
        dray receive --port netmap:lo --duration 1
        kill -INT $taken $receiver; wait
        ip link del v1
        # The paper's chains and fans.
        ln -s {netmap}/pkt-gen {netmap}/bridge /usr/local/bin
        for run in incremental,vale,netmap-pipe/netmap parallel,vale/netmap {simulations}; do
            shape=${{run%%,*}}
            timeout -k 1 90 dray bench casoni2013-$shape --quick --trials 1 --duration 0.2 --rate 500 \
                --technique ${{run#*,}} --json /tmp/$shape > /dev/null || exit 1
            echo "== json of $shape"
            cat /tmp/$shape
            echo
        done
        echo "== by hand"
        cat > /tmp/hand.toml <<'END'
{BY_HAND}
END
        dray lab up /tmp/hand.toml || exit 1
        dray lab exec a -- dray ping --port 'netmap:vale1:1.1?netns=/proc/1/fd/3' --duration 0.5
        dray lab exec a -- nsenter --net=/proc/1/fd/3 {netmap}/vale-ctl
        dray lab down || exit 1
        echo "== refused without support"
        veths
        echo 1 > /sys/module/netmap/parameters/admode
        dray receive --port netmap:v1 --duration 1
        echo "== left behind"
        rmmod netmap && ls /dev/netmap
        exit 0"#
    );
    let machine = Vm::new("netmap").files(KERNEL).cpus(2).memory_mib(1024);
    let output = machine.script(&script).boot(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    output
}

#[test]
fn netmap_ports_pass_frames_intact() {
    let _alone = alone();
    require_vm!();
    require_netmap!();
    let said = &machine().output;
    let no_module = part(said, "no module");
    let line = "dray: port netmap:vale0:b: /dev/netmap: not found: load netmap's kernel module \
                (modprobe netmap)\n";
    assert!(no_module.starts_with(line), "{said}");
    let passes =
        "vale pipe jumbo-vale offset veth to-host from-host chain killed mixed switch bridge";
    for name in passes.split(' ') {
        let part = part(said, name);
        let received = format!("received {FRAMES} frames, ");
        assert!(part.contains(&received), "{name}: {said}");
        let mut intact =
            vec!["lost 0, duplicated 0", "corrupt 0, foreign 0, dropped at the port 0"];
        // A veth pair has a queue for each CPU, and the forwarder moves between them.
        intact.extend((name != "from-host").then_some("reordered 0"));
        assert!(intact.iter().all(|words| part.contains(words)), "{name}: {said}");
    }
    let doctor = "VALE switches and netmap pipes cannot be measured; load its kernel module";
    assert!(no_module.contains(doctor), "{said}");
    let skipped = "dray: nothing could be measured: vale/netmap";
    assert!(no_module.contains(skipped), "{said}");
    let forwarded = "received 1000 frames, ";
    assert_eq!(part(said, "chain").matches(forwarded).count(), 4, "{said}");
    assert!(part(said, "switch").contains("b             0         0       1000"), "{said}");
    for (name, line) in [
        ("from pkt-gen", "corrupt 0, foreign 1000, dropped at the port 0"),
        ("to pkt-gen", "Received 1000 packets 100000 bytes"),
        ("removed", "dray: netmap:v1: the netmap port v1 was removed"),
        ("removed", "dray: netmap:v2: the netmap port v2 was removed"),
        ("refused", "v2: register: another program uses this port, or a VALE switch has it"),
        ("refused", "memory=77: no such region; 1 is the one of all interfaces"),
        ("refused", "memory=2: the port's region is 1; set memory=1, or leave it out"),
        ("refused", "nowhere: register: no such interface: `ip link` lists"),
        ("refused", "lo: register: netmap has no such port: interfaces need an MTU"),
        ("refused without support", "v1: register: the interface's driver does not support netmap"),
    ] {
        assert!(part(said, name).contains(line), "{line}: {said}");
    }
}

#[test]
fn containers_are_joined_by_netmap() {
    let _alone = alone();
    require_vm!();
    require_netmap!();
    let said = &machine().output;
    // One and 6 forwarders on two links, and netmap's own on one; 2 to 4 of ours side by side.
    for (name, count) in [("incremental", 3 * 2), ("parallel", 3)] {
        let json = part(said, &format!("json of {name}"));
        let results: Results = serde_json::from_str(json).unwrap();
        assert_eq!(results.results.len(), count, "{said}");
        for row in results.results {
            let Outcome::Measured(measured) = &row.outcome else { panic!("{row:?}") };
            let intact = measured.corrupt == 0 && measured.duplicated == 0;
            assert!(measured.received > 0 && intact, "{row:?}");
        }
    }
    let by_hand = part(said, "by hand");
    assert!(by_hand.contains("netmap:vale1:1.1?netns=/proc/1/fd/3: VALE port"), "{said}");
    assert!(!by_hand.contains(" 0 came back"), "{said}");
    assert!(by_hand.contains("\nvale1:1.2 bridge_idx 0"), "{said}");
    // The module's device is gone with it, so nothing used it any more.
    assert!(part(said, "left behind").contains("ls: /dev/netmap: No such file"), "{said}");
}

#[test]
fn simulations_exchange_packets_over_vale() {
    let _alone = alone();
    require_vm!();
    require_netmap!();
    if find_ns3().is_none() {
        common::note_skip("no ns-3 program: make ns-3, see docs/ns-3.md");
        return;
    }
    let said = &machine().output;
    let results: Results = serde_json::from_str(part(said, "json of ns3")).unwrap();
    let forwarders: Vec<_> = results.results.iter().map(|row| row.forwarders).collect();
    assert_eq!(forwarders, Vec::from_iter(0..=6), "{said}");
    for row in results.results {
        let Outcome::Measured(measured) = &row.outcome else { panic!("{row:?}") };
        // An emulated machine beside other work may be too slow for some packets.
        let accounted = common::accounted(measured);
        assert!(measured.received > 0 && measured.sent == accounted, "{row:?}");
        assert_eq!((measured.duplicated, measured.corrupt), (0, 0), "{row:?}");
    }
}
