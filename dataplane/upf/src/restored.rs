//! State of another process, with which this one continues.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use dray_daemon::Store;
use dray_port::{Port, PortUri, Resumption};
use dray_service::{PortPage, Snapshot, Sockets, TakeoverError};
use dray_shm::SharedWords;
use tracing::warn;

use crate::account::Accounts;
use crate::config::{Generator, SessionConfig, UpfConfig};
use crate::counters::{Counters, SharedCounters};
use crate::journal::{Sessions, read_journal_file};
use crate::leaving::{DESCRIPTORS, PROGRAM, State};
use crate::neighbours::Neighbours;
use crate::rule_accounts::Numbers;

/// Time within which the control thread of a port gets ready to continue.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time within which its queues start.
const STARTING: Duration = Duration::from_secs(1);

/// State of a process that has ended or hands over.
pub struct RestoredState {
    snapshot: Snapshot<PortUri, State>,
    sessions: Sessions,
    /// The accounts of the sessions that this process continues.
    continued: Vec<(u64, Numbers)>,
    pub(crate) accounts: Accounts,
    /// Counters of the uplink and of the downlink, and neighbours of N3 and N6.
    counters: [OwnedFd; 2],
    pub(crate) neighbours: [SharedWords; 2],
    resumptions: Vec<Resumption>,
}

/// Returns the error for a state that cannot be used.
fn wrong(what: &dyn std::fmt::Display) -> TakeoverError {
    TakeoverError(format!("invalid state of the user plane function before: {what}"))
}

impl RestoredState {
    /// Takes the state that an earlier process has left in `store`, if there is one.
    pub fn of_store(store: &Store) -> Result<Option<Self>, TakeoverError> {
        Snapshot::of_store(PROGRAM, store)?.map(Self::new).transpose()
    }

    /// Requests a take-over from the user plane function at the socket `control`.
    pub fn request(control: &Path) -> Result<Self, TakeoverError> {
        Self::new(Snapshot::request(PROGRAM, control)?)
    }

    fn new(mut snapshot: Snapshot<PortUri, State>) -> Result<Self, TakeoverError> {
        let of = |part: &str, error: &dyn std::fmt::Display| wrong(&format!("{part}: {error}"));
        let generate = snapshot.state.config.generate.as_ref();
        generate.map_or(Ok(()), Generator::check).map_err(|error| wrong(&error))?;
        let descriptors = <[OwnedFd; DESCRIPTORS]>::try_from(std::mem::take(&mut snapshot.memory));
        let [journal, accounts, uplink, downlink, n3, n6] = descriptors.map_err(|descriptors| {
            let have = descriptors.len();
            wrong(&format!("{have} of its {DESCRIPTORS} file descriptors"))
        })?;
        let accounts = Accounts::open(accounts).map_err(|error| of("accounts", &error))?;
        let counters = [uplink, downlink];
        for memory in &counters {
            count(memory).map_err(|error| of("counters", &error))?;
        }
        let neighbours = |words| Neighbours::open(words).map_err(|error| of("neighbours", &error));
        let neighbours = [neighbours(n3)?, neighbours(n6)?];
        let sessions = read_journal_file(journal).map_err(|error| of("sessions", &error))?;
        let mut numbers = sessions.values().flat_map(|(_, numbers)| numbers.all());
        if let Some(number) = numbers.find(|number| !accounts.has(*number)) {
            return Err(of("sessions", &format!("no such account: {number}")));
        }
        drop(numbers);
        Ok(Self {
            snapshot,
            sessions,
            continued: Vec::new(),
            accounts,
            counters,
            neighbours,
            resumptions: Vec::new(),
        })
    }

    /// Returns true if the process hands over, and has not ended.
    pub fn is_running(&self) -> bool {
        self.snapshot.is_running()
    }

    /// Returns its configuration, with the sessions of its file.
    pub fn config(&self) -> &UpfConfig {
        &self.snapshot.state.config
    }

    /// Returns the options of the program.
    pub fn options(&self) -> &str {
        &self.snapshot.state.options
    }

    /// Returns the number of its sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Takes its listening sockets.
    pub fn take_sockets(&mut self) -> Option<Sockets> {
        self.snapshot.sockets.take()
    }

    /// Returns the URI that N3 (0) or N6 (1) was opened with, if known.
    pub fn uri(&self, number: u64) -> Option<&PortUri> {
        self.snapshot.ports.get(&number).map(|port| &port.own)
    }

    /// Returns true if N3 (0) or N6 (1) may continue at `uri`. A port with another URI is closed.
    ///
    /// # Errors
    /// Returns an error if the process that hands over has it at another URI.
    pub fn keep_port(&mut self, number: u64, uri: &PortUri) -> Result<bool, TakeoverError> {
        let is_running = self.is_running();
        let Some(port) = self.snapshot.ports.get(&number) else { return Ok(false) };
        if port.own == *uri && !port.live.is_empty() {
            return Ok(true);
        }
        if is_running {
            let name = if number == 0 { "n3" } else { "n6" };
            let before = &port.own;
            return Err(TakeoverError(format!(
                "port {name:?} runs as {before}, not as {uri}; give it as it runs"
            )));
        }
        self.snapshot.ports.remove(&number);
        Ok(false)
    }

