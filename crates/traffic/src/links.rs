//! The peers of a role's ports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_port::{Link, LinkState, LinkStatus, Port, PortUri};
use dray_results::Agreement;

use crate::{Phase, RoleError, Signal};

/// Time that a peer may take to connect.
const PATIENCE: Duration = Duration::from_secs(15);

/// Ports of a role that have a peer.
#[derive(Default)]
pub(crate) struct Links(Vec<(PortUri, Arc<dyn Link>)>);

impl Links {
    pub(crate) fn add(&mut self, uri: &PortUri, port: &Port) {
        self.0.extend(port.link.iter().map(|link| (uri.clone(), link.clone())));
    }

    /// Returns the outcome of the negotiation for each connected port.
    pub(crate) fn agreements(&self) -> Vec<Agreement> {
        let statuses = self.0.iter().map(|(uri, link)| (uri, link.status()));
        let running = statuses.filter(|(_, status)| status.state == LinkState::Running);
        let agreement = |(uri, status): (&PortUri, LinkStatus)| Agreement {
            port: uri.to_string(),
            features: status.features,
        };
        running.map(agreement).collect()
    }

    /// Waits until frames can pass, or until `signal` ends the role.
    pub(crate) fn wait_until_running(&self, signal: &Signal) -> Result<(), RoleError> {
        let deadline = Instant::now() + PATIENCE;
        for (uri, link) in &self.0 {
            while link.status().state != LinkState::Running && signal.phase() == Phase::Run {
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
