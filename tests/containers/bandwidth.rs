//! Rates of pods, as TCP sees them.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::alone;
use crate::common::stream::{assert_rate, measure};
use crate::node::{Node, Pod};

fn address(result: &Value) -> SocketAddr {
    let address = result["ips"][0]["address"].as_str().unwrap_or_else(|| panic!("{result}"));
    format!("{}:9000", address.split('/').next().unwrap()).parse().unwrap()
}

/// Connections to and from a pod with a bandwidth get it, and in no second more than its burst
/// allows.
#[test]
fn pods_get_their_bandwidth_and_burst() {
    let _alone = alone();
    require_cni!();
    let node = Node::start();
    // The first has the burst that Kubernetes makes up; the second may be a second ahead.
    for (mbps, burst) in [(20_u64, 2_147_483_647_u64), (20, 20_000_000)] {
        let pods = [Pod::new(), Pod::new()];
        let rate = mbps * 1_000_000;
        let limited = json!({
            "ipam": node.ipam(&["10.1.0.0/16"]),
            "runtimeConfig": {"bandwidth": {
                "ingressRate": rate, "ingressBurst": burst, "egressRate": 2 * rate, "egressBurst": burst,
            }},
        });
        let free = json!({"ipam": node.ipam(&["10.1.0.0/16"])});
        let results = [("c0", &limited), ("c1", &free)].map(|(name, keys)| {
            let pod = if name == "c0" { &pods[0] } else { &pods[1] };
            node.call("ADD", name, &pod.path(), keys).unwrap()
        });
        let [limited_pod, other] = [&pods[0].namespace, &pods[1].namespace];
        for (ends, to, rate, connections) in [
            ([other, limited_pod], 0, rate as f64, 1),
            ([limited_pod, other], 1, 2.0 * rate as f64, 8),
        ] {
            let measured =
                || measure(ends, address(&results[to]), connections, Duration::from_secs(4));
            match burst {
                20_000_000 => {
                    let seen = measured();
                    let ahead = burst as f64 / rate;
                    println!("{seen:?} of {rate}, {ahead} s ahead");
                    assert!(seen.most <= rate * (1.05 + ahead), "{seen:?}");
                    assert!(seen.most >= rate * (1.0 + ahead / 2.0), "{seen:?}");
                }
                _ => assert_rate(&format!("pod, {connections}"), rate, || rate, measured),
            }
        }
        node.call("DEL", "c0", &pods[0].path(), &limited).unwrap();
        node.call("DEL", "c1", &pods[1].path(), &free).unwrap();
    }
    node.assert_clean();
}
