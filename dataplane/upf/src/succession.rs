//! The state of another process, with which this one continues.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use dray_daemon::{Hello, Page, Store, Takeover, TakeoverError};
use dray_port::{Live, Port, PortUri, Resumption, clock};
use dray_shm::SharedWords;
use tracing::warn;

use crate::account::Accounts;
use crate::config::{Generator, SessionConfig, UpfConfig};
use crate::counters::{Counters, Ledger};
use crate::ledger::Numbers;
use crate::neighbours::Neighbours;
use crate::recorder::{DESCRIPTORS, PROGRAM, Sessions, State, Text, read_journal_file};
use crate::upf::Upf;

/// Time within which the control thread of a port gets ready to continue.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time within which its queues start.
const STARTING: Duration = Duration::from_secs(1);

/// State that another process has left, or hands over.
pub struct Succession {
    /// The process that hands over; none if it has ended.
    running: Option<Takeover>,
    config: UpfConfig,
    options: String,
    sessions: Sessions,
    /// The accounts of the sessions that this process continues.
    continued: Vec<(u64, Numbers)>,
    pub(crate) accounts: Accounts,
    /// Counters of the uplink and of the downlink, and neighbours of N3 and N6.
    ledgers: [OwnedFd; 2],
    pub(crate) neighbours: [SharedWords; 2],
    ports: [Option<(PortUri, Live)>; 2],
    resumptions: Vec<Resumption>,
    control: Option<OwnedFd>,
    metrics: Option<OwnedFd>,
}

/// Returns the error for a state that cannot be used.
fn wrong(what: &dyn std::fmt::Display) -> TakeoverError {
    TakeoverError(format!("invalid state of the user plane function before: {what}"))
}

impl Succession {
    /// Takes what an earlier process has left in `store`, if there is anything.
    pub fn of_store(store: &Store) -> Result<Option<Self>, TakeoverError> {
        let pages = store.take().map_err(TakeoverError)?;
        if pages.is_empty() { Ok(None) } else { Self::read(None, pages).map(Some) }
    }

    /// Asks the user plane function at the socket `control` to hand over.
    pub fn request(control: &Path) -> Result<Self, TakeoverError> {
        // Measuring it takes 20 ms, for which packets would wait.
        clock::ticks_per_second();
        let (running, message, descriptors) = Takeover::request(control, PROGRAM)?;
        let mut descriptors = descriptors.into_iter();
        let sizes: Vec<(String, usize)> = serde_json::from_slice(&message).map_err(|error| {
            let what = format!("invalid message of the running user plane function: {error}");
            TakeoverError(what)
        })?;
        let pages = sizes.into_iter().zip(0..).map(|((text, count), number)| {
            let descriptors = descriptors.by_ref().take(count).collect();
            Page { number, text: text.into_bytes(), descriptors }
        });
        Self::read(Some(running), pages.collect())
    }

    /// Reads pages, the oldest first: there are two of a kind if the process was killed when it had just
    /// kept the second.
    fn read(running: Option<Takeover>, pages: Vec<Page>) -> Result<Self, TakeoverError> {
        let (mut last, mut ports) = (None, [None, None]);
        for Page { text, descriptors, .. } in pages {
            let (hello, text): (Hello, serde_json::Value) =
                serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
            if let Some(what) = PROGRAM.hello().cannot_read(PROGRAM.name, &hello) {
                return Err(TakeoverError(what));
            }
            match serde_json::from_value(text).map_err(|error| wrong(&error))? {
                Text::Sessions(state) => last = Some((*state, descriptors)),
                Text::Port(number, uri, live) => {
                    let mut live: Live = live;
                    let adopted = live.adopt(&mut descriptors.into_iter());
                    let port = ports.get_mut(number).ok_or_else(|| wrong(&"no such port"))?;
                    // A port that cannot be continued is opened again.
                    *port = adopted.is_ok().then_some((uri, live));
                }
            }
        }
        let missing =
            || TakeoverError("the state is incomplete: no page of the sessions".to_owned());
        let (state, descriptors) = last.ok_or_else(missing)?;
        Self::new(running, state, descriptors, ports)
    }

