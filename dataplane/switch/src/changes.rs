//! Differences between the ports of a running switch and those of a configuration file.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::{KEYS, Name, Pairs, PortConfig, SwitchConfig};
use crate::error::SwitchError;

/// Differences between a running switch and a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Ports that differ: those of the file in its order, then those that are removed.
    pub ports: Vec<Change>,
    /// Number of ports of the file that do not differ.
    pub unchanged: usize,
    /// Ports that do not come from a file, and stay.
    pub others: Vec<Name>,
}

/// A port that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Name of the port.
    pub port: Name,
    /// Effect on the port.
    pub change: Kind,
    /// Keys that differ; of a port that is added or removed, all of its keys.
    pub keys: Vec<KeyChange>,
}

/// Effect of a file on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It is added.
    Added,
    /// It is removed.
    Removed,
    /// It is changed; with another URI, it is closed and opened again.
    Changed,
}

/// A key of a port that differs. `None`: the port does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// Name of the key. `partner` is the other port of its pair, if that follows from the order of
    /// the ports.
    pub key: String,
    /// Value in the running switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// Value in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

/// A line for each port that differs: `+ c: uri vhost:/run/dray/c.sock`, `~ b: vlan 10 -> 20`.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Change { port, change, keys } in &self.ports {
            let sign = match change {
                Kind::Added => '+',
                Kind::Removed => '-',
                Kind::Changed => '~',
            };
            let value = |value: &Option<Value>| value.as_ref().map_or("none".to_owned(), shown);
            let key = |KeyChange { key, old, new }: &KeyChange| match change {
                Kind::Added => format!("{key} {}", value(new)),
                Kind::Removed => format!("{key} {}", value(old)),
                Kind::Changed => format!("{key} {} -> {}", value(old), value(new)),
            };
            let keys: Vec<_> = keys.iter().map(key).collect();
            writeln!(f, "{sign} {port}: {}", keys.join(", "))?;
        }
        writeln!(f, "unchanged: {}", self.unchanged)?;
        if !self.others.is_empty() {
            let names: Vec<_> = self.others.iter().map(Name::as_str).collect();
            writeln!(f, "not from a file, left alone: {}", names.join(", "))?;
        }
        Ok(())
    }
}

/// Returns a value as the command line has it.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join("+"),
        Value::Null => "none".to_owned(),
        value => value.to_string(),
    }
}

/// Returns the keys of a JSON object.
pub(crate) fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// A port that runs, and its partner in patch mode.
pub(crate) type Running = (PortConfig, Option<Name>);

/// Steps from the ports that run to those that are wanted.
#[derive(Debug)]
pub(crate) struct Plan {
    /// All ports afterwards: those of the file, then the others.
    pub(crate) ports: Vec<Name>,
    pub(crate) pairs: Pairs,
    pub(crate) open: Vec<PortConfig>,
    pub(crate) close: Vec<PortConfig>,
    /// Ports that stay open, with other keys.
    pub(crate) alter: Vec<PortConfig>,
    pub(crate) changes: Changes,
}

