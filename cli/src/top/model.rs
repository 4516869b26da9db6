//! Report of a program at one moment, and the rates between two such moments.

use std::collections::BTreeMap;
use std::time::Instant;

use dray_port::{Fill, clock};
use serde::Serialize;

/// Report of a program at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    pub(crate) program: &'static str,
    pub(crate) version: String,
    /// `None` if it is not known.
    pub(crate) uptime_s: Option<f64>,
    /// Settings and sizes, in words.
    pub(crate) about: String,
    pub(crate) workers: Vec<Worker>,
    pub(crate) ports: Vec<Port>,
}

/// Counts of a worker since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worker {
    pub(crate) cpu: u32,
    pub(crate) ports: Vec<String>,
    pub(crate) work_s: f64,
    pub(crate) batches: u64,
    pub(crate) frames: u64,
}

/// State of a port, and its counts since it was added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port {
    pub(crate) about: About,
    pub(crate) rx: Traffic,
    pub(crate) tx: Traffic,
    pub(crate) drops: Drops,
}

/// Drops by reason.
pub(crate) type Drops = BTreeMap<&'static str, u64>;

/// Frames and bytes in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
}

/// Parts of a port that are not counts.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) uri: String,
    /// State of its connection to its peer.
    pub(crate) state: String,
    /// Configuration and what was negotiated, in words.
    pub(crate) settings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receive_ring: Option<Fill>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transmit_ring: Option<Fill>,
    /// Why its peer cannot be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unreachable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_disconnect: Option<String>,
    /// Time of the last disconnect, in seconds of the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_disconnect_at: Option<u64>,
    /// Disconnects by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) disconnects: BTreeMap<String, u64>,
}

