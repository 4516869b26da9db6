//! Checks of a configuration whose values are each valid by themselves.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use dray_daemon::check_socket_path;
use dray_port::{Bytes, GUARDED_IN_ALL};

use super::error::{ConfigError, Subject};
use super::{Flow, Mode, Pairs, PortConfig, SwitchConfig, Vlan};
use crate::error::SwitchError;
use crate::table::{AGE_MAX, CAPACITY_MAX, CAPACITY_MIN};

impl SwitchConfig {
    /// Checks everything that can be checked without opening a port. `cpus` are the available CPUs.
    pub fn check(&self, cpus: &[u32]) -> Result<(), ConfigError> {
        self.check_cpus(cpus)?;
        if self.flow == Flow::Backpressure && self.mode != Mode::Patch {
            let what =
                "only in mode \"patch\"; in others, one slow receiver would stop all senders";
            return Err(ConfigError::of_key("flow", "\"backpressure\"", what));
        }
        let ages = 1..=usize::from(AGE_MAX);
        check_range("age_s", self.age_s.into(), &ages)?;
        check_range("table_size", self.table_size, &(CAPACITY_MIN..=CAPACITY_MAX))?;
        check_range("port_addresses", self.port_addresses as usize, &(1..=self.table_size))?;
        if !(1..=GUARDED_IN_ALL).contains(&self.peer_memory.0) {
            let what = format!("give 1 to {}", Bytes(GUARDED_IN_ALL));
            return Err(ConfigError::of_key(
                "peer_memory",
                &format!("\"{}\"", self.peer_memory),
                &what,
            ));
        }
        check_socket_path(&self.control.path).map_err(|what| {
            ConfigError::of_key("control", &format!("{:?}", self.control.path), &what)
        })?;
        if let Some(number) = self.ports.iter().position(|port| port.fd > 0) {
            let name = self.ports[number].name.as_str();
            let what = "file descriptors come with a request to the control socket; leave out fd";
            let what = format!("port {name:?}: fd: {what}");
            return Err(ConfigError { line: None, subject: Subject::Port(number, "fd"), what });
        }
        self.check_ports().map(drop)
    }

    fn check_cpus(&self, cpus: &[u32]) -> Result<(), ConfigError> {
        for (number, cpu) in self.cpus.iter().enumerate() {
            if !cpus.contains(cpu) {
                let there: Vec<_> = cpus.iter().map(u32::to_string).collect();
                let what = format!("CPU {cpu} is not available; give some of {}", there.join(", "));
                return Err(ConfigError::of_key("cpus", &format!("{:?}", self.cpus), &what));
            }
            if self.cpus[..number].contains(cpu) {
                let what = format!("CPU {cpu} is given twice");
                return Err(ConfigError::of_key("cpus", &format!("{:?}", self.cpus), &what));
            }
        }
        Ok(())
    }

    /// Checks the ports, which may use file descriptors; returns the pairs of patch mode.
    pub(crate) fn check_ports(&self) -> Result<Pairs, ConfigError> {
        let mut pairs = Pairs::default();
        let mut owners = BTreeMap::<_, Vec<&PortConfig>>::new();
        let all: Vec<_> = self.ports.iter().collect();
        for (number, port) in self.ports.iter().enumerate() {
            let at =
                |key, what| ConfigError { line: None, subject: Subject::Port(number, key), what };
            if self.ports[..number].iter().any(|other| other.name == port.name) {
                return Err(at(
                    "name",
                    format!("port {:?}: the name is taken", port.name.as_str()),
                ));
            }
            if let Some(error) = SwitchError::shared(port, &self.ports[..number]) {
                return Err(at("uri", error.to_string()));
            }
            for mac in &port.macs {
                let owners = owners.entry(mac).or_default();
                let owner = owners.iter().find(|owner| owner.vlan.meets(&port.vlan));
                if let Some(owner) = owner {
                    let names = [port, *owner].map(|port| port.name.as_str().to_owned());
                    let [name, owner] = names;
                    let error = SwitchError::AddressTaken(name, *mac, owner);
                    return Err(at("mac", error.to_string()));
                }
                owners.push(port);
            }
            self.check_port(port)
                .map_err(|error| ConfigError { subject: error.subject.in_port(number), ..error })?;
            if let Some(what) = wrong_mirror(port, &all) {
                return Err(at("mirror", what));
            }
            if self.mode == Mode::Patch && port.mirror.is_empty() {
                pairs.add(port).map_err(|error| at("pair", error.to_string()))?;
            }
        }
        match pairs.waiting() {
            None => Ok(pairs),
            Some(error) => {
                let of = |port: &PortConfig| port.name == *Pairs::culprit(&error);
                let number = self.ports.iter().position(of).unwrap_or(0);
                let subject = Subject::Port(number, "pair");
                Err(ConfigError { line: None, subject, what: error.to_string() })
            }
        }
    }

    /// Checks that `port` has only keys that this mode allows. Conflicts with other ports are not
    /// checked.
    pub fn check_port(&self, port: &PortConfig) -> Result<(), ConfigError> {
        if port.uri.socket_path() == Some(&self.control.path) {
            let (name, path) = (port.name.as_str(), self.control.path.display());
            let what =
                format!("port {name:?}: {path} is the switch's control socket; give another path");
            return Err(ConfigError { line: None, subject: Subject::Key("uri"), what });
        }
        let vlan = match port.vlan {
            Vlan::Unaware => None,
            Vlan::Access(_) => Some("vlan"),
            Vlan::Trunk { .. } => Some("trunk"),
        };
        let (key, mode) = match self.mode {
            Mode::Patch => {
                let group = port.group.as_ref().map(|_| "group");
                let mac = (!port.macs.is_empty()).then_some("mac");
                let storm = port.storm.map(|_| "storm");
                let reserved = port.forwards_reserved.then_some("reserved");
                (vlan.or(group).or(mac).or(storm).or(reserved), "learning")
            }
            Mode::Learning => (port.pair.as_ref().map(|_| "pair"), "patch"),
        };
        let Some(key) = key else { return Ok(()) };
        let what = format!("port {:?}: {key}: only in mode {mode:?}", port.name.as_str());
        Err(ConfigError { line: None, subject: Subject::Key(key), what })
    }
}

/// Returns what is wrong with the ports that `port` mirrors, if anything.
pub(crate) fn wrong_mirror(port: &PortConfig, others: &[&PortConfig]) -> Option<String> {
    let name = port.name.as_str();
    port.mirror.iter().find_map(|source| {
        let source = source.as_str();
        match others.iter().find(|other| other.name.as_str() == source) {
            Some(other) if other.mirror.is_empty() => None,
            Some(_) => Some(format!("port {name:?}: mirror: {source:?} is a mirror itself")),
            None => {
                let names = others.iter().map(|other| other.name.as_str());
                let names: Vec<_> = names.filter(|other| *other != name).collect();
                let names = names.join(", ");
                Some(format!("port {name:?}: mirror: no such port: {source:?}; there are: {names}"))
            }
        }
    })
}

fn check_range(
    name: &'static str,
    given: usize,
    allowed: &RangeInclusive<usize>,
) -> Result<(), ConfigError> {
    if allowed.contains(&given) {
        return Ok(());
    }
    let what = format!("allowed is {} to {}", allowed.start(), allowed.end());
    Err(ConfigError::of_key(name, &given.to_string(), &what))
}
