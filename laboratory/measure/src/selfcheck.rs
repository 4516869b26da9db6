//! Self-check: runs our own sender, receiver, ping and echo through a port that drops, duplicates,
//! swaps and delays frames by a known plan ([`ImpairUri`](dray_port::impair::ImpairUri)). Their
//! reports must match the plan, and the search must find a known rate.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use dray_lab::peer::PeerDir;
use dray_lab::{Cancel, LabError};
use dray_port::PortUri;
use dray_port::impair::Plan;
use dray_results::Noise;
use dray_search::{Goal, Search};
use dray_traffic::agent::Role;
use dray_traffic::{
    Check as Look, EchoJob, Job, Output, PingJob, ReceiveJob, ReceiveReport, Report, RoleError,
    SendJob, SendReport, Signal,
};
use dray_wire::{FRAME_MIN, Flow};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::cpu::{self, CpuTimes};
use crate::noise::{self, Watch};
use crate::rounds::search::loss_ratio;
use crate::trial::Trial;

/// A known figure and the reported one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the figure.
    pub what: String,
    /// Expected value.
    pub expected: String,
    /// Reported value.
    pub reported: String,
    /// Result of the comparison.
    pub outcome: Outcome,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The figure is right.
    Right,
    /// The figure is wrong.
    Wrong,
    /// A time is too long, and the machine had other work meanwhile, so nothing is known of it.
    Disturbed,
}

/// Maximum relative error of a time, or of a rate that was searched for.
const TOLERANCE: f64 = 0.01;
/// Maximum number of measurements of times. The least of each counts: a machine makes them longer
/// and never shorter, and one with occasional other work also has quiet moments.
const TRIES: usize = 4;

/// Runs all checks, which takes about a quarter of a minute.
pub fn run(cancel: &Cancel, mut progress: impl FnMut(&str)) -> Result<Vec<Check>, LabError> {
    let bench = Bench { dir: PeerDir::new()?, cancel: cancel.clone() };
    let mut checks = Vec::new();
    for (name, rate, burst, flows) in [
        ("20 kpps", Some(20e3), 1, 1),
        ("full rate, bursts of 64", None, 64, 1),
        ("3 flows", Some(30e3), 8, 3),
    ] {
        progress(&format!("loss, duplicates and reordering at {name}"));
        checks.extend(bench.counts(name, rate, burst, flows)?);
    }
    progress("percentiles");
    checks.extend(bench.percentiles()?);
    progress("search for a loss-free rate");
    checks.push(bench.searched()?);
    progress("simulated search");
    checks.push(simulated());
    Ok(checks)
}

/// Environment in which roles exchange frames.
struct Bench {
    dir: PeerDir,
    cancel: Cancel,
}

impl Bench {
    /// A Unix socket port called `name`, connected to `peer`, behind `plan`.
    fn port(&self, name: &str, peer: &str, plan: &str) -> PortUri {
        let path = |name: &str| self.dir.sockets().join(name).display().to_string();
        let port = format!("impair:{plan}:unix:{}?peer={}&batch=64", path(name), path(peer));
        port.parse().expect("valid port URI")
    }

    /// Runs a sender, and a receiver behind `plan`.
    fn exchange(
        &self,
        plan: &str,
        (rate, burst, flows): (Option<f64>, usize, u16),
        duration: Duration,
    ) -> Result<(SendReport, ReceiveReport), LabError> {
        self.cancel.check()?;
        let receive = Job::Receive(ReceiveJob {
            ports: vec![self.port("receiver", "sender", plan)],
            announce: Vec::new(),
            stations: 0,
            tunnelled: false,
            check: Look::Whole,
            timed: None,
            count: None,
            yielding: true,
            interval: duration,
        });
        let send = Job::Send(SendJob {
            outputs: vec![Output {
                port: self.port("sender", "receiver", ""),
                flow: Flow::default(),
            }],
            flows,
            stations: 1,
            users: None,
            size: FRAME_MIN,
            burst,
            rate,
            count: None,
            duration,
            turn: Some(SendJob::TURN),
            timed: None,
            interval: duration,
        });
        match both(receive, send).map_err(|error| failed(&error))? {
            (Report::Receive(received), Report::Send(sent)) => Ok((sent, received)),
            other => unreachable!("reports do not match the jobs: {other:?}"),
        }
    }

