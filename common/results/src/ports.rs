//! Load of a switch with many ports.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Load of a switch with many ports: half of the active ports send frames to the other half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortLoad {
    /// Number of ports, each with a peer.
    pub ports: u16,
    /// Number of ports with traffic: half of them send, half receive; the peers of the others are
    /// silent.
    pub active: u16,
    /// Ports that exchange frames.
    pub traffic: Traffic,
    /// Number of stations behind each receiving port.
    pub stations: u16,
}

/// Ports that exchange frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// Each sending port has one receiving port.
    Pairs,
    /// Each sending port sends to all receiving ports in turn, frame by frame.
    All,
}

impl PortLoad {
    /// Creates the load of pairs among `ports` ports, all with traffic.
    pub const fn pairs(ports: u16) -> Self {
        Self { ports, active: ports, traffic: Traffic::Pairs, stations: 1 }
    }

    /// Creates the load of `ports` ports, each of which sends to all that receive, or receives.
    pub const fn all(ports: u16) -> Self {
        Self { traffic: Traffic::All, ..Self::pairs(ports) }
    }

    /// Returns the load with `silent` more ports, whose peers are silent.
    pub const fn with_silent(self, silent: u16) -> Self {
        Self { ports: self.ports + silent, ..self }
    }

    /// Returns the load with at least `stations` stations behind the receiving ports together.
    pub const fn with_stations(self, stations: u16) -> Self {
        Self { stations: stations.div_ceil(self.active / 2), ..self }
    }

    /// Returns the number of ports whose peers are silent.
    pub const fn silent(self) -> u16 {
        self.ports - self.active
    }

    /// Returns the number of stations behind all receiving ports together.
    pub const fn all_stations(self) -> u16 {
        self.stations * (self.active / 2)
    }
}

/// Formats as `64 ports, 62 of them silent, in pairs, 1 station`.
impl fmt::Display for PortLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ports", self.ports)?;
        if self.silent() > 0 {
            write!(f, ", {} of them silent", self.silent())?;
        }
        let noun = if self.all_stations() == 1 { "station" } else { "stations" };
        write!(f, ", {}, {} {noun}", self.traffic, self.all_stations())
    }
}

/// Formats as `in pairs` or `all to all`.
impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pairs => "in pairs",
            Self::All => "all to all",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_spread_over_receiving_ports() {
        let load = PortLoad::pairs(64).with_stations(10_000);
        assert_eq!((load.stations, load.all_stations()), (313, 10_016));
        assert_eq!(PortLoad::all(8).all_stations(), 4);
        let silent = PortLoad::pairs(2).with_silent(62);
        assert_eq!((silent.ports, silent.all_stations()), (64, 1));
        assert_eq!(silent.to_string(), "64 ports, 62 of them silent, in pairs, 1 station");
    }
}
