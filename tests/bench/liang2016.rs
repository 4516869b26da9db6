//! Sharing a machine: noisy neighbours, and the resources that each technique needs.

use crate::common::{self, alone, assert_schema, success};
use dray_results::{Neighbour, Outcome, Results};

fn bench(arguments: &[&str]) -> Results {
    let usual = ["bench", "--json", "-", "--quick", "--trials", "1"];
    let json = success(&[&usual, arguments].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_schema(&json);
    serde_json::from_value(json).unwrap()
}

#[test]
fn noisy_neighbour_runs_only_when_noisy() {
    let _alone = alone();
    require_root!();
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return common::skip("a neighbour needs a core of its own");
    }
    let experiment = ["liang2016-noisy-neighbour", "--technique", "direct", "--duration", "0.5"];
    let results = bench(&experiment);
    let mut seen = Vec::new();
    for row in &results.results {
        let neighbour = row.neighbour.unwrap();
        seen.push((&*row.topology, neighbour));
        match &row.outcome {
            Outcome::Measured(measured) => {
                let written = measured.neighbour_bytes_per_s.unwrap();
                assert_eq!(written > 0.0, neighbour != Neighbour::Quiet, "{row:?}");
                assert!(measured.received > 0 && !measured.counters_disagree(), "{row:?}");
                // All roles run on the other CPUs, whatever the neighbour does.
                let cpus = |row: &dray_results::ResultRow| {
                    row.measured()
                        .map(|measured| measured.setting.role_cores.values().max().copied())
                };
                assert_eq!(cpus(row), cpus(&results.results[0]), "{row:?}");
            }
            Outcome::Skipped { skipped } => {
                assert!(
                    neighbour == Neighbour::Confined && skipped.contains("cache allocation"),
                    "{skipped}"
                );
            }
            Outcome::Isolated { .. } => panic!("{row:?}"),
        }
    }
    let all = [Neighbour::Quiet, Neighbour::Noisy, Neighbour::Confined];
    let chain = all.map(|neighbour| ("chain", neighbour));
    assert_eq!(seen, [chain, all.map(|neighbour| ("echo", neighbour))].concat());
}

#[test]
fn results_list_needs_of_each_technique() {
    let _alone = alone();
    require_root!();
    let techniques = "veth/raw,veth/udp,switch/patch,veth/tcp";
    let results = bench(&["liang2016-setup", "--technique", techniques, "--duration", "0.5"]);
    let frames = results.results.iter();
    let frames = frames.map(|row| (&*row.technique, row.measured().unwrap().setting.needs.clone()));
    let streams = results.streams.iter();
    let streams =
        streams.map(|row| (&*row.technique, row.measured().unwrap().setting.needs.clone()));
    let needs: Vec<_> = frames.chain(streams).map(|(name, needs)| (name, needs.unwrap())).collect();
    for (name, needs) in &needs {
        assert!(!needs.set_ups.is_empty(), "{name}");
        assert!(needs.set_ups[0].containers_s > 0.0 && needs.set_ups[0].ports_s > 0.0, "{name}");
        let mut roles: Vec<_> = needs.memory_bytes.keys().map(String::as_str).collect();
        assert!(roles.len() >= 2 && needs.memory_bytes.values().all(|bytes| *bytes > 1 << 16));
        assert!(needs.file_descriptors.values().all(|count| *count > 3), "{name}: {needs:?}");
        assert!(needs.unlocked.is_empty(), "{name}: {needs:?}");
        let has_switch = roles.pop() == Some("switch");
        assert_eq!(has_switch, *name == "switch/patch", "{name}");
    }
    let of = |wanted: &str| &needs.iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert_eq!(of("veth/raw").capabilities, ["CAP_NET_ADMIN", "CAP_NET_RAW"]);
    assert_eq!(
        (of("veth/raw").on_host.as_str(), of("switch/patch").on_host.as_str()),
        ("CAP_NET_ADMIN", "none")
    );
    assert!(of("switch/patch").capabilities.is_empty());
}
