//! CPUs that the kernel isolates from other work, and NUMA nodes.

use std::collections::BTreeSet;

use dray_results::{Outcome, Results};
use dray_testvm::Vm;

use crate::LIMIT;
use crate::common::{self, DRAY, alone};
use crate::functions::FIND_VIRTIO_CARD;

/// Without isolation, roles would run on CPUs 1 and 2 here.
#[test]
fn roles_run_on_isolated_cpus() {
    let _alone = alone();
    require_vm!();
    let script = format!(
        "{DRAY} bench --quick --technique veth/raw --size 200 --rate 500 --duration 1 --json /tmp/results \
             > /dev/null &
         bench=$!
         while kill -0 $bench 2> /dev/null; do
             for task in $(grep -lsx role /proc/[0-9]*/task/[0-9]*/comm); do
                 grep -s Cpus_allowed_list ${{task%comm}}status
             done
             sleep 0.2
         done | sort -u
         wait $bench || exit 1
         cat /tmp/results"
    );
    let vm = Vm::new("isolated").cpus(4).memory_mib(1024).kernel_argument("isolcpus=2,3");
    let output = vm.script(&script).boot(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    let (tasks, json) = output.output.split_at(output.output.find('{').unwrap());
    // The CPUs that the kernel reported while the roles ran.
    let affinities: BTreeSet<_> =
        tasks.lines().map(|line| line.split_once(":\t").unwrap()).collect();
    let expected = ["2", "3"].map(|cpu| ("Cpus_allowed_list", cpu));
    assert_eq!(affinities, expected.into(), "{tasks}");

    let results: Results = serde_json::from_str(json).unwrap();
    assert_eq!(results.host.isolated_cpus, "2-3");
    let Outcome::Measured(measured) = &results.results[0].outcome else { panic!("{json}") };
    let cores: BTreeSet<_> = measured.setting.role_cores.values().copied().collect();
    assert_eq!(cores, [2, 3].into(), "{json}");
    assert!(
        measured.setting.isolated_cores
            && !measured.setting.shared_cores
            && !measured.counters_disagree(),
        "{json}"
    );
}

/// Memory and the worker are on the card's NUMA node, although the program starts on a CPU of the
/// other one, which is the first that a worker gets on a machine with one node.
#[test]
fn memory_and_worker_are_on_the_node_of_the_card() {
    let _alone = alone();
    require_vm!();
    let script = format!(
        "set -e
         {FIND_VIRTIO_CARD}
         cat ${{functions%/*}}/numa_node /sys/devices/system/node/node*/cpulist
         taskset 2 {DRAY} receive --port afxdp:$card >/tmp/receive 2>&1 &
         until grep 'dray-umem.* N[01]=' /proc/$!/numa_maps; do /busybox sleep 0.1; done
         kill -INT $!
         wait $! || true
         {DRAY} switch --control /tmp/switch.sock --port a=afxdp:$card --port b=null: >/tmp/switch 2>&1 &
         until {DRAY} switch ports --control /tmp/switch.sock >/dev/null 2>&1; do
             /busybox sleep 0.1
         done
         grep ' on CPU' /tmp/switch
         kill -INT $!
         wait $!"
    );
    let vm = Vm::new("nodes").cpus(2).memory_mib(1024).nodes(2).card(1).script(&script);
    let output = vm.boot(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    let lines: Vec<_> = output.output.lines().collect();
    let [node, first, second, memory, switch] = &lines[..] else { panic!("{output:?}") };
    assert_eq!([*node, first, second], ["0", "0", "1"], "node of the card, CPUs of both nodes");
    assert!(memory.contains(" N0=") && !memory.contains(" N1="), "{memory}");
    assert!(switch.contains("1 worker on CPU 0"), "{switch}");
}
