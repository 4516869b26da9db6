//! `dray bench` with the function between sender and receiver.

use dray_lab::{LinkKind, Runtime};
use dray_results::{Measured, Results, Way};

use crate::common::{self, alone, success};

/// Links that the kernel and our own switch make.
const OWN: &str = "bridge/raw-mmsg,bridge-iptables/raw-mmsg,hosts/bridge/raw-mmsg,switch/patch/virtio,macvlan/bridge/raw-mmsg,\
                   macvlan/passthru/raw-mmsg,vxlan/raw-mmsg,xdp/pairs/raw-mmsg,\
                   xdp/learning/raw-mmsg,veth/afxdp,veth/tap,macvtap/tap,direct/virtio,\
                   switch/learning/virtio";

#[test]
fn upf_counters_balance_over_links() {
    counters_balance(Runtime::Embedded, OWN);
}

#[test]
fn upf_counters_balance_with_dpdk() {
    let others =
        "ovs/userspace/raw-mmsg,ovs/afxdp/raw-mmsg,testpmd/pairs/virtio,ovs-dpdk/pairs/virtio";
    counters_balance(Runtime::Embedded, others);
}

#[test]
fn upf_counters_balance_with_engines() {
    // Each of its own links is a network of its engine.
    let own = "docker/bridge/raw-mmsg,docker/bridge-iptables/raw-mmsg,docker/macvlan/raw-mmsg";
    counters_balance(Runtime::Docker, &format!("bridge/raw-mmsg,switch/patch/virtio,{own}"));
}

/// Measures the paper's function between a sender and a receiver, over each link. Counters balance,
/// and our links and the kernel's lose no packet at a rate that all carry.
fn counters_balance(runtime: Runtime, techniques: &str) {
    let _alone = alone();
    require_root!();
    if let Err(error) = runtime.version() {
        return common::skip(&error.to_string());
    }
    let words = ["bench", "shyamkumar2022-fig6", "--quick", "--runtime", runtime.name()];
    // No more packets than each buffer on the way holds, so that a receiver that waits for a CPU
    // loses none.
    let trial = ["--rate", "100", "--duration", "0.5", "--trials", "1", "--json", "-"];
    let text = success(&[&words[..], &["--technique", techniques], &trial].concat());
    let results: Results = serde_json::from_str(&text).unwrap();
    // One row for each direction, and one for both.
    assert_eq!(results.results.len(), 3 * techniques.split(',').count(), "{text}");
    for row in &results.results {
        let load = row.upf.unwrap();
        let name = format!("{runtime} {} {load}", row.technique);
        let Some(measured) = row.measured() else {
            let why = format!("{:?}", row.outcome);
            if why.contains("is not installed") {
                common::skip(&why);
                continue;
            }
            if dray_lab::link::missing(LinkKind::every()).iter().any(|kind| kind.name == row.link) {
                common::skip(&why);
                continue;
            }
            panic!("{name}: {why}");
        };
        let Measured { counters_agree, sent, received, lost, lost_at, .. } = measured;
        let figures =
            format!("{name}: agree {counters_agree:?}, {sent} {received} {lost} {lost_at:?}");
        assert!(!measured.counters_disagree() && measured.received > 0, "{figures}");
        assert_eq!((load.sessions, load.pdrs), (8000, 2), "{name}");
        if load.way == Way::Both {
            let cores = measured.setting.role_cores.keys();
            let roles = ["receiver", "sender", "upf"];
            assert!(cores.filter(|role| *role != "switch").eq(&roles), "{name}: {measured:?}");
        }
        // Other people's switches may drop packets before their threads have polled all ports.
        let is_theirs = ["ovs", "testpmd"].iter().any(|name| row.link.starts_with(name));
        assert!(measured.lost == 0 || is_theirs, "{figures}");
    }
}

/// Measures the cost of sessions and rules: one row for each number of them, with balanced
/// counters.
#[test]
fn upf_counters_balance_over_sessions_and_rules_with_time() {
    let _alone = alone();
    require_root!();
    let quick = ["--quick", "--duration", "0.2", "--trials", "1"];
    let text = success(&[&["bench", "upf-scale"][..], &quick, &["--json", "-"]].concat());
    let results: Results = serde_json::from_str(&text).unwrap();
    let mut loads = Vec::new();
    for row in &results.results {
        let load = row.upf.unwrap();
        let measured = row.measured().unwrap_or_else(|| panic!("{load}: {:?}", row.outcome));
        assert!(!measured.counters_disagree() && measured.received > 0, "{load}: {measured:?}");
        loads.push((load.sessions, load.pdrs));
    }
    let sessions = [1, 1000, 10_000, 100_000, 1_000_000].map(|sessions| (sessions, 2));
    let rules = [2, 8, 32, 128].map(|rules| (8000, rules));
    assert_eq!(loads, [&sessions[..], &rules].concat());
}
