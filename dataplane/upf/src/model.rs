//! Model of all sessions for control threads, and transactions on it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use smallvec::SmallVec;

use crate::account::Accounts;
use crate::compile::{Compiled, Context, compile};
use crate::config::{ConfigError, Pdr, SessionConfig, Tunnel};
use crate::interface::Interface;
use crate::journal::{Recorded, SessionRecorder, write_journal};
use crate::path::{CHANGES, Change, Changes, EndMarkers, Waiting};
use crate::rule_accounts::{Numbers, RuleAccounts};
use crate::session::{Peer, Report, Session};
use crate::status::{SessionState, SessionStatus, UsageStatus};
use crate::tunnels::Tunnels;

/// Average number of table keys per session that there is room for: two addresses, or two tunnels.
pub(crate) const KEYS_PER_SESSION: usize = 2;
/// Maximum number of changes in flight to a worker.
const CHANGES_MAX: usize = 1024;
/// Number of additional session numbers, for removed sessions that a worker still uses.
pub(crate) const LEAVING_MAX: usize = CHANGES_MAX + CHANGES + 1;

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Adds a session.
    Add(SessionConfig),
    /// Replaces the session with the same SEID. Counts and limits of rules continue if the new
    /// session has rules with the same IDs.
    Modify {
        /// The session.
        session: SessionConfig,
        /// True if an end marker is sent into tunnels that the session leaves.
        end_marker: bool,
    },
    /// Removes the session with a SEID.
    Remove(u64),
}

impl Operation {
    /// Returns the SEID of the session that it changes.
    fn seid(&self) -> u64 {
        match self {
            Self::Add(session) | Self::Modify { session, .. } => session.seid,
            Self::Remove(seid) => *seid,
        }
    }
}

/// All sessions.
pub(crate) struct Model {
    sessions: HashMap<u64, Known>,
    /// SEID that owns a key, for TEIDs and for addresses.
    owners: [HashMap<u64, u64>; 2],
    /// Returned session numbers, and the next number that was never used.
    free: Vec<u32>,
    next: u32,
    /// Returned session numbers that workers may use until they have made this many changes.
    leaving: VecDeque<(u32, u64)>,
    /// Number of changes sent.
    sent: u64,
    /// Maximum number of sessions.
    room: usize,
    /// Number of workers of each direction.
    workers: usize,
    accounts: Arc<Accounts>,
    n3: Arc<Interface>,
    tunnels: Arc<Tunnels>,
    waiting: Arc<Waiting>,
    /// Records sessions for the next process.
    recorder: Option<SessionRecorder>,
}

/// Indexes of the two kinds of keys.
const TEIDS: usize = 0;
const ADDRESSES: usize = 1;

/// A session in the model.
struct Known {
    slot: u32,
    /// Tunnels at our end, and users' addresses.
    keys: [SmallVec<[u64; 2]>; 2],
    rule_accounts: RuleAccounts,
    tunnels: SmallVec<[Peer; 1]>,
    state: SessionState,
    /// The configuration as JSON, which takes a third of the memory of `SessionConfig`.
    config: Box<str>,
}

impl Known {
    fn status(&self, seid: u64, accounts: &Accounts, waiting: &Waiting) -> SessionStatus {
        let address = |key: &u64| match key >> 32 {
            0xff00_0000 => Ipv4Addr::from(*key as u32).to_string(),
            _ => format!("{}/64", Ipv6Addr::from(u128::from(*key) << 64)),
        };
        let usages = self.rule_accounts.counted(accounts, self.slot);
        let tunnel = |peer: &Peer| {
            let Peer { address, teid, hop: _, tos } = *peer;
            Tunnel { gnb: address, teid, dscp: tos >> 2 }
        };
        SessionStatus {
            seid,
            state: self.state,
            tunnels: self.tunnels.iter().map(tunnel).collect(),
            waiting: waiting.count(self.slot),
            config: None,
            ue: self.keys[ADDRESSES].iter().map(address).collect(),
            teids: self.keys[TEIDS].iter().map(|key| *key as u32).collect(),
            usage: usages.map(|(urr, counted)| UsageStatus { urr, counted }).collect(),
        }
    }
}

/// A valid transaction and its effects, so that each step is checked against the steps before it.
#[derive(Default)]
pub(crate) struct Draft {
    steps: Vec<Step>,
    seids: HashSet<u64>,
    /// Ownership changes against the model; `None`: released.
    owners: [HashMap<u64, Option<u64>>; 2],
    /// Changes in the number of sessions, and of keys of each kind, against the model.
    sessions: isize,
    keys: [isize; 2],
}

