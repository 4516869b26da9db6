//! Our own switch, lied to.

use std::path::PathBuf;

use dray_lab::placement;
use dray_switch::{
    DropReason, Engine, Flow, Mode, PortConfig, PortState, PortStatus, Switch, SwitchConfig,
};
use tempfile::TempDir;

use super::neighbours::Neighbours;
use super::partner::Partner;
use super::{Expect, Liar, Lie, wait_until};

/// A running switch with two ports that exchange frames. Each liar gets a port of its own, and a
/// partner.
pub struct Ours {
    switch: Switch,
    folder: TempDir,
    neighbours: Option<Neighbours>,
}

impl Ours {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cpu = *placement::allowed().first().expect("a CPU");
        let config = SwitchConfig {
            mode: Mode::Patch,
            flow: Flow::Backpressure,
            cpus: vec![cpu as u32],
            ..SwitchConfig::default()
        };
        let mut ours =
            Self { switch: Switch::start(&config).expect("a switch"), folder, neighbours: None };
        let (left, right) = (ours.add("left", "right"), ours.add("right", "left"));
        ours.neighbours = Some(Neighbours::start(&left, &right));
        assert!(ours.neighbours().go_on(), "the neighbours cannot exchange frames");
        ours
    }

    fn neighbours(&self) -> &Neighbours {
        self.neighbours.as_ref().expect("there until the end")
    }

    fn add(&self, name: &str, pair: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        let port: PortConfig =
            format!("{name}=vhost:{},pair={pair}", path.display()).parse().expect("a port");
        self.switch.add_port(&port).expect("a port");
        path
    }

    fn status(&self, name: &str) -> PortStatus {
        let ports = self.switch.ports();
        ports.into_iter().find(|port| port.config.name.as_str() == name).expect("the port")
    }

    /// Lets a liar tell `lie`. What became of it, or what should not have.
    pub fn hear(&self, lie: &Lie, number: usize) -> Result<String, String> {
        let (name, friend) = (format!("liar{number}"), format!("friend{number}"));
        let path = self.add(&name, &friend);
        let mut partner = Partner::open(&self.add(&friend, &name));
        let mut liar = Liar::connect(&path);
        std::thread::scope(|scope| {
            let telling = scope.spawn(|| (lie.tell)(&mut liar));
            while !telling.is_finished() {
                partner.play();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            telling.join().map_err(|_| "the liar failed".to_owned())
        })?;
        let outcome = self.judge(lie.expect, &name, &mut partner, liar)?;

        if !self.neighbours().go_on() {
            return Err(format!("{outcome}, and its neighbours hear nothing any more"));
        }
        if !partner.exchange(&path) {
            let status = self.status(&name);
            return Err(format!("{outcome}, and then its port took no other driver: {status:?}"));
        }
        drop(partner);
        for port in [&name, &friend] {
            self.switch.remove_port(port).map_err(|error| error.to_string())?;
        }
        Ok(outcome)
    }

    fn judge(
        &self,
        expect: Expect,
        name: &str,
        partner: &mut Partner,
        liar: Liar,
    ) -> Result<String, String> {
        let mut status = self.status(name);
        let mut wait_for = |done: fn(&PortStatus) -> bool| {
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
                    wait_for(|status| status.disconnects.keys().any(|because| because != LEFT));
                match refused(&status) {
                    Some(because) if because.contains(part) => Ok(because),
                    _ => wrong(&format!("expected {part:?}"), &status),
                }
            }
            Expect::Malformed | Expect::Harmless => {
                let counted = matches!(expect, Expect::Malformed);
                // Whoever polls the neighbours has polled the liar meanwhile.
                self.neighbours().go_on();
                let status = match counted {
                    true => wait_for(|status| status.counters.drops.get(DropReason::Malformed) > 0),
                    false => wait_for(|_| true),
                };
                if !status.disconnects.is_empty() || status.state == PortState::Waiting {
                    return wrong("it should be there still", &status);
                }
                if counted && malformed(&status) == 0 {
                    return wrong("nothing was counted", &status);
                }
                drop(liar);
                let status = wait_for(|status| !status.disconnects.is_empty());
                match status.last_disconnect.as_deref() {
                    Some(LEFT) if counted => Ok("counted as malformed".to_owned()),
                    Some(LEFT) => Ok("nothing".to_owned()),
                    _ => wrong("it left", &status),
                }
            }
            Expect::Left => {
                let status = wait_for(|status| {
                    !status.disconnects.is_empty() && status.state == PortState::Waiting
                });
                match status.disconnects.keys().all(|because| because == LEFT) {
                    true => Ok(LEFT.to_owned()),
                    false => wrong("it left", &status),
                }
            }
            Expect::Any => {
                self.neighbours().go_on();
                drop(liar);
                let status = wait_for(|status| !status.disconnects.is_empty());
                Ok(refused(&status).unwrap_or("nothing".to_owned()))
            }
        }
    }

    /// Whether the neighbours lost anything all the while; how many frames they exchanged.
    pub fn finish(mut self) -> Result<u64, String> {
        self.neighbours.take().expect("there until the end").finish()
    }
}

const LEFT: &str = "the peer disconnected";