impl Plan {
    /// Plans the change from `running` to the ports of `wanted`, the configuration from a file. The
    /// one `before` had these names.
    pub(crate) fn new(
        running: &[Running],
        wanted: &SwitchConfig,
        before: &[Name],
    ) -> Result<Self, SwitchError> {
        let in_file = |name: &Name| wanted.ports.iter().any(|port| port.name == *name);
        let rest = running.iter().filter(|(port, _)| !in_file(&port.name));
        let (removed, others): (Vec<_>, Vec<_>) =
            rest.partition(|(port, _)| port.fd == 0 && before.contains(&port.name));
        let all = wanted.ports.iter().chain(others.iter().map(|(port, _)| port)).cloned();
        let all = SwitchConfig { ports: all.collect(), ..wanted.clone() };
        let pairs = all.check_ports()?;
        let mut close: Vec<_> = removed.iter().map(|(port, _)| port.clone()).collect();
        let (mut open, mut alter) = (Vec::new(), Vec::new());
        let mut changes = Changes::default();
        for new in &all.ports {
            let name = &new.name;
            let Some((old, partner)) = running.iter().find(|(port, _)| port.name == *name) else {
                open.push(new.clone());
                changes.push(name, Kind::Added, differences(None, Some(new)));
                continue;
            };
            if old.fd != new.fd {
                return Err(SwitchError::NameTaken(name.as_str().to_owned()));
            }
            let mut keys = differences(Some(old), Some(new));
            if old.uri != new.uri {
                close.push(old.clone());
                open.push(new.clone());
            } else if old != new {
                alter.push(new.clone());
            }
            let next = pairs.partner(name);
            if next != partner.as_ref() && old.pair == new.pair {
                let value = |name: Option<&Name>| name.map(|name| name.as_str().into());
                let (old, new) = (value(partner.as_ref()), value(next));
                keys.push(KeyChange { key: "partner".to_owned(), old, new });
            }
            if !keys.is_empty() {
                changes.push(name, Kind::Changed, keys);
            } else if in_file(name) {
                changes.unchanged += 1;
            }
        }
        for (old, _) in &removed {
            changes.push(&old.name, Kind::Removed, differences(Some(old), None));
        }
        changes.others = others.iter().map(|(port, _)| port.name.clone()).collect();
        let ports = all.ports.into_iter().map(|port| port.name).collect();
        Ok(Self { ports, pairs, open, close, alter, changes })
    }
}

impl Changes {
    fn push(&mut self, port: &Name, change: Kind, keys: Vec<KeyChange>) {
        self.ports.push(Change { port: port.clone(), change, keys });
    }
}