/// One step of a draft.
struct Step {
    seid: u64,
    /// `None`: the session is removed.
    compiled: Option<Compiled>,
    end_marker: bool,
}

impl Model {
    /// Creates a model with room for `room` sessions and for `workers` workers of each direction.
    pub(crate) fn new(
        room: usize,
        workers: usize,
        accounts: Arc<Accounts>,
        n3: Arc<Interface>,
        tunnels: Arc<Tunnels>,
        waiting: Arc<Waiting>,
    ) -> Self {
        Self {
            sessions: HashMap::new(),
            owners: [HashMap::new(), HashMap::new()],
            free: Vec::new(),
            next: 0,
            leaving: VecDeque::new(),
            sent: 0,
            room,
            workers,
            accounts,
            n3,
            tunnels,
            waiting,
            recorder: None,
        }
    }

    /// Records all sessions, now and after each transaction.
    pub(crate) fn record_by(&mut self, recorder: SessionRecorder) {
        self.recorder = Some(recorder);
        self.record(&[]);
    }

    /// Retries recording after an earlier failure.
    pub(crate) fn record_again(&mut self) {
        if self.recorder.as_ref().is_some_and(|recorder| !recorder.is_recording()) {
            self.record(&[]);
        }
    }

    /// Records the sessions of a transaction, as they are now.
    fn record(&mut self, seids: &[u64]) {
        let Some(mut recorder) = self.recorder.take() else { return };
        let as_is = |seid: &u64| self.recorded(*seid);
        recorder.record(seids.iter().map(as_is), || self.sessions.keys().map(as_is));
        self.recorder = Some(recorder);
    }

