//! CPUs that the kernel isolates from other work.

use std::collections::BTreeSet;

use dray_results::{Outcome, Results};
use dray_testvm::Vm;

use crate::LIMIT;
use crate::common::{self, DRAY, alone};

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
