//! Counters of ports whose interface is removed.

use std::process::Stdio;

use dray_port::Frame;
use dray_switch::DropReason;
use dray_switch::client::Client;
use rustix::process::Signal;

use crate::common::veths::Veths;
use crate::common::{self, Started, alone, eventually, serves};

/// Frames that arrive while the switch stands still: more than its queues hold.
const FRAMES: usize = 40_000;

#[test]
fn missed_frames_stay_counted_when_the_interface_is_removed() {
    let _alone = alone();
    require_root!();
    for scheme in ["raw", "afxdp", "tap"] {
        let is_tap = scheme == "tap";
        let veths = Veths::new(1, if is_tap { &[] } else { &[["far", "near"]] });
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("control");
        let mut command = common::command();
        command.args(["switch", "--control"]).arg(&control);
        command.args([&format!("a={scheme}:near"), "b=null:"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let switch = Started(veths.0.enter(|| command.spawn()).unwrap());
        assert!(eventually(|| serves(&control)), "{scheme}");
        let client = Client::new(&control);
        client.status().expect("it replies once its ports are open");
        let far = if is_tap { "near" } else { "far" };
        let mut port = veths.open(&format!("raw:{far}"));
        common::signal(&switch.0, Signal::STOP);
        let frame = [2; 1000];
        let frames = [Frame::from(&frame[..]); 32];
        let mut sent = 0;
        while sent < FRAMES {
            sent += port.tx[0].transmit(&frames).unwrap();
        }
        common::signal(&switch.0, Signal::CONT);
        let missed = || {
            let stats = client.stats().unwrap();
            let port = stats.into_iter().find(|port| port.name.as_str() == "a").unwrap();
            port.counters.drops.get(DropReason::Missed)
        };
        let metric = || {
            let name = "dray_switch_port_dropped_frames_total{port=\"a\",reason=\"missed\"} ";
            let metrics = client.metrics().unwrap();
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.expect("a series").parse::<u64>().unwrap()
        };
        assert!(eventually(|| missed() > 0), "{scheme}");
        let before = missed();
        veths.ip(&format!("link del {far}"));
        for _ in 0..20 {
            assert!(missed() >= before && metric() >= before, "{scheme}: {before}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
