//! Our own switch as the target of violations.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dray_lab::placement;
use dray_switch::{
    DropReason, Flow, Mode, PortConfig, PortState, PortStatus, Switch, SwitchConfig, SwitchControl,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use super::neighbours::Neighbours;
use super::partner::Partner;
use super::timed::Timed;
use super::{Expect, HostileDriver, HostilePeer, Violation, wait_until};

/// A running switch with two workers, if there are CPUs for them, and ports that exchange frames
/// through each. Each hostile peer gets its own port and a partner; one worker receives from both.
pub struct Ours {
    switch: Switch,
    folder: TempDir,
    neighbours: Vec<Neighbours>,
}

/// Binds this thread, and threads that it starts, to these CPUs.
fn run_on(cpus: &[u32]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu as usize));
    sched_setaffinity(None, &set).expect("CPUs");
}

impl Ours {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cpus: Vec<u32> =
            placement::allowed().into_iter().take(2).map(|cpu| cpu as u32).collect();
        let config = SwitchConfig {
            mode: Mode::Patch,
            flow: Flow::Backpressure,
            cpus,
            ..SwitchConfig::default()
        };
        let switch = Switch::start(&config).expect("a switch");
        let mut ours = Self { switch, folder, neighbours: Vec::new() };
        // Each port goes to the worker that has the fewest: one sender's to the first worker, the
        // other's to the second.
        let (left, right) = (ours.add("left", "right"), ours.add("right", "left"));
        let (up, down) = (ours.add("up", "down"), ours.add("down", "up"));
        ours.neighbours = vec![Neighbours::start(&left, &right), Neighbours::start(&down, &up)];
        assert!(ours.neighbours_go_on(), "the neighbours cannot exchange frames");
        let cpu = |name: &str| ours.status(name).cpu;
        let workers = [cpu("left"), cpu("down")];
        assert!(config.cpus.len() == 1 || workers[0] != workers[1], "{workers:?}");
        ours
    }

    /// Measures how long frames of two neighbours take through the first worker while the second
    /// worker's driver repeats `violation`, or (`None`) while all peers conform. Returns all times,
    /// or `Err` if frames were lost.
    pub fn measure(violation: Option<&Violation>, time: Duration) -> Result<Vec<Duration>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let cpus: Vec<u32> =
            placement::allowed().into_iter().take(2).map(|cpu| cpu as u32).collect();
        assert_eq!(cpus.len(), 2, "a worker for the neighbours, and one for the peer");
        let config = SwitchConfig {
            mode: Mode::Patch,
            flow: Flow::Backpressure,
            cpus: cpus.clone(),
            // A polling worker would compete with the neighbours for its CPU.
            idle: dray_datapath::Idle::After(Duration::ZERO),
            ..SwitchConfig::default()
        };
        let switch = Switch::start(&config).expect("a switch");
        let ours = Self { switch, folder, neighbours: Vec::new() };
        // Ports go to the workers in turn; the ports in between stay unconnected.
        let (left, right) = (ours.add("left", "right"), ours.add("right", "left"));
        ours.add("first", "second");
        let peers = ours.add("peer", "friend");
        ours.add("second", "first");
        let friends = ours.add("friend", "peer");
        let cpu = |name: &str| ours.status(name).cpu;
        assert!(cpu("left") != cpu("peer") && cpu("peer") == cpu("friend"));
        // Like containers with CPUs of their own, each side runs on its worker's CPU. Otherwise the
        // two sides would compete for CPUs, whatever the switch does.
        run_on(&[cpu("left")]);
        let neighbours = Timed::start(&left, &right);
        run_on(&[cpu("peer")]);
        let mut partner = Partner::open(&friends);
        let start = Instant::now();
        while start.elapsed() < time {
            let Some(violation) = violation else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let mut peer = HostileDriver::connect(&peers);
            std::thread::scope(|scope| {
                let committing = scope.spawn(|| (violation.commit)(&mut peer));
                let answered = Instant::now();
                while !committing.is_finished() || answered.elapsed() < time / 4 {
                    partner.play();
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
        }
        run_on(&cpus);
        neighbours.finish()
    }

    fn neighbours_go_on(&self) -> bool {
        self.neighbours.iter().all(Neighbours::go_on)
    }

    fn add(&self, name: &str, pair: &str) -> PathBuf {
        self.add_with(name, pair, "")
    }

    fn add_with(&self, name: &str, pair: &str, query: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        self.add_port(name, pair, &format!("{}{query}", HostileDriver::port(&path)));
        path
    }

    fn add_port(&self, name: &str, pair: &str, uri: &str) {
        let port: PortConfig = format!("{name}={uri},pair={pair}").parse().expect("a port");
        self.switch.add_port(&port, Vec::new()).expect("a port");
    }

    fn status(&self, name: &str) -> PortStatus {
        let ports = self.switch.ports();
        ports.into_iter().find(|port| port.config.name.as_str() == name).expect("the port")
    }

    /// Makes a hostile peer commit `violation`. Returns the outcome, or `Err` if it is not the
    /// expected one.
    pub fn commit<L: HostilePeer>(
        &self,
        violation: &Violation<L>,
        number: usize,
    ) -> Result<String, String> {
        let (name, friend) = (format!("peer{number}"), format!("friend{number}"));
        let path = self.folder.path().join(&name);
        self.add_port(&name, &friend, &L::port(&path));
        let mut partner = Partner::open(&self.add(&friend, &name));
        let mut peer = L::connect(&path);
        std::thread::scope(|scope| {
            let committing = scope.spawn(|| (violation.commit)(&mut peer));
            while !committing.is_finished() {
                partner.play();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            committing.join().map_err(|_| "the peer failed".to_owned())
        })?;
        let outcome = self.check(violation.expect, &name, &mut partner, peer)?;

        if !self.neighbours_go_on() {
            return Err(format!("{outcome}, and then its neighbours received no frames"));
        }
        if !partner.exchange(&L::conforming(&path)) {
            let status = self.status(&name);
            return Err(format!(
                "{outcome}, and then its port did not serve another driver: {status:?}"
            ));
        }
        drop(partner);
        for port in [&name, &friend] {
            self.switch.remove_port(port).map_err(|error| error.to_string())?;
        }
        Ok(outcome)
    }

    fn check(
        &self,
        expect: Expect,
        name: &str,
        partner: &mut Partner,
        peer: impl HostilePeer,
    ) -> Result<String, String> {
        let mut status = self.status(name);
        let mut wait_for = |done: &dyn Fn(&PortStatus) -> bool| {
            wait_until(|| {
                partner.play();
                status = self.status(name);
                done(&status)
            });
            status.clone()
        };
        let malformed = |status: &PortStatus| status.counters.drops.get(DropReason::Malformed);
        let refused = |status: &PortStatus| {
            let because = status.last_disconnect.clone()?;
            (because != LEFT).then_some(because)
        };
        let wrong = |what: &str, status: &PortStatus| {
            Err(format!(
                "{what}: {:?}, {} malformed, {:?}",
                status.state,
                malformed(status),
                status.disconnects
            ))
        };
        match expect {
            Expect::Refused(part) => {
                let status =
                    wait_for(&|status| status.disconnects.keys().any(|because| because != LEFT));
                match refused(&status) {
                    Some(because) if because.contains(part) => Ok(because),
                    _ => wrong(&format!("expected {part:?}"), &status),
                }
            }
            Expect::Malformed | Expect::NoRoom | Expect::Harmless => {
                // Once the neighbours' frames have arrived, their worker has polled the hostile
                // peer too.
                self.neighbours_go_on();
                let reason = match expect {
                    Expect::Malformed => Some(DropReason::Malformed),
                    Expect::NoRoom => Some(DropReason::TooLong),
                    _ => None,
                };
                let counts = |status: &PortStatus, reason| status.counters.drops.get(reason) > 0;
                let status = wait_for(&|status| reason.is_none_or(|reason| counts(status, reason)));
                if !status.disconnects.is_empty() || status.state == PortState::Waiting {
                    return wrong("disconnected unexpectedly", &status);
                }
                if reason.is_some_and(|reason| !counts(&status, reason)) {
                    return wrong("no frames were counted", &status);
                }
                // Of a peer that hands over none, none are malformed.
                if matches!(expect, Expect::NoRoom) && malformed(&status) > 0 {
                    return wrong("frames were counted as malformed", &status);
                }
                drop(peer);
                let status = wait_for(&|status| !status.disconnects.is_empty());
                match status.last_disconnect.as_deref() {
                    Some(LEFT) => Ok(match reason {
                        Some(DropReason::Malformed) => "counted as malformed",
                        Some(_) => "counted as too long",
                        None => "nothing",
                    }
                    .to_owned()),
                    _ => wrong("disconnected unexpectedly", &status),
                }
            }
            Expect::Left => {
                let status = wait_for(&|status| {
                    !status.disconnects.is_empty() && status.state == PortState::Waiting
                });
                match status.disconnects.keys().all(|because| because == LEFT) {
                    true => Ok(LEFT.to_owned()),
                    false => wrong("disconnected unexpectedly", &status),
                }
            }
            Expect::Unnoticed => {
                self.neighbours_go_on();
                let status = wait_for(&|_| true);
                match status.disconnects.is_empty() && status.state == PortState::Waiting {
                    true => Ok("nothing".to_owned()),
                    false => wrong("the port noticed", &status),
                }
            }
            Expect::Any => {
                self.neighbours_go_on();
                drop(peer);
                let status = wait_for(&|status| !status.disconnects.is_empty());
                Ok(refused(&status).unwrap_or("nothing".to_owned()))
            }
        }
    }

    /// Returns the number of frames that the neighbours exchanged, or `Err` if they lost any.
    pub fn finish(self) -> Result<u64, String> {
        self.neighbours.into_iter().map(Neighbours::finish).sum()
    }

    /// Lets many drivers share 1 TiB each, then connects a well-behaved one. Returns how many
    /// drivers could share as much, and the reason why the others were refused.
    pub fn crowd(&self, count: usize) -> Result<(usize, String), String> {
        const SHARED: u64 = 1 << 40;
        let names: Vec<_> = (0..count).map(|number| format!("crowd{number}")).collect();
        let paths: Vec<_> = names
            .iter()
            .map(|name| self.add_with(name, &format!("{name}-friend"), "?memory=1T"))
            .collect();
        let mut peers: Vec<_> = paths.iter().map(|path| HostileDriver::connect(path)).collect();
        for peer in &mut peers {
            peer.share_holes(SHARED);
        }
        let refused = |name: &String| {
            let mut because = None;
            wait_until(|| {
                let status = self.status(name);
                because = status.last_disconnect;
                because.is_some() || status.state == PortState::Running
            });
            because
        };
        let reasons: Vec<_> = names.iter().filter_map(refused).collect();
        let last = reasons.last().cloned().unwrap_or_default();
        if !self.neighbours_go_on() {
            return Err("the neighbours receive no frames".to_owned());
        }
        drop(peers);
        for name in &names {
            wait_until(|| self.status(name).state == PortState::Waiting);
        }
        let (path, mut partner) =
            (self.add("late", "friend"), Partner::open(&self.add("friend", "late")));
        if !partner.exchange(&HostileDriver::conforming(&path)) {
            return Err(
                "a driver that connected after the others had left was not served".to_owned()
            );
        }
        Ok((count - reasons.len(), last))
    }
}

const LEFT: &str = "the peer disconnected";
