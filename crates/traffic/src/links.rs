//! The peers of a role's ports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_port::{Link, LinkState, Port, PortUri};

use crate::{Phase, RoleError, Signal};

/// How long a peer may take to come.
const PATIENCE: Duration = Duration::from_secs(15);

/// Those of a role's ports that have a peer.
#[derive(Default)]
pub(crate) struct Links(Vec<(PortUri, Arc<dyn Link>)>);

impl Links {
    pub(crate) fn add(&mut self, uri: &PortUri, port: &Port) {
        self.0.extend(port.link.iter().map(|link| (uri.clone(), link.clone())));
    }

    /// What was agreed on so far, in a line for each port that had a choice.
    pub(crate) fn agreements(&self) -> Vec<String> {
        let statuses = self.0.iter().map(|(uri, link)| (uri, link.status()));
        let running = statuses.filter(|(_, status)| status.state == LinkState::Running);
        running.map(|(uri, status)| format!("{uri}: {}", status.features.join(", "))).collect()
    }

    /// Waits until frames can pass, or `signal` ends the role.
    pub(crate) fn wait_until_running(&self, signal: &Signal) -> Result<(), RoleError> {
        let deadline = Instant::now() + PATIENCE;
        for (uri, link) in &self.0 {
            while link.status().state != LinkState::Running && signal.phase() != Phase::Stop {
                if Instant::now() > deadline {
                    let why =
                        link.status().last_end.map_or(String::new(), |end| format!(": {end}"));
                    return Err(RoleError::NoPeer { port: uri.to_string(), why });
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}
