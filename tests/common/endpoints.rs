//! DPDK endpoints in tests.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::Duration;

use dray_lab::peer::{EndpointRole, PeerEndpoint, PortCounters};

use super::eventually;

const FRAME_SIZE: u16 = 1500;

/// One program is both ends, so neither waits for its turn if ends share a CPU. The number of
/// bursts is what a ring of 256 entries holds if a frame takes two.
pub const BOTH_ENDS: EndpointRole = EndpointRole::Loop { frame_size: FRAME_SIZE, bursts: 4 };

/// Lets frames circulate both ways until each port has received 100,000, more than the indices of a
/// ring count, and waits for those in flight. Returns the counters of the two ports.
pub fn go_round(both_ends: &mut PeerEndpoint) -> Vec<PortCounters> {
    let went_round = eventually(|| {
        // Lost frames are missing from the loop, so it is started again: Open vSwitch drops
        // frames until it has set up its flows.
        both_ends.start_traffic().unwrap();
        sleep(Duration::from_millis(200));
        both_ends.stop_traffic().unwrap();
        both_ends.counters().unwrap().iter().all(|port| port.received_frames > 100_000)
    });
    assert!(went_round, "{:?}", both_ends.counters());
    both_ends.drain_traffic().unwrap();
    let ports = at_rest(|| both_ends.counters().unwrap());
    for (here, there) in [(0, 1), (1, 0)] {
        let PortCounters { received_frames, received_bytes, .. } = ports[here];
        assert!(received_frames <= ports[there].sent_frames, "{ports:?}");
        assert_eq!(received_bytes, u64::from(FRAME_SIZE) * received_frames, "{ports:?}");
    }
    ports
}

/// Returns the value of `counters` once it no longer changes.
pub fn at_rest<T: PartialEq + Debug>(counters: impl Fn() -> T) -> T {
    let mut last = counters();
    let rests = eventually(|| {
        sleep(Duration::from_millis(200));
        let before = std::mem::replace(&mut last, counters());
        before == last
    });
    assert!(rests, "{last:?}");
    last
}