    /// Checks that every frame is counted under its fate.
    fn counts(
        &self,
        name: &str,
        rate: Option<f64>,
        burst: usize,
        flows: u16,
    ) -> Result<[Check; 4], LabError> {
        let plan = Plan { drop: Some(101), duplicate: Some(53), swap: Some(37), ..Plan::default() };
        let text = "drop=101,duplicate=53,swap=37";
        let (sent, received) =
            self.exchange(text, (rate, burst, flows), Duration::from_millis(500))?;
        let expected = Fates::of(&plan, sent.sent, flows);
        let reported = Fates {
            lost: sent.sent - received.received,
            duplicated: received.duplicated,
            reordered: received.reordered,
        };
        let check = |what: &str, expected: u64, reported: u64| {
            Check::exact(format!("{what}, {name}"), expected, reported)
        };
        Ok([
            check("frames lost", expected.lost, reported.lost),
            check("duplicates", expected.duplicated, reported.duplicated),
            check("reordered", expected.reordered, reported.reordered),
            check("damaged or foreign", 0, received.corrupt + received.foreign),
        ])
    }

    /// Checks the reported percentiles of round trips: most take one time, one in twenty another.
    fn percentiles(&self) -> Result<Vec<Check>, LabError> {
        // Of 20 ms, the time that virtual CPUs need to wake up, up to 170 us, is less than 1 %.
        const USUAL: Duration = Duration::from_millis(20);
        const LATE: Duration = Duration::from_millis(50);
        let plan = format!("delay={},late=20,late_by={}", USUAL.as_micros(), LATE.as_micros());
        let interval = Duration::from_millis(100);
        let mut watch = Watch::default();
        let (mut checks, mut least, mut lost) = (Vec::new(), [u64::MAX; 3], 0);
        for _ in 0..TRIES {
            let before = self.measure_noise(&mut watch)?;
            let echo = EchoJob { port: self.port("echo", "ping", ""), yielding: true, interval };
            let ping = PingJob {
                output: Output { port: self.port("ping", "echo", &plan), flow: Flow::default() },
                size: FRAME_MIN,
                rate: None,
                burst: 1,
                count: None,
                warm_up: Duration::ZERO,
                duration: Duration::from_secs(2),
                yielding: true,
                interval,
            };
            let own = OwnTime::now()?;
            let report =
                match both(Job::Echo(echo), Job::Ping(ping)).map_err(|error| failed(&error))? {
                    (_, Report::Ping(report)) => report,
                    other => unreachable!("reports do not match the jobs: {other:?}"),
                };
            let during = Noise::of_trial(before, own.noise_since()?);
            let noise = Noise::of_trial(during, self.measure_noise(&mut watch)?);
            let times = report.latency.percentiles().ok_or_else(|| LabError::Container {
                container: "ping".to_owned(),
                what: "no frame came back".to_owned(),
            })?;
            for (least, ns) in least.iter_mut().zip([times.p50, times.p90, times.p99]) {
                *least = ns.min(*least);
            }
            let of = [("p50", USUAL), ("p90", USUAL), ("p99", LATE)].into_iter().zip(least);
            let time = |((what, expected), ns)| Check::time(what, expected, ns, &noise);
            checks = of.map(time).collect();
            lost += report.send.sent - report.receive.received;
            checks.push(Check::exact("round trips lost".to_owned(), 0, lost));
            if checks.iter().all(|check| check.outcome == Outcome::Right) {
                break;
            }
        }
        Ok(checks)
    }

    fn measure_noise(&self, watch: &mut Watch) -> Result<Noise, LabError> {
        watch.measure(&dray_lab::placement::allowed(), &self.cancel)
    }

