//! QEMU guests at the switch: they notice nothing when it is replaced or killed, and connect again
//! to one that does not continue.

use std::thread::sleep;
use std::time::{Duration, Instant};

use dray_testvm::{RunningVm, Vm};

use crate::common::guests::guest;
use crate::common::{self, alone};
use crate::manager::Manager;
use crate::takeover::{PROGRAM, Running};

/// Far longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits for 20 more replies to `ping -A`. Returns the number of requests without a reply since the
/// first one.
fn lost(guest: &RunningVm) -> usize {
    let replies = || -> Vec<usize> {
        let said = guest.output().unwrap();
        // The last line may be incomplete.
        let whole = said.lines().filter(|line| line.ends_with(" ms"));
        let number = |line: &str| line.split_once("seq=")?.1.split(' ').next()?.parse().ok();
        whole.filter_map(number).collect()
    };
    let (enough, deadline) = (replies().len() + 20, Instant::now() + LIMIT);
    loop {
        let numbers = replies();
        if numbers.len() >= enough {
            assert!(numbers.is_sorted_by(|one, next| one < next), "a reply arrives twice");
            return numbers[numbers.len() - 1] + 1 - numbers.len();
        }
        assert!(Instant::now() < deadline, "{}", guest.output().unwrap());
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn guests_stay_connected_or_reconnect() {
    let _alone = alone();
    if let Err(why) = Vm::check() {
        return common::skip(&why.to_string());
    }
    let folder = tempfile::tempdir().unwrap();
    let sockets = ["1", "2"].map(|name| folder.path().join(name));
    let ports = [0, 1].map(|at| format!("p{at}=vhost:{}", sockets[at].display()));
    let ports = ports.each_ref().map(String::as_str);
    let quiet = |is_packed| {
        let mut quiet = guest(1, &sockets[0], is_packed, "sleep 1000000");
        quiet.wait_until_output("02:00:00:00:00:01\n", LIMIT).unwrap();
        quiet
    };
    let mut manager = Manager::new(&[], &ports);
    let first = quiet(true);
    // It sends a request as soon as it has a reply.
    let pings = guest(2, &sockets[1], false, "/busybox ping -A 10.0.0.1");
    assert_eq!(lost(&pings), 0);

    // Killed in the middle of a batch, in which a request or a reply may be, the switch loses one.
    manager.settle();
    let before = manager.port("p1").counters.rx_frames;
    manager.kill();
    manager.wait();
    let by_kill = lost(&pings);
    assert!(by_kill <= 1, "{by_kill}");
    for _ in 0..3 {
        let control = manager.control();
        let mut command = PROGRAM.takes_over(&control);
        PROGRAM.replaced(manager.process.as_mut().unwrap(), None, &control, &mut command);
        assert_eq!(lost(&pings), by_kill, "{:?}", manager.client().ports().unwrap());
    }
    for port in manager.client().ports().unwrap() {
        assert!(port.disconnects.is_empty() && port.counters.rx_frames > before, "{port:?}");
    }

    // Another guest with the same card. QEMU loses its place in packed rings when it loses a
    // switch.
    drop(first);
    let _second = quiet(false);
    lost(&pings);
    let port = manager.port("p0");
    assert_eq!((port.disconnects.values().sum::<u64>(), port.stations), (1, 1), "{port:?}");

    // Another switch.
    drop(manager);
    let running = Running::new(&[], &ports);
    lost(&pings);
    assert!(running.port("p0").counters.rx_frames > 0);
}