/// Returns the keys that differ, in the order of the documentation.
fn differences(old: Option<&PortConfig>, new: Option<&PortConfig>) -> Vec<KeyChange> {
    let [old, new] = [old, new].map(|port| port.map(object).unwrap_or_default());
    let keys = ["uri"].into_iter().chain(KEYS.iter().map(|key| key.name));
    let differing = keys.filter(|key| old.get(*key) != new.get(*key));
    let change = |key: &str| KeyChange {
        key: key.to_owned(),
        old: old.get(key).cloned(),
        new: new.get(key).cloned(),
    };
    differing.map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;

    /// Plans the change to the ports `file` of a switch that runs `running`, of which those
    /// `before` come from a file.
    fn plan(mode: Mode, running: &str, before: &str, file: &str) -> Result<Plan, SwitchError> {
        let ports = |text: &str| -> Vec<PortConfig> {
            text.split_whitespace().map(|port| port.parse().unwrap()).collect()
        };
        let config =
            |text: &str| SwitchConfig { mode, ports: ports(text), ..SwitchConfig::default() };
        let mut now = config(running);
        let pairs = now.check_ports().unwrap();
        now.ports.iter_mut().for_each(|port| port.fd = port.name.as_str().starts_with("fd").into());
        let partner = |port: &PortConfig| pairs.partner(&port.name).cloned();
        let running: Vec<_> = now.ports.iter().map(|port| (port.clone(), partner(port))).collect();
        let before: Vec<_> = before.split_whitespace().map(|name| name.parse().unwrap()).collect();
        Plan::new(&running, &config(file), &before)
    }

    fn names(ports: &[PortConfig]) -> String {
        ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn plan_opens_closes_and_alters_what_differs() {
        let patch = Mode::Patch;
        for (mode, [running, before, file], [open, close, alter], said) in [
            (Mode::Learning, ["", "", ""], ["", "", ""], "unchanged: 0\n"),
            (
                Mode::Learning,
                ["a=null:", "a", "a=null: b=vhost:/b,trunk=1+2,native=2"],
                ["b", "", ""],
                "+ b: uri vhost:/b, trunk 1+2, native 2\nunchanged: 1\n",
            ),
            (
                Mode::Learning,
                ["a=null: b=null: fd=vhost:/c x=null:", "a b fd", "b=null:"],
                ["", "a", ""],
                "- a: uri null:\nunchanged: 1\nnot from a file, left alone: fd, x\n",
            ),
            (
                Mode::Learning,
                [
                    "a=vhost:/a,vlan=1 b=vhost:/b",
                    "a b",
                    "b=vhost:/b?queues=2 a=vhost:/a,storm=1kpps",
                ],
                ["b", "b", "a"],
                "~ b: uri vhost:/b -> vhost:/b?queues=2\n\
                 ~ a: vlan 1 -> none, storm none -> 1kpps\nunchanged: 0\n",
            ),
            // An address moves from one port to another, and a name to another socket.
            (
                Mode::Learning,
                [
                    "a=null:,mac=02:00:00:00:00:01 b=vhost:/b",
                    "a b",
                    "b=null:,mac=02:00:00:00:00:01 a=vhost:/b",
                ],
                ["b a", "b a", ""],
                "~ b: uri vhost:/b -> null:, mac none -> 02:00:00:00:00:01\n\
                 ~ a: uri null: -> vhost:/b, mac 02:00:00:00:00:01 -> none\nunchanged: 0\n",
            ),
            // Pairs are those of a start: others of a port change, too.
            (
                patch,
                ["a=null: b=null: x=null:", "a b", "c=null: a=null: b=null:"],
                ["c", "", ""],
                "+ c: uri null:\n~ a: partner b -> c\n~ b: partner a -> x\n~ x: partner none -> b\n\
                 unchanged: 0\nnot from a file, left alone: x\n",
            ),
            (
                patch,
                ["a=null: b=null:", "a b", "a=null:,pair=b b=null:"],
                ["", "", "a"],
                "~ a: pair none -> b\nunchanged: 1\n",
            ),
            (
                patch,
                ["a=null: b=null: m=null:,mirror=a", "a b m", "a=null: b=null: m=null:,mirror=a+b"],
                ["", "", "m"],
                "~ m: mirror a -> a+b\nunchanged: 2\n",
            ),
        ] {
            let plan = plan(mode, running, before, file).unwrap();
            assert_eq!(plan.changes.to_string(), said, "{running} -> {file}");
            let [opened, closed, altered] =
                [&plan.open, &plan.close, &plan.alter].map(|ports| names(ports));
            assert_eq!(
                [&*opened, &*closed, &*altered],
                [open, close, alter],
                "{running} -> {file}"
            );
            let json = serde_json::to_string(&plan.changes).unwrap();
            assert_eq!(serde_json::from_str::<Changes>(&json).unwrap(), plan.changes);
        }
    }

    #[test]
    fn plan_is_checked_together_with_ports_that_stay() {
        for (mode, running, file, part) in [
            (Mode::Learning, "fd=vhost:/a", "fd=vhost:/a", "port \"fd\": the name is taken"),
            (
                Mode::Learning,
                "x=vhost:/a",
                "a=vhost:/a",
                "port \"x\": socket /a is already used by port \"a\"",
            ),
            (
                Mode::Learning,
                "x=null:,mac=02:00:00:00:00:01",
                "a=null:,mac=02:00:00:00:00:01",
                "mac: 02:00:00:00:00:01 is pinned to port \"a\"",
            ),
            (
                Mode::Learning,
                "a=null: b=null:",
                "b=null:,mirror=c",
                "no such port: \"c\"; there are: a",
            ),
            (
                Mode::Learning,
                "a=null: m=null:,mirror=a",
                "b=null:,mirror=m",
                "\"m\" is a mirror itself",
            ),
            (Mode::Patch, "a=null: b=null:,pair=a", "c=null:,pair=a", "already paired with \"c\""),
        ] {
            let why = plan(mode, running, "", file).unwrap_err().to_string();
            assert!(why.contains(part), "{running} -> {file}: {why}");
        }
        // Descriptors are of another network namespace.
        plan(Mode::Learning, "fd=vhost:/a", "fd", "a=vhost:/a").unwrap();
    }
}