    /// Checks that the search finds the rate above which frames are dropped.
    fn searched(&self) -> Result<Check, LabError> {
        const CAPACITY: u64 = 40_000;
        const BURST: usize = 4;
        let plan = format!("rate={CAPACITY},queue={}", 2 * BURST);
        let trial = Duration::from_millis(200);
        let goal = Goal { trial, sum: 3 * trial, ..Goal::default() };
        let mut search = Search::new(vec![goal], 1000..=3 * CAPACITY);
        while let Some(next) = search.next() {
            let load = (Some(next.load as f64), BURST, 1);
            let (sent, received) = self.exchange(&plan, load, next.duration)?;
            // The plan drops frames by when they were due. What a busy machine keeps the sender
            // from sending says nothing about it, so `offered` is left out.
            let trial = Trial { sent: sent.sent, received: received.received, ..Trial::default() };
            let loss_ratio = loss_ratio(&trial);
            search.add(dray_search::Trial { load: next.load, duration: next.duration, loss_ratio });
        }
        let found = search.found()[0].lower.unwrap_or(0);
        let is_right = found.abs_diff(CAPACITY) as f64 <= TOLERANCE * CAPACITY as f64;
        Ok(Check {
            what: "highest rate without loss".to_owned(),
            expected: format!("{CAPACITY} pps ±1 %"),
            reported: format!("{found} pps, {} trials", search.count()),
            outcome: if is_right { Outcome::Right } else { Outcome::Wrong },
        })
    }
}

/// CPU times of the machine and of this process, whose threads are the roles.
struct OwnTime {
    cpus: BTreeMap<usize, CpuTimes>,
    used: Duration,
    at: Instant,
}

impl OwnTime {
    fn now() -> Result<Self, LabError> {
        let doing = |error| LabError::System { what: "/proc/stat".to_owned(), error };
        let cpus = cpu::read().map_err(doing)?;
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let used = Duration::new(used.tv_sec as u64, used.tv_nsec as u32);
        Ok(Self { cpus, used, at: Instant::now() })
    }

    /// Returns the activity of others since then.
    fn noise_since(&self) -> Result<Noise, LabError> {
        let now = Self::now()?;
        let used = now.used.saturating_sub(self.used);
        let cpus = dray_lab::placement::allowed();
        Ok(noise::between(&self.cpus, &now.cpus, &cpus, now.at - self.at, Some(used)))
    }
}

/// Checks that searches find the capacity of a simulated system: it varies from trial to trial, and
/// some trials are disturbed.
fn simulated() -> Check {
    const SEARCHES: u64 = 100;
    const CAPACITY: f64 = 1e6;
    let goal = Goal { sum: 7 * Goal::default().trial, ..Goal::default() };
    let near = (0..SEARCHES).filter(|&seed| {
        let mut random = crate::plan::order::Random::new(seed);
        let mut search = Search::new(vec![goal], 1..=100_000_000);
        while let Some(next) = search.next() {
            let capacity = CAPACITY * (1.0 + (random.share() - 0.5) * 0.005);
            let disturbed = if random.share() < 0.05 { 0.001 } else { 0.0 };
            let loss_ratio = (1.0 - capacity / next.load as f64).max(disturbed);
            search.add(dray_search::Trial { load: next.load, duration: next.duration, loss_ratio });
        }
        let found = search.found()[0].lower.unwrap_or(0) as f64;
        (found - CAPACITY).abs() <= TOLERANCE * CAPACITY
    });
    let near = near.count() as u64;
    Check {
        what: "highest rate without loss, simulated with noise".to_owned(),
        expected: format!("±1 % in 98 of {SEARCHES}"),
        reported: format!("{near} of {SEARCHES}"),
        outcome: if near + 2 >= SEARCHES { Outcome::Right } else { Outcome::Wrong },
    }
}

/// Runs `working`, a job that ends by itself, and `serving` until then. Returns the reports of
/// `serving` and `working`.
fn both(serving: Job, working: Job) -> Result<(Report, Report), RoleError> {
    let (end, own) = (Signal::default(), Signal::default());
    let mut serving = Role::open(serving, &PortUri::open, &|| ())?;
    let mut working = Role::open(working, &PortUri::open, &|| ())?;
    thread::scope(|scope| {
        let served = scope.spawn(|| {
            serving.connect(&end)?;
            serving.run(&end, None)
        });
        let worked = working.connect(&own).and_then(|()| working.run(&own, None));
        end.drain();
        let served = served.join().expect("roles do not panic");
        Ok((served?, worked?))
    })
}

