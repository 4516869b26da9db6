//! What DPDK's endpoints do in tests.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::Duration;

use dray_lab::peer::{EndpointRole, PeerEndpoint, PortCounters};

use super::eventually;

const FRAME_SIZE: u16 = 1500;

/// One program is both ends: so none waits for its turn where ends share a CPU. Its bursts are as many
/// as a ring of 256 entries holds where a frame takes two.
pub const BOTH_ENDS: EndpointRole = EndpointRole::Loop { frame_size: FRAME_SIZE, bursts: 4 };

/// Lets frames go round both ways until a million have come in at either port, and what is under way
/// arrive. Returns what went through the two ports.
pub fn go_round(both_ends: &mut PeerEndpoint) -> Vec<PortCounters> {
    let went_round = eventually(|| {
        // What is lost is missing from the round, so it is begun anew: Open vSwitch drops frames while
        // it makes up its mind.
        both_ends.start_traffic().unwrap();
        sleep(Duration::from_millis(500));
        both_ends.stop_traffic().unwrap();
        both_ends.counters().unwrap().iter().all(|port| port.received_frames > 1_000_000)
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

/// What `counters` says once it stays the same.
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