    fn recorded(&self, seid: u64) -> Recorded<'_> {
        let known = self.sessions.get(&seid);
        (seid, known.map(|known| (&*known.config, known.rule_accounts.numbers(known.slot))))
    }

    /// Returns a journal of all sessions.
    pub(crate) fn journal(&self) -> io::Result<File> {
        let all = self.sessions.keys().map(|seid| self.recorded(*seid));
        write_journal(all).map(|(file, _)| file)
    }

    /// Continues what `restored` has counted for a session's rules. Returns the reports that are
    /// due.
    pub(crate) fn resume(&self, seid: u64, restored: (&Accounts, &Numbers)) -> Vec<Report> {
        let known = self.sessions.get(&seid);
        known.map_or(Vec::new(), |Known { rule_accounts, slot, .. }| {
            rule_accounts.resume((&self.accounts, *slot), restored)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns a session's status with its configuration, if it exists.
    pub(crate) fn status(&self, seid: u64) -> Option<SessionStatus> {
        let known = self.sessions.get(&seid)?;
        let config = serde_json::from_str(&known.config).expect("written by `compile`");
        let status = known.status(seid, &self.accounts, &self.waiting);
        Some(SessionStatus { config: Some(config), ..status })
    }

    /// Returns the status of all sessions, in order of SEID.
    pub(crate) fn statuses(&self) -> Vec<SessionStatus> {
        let status =
            |(seid, known): (&u64, &Known)| known.status(*seid, &self.accounts, &self.waiting);
        let mut all: Vec<_> = self.sessions.iter().map(status).collect();
        all.sort_unstable_by_key(|status| status.seid);
        all
    }

    /// Checks one more step and adds it to `draft`.
    pub(crate) fn check(
        &self,
        draft: &mut Draft,
        operation: &Operation,
        context: &Context<'_>,
    ) -> Result<(), ConfigError> {
        let seid = operation.seid();
        let wrong =
            |field: &str, what: String| ConfigError::new(what).in_field(field).in_session(seid);
        // A second step on a session would need the state in between, which a draft does not keep.
        if !draft.seids.insert(seid) {
            return Err(wrong("seid", "occurs twice in the transaction".to_owned()));
        }
        let known = self.sessions.get(&seid);
        let (config, end_marker) = match (operation, known) {
            (Operation::Add(_), Some(_)) => {
                return Err(wrong("seid", "already in use by a session".to_owned()));
            }
            (Operation::Modify { .. } | Operation::Remove(_), None) => {
                return Err(wrong("seid", "no such session".to_owned()));
            }
            (Operation::Add(session), None) => (Some(session), false),
            (Operation::Modify { session, end_marker }, Some(_)) => (Some(session), *end_marker),
            (Operation::Remove(_), Some(_)) => (None, false),
        };
        let none = RuleAccounts::default();
        let rule_accounts = known.map_or(&none, |known| &known.rule_accounts);
        let compiled = config.map(|config| compile(config, context, rule_accounts)).transpose()?;
        if let (Some(config), Some(compiled)) = (config, &compiled) {
            self.check_keys(draft, config, compiled)?;
        }
        draft.add(seid, known, compiled, end_marker);
        let there = |now: usize, more: isize| now.saturating_add_signed(more);
        let keys = |sort: usize| there(self.owners[sort].len(), draft.keys[sort]);
        let keys = keys(TEIDS).max(keys(ADDRESSES));
        if there(self.len(), draft.sessions) > self.room || keys > KEYS_PER_SESSION * self.room {
            return Err(wrong("seid", format!("no room left: sessions_max is {}", self.room)));
        }
        Ok(())
    }

    /// Checks that no other session has a tunnel or an address of the session.
    fn check_keys(
        &self,
        draft: &Draft,
        config: &SessionConfig,
        compiled: &Compiled,
    ) -> Result<(), ConfigError> {
        let owner = |kind: usize, key: &u64| {
            let owner = draft.owners[kind].get(key).copied();
            let owner = owner.unwrap_or_else(|| self.owners[kind].get(key).copied());
            owner.filter(|owner| *owner != config.seid)
        };
        let wrong = |field: String, what: &str, owner: u64| {
            let what = format!("{what}: already in use by session {owner}");
            Err(ConfigError::new(what).in_field(&field).in_session(config.seid))
        };
        for key in &compiled.keys[TEIDS] {
            if let Some(owner) = owner(TEIDS, key) {
                let is_same = |pdr: &Pdr| pdr.teid.map(u64::from) == Some(*key);
                let pdr = config.pdrs.iter().position(is_same).unwrap_or(0);
                return wrong(format!("pdrs[{pdr}].teid"), &format!("{key:#x}"), owner);
            }
        }
        for (number, key) in compiled.keys[ADDRESSES].iter().enumerate() {
            if let Some(owner) = owner(ADDRESSES, key) {
                return wrong(format!("ue[{number}]"), &config.ue[number].to_string(), owner);
            }
        }
        Ok(())
    }

    /// Applies all steps and sends the changes for each direction. `end_marker` builds the frame
    /// with the last message into a tunnel; `made` returns the number of changes that all workers
    /// have made; `tell` sends a report of a session.
    pub(crate) fn commit(
        &mut self,
        draft: Draft,
        end_marker: impl Fn(&Peer) -> Option<(u16, Vec<u8>)>,
        made: impl Fn() -> u64,
        mut send: impl FnMut([Change; 2]),
        tell: impl Fn(u64, &Report),
    ) {
        let seids: Vec<_> = draft.steps.iter().map(|step| step.seid).collect();
        for step in draft.steps {
            let known = self.sessions.get(&step.seid).map(|known| known.slot);
            let slot = known.unwrap_or_else(|| self.number(&made));
            self.sent += 1;
            send(self.make(step, slot, &end_marker, &tell));
        }
        self.record(&seids);
    }

    /// Returns a number for a new session, with its accounts reset.
    fn number(&mut self, made: &impl Fn() -> u64) -> u32 {
        if self.free.is_empty() && !self.leaving.is_empty() {
            let made = made();
            let is_left = |(_, change): &(u32, u64)| *change <= made;
            let count = self.leaving.iter().take_while(|leaving| is_left(leaving)).count();
            self.free.extend(self.leaving.drain(..count).map(|(slot, _)| slot));
        }
        // There are never more leaving numbers than room for them, unless the workers have ended.
        let limit = (self.room + LEAVING_MAX) as u32;
        let leaving = (self.next == limit).then(|| self.leaving.pop_front()).flatten();
        let slot = self.free.pop().or(leaving.map(|(slot, _)| slot));
        let slot = slot.unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.accounts.clear(slot);
        slot
    }

    fn make(
        &mut self,
        step: Step,
        slot: u32,
        marker: &impl Fn(&Peer) -> Option<(u16, Vec<u8>)>,
        tell: &impl Fn(u64, &Report),
    ) -> [Change; 2] {
        let Step { seid, compiled, end_marker } = step;
        let before = self.sessions.remove(&seid);
        let before = before.map(|known| (known.keys, known.tunnels, known.config));
        let (left, old_tunnels, old_config) = before.unwrap_or_default();
        for (owners, keys) in self.owners.iter_mut().zip(&left) {
            keys.iter().for_each(|key| _ = owners.remove(key));
        }
        let mut taken = <[SmallVec<[u64; 2]>; 2]>::default();
        let mut sessions = [Box::<Session>::default(), Box::default()];
        let mut end_markers = Vec::new();
        let mut rates_change = false;
        match compiled {
            None => self.leaving.push_back((slot, self.sent)),
            Some(Compiled { keys, uplink, downlink, rule_accounts, state, config, qers, urrs }) => {
                let place = (&*self.accounts, slot);
                rates_change = rule_accounts.set_rates(place, &qers);
                let reports = rule_accounts.settle(place, &urrs, config == old_config);
                reports.iter().for_each(|report| tell(seid, report));
                for (owners, keys) in self.owners.iter_mut().zip(&keys) {
                    keys.iter().for_each(|key| _ = owners.insert(*key, seid));
                }
                let tunnels = downlink.tunnels.clone();
                tunnels.iter().for_each(|tunnel| self.n3.neighbours.add_user(tunnel.hop));
                self.tunnels.add(&tunnels);
                if end_marker {
                    let same =
                        |new: &Peer, old: &Peer| (new.address, new.teid) == (old.address, old.teid);
                    let is_left = |old: &&Peer| !tunnels.iter().any(|new| same(new, old));
                    end_markers.extend(old_tunnels.iter().filter(is_left).filter_map(marker));
                }
                taken = keys.clone();
                let known = Known { slot, keys, rule_accounts, tunnels, state, config };
                self.sessions.insert(seid, known);
                sessions = [uplink, downlink];
            }
        }
        let neighbours = &self.n3.neighbours;
        old_tunnels.iter().for_each(|tunnel| neighbours.remove_user(tunnel.hop, self.sent));
        self.tunnels.remove(&old_tunnels);
        let [left_teids, left_addresses] = left;
        let [teids, addresses] = taken;
        let [uplink, downlink] = sessions;
        let end_markers =
            (!end_markers.is_empty()).then(|| Arc::new(EndMarkers::new(end_markers, self.workers)));
        [
            Change {
                slot,
                remove: left_teids,
                insert: teids,
                session: uplink,
                rates_change,
                end_markers: None,
            },
            Change {
                slot,
                remove: left_addresses,
                insert: addresses,
                session: downlink,
                rates_change,
                end_markers,
            },
        ]
    }
}

impl Draft {
    fn add(
        &mut self,
        seid: u64,
        known: Option<&Known>,
        compiled: Option<Compiled>,
        end_marker: bool,
    ) {
        for sort in [TEIDS, ADDRESSES] {
            let left = known.map_or(&[][..], |known| &known.keys[sort]);
            let taken = compiled.as_ref().map_or(&[][..], |compiled| &compiled.keys[sort]);
            self.owners[sort].extend(left.iter().map(|key| (*key, None)));
            self.owners[sort].extend(taken.iter().map(|key| (*key, Some(seid))));
            self.keys[sort] += taken.len() as isize - left.len() as isize;
        }
        self.sessions += isize::from(compiled.is_some()) - isize::from(known.is_some());
        self.steps.push(Step { seid, compiled, end_marker });
    }
}

/// Channel to a worker and back.
pub(crate) struct Wire {
    wanted: SyncSender<Change>,
    done: Receiver<Change>,
    made: Arc<AtomicU64>,
}

impl Wire {
    /// Creates both ends.
    pub(crate) fn new() -> (Self, Changes) {
        let (wanted, wants) = sync_channel(CHANGES_MAX);
        let (does, done) = sync_channel(2 * CHANGES_MAX);
        let made = Arc::<AtomicU64>::default();
        let changes = Changes { wanted: wants, done: does, made: made.clone() };
        (Self { wanted, done, made }, changes)
    }

    /// Returns the number of changes the worker has made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// Sends a change, and frees the memory of changes already made.
    pub(crate) fn send(&self, mut change: Change) {
        loop {
            self.done.try_iter().for_each(drop);
            match self.wanted.try_send(change) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => {
                    change = back;
                    thread::sleep(Duration::from_micros(50));
                }
            }
        }
    }
}