fn failed(error: &RoleError) -> LabError {
    LabError::Container { container: "selfcheck".to_owned(), what: error.to_string() }
}

/// Number of frames by fate.
#[derive(Debug, PartialEq, Eq)]
struct Fates {
    lost: u64,
    duplicated: u64,
    reordered: u64,
}

impl Fates {
    /// Fates of `sent` frames by `plan`; the frames rotate through `flows` flows. Only a later
    /// frame of the same flow shows that a frame is late.
    fn of(plan: &Plan, sent: u64, flows: u16) -> Self {
        let mut fates = Self { lost: 0, duplicated: 0, reordered: 0 };
        let mut held = None;
        for number in 1..=sent {
            let is_each =
                |each: Option<u32>| each.is_some_and(|each| number % u64::from(each) == 0);
            if is_each(plan.drop) {
                fates.lost += 1;
                continue;
            }
            let is_double = is_each(plan.duplicate);
            fates.duplicated += u64::from(is_double);
            match held {
                None if is_each(plan.swap) && !is_double => held = Some(number),
                None => {}
                Some(earlier) => {
                    fates.reordered += u64::from((number - earlier) % u64::from(flows) == 0);
                    held = None;
                }
            }
        }
        fates
    }
}

impl Check {
    fn exact(what: String, expected: u64, reported: u64) -> Self {
        let outcome = if expected == reported { Outcome::Right } else { Outcome::Wrong };
        Self { what, expected: expected.to_string(), reported: reported.to_string(), outcome }
    }

    /// Checks a time. Frames are never early; how late they are also depends on the machine.
    fn time(what: &str, expected: Duration, ns: u64, noise: &Noise) -> Self {
        let ratio = ns as f64 / expected.as_nanos() as f64;
        // Histograms are precise to three digits.
        let outcome = if ratio < 0.999 {
            Outcome::Wrong
        } else if ratio <= 1.0 + TOLERANCE {
            Outcome::Right
        } else if noise.disturbed_trials > 0 {
            Outcome::Disturbed
        } else {
            Outcome::Wrong
        };
        let ms = |ns: u128| format!("{:.3} ms", ns as f64 / 1e6);
        Self {
            what: format!("{what} of round trips"),
            expected: format!("{} +1 %", ms(expected.as_nanos())),
            reported: ms(ns.into()),
            outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_impairments_are_counted_by_frame() {
        let plan = Plan { drop: Some(5), duplicate: Some(3), swap: Some(4), ..Plan::default() };
        // Of frames 1 to 11, 5 and 10 are dropped; 3, 6 and 9 duplicated; 4 and 8 overtaken.
        let fates = Fates { lost: 2, duplicated: 3, reordered: 2 };
        assert_eq!(Fates::of(&plan, 11, 1), fates);
        // Frame 4 is overtaken by 6; frame 8 by 9, which is of another flow.
        assert_eq!(Fates::of(&plan, 11, 2).reordered, 1);
        assert_eq!(Fates::of(&Plan { swap: Some(1), ..Plan::default() }, 5, 1).reordered, 2);
    }

    #[test]
    fn self_check_detects_wrong_figures() {
        assert_eq!(Check::exact(String::new(), 5, 5).outcome, Outcome::Right);
        assert_eq!(Check::exact(String::new(), 5, 6).outcome, Outcome::Wrong);
        let quiet = Noise::default();
        let busy = Noise { disturbed_trials: 1, ..quiet };
        let ms = Duration::from_millis(1);
        for (ns, in_quiet, in_noise) in [
            (1_000_000, Outcome::Right, Outcome::Right),
            (1_009_000, Outcome::Right, Outcome::Right),
            (1_011_000, Outcome::Wrong, Outcome::Disturbed),
            (4_000_000, Outcome::Wrong, Outcome::Disturbed),
            (990_000, Outcome::Wrong, Outcome::Wrong),
        ] {
            assert_eq!(Check::time("p50", ms, ns, &quiet).outcome, in_quiet, "{ns}");
            assert_eq!(Check::time("p50", ms, ns, &busy).outcome, in_noise, "{ns}");
        }
    }
}
