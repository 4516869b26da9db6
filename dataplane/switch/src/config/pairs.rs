//! Pairing of ports in patch mode.

use std::collections::BTreeMap;

use super::name::Name;
use super::port::PortConfig;

/// The pairs of patch mode. Ports are added one at a time, from a configuration or while the switch
/// runs. A pair lasts until one of its ports is removed.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Every port in the order of adding, with the partner it asks for and the one it has.
    ports: Vec<PairedPort>,
}

#[derive(Clone, Debug)]
struct PairedPort {
    name: Name,
    wish: Option<Name>,
    partner: Option<Name>,
}

/// The port cannot be paired with the port that it names.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("port {port:?}: pair = {pair:?}: {what}", port = port.as_str(), pair = pair.as_str())]
pub struct PairError {
    port: Name,
    pair: Name,
    what: String,
}

impl Pairs {
    /// Adds `port` and returns its partner, if it has one now. A port that names its partner waits
    /// for that port; others are paired in the order of adding.
    pub fn add(&mut self, port: &PortConfig) -> Result<Option<Name>, PairError> {
        let name = &port.name;
        let partner = match &port.pair {
            Some(pair) => self.named(name, pair).map_err(|what| PairError {
                port: name.clone(),
                pair: pair.clone(),
                what,
            })?,
            None => self.next(name),
        };
        for other in &mut self.ports {
            if partner.as_ref() == Some(&other.name) {
                other.partner = Some(name.clone());
            }
        }
        let port =
            PairedPort { name: name.clone(), wish: port.pair.clone(), partner: partner.clone() };
        self.ports.push(port);
        Ok(partner)
    }

    fn named(&self, name: &Name, pair: &Name) -> Result<Option<Name>, String> {
        let waits_for =
            |wish| self.ports.iter().find(move |other| other.wish.as_ref() == Some(wish));
        if pair == name {
            return Err("a port cannot be its own pair".to_owned());
        }
        if let Some(other) = waits_for(name).filter(|other| other.name != *pair) {
            return Err(format!(
                "port {:?} already names {:?} as its pair",
                other.name.as_str(),
                name.as_str()
            ));
        }
        match self.ports.iter().find(|other| other.name == *pair) {
            Some(PairedPort { partner: Some(with), .. }) => {
                Err(format!("port {:?} is already paired with {:?}", pair.as_str(), with.as_str()))
            }
            Some(PairedPort { wish: Some(wish), .. }) if wish != name => {
                Err(format!("port {:?} names {:?} as its pair", pair.as_str(), wish.as_str()))
            }
            Some(_) => Ok(Some(pair.clone())),
            None => match waits_for(pair) {
                Some(other) => {
                    Err(format!("port {:?} already names it as its pair", other.name.as_str()))
                }
                None => Ok(None),
            },
        }
    }

    /// Returns the port that waits for `name`, else the first free port that names no partner.
    fn next(&self, name: &Name) -> Option<Name> {
        let free = || self.ports.iter().filter(|other| other.partner.is_none());
        let waiting = free().find(|other| other.wish.as_ref() == Some(name));
        let other = waiting.or_else(|| free().find(|other| other.wish.is_none()))?;
        Some(other.name.clone())
    }

    /// Sets the partner of a port as another switch had it.
    pub fn restore(&mut self, name: &Name, partner: Option<Name>) {
        if let Some(port) = self.ports.iter_mut().find(|port| port.name == *name) {
            port.partner = partner;
        }
    }

    /// Removes a port and returns its former partner, which is free again.
    pub fn remove(&mut self, name: &Name) -> Option<Name> {
        let at = self.ports.iter().position(|port| port.name == *name)?;
        let partner = self.ports.remove(at).partner?;
        for other in &mut self.ports {
            if other.name == partner {
                other.partner = None;
            }
        }
        Some(partner)
    }

    /// Returns the port that `name` exchanges frames with.
    pub fn partner(&self, name: &Name) -> Option<&Name> {
        self.ports.iter().find(|port| port.name == *name)?.partner.as_ref()
    }

