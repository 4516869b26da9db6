//! The peers of a role, and what it waits for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dray_port::{Link, LinkState, LinkStatus, OpenError, Port, PortUri};
use dray_results::Agreement;

use crate::{Phase, RoleError, Signal};

/// Time that a peer may take to connect.
const PATIENCE: Duration = Duration::from_secs(15);

/// Opens a port for a role: [`PortUri::open`], or something that returns the port with more to it.
pub type OpenPort<'a> = dyn Fn(&PortUri) -> Result<Port, OpenError> + 'a;

/// Ports of a role that have a peer.
#[derive(Clone, Default)]
pub(crate) struct Links(Vec<(PortUri, Arc<dyn Link>)>);

impl Links {
    /// Opens a port of the role by `open`.
    pub(crate) fn open(&mut self, uri: &PortUri, open: &OpenPort<'_>) -> Result<Port, OpenError> {
        let port = open(uri)?;
        self.0.extend(port.link.iter().map(|link| (uri.clone(), link.clone())));
        Ok(port)
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
            while let Some(why) = link.status().reason()
                && signal.phase() == Phase::Run
            {
                if Instant::now() > deadline {
                    let seconds = PATIENCE.as_secs();
                    return Err(RoleError::NoPeer { port: uri.to_string(), seconds, why });
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Returns the first peer that is not connected, and why.
    fn missing(&self) -> Option<String> {
        self.0.iter().find_map(|(uri, link)| {
            let why = link.status().reason()?;
            let peer = uri.peer().unwrap_or_else(|| format!("a peer of {uri}"));
            Some(format!("{peer}: {why}"))
        })
    }
}

/// Peer that a role of byte streams waits for, if any.
#[derive(Clone, Default)]
pub(crate) struct Awaited(Arc<Mutex<Option<String>>>);

impl Awaited {
    pub(crate) fn set(&self, peer: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = peer;
    }

    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A view of the peers of a role while it runs on another thread.
#[derive(Clone, Default)]
pub struct Watch {
    pub(crate) links: Links,
    pub(crate) awaited: Awaited,
}

impl Watch {
    /// Returns the peer that the role waits for, and why, for example `a switch at
    /// /run/dray/a.sock: nothing listens there`. `None` if it waits for no peer.
    pub fn missing(&self) -> Option<String> {
        self.links.missing().or_else(|| self.awaited.get())
    }
}