/// Rates between two readings: what `--json` writes, and what a screen shows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rates {
    pub(crate) program: &'static str,
    pub(crate) version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uptime_s: Option<f64>,
    pub(crate) about: String,
    /// Time between the two readings.
    pub(crate) interval_s: f64,
    pub(crate) workers: Vec<WorkerRates>,
    pub(crate) ports: Vec<PortRates>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkerRates {
    pub(crate) cpu: u32,
    pub(crate) ports: Vec<String>,
    /// Share of the time in which it had frames to move, 0 to 1.
    pub(crate) busy: f64,
    pub(crate) frames_per_s: f64,
    /// `None` without frames.
    pub(crate) frames_per_batch: Option<f64>,
    /// Cycles of the time-stamp counter per frame; idle time does not count.
    pub(crate) cycles_per_frame: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PortRates {
    #[serde(flatten)]
    pub(crate) about: About,
    /// Frames and bytes that its peer sent.
    pub(crate) rx: TrafficRates,
    /// Frames and bytes that its peer was sent.
    pub(crate) tx: TrafficRates,
    pub(crate) drops_per_s: f64,
    /// Drops per second, by reason.
    pub(crate) drops: BTreeMap<&'static str, f64>,
    /// Frames dropped since the port was added, by reason.
    pub(crate) dropped: Drops,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct TrafficRates {
    pub(crate) frames_per_s: f64,
    pub(crate) bits_per_s: f64,
    /// Frames since the port was added.
    pub(crate) frames: u64,
}

impl Reading {
    /// Returns the rates since `earlier`; all are 0 if there is no earlier reading of this run of
    /// the program.
    pub(crate) fn since(&self, earlier: Option<&Self>) -> Rates {
        let earlier = earlier.filter(|earlier| earlier.uptime_s <= self.uptime_s);
        let time = earlier.map_or(0.0, |earlier| (self.at - earlier.at).as_secs_f64());
        let worker = |now: &Worker| {
            let then = earlier.and_then(|e| e.workers.iter().find(|w| w.cpu == now.cpu));
            now.since(then.unwrap_or(now), time)
        };
        let port = |now: &Port| {
            let then =
                earlier.and_then(|e| e.ports.iter().find(|p| p.about.name == now.about.name));
            // A port without an earlier count is new, or the reading is the first.
            now.since(then.unwrap_or(now), time)
        };
        Rates {
            program: self.program,
            version: self.version.clone(),
            uptime_s: self.uptime_s,
            about: self.about.clone(),
            interval_s: time,
            workers: self.workers.iter().map(worker).collect(),
            ports: self.ports.iter().map(port).collect(),
        }
    }
}

impl Worker {
    fn since(&self, then: &Self, time: f64) -> WorkerRates {
        let frames = difference(self.frames, then.frames);
        let batches = difference(self.batches, then.batches);
        let work = (self.work_s - then.work_s).max(0.0);
        let per = |of: f64, by: u64| (by > 0).then(|| of / by as f64);
        WorkerRates {
            cpu: self.cpu,
            ports: self.ports.clone(),
            busy: if time > 0.0 { (work / time).min(1.0) } else { 0.0 },
            frames_per_s: rate(frames, time),
            frames_per_batch: per(frames as f64, batches),
            cycles_per_frame: per(work * clock::ticks_per_second() as f64, frames),
        }
    }
}

impl Port {
    fn since(&self, then: &Self, time: f64) -> PortRates {
        let traffic = |now: Traffic, then: Traffic| TrafficRates {
            frames_per_s: rate(difference(now.frames, then.frames), time),
            bits_per_s: 8.0 * rate(difference(now.bytes, then.bytes), time),
            frames: now.frames,
        };
        let drops = self.drops.iter().map(|(reason, many)| {
            let before = then.drops.get(reason).copied().unwrap_or(0);
            (*reason, rate(difference(*many, before), time))
        });
        let drops: BTreeMap<_, _> = drops.filter(|(_, rate)| *rate > 0.0).collect();
        PortRates {
            about: self.about.clone(),
            rx: traffic(self.rx, then.rx),
            tx: traffic(self.tx, then.tx),
            // The sum of no numbers is -0.
            drops_per_s: drops.values().sum::<f64>() + 0.0,
            drops,
            dropped: self.drops.clone(),
        }
    }
}

impl PortRates {
    /// Returns the frames per second in both directions.
    pub(crate) fn frames_per_s(&self) -> f64 {
        self.rx.frames_per_s + self.tx.frames_per_s
    }
}

/// Returns what was counted since `then`; a counter that is lower has started from zero since.
fn difference(now: u64, then: u64) -> u64 {
    now.checked_sub(then).unwrap_or(now)
}

fn rate(many: u64, time: f64) -> f64 {
    if time > 0.0 { many as f64 / time } else { 0.0 }
}

/// Returns the share of a ring that is used, 0 to 1.
pub(super) fn share(fill: Fill) -> f64 {
    f64::from(fill.used) / f64::from(fill.size.max(1))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    /// A switch with two ports, of which `a` has received `frames` frames, each dropped at `b`
    /// every tenth time; read `seconds` after `start`.
    pub(crate) fn reading(start: Instant, seconds: u64, frames: u64) -> Reading {
        let port = |name: &str, rx: u64, tx: u64| Port {
            about: About {
                name: name.to_owned(),
                uri: format!("vhost:/run/dray/{name}.sock"),
                state: "running".to_owned(),
                settings: vec!["vlan 10".to_owned(), "1 queue".to_owned()],
                receive_ring: Some(Fill { used: 128, size: 256 }),
                transmit_ring: Some(Fill { used: 256, size: 256 }),
                last_disconnect: Some("the peer disconnected".to_owned()),
                last_disconnect_at: Some(0),
                disconnects: [("the peer disconnected".to_owned(), 2)].into(),
                ..About::default()
            },
            rx: Traffic { frames: rx, bytes: 64 * rx },
            tx: Traffic { frames: tx, bytes: 64 * tx },
            drops: Drops::default(),
        };
        let mut ports = vec![port("a", frames, 0), port("b", 0, frames - frames / 10)];
        ports[1].drops.insert("receiver_full", frames / 10);
        ports[1].about.state = "waiting".to_owned();
        Reading {
            at: start + Duration::from_secs(seconds),
            program: "switch",
            version: "0.2.0".to_owned(),
            uptime_s: Some(100.0 + seconds as f64),
            about: "mode learning, flow drop, 3 stations".to_owned(),
            workers: vec![Worker {
                cpu: 2,
                ports: vec!["a".to_owned(), "b".to_owned()],
                work_s: seconds as f64 / 4.0,
                batches: frames / 50,
                frames,
            }],
            ports,
        }
    }

    #[test]
    fn rates_are_differences_per_second() {
        let start = Instant::now();
        let (before, now) = (reading(start, 0, 1000), reading(start, 2, 2_001_000));
        let rates = now.since(Some(&before));
        assert_eq!(rates.interval_s, 2.0);
        let [a, b] = &rates.ports[..] else { panic!("{rates:?}") };
        assert_eq!((a.rx.frames_per_s, a.rx.bits_per_s, a.drops_per_s), (1e6, 512e6, 0.0));
        assert_eq!((b.tx.frames_per_s, b.drops["receiver_full"]), (9e5, 1e5));
        let worker = &rates.workers[0];
        assert_eq!((worker.busy, worker.frames_per_batch), (0.25, Some(50.0)));
        let cycles = worker.cycles_per_frame.unwrap() / clock::ticks_per_second() as f64;
        assert!((cycles - 0.5 / 2e6).abs() < 1e-12, "{cycles}");
    }

    #[test]
    fn first_reading_and_restart_have_no_rates() {
        let start = Instant::now();
        let first = reading(start, 5, 1000);
        assert_eq!(first.since(None).ports[0].rx.frames_per_s, 0.0);
        let mut restarted = reading(start, 6, 10);
        restarted.uptime_s = Some(0.5);
        let rates = restarted.since(Some(&first));
        assert_eq!((rates.interval_s, rates.ports[0].rx.frames_per_s), (0.0, 0.0));
        assert_eq!(rates.workers[0].cycles_per_frame, None);
    }
}