    /// Returns all pairs, each once.
    pub fn all(&self) -> BTreeMap<&Name, &Name> {
        let mut pairs = BTreeMap::new();
        for port in &self.ports {
            if let Some(partner) = &port.partner
                && !pairs.contains_key(partner)
            {
                pairs.insert(&port.name, partner);
            }
        }
        pairs
    }

    /// Returns an error for a port that names a partner that does not exist.
    pub(super) fn waiting(&self) -> Option<PairError> {
        let there = |name: &Name| self.ports.iter().any(|port| port.name == *name);
        let names: Vec<_> = self.ports.iter().map(|port| port.name.as_str()).collect();
        self.ports.iter().find_map(|port| {
            let pair = port.wish.as_ref().filter(|wish| !there(wish))?.clone();
            let what = format!("no such port; the ports are {}", names.join(", "));
            Some(PairError { port: port.name.clone(), pair, what })
        })
    }

    /// Returns the port that the error is about.
    pub(super) fn culprit(error: &PairError) -> &Name {
        &error.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(text: &str) -> PortConfig {
        text.parse().unwrap()
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn pairs(ports: &[&str]) -> Result<String, String> {
        let mut pairs = Pairs::default();
        for text in ports {
            pairs.add(&port(text)).map_err(|error| error.to_string())?;
        }
        pairs.waiting().map_or(Ok(()), |error| Err(error.to_string()))?;
        let all: Vec<_> = pairs.all().iter().map(|(a, b)| format!("{a}-{b}")).collect();
        Ok(all.join(" "))
    }

    #[test]
    fn ports_pair_by_name_then_in_order() {
        for (ports, expected) in [
            (&["a=null:", "b=null:", "c=null:", "d=null:", "e=null:"][..], "a-b c-d"),
            (&["a=null:,pair=c", "b=null:", "c=null:", "d=null:"], "a-c b-d"),
            (&["a=null:", "b=null:,pair=a"], "a-b"),
            (&["a=null:,pair=b", "b=null:,pair=a"], "a-b"),
            (&["a=null:,pair=c", "b=null:,pair=d", "c=null:", "d=null:,pair=b"], "a-c b-d"),
        ] {
            assert_eq!(pairs(ports).as_deref(), Ok(expected), "{ports:?}");
        }
    }

    #[test]
    fn pair_errors_name_both_ports() {
        for (ports, parts) in [
            (&["a=null:,pair=a"][..], ["port \"a\": pair = \"a\"", "its own"]),
            (&["a=null:,pair=x", "b=null:"], ["port \"a\": pair = \"x\"", "the ports are a, b"]),
            (&["a=null:", "b=null:", "c=null:,pair=a"], ["port \"c\": pair = \"a\"", "with \"b\""]),
            (
                &["a=null:,pair=b", "c=null:,pair=a", "b=null:"],
                ["port \"c\": pair = \"a\"", "port \"a\" names \"b\""],
            ),
            (
                &["a=null:,pair=c", "x=null:", "c=null:,pair=x"],
                ["port \"c\": pair = \"x\"", "\"a\" already names \"c\""],
            ),
            (&["a=null:,pair=c", "b=null:,pair=c"], ["pair = \"c\"", "\"a\" already names it"]),
        ] {
            let message = pairs(ports).unwrap_err();
            for part in parts {
                assert!(message.contains(part), "{ports:?}: {message}");
            }
        }
    }

    #[test]
    fn removing_port_keeps_other_pairs() {
        let mut pairs = Pairs::default();
        for text in ["a=null:", "b=null:", "c=null:", "d=null:"] {
            pairs.add(&port(text)).unwrap();
        }
        assert_eq!(pairs.remove(&name("b")), Some(name("a")));
        assert_eq!(pairs.partner(&name("a")), None);
        assert_eq!(pairs.partner(&name("d")), Some(&name("c")));
        assert_eq!(pairs.add(&port("e=null:")), Ok(Some(name("a"))));
        assert_eq!(pairs.remove(&name("x")), None);
    }
}