    /// Continues a port that was [kept](Self::keep_port); `None` if it has to be opened again.
    ///
    /// # Errors
    /// If a port of the process that hands over cannot be continued.
    pub fn resume_port(&mut self, number: u64) -> Result<Option<Port>, TakeoverError> {
        let Some(PortPage { own: uri, live, .. }) = self.snapshot.ports.remove(&number) else {
            return Ok(None);
        };
        let is_running = self.is_running();
        let (port, resumption) = match uri.resume(live) {
            Ok(resumed) => resumed,
            Err(error) if is_running => return Err(TakeoverError(error.to_string())),
            Err(error) => {
                warn!("does not continue: {error}");
                return Ok(None);
            }
        };
        if let Some(resumption) = resumption {
            match resumption.wait_ready(PATIENCE) {
                Err(why) if is_running => {
                    return Err(TakeoverError(format!("port {uri}: {why}")));
                }
                // If it is not ready, the port has no peer, and its status has the reason.
                _ => self.resumptions.push(resumption),
            }
        }
        Ok(Some(port))
    }

    /// Returns the number of disconnects of N3 and of N6.
    pub fn disconnects(&self) -> [u64; 2] {
        let of = |number| self.snapshot.ports.get(&number);
        [0, 1].map(|number| of(number).map_or(0, |port| port.live.disconnects()))
    }

    /// Returns the sessions with which a process of this configuration continues.
    pub(crate) fn sessions(&mut self, config: &UpfConfig) -> Vec<SessionConfig> {
        let merged = merge(std::mem::take(&mut self.sessions), self.config(), config);
        let numbered = |(session, numbers): (SessionConfig, Numbers)| {
            let seid = session.seid;
            (session, (seid, numbers))
        };
        let sessions;
        (sessions, self.continued) = merged.into_iter().map(numbered).unzip();
        sessions
    }

    /// Returns the sessions that are continued, with the accounts of their rules.
    pub(crate) fn continued(&self) -> impl Iterator<Item = (u64, &Numbers)> {
        self.continued.iter().map(|(seid, numbers)| (*seid, numbers))
    }

    /// Returns the counters of each direction.
    pub(crate) fn counters(&self) -> [Counters; 2] {
        // They were read before.
        self.counters.each_ref().map(|memory| count(memory).unwrap_or_default())
    }

    /// Completes the hand-over, calls `inherit`, which takes over usage and counters, and continues
    /// the queues of the ports.
    pub(crate) fn continue_by(self, inherit: impl FnOnce(&Self)) -> Result<(), TakeoverError> {
        self.snapshot.complete()?;
        inherit(&self);
        self.resumptions.iter().for_each(Resumption::start);
        self.resumptions.into_iter().for_each(|resumption| resumption.wait_started(STARTING));
        Ok(())
    }
}

fn count(memory: &OwnedFd) -> std::io::Result<Counters> {
    SharedCounters::sum_of(memory.try_clone()?)
}

/// Returns `sessions`, and the accounts of their rules, after a change of the configuration from
/// `before`: what differs is changed, added or removed, and nothing else.
fn merge(
    mut sessions: Sessions,
    before: &UpfConfig,
    config: &UpfConfig,
) -> Vec<(SessionConfig, Numbers)> {
    let mut before: HashMap<_, _> =
        before.all_sessions().map(|session| (session.seid, session)).collect();
    for session in config.all_sessions() {
        if before.remove(&session.seid).as_ref() != Some(&session) {
            let known = sessions.remove(&session.seid);
            let numbers = known.map(|(_, numbers)| numbers).unwrap_or_default();
            sessions.insert(session.seid, (session, numbers));
        }
    }
    before.keys().for_each(|seid| _ = sessions.remove(seid));
    sessions.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_configuration_changes_only_what_differs() {
        let session = |seid: u64, ue: u64| -> SessionConfig {
            let pdr = r#"{"id":1,"precedence":1,"from":"core","far":1}"#;
            let far = r#"{"id":1,"action":"drop"}"#;
            let text =
                format!(r#"{{"seid":{seid},"ue":["10.45.0.{ue}"],"pdrs":[{pdr}],"fars":[{far}]}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let interface = "mac = \"02:00:00:00:03:01\"\naddresses = [\"10.0.3.1\"]\n";
        let config = |sessions: Vec<SessionConfig>| {
            let text = format!("[n3]\n{interface}[n6]\n{interface}");
            UpfConfig { sessions, ..UpfConfig::from_toml(&text).unwrap() }
        };
        // The first one has changed since it was configured, the second was removed, and the last
        // was added.
        let sessions = [session(1, 101), session(3, 3), session(4, 4), session(9, 9)];
        let sessions =
            sessions.into_iter().map(|session| (session.seid, (session, Numbers::default())));
        let before = config((1..=4).map(|seid| session(seid, seid)).collect());
        let next = config(vec![session(1, 1), session(2, 2), session(3, 103), session(5, 5)]);
        let merged = merge(sessions.collect(), &before, &next);
        let merged: Vec<_> = merged.into_iter().map(|(session, _)| session).collect();
        let expected = [session(1, 101), session(3, 103), session(5, 5), session(9, 9)];
        assert_eq!(merged, expected);
    }
}
