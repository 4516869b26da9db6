//! Rates of ports, as TCP between two kernels sees them.

use std::time::Duration;

use crate::common::alone;
use crate::common::stream::{assert_rate, measure};
use crate::offload::Hosts;

/// Connections get nine tenths of the rate of a port, in either direction, and never more than 1.05
/// of it in a second.
#[test]
fn tcp_gets_the_rate_of_a_port() {
    let _alone = alone();
    require_root!();
    for (from, to, connections, rate) in [
        ("tap?offload=1,rate_in=10Mbit", "tap", 1, 1e7),
        ("tap", "tap?offload=1,rate_out=10Mbit", 1, 1e7),
        ("tap?offload=0,rate_in=20Mbit", "tap", 1, 2e7),
        ("raw?batch=64,rate_in=100Mbit", "tap", 1, 1e8),
        ("tap", "raw?batch=64,rate_out=100Mbit", 1, 1e8),
        ("tap?offload=1,rate_in=1Gbit", "raw", 1, 1e9),
        ("raw", "tap?queues=2,rate_out=1Gbit", 1, 1e9),
        ("tap?offload=1,rate_in=100Mbit", "tap", 8, 1e8),
        ("tap", "raw?batch=64,rate_out=20Mbit", 8, 2e7),
    ] {
        let hosts = Hosts::new([from, to]);
        let [a, b] = &hosts.names;
        let address = "10.0.0.2:9000".parse().unwrap();
        assert_rate(
            &format!("{from} {to} {connections}"),
            rate,
            || rate,
            || measure([a, b], address, connections, Duration::from_secs(4)),
        );
    }
}
