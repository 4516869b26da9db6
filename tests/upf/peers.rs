//! A load in this process, whose connections to the user plane function are watched.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::scope;
use std::time::Duration;

use dray_port::{Port, PortUri};
use dray_upf::api::{Client, Stats};
use dray_upf::config::UpfConfig;
use dray_upf::load::{Load, LoadReport, Outcome, Settings, Watch};
use dray_upf::{Counted, DropReason, SessionStatus};
use dray_wire::gtpu::Direction;

use crate::common::eventually;

/// Ports of a user plane function in a folder `DIR`, and of its peers there; `N` is the name of the
/// port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peers {
    pub(crate) own: &'static str,
    other: &'static str,
}

pub(crate) const SPLIT: Peers = Peers { own: "vhost:DIR/N", other: "virtio:DIR/N?packed=0" };
pub(crate) const PACKED: Peers = Peers { own: "vhost:DIR/N", other: "virtio:DIR/N?packed=1" };
pub(crate) const MEMIF: Peers = Peers { own: "memif:DIR/N?role=server", other: "memif:DIR/N" };

impl Peers {
    /// Returns the options with which `dray upf` opens N3 and N6.
    pub(crate) fn options(self) -> [String; 4] {
        let uri = |name| self.own.replace('N', name);
        ["--n3".to_owned(), uri("n3"), "--n6".to_owned(), uri("n6")]
    }

    /// Opens the peers of N3 and N6.
    pub(crate) fn plug(self, folder: &Path) -> [Port; 2] {
        ["n3", "n6"].map(|name| {
            let uri = self.other.replace('N', name).replace("DIR", folder.to_str().unwrap());
            uri.parse::<PortUri>().unwrap().open().unwrap()
        })
    }
}

/// Notes the longest latency, in microseconds.
struct Longest<'a>(&'a AtomicU64);

impl Watch for Longest<'_> {
    fn latency(&mut self, _: Direction, ns: u64) {
        self.0.fetch_max(ns / 1000, Relaxed);
    }

    fn waiting(&mut self, what: &str) {
        println!("the load waits for {what}");
    }
}

/// Stops the load also if the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends packets both ways while `disturb` runs, which gets the longest latency in microseconds, to
/// the user plane function with `control` and `upf.toml` in `folder`. The connections must stay.
pub(crate) fn load(
    folder: &Path,
    [n3, n6]: [Port; 2],
    disturb: impl FnOnce(&AtomicU64),
) -> LoadReport {
    let config = UpfConfig::load(&folder.join("upf.toml")).unwrap();
    let links = [n3.link.clone(), n6.link.clone()];
    let settings = Settings {
        rate: Some(5000.0),
        len: 512,
        duration: Duration::from_secs(3600),
        uplink: true,
        downlink: true,
    };
    let load = Load::new(&config, settings, n3, n6).unwrap();
    let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let report = scope(|scope| {
        let runs = scope.spawn(|| load.run(&stop, &mut Longest(&longest)).unwrap());
        let stops = Stops(&stop);
        let client = Client::new(&folder.join("control"));
        let passed = || client.stats().unwrap();
        // The function may have passed packets of an earlier load.
        let [up, down] = [passed().uplink.tx_packets, passed().downlink.tx_packets];
        let begins =
            || passed().uplink.tx_packets > up + 100 && passed().downlink.tx_packets > down + 100;
        assert!(eventually(begins), "{:?}", passed());
        let ends = || {
            let ports = client.status().unwrap().ports.into_iter();
            ports.map(|port| (port.link.state, port.link.ends)).collect::<Vec<_>>()
        };
        let before = ends();
        disturb(&longest);
        assert_eq!(ends(), before);
        drop(stops);
        runs.join().expect("the load")
    });
    for link in links.into_iter().flatten() {
        let status = link.status();
        assert!(status.ends.is_empty() && status.last_end.is_none(), "{status:?}");
    }
    report
}

/// Returns the numbers of packets that were sent, counted by sessions and received, in each
/// direction.
pub(crate) fn numbers(report: &LoadReport, sessions: &[SessionStatus]) -> [[u64; 3]; 2] {
    let sum = |number: fn(&Counted) -> u64| {
        let usage = sessions.iter().flat_map(|session| &session.usage);
        usage.map(|usage| number(&usage.counted)).sum::<u64>()
    };
    let numbers = |way: &Outcome, counted| {
        assert!(way.wrong() == 0 && way.received > 500, "{way:?}");
        [way.sent, counted, way.received]
    };
    [
        numbers(&report.uplink, sum(|counted| counted.uplink_packets)),
        numbers(&report.downlink, sum(|counted| counted.downlink_packets)),
    ]
}

/// Checks that every packet was counted once and arrived. Packets wait for a peer for 10 ms only,
/// and on a busy machine a peer may get no CPU for longer: some may have been dropped, and counted,
/// for that, far fewer than if each disturbance dropped what was in a ring.
pub(crate) fn lost_nothing(report: &LoadReport, (sessions, stats): &(Vec<SessionStatus>, Stats)) {
    let ways = [stats.uplink, stats.downlink];
    for ([sent, counted, received], way) in numbers(report, sessions).into_iter().zip(ways) {
        let full = way.drops.get(DropReason::PortFull);
        let expected = [sent, sent - full, sent - full];
        assert_eq!([counted, received, way.tx_packets], expected, "{stats:?}");
        assert!(50 * full <= sent, "{stats:?}");
    }
}