    fn new(
        running: Option<Takeover>,
        state: State,
        mut descriptors: Vec<OwnedFd>,
        ports: [Option<(PortUri, Live)>; 2],
    ) -> Result<Self, TakeoverError> {
        let State { config, options, has_metrics } = state;
        let of = |part: &str, error: &dyn std::fmt::Display| wrong(&format!("{part}: {error}"));
        config.generate.as_ref().map_or(Ok(()), Generator::check).map_err(|error| wrong(&error))?;
        let metrics = if has_metrics { descriptors.pop() } else { None };
        let descriptors = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors);
        let [journal, accounts, uplink, downlink, n3, n6, control] =
            descriptors.map_err(|descriptors| {
                let have = descriptors.len();
                wrong(&format!("{have} of its {DESCRIPTORS} file descriptors came along"))
            })?;
        let accounts = Accounts::past(accounts).map_err(|error| of("accounts", &error))?;
        let ledgers = [uplink, downlink];
        for ledger in &ledgers {
            count(ledger).map_err(|error| of("counters", &error))?;
        }
        let neighbours = |words| Neighbours::past(words).map_err(|error| of("neighbours", &error));
        let neighbours = [neighbours(n3)?, neighbours(n6)?];
        let sessions = read_journal_file(journal).map_err(|error| of("sessions", &error))?;
        let mut numbers = sessions.values().flat_map(|(_, numbers)| numbers.all());
        if let Some(number) = numbers.find(|number| !accounts.has(*number)) {
            return Err(of("sessions", &format!("no such account: {number}")));
        }
        drop(numbers);
        // They are the other process's until this one continues.
        dray_daemon::borrow_files(true);
        Ok(Self {
            running,
            config,
            options,
            sessions,
            continued: Vec::new(),
            accounts,
            ledgers,
            neighbours,
            ports,
            resumptions: Vec::new(),
            control: Some(control),
            metrics,
        })
    }

    /// Returns true if the process hands over, and has not ended.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns its configuration, with the sessions of its file.
    pub fn config(&self) -> &UpfConfig {
        &self.config
    }

    /// Returns the options of the program.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Returns the number of its sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Takes the control socket, and the one for metrics.
    pub fn take_sockets(&mut self) -> [Option<OwnedFd>; 2] {
        [self.control.take(), self.metrics.take()]
    }

    /// Returns how N3 (0) or N6 (1) was opened, if that is known.
    pub fn uri(&self, number: usize) -> Option<&PortUri> {
        self.ports[number].as_ref().map(|(uri, _)| uri)
    }

    /// Returns true if this port, as N3 (0) or N6 (1), may continue. One that was opened otherwise is
    /// closed.
    ///
    /// # Errors
    /// If it was opened otherwise by the process that hands over.
    pub fn keep_port(&mut self, number: usize, uri: &PortUri) -> Result<bool, TakeoverError> {
        let port = &mut self.ports[number];
        if self.running.is_some() {
            let name = ["n3", "n6"][number];
            return match port {
                Some((before, _)) if before == uri => Ok(true),
                Some((before, _)) => Err(TakeoverError(format!(
                    "port {name:?} runs as {before}, not as {uri}; give it as it runs"
                ))),
                None => Err(TakeoverError(format!(
                    "port {name:?}: its file descriptors did not come along"
                ))),
            };
        }
        *port = port.take_if(|(before, live)| before == uri && !live.is_empty());
        Ok(port.is_some())
    }

    /// Continues a port that was [kept](Self::keep_port); `None` if it has to be opened again.
    ///
    /// # Errors
    /// If a port of the process that hands over cannot be continued.
    pub fn resume_port(&mut self, number: usize) -> Result<Option<Port>, TakeoverError> {
        let Some((uri, live)) = self.ports[number].take() else { return Ok(None) };
        let is_running = self.running.is_some();
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
                // If it is not ready, the port has no peer, and tells why.
                _ => self.resumptions.push(resumption),
            }
        }
        Ok(Some(port))
    }

    /// Returns the number of disconnects of N3 and of N6.
    pub fn disconnects(&self) -> [u64; 2] {
        self.ports.each_ref().map(|port| port.as_ref().map_or(0, |(_, live)| live.disconnects()))
    }

    /// Returns the sessions with which a process of this configuration continues.
    pub(crate) fn sessions(&mut self, config: &UpfConfig) -> Vec<SessionConfig> {
        let merged = merge(std::mem::take(&mut self.sessions), &self.config, config);
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

    /// Returns what it has counted in each direction.
    pub(crate) fn counters(&self) -> [Counters; 2] {
        // They were read before.
        self.ledgers.each_ref().map(|ledger| count(ledger).unwrap_or_default())
    }

    /// Continues with what has been used and counted, and with the queues of the ports, once a process
    /// that hands over has let go of them. `upf` has been created with this state, and its threads still
    /// rest.
    pub fn go_on(self, upf: &Upf) -> Result<(), TakeoverError> {
        self.running.as_ref().map_or(Ok(()), Takeover::complete)?;
        dray_daemon::borrow_files(false);
        upf.inherit(&self);
        self.resumptions.iter().for_each(Resumption::go);
        self.resumptions.into_iter().for_each(|resumption| resumption.wait_started(STARTING));
        Ok(())
    }
}

fn count(ledger: &OwnedFd) -> std::io::Result<Counters> {
    Ledger::past(ledger.try_clone()?)
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
        // The first one has changed since it was configured, the second was removed, and the last was
        // added.
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
