//! The state of a running user plane function, recorded in the supervisor's store for the next
//! process, which continues its sessions after a crash, a restart or an upgrade.
//!
//! One page of the store has it all, and is always current: what packets use up is counted in memory
//! that outlives the process ([`Accounts`], [`Ledger`](crate::counters::Ledger)), and each
//! transaction on sessions is appended to a journal before its reply. Data threads know nothing of it.
//!
//! ```text
//! journal:  length in bytes of the records that are valid (8 bytes), its complement (8 bytes), records
//! record:   length of its JSON (4 bytes), checksum of the JSON (8 bytes), JSON
//! ```
//!
//! The length is written last, so that a transaction is in the journal as a whole or not at all. The
//! next process checks sessions as it checks those of a request.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dray_daemon::{Hello, Kept, Page, Store};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::account::Accounts;
use crate::config::{SessionConfig, SessionsFile, UpfConfig};
use crate::counters::{Counters, Ledger};
use crate::ledger::Numbers;

/// Version of the state. Two processes must have the same.
const FORMAT: u32 = 1;
/// Length of the numbers before the records, and of those before the text of a record.
const HEAD: usize = 8 + 8;
const RECORD_HEAD: usize = 4 + 8;
/// A journal is written anew once it is longer than twice what it was then, and this much.
const SLACK: u64 = 1 << 20;

/// The text of the page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// Sessions of the configuration file.
    configured: SessionsFile,
}

/// A record of the journal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
enum Record {
    /// A session is new, or has changed.
    Session(Box<SessionConfig>, Numbers),
    Removed(u64),
}

/// A session as it is recorded: its SEID, its configuration as JSON, and the accounts of its rules.
/// Without the latter it has been removed.
pub(crate) type Recorded<'m> = (u64, Option<(&'m str, Numbers)>);

/// Records sessions.
pub(crate) struct Recorder {
    store: Store,
    text: Vec<u8>,
    /// The accounts, and the ledgers of both directions.
    memory: [OwnedFd; 3],
    journal: Option<Journal>,
    has_warned: bool,
}

struct Journal {
    file: File,
    length: u64,
    /// Length at which it is written anew.
    limit: u64,
    kept: Kept,
}

impl Recorder {
    /// Begins to record in `store` what is in `memory`: the accounts, and the ledgers of both
    /// directions.
    pub(crate) fn new(
        store: Store,
        config: &UpfConfig,
        memory: [BorrowedFd<'_>; 3],
    ) -> io::Result<Self> {
        let [accounts, uplink, downlink] = memory.map(|memory| memory.try_clone_to_owned());
        let configured =
            SessionsFile { generate: config.generate.clone(), sessions: config.sessions.clone() };
        let text = serde_json::to_vec(&(Hello::new(FORMAT), State { configured }))?;
        Ok(Self {
            store,
            text,
            memory: [accounts?, uplink?, downlink?],
            journal: None,
            has_warned: false,
        })
    }

    /// Returns true if it records sessions. If not, because of a lack of memory or a supervisor that was
    /// behind, the next [`record`](Self::record) tries again.
    pub(crate) fn is_recording(&self) -> bool {
        self.journal.is_some()
    }

    /// Records the steps of a transaction; `all` returns all sessions after it.
    pub(crate) fn record<'m, A: Iterator<Item = Recorded<'m>>>(
        &mut self,
        steps: impl Iterator<Item = Recorded<'m>>,
        all: impl FnOnce() -> A,
    ) {
        let appended = match &mut self.journal {
            Some(journal) => journal.append(steps),
            None => Ok(()),
        };
        if appended.is_err() {
            let outdated = self.journal.take();
            outdated.iter().for_each(|journal| self.store.forget(&journal.kept));
        }
        let is_due = |journal: &Journal| journal.length >= journal.limit;
        if self.journal.as_ref().is_none_or(is_due)
            && let Err(error) = self.begin(all())
        {
            // A journal that cannot be written anew goes on.
            self.journal.iter_mut().for_each(|journal| journal.limit += SLACK);
            if !std::mem::replace(&mut self.has_warned, true) {
                warn!(%error, "the state is not yet kept for a restart");
            }
        }
    }

    /// Begins a new journal.
    fn begin<'m>(&mut self, all: impl Iterator<Item = Recorded<'m>>) -> io::Result<()> {
        let mut file = File::from(memfd_create("dray-sessions", MemfdFlags::CLOEXEC)?);
        let length = append(&mut file, 0, all)?;
        let memory = self.memory.iter().map(AsFd::as_fd);
        let descriptors: Vec<_> = [file.as_fd()].into_iter().chain(memory).collect();
        let kept = self.store.keep(&self.text, &descriptors)?;
        let journal = Journal { file, length, limit: 2 * length + SLACK, kept };
        let before = self.journal.replace(journal);
        before.iter().for_each(|before| self.store.forget(&before.kept));
        Ok(())
    }
}

impl Journal {
    fn append<'m>(&mut self, steps: impl Iterator<Item = Recorded<'m>>) -> io::Result<()> {
        self.length = append(&mut self.file, self.length, steps)?;
        Ok(())
    }
}

/// Appends records to a journal with `length` bytes of them; returns the new length.
fn append<'m>(
    file: &mut File,
    length: u64,
    records: impl Iterator<Item = Recorded<'m>>,
) -> io::Result<u64> {
    let mut bytes = Vec::new();
    for (seid, session) in records {
        let text = match session {
            Some((config, numbers)) => {
                format!("{{\"Session\":[{config},{}]}}", serde_json::to_string(&numbers)?)
            }
            None => format!("{{\"Removed\":{seid}}}"),
        };
        bytes.extend((text.len() as u32).to_ne_bytes());
        bytes.extend(checksum(text.as_bytes()).to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    file.seek(SeekFrom::Start(HEAD as u64 + length))?;
    file.write_all(&bytes)?;
    let length = length + bytes.len() as u64;
    file.rewind()?;
    file.write_all(&head(length))?;
    Ok(length)
}

/// Returns what comes before records of `length` bytes.
fn head(length: u64) -> [u8; HEAD] {
    (u128::from(length) | u128::from(!length) << 64).to_le_bytes()
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// State that a process before has left.
pub struct Past {
    sessions: BTreeMap<u64, (SessionConfig, Numbers)>,
    configured: SessionsFile,
    pub(crate) accounts: Accounts,
    /// Counters of the uplink and of the downlink.
    pub(crate) counters: [Counters; 2],
}

/// The state of the process before cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PastError(String);

impl Past {
    /// Takes what an earlier process has left in `store`, if there is anything.
    pub fn of_store(store: &Store) -> Result<Option<Self>, PastError> {
        // Two, if it was killed when it had just written its journal anew.
        let last = store.take().map_err(PastError)?.pop();
        last.map(Self::read).transpose()
    }

    fn read(page: Page) -> Result<Self, PastError> {
        let wrong = |what: &str, error: &dyn std::fmt::Display| {
            PastError(format!("invalid state of the user plane function before: {what}{error}"))
        };
        let (hello, state): (Hello, serde_json::Value) =
            serde_json::from_slice(&page.text).map_err(|error| wrong("", &error))?;
        if let Some(what) = Hello::new(FORMAT).cannot_read("user plane function", &hello) {
            return Err(PastError(what));
        }
        let State { configured } =
            serde_json::from_value(state).map_err(|error| wrong("", &error))?;
        let descriptors = <[OwnedFd; 4]>::try_from(page.descriptors);
        let [journal, accounts, uplink, downlink] = descriptors.map_err(|descriptors| {
            wrong("", &format!("{} of its 4 file descriptors came along", descriptors.len()))
        })?;
        let accounts = Accounts::past(accounts).map_err(|error| wrong("accounts: ", &error))?;
        let counters = |ledger| Ledger::past(ledger).map_err(|error| wrong("counters: ", &error));
        let counters = [counters(uplink)?, counters(downlink)?];
        let sessions = read_file(journal).map_err(|error| error.to_string());
        let sessions = sessions.and_then(|bytes| read_journal(&bytes));
        let sessions = sessions.map_err(|error| wrong("sessions: ", &error))?;
        let mut numbers = sessions.values().flat_map(|(_, numbers)| numbers.all());
        if let Some(number) = numbers.find(|number| !accounts.has(*number)) {
            return Err(wrong("sessions: ", &format!("no such account: {number}")));
        }
        drop(numbers);
        Ok(Self { sessions, configured, accounts, counters })
    }

    /// Returns the number of its sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the sessions with which a process of this configuration continues, and the accounts of
    /// their rules. What differs from the configuration before is changed, added or removed.
    pub(crate) fn sessions(&mut self, config: &UpfConfig) -> Vec<(SessionConfig, Numbers)> {
        let mut sessions = std::mem::take(&mut self.sessions);
        let before = std::mem::take(&mut self.configured).into_sessions().unwrap_or_default();
        let mut before: HashMap<_, _> =
            before.into_iter().map(|session| (session.seid, session)).collect();
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
}

/// Reads all of a file.
fn read_file(file: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the sessions of a journal.
fn read_journal(bytes: &[u8]) -> Result<BTreeMap<u64, (SessionConfig, Numbers)>, String> {
    let short = || format!("cut short at {} bytes", bytes.len());
    let (begins, rest) = bytes.split_first_chunk::<HEAD>().ok_or_else(short)?;
    let length = u128::from_le_bytes(*begins) as u64;
    if *begins != head(length) {
        return Err("wrong length".to_owned());
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    // Bytes after it belong to a transaction that was not completed.
    let mut rest = rest.get(..length).ok_or_else(short)?;
    let mut sessions = BTreeMap::new();
    while !rest.is_empty() {
        let (head, texts) = rest.split_first_chunk::<RECORD_HEAD>().ok_or_else(short)?;
        let [a, b, c, d, sum @ ..] = *head;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let (text, next) = texts.split_at_checked(length).ok_or_else(short)?;
        if u64::from_ne_bytes(sum) != checksum(text) {
            return Err(format!("wrong checksum at byte {}", bytes.len() - rest.len()));
        }
        match serde_json::from_slice(text).map_err(|error| error.to_string())? {
            Record::Session(config, numbers) => {
                sessions.insert(config.seid, (*config, numbers));
            }
            Record::Removed(seid) => _ = sessions.remove(&seid),
        }
        rest = next;
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(seid: u64) -> String {
        let pdr = r#"{"id":1,"precedence":1,"from":"core","far":1}"#;
        let far = r#"{"id":1,"action":"drop"}"#;
        format!(r#"{{"seid":{seid},"ue":["10.45.0.{seid}"],"pdrs":[{pdr}],"fars":[{far}]}}"#)
    }

    /// A journal of which session 1 is left.
    fn journal() -> (File, u64) {
        let mut file = tempfile::tempfile().unwrap();
        let (one, two) = (config(1), config(2));
        let some = |text| Some((text, Numbers::default()));
        let length = append(&mut file, 0, [(1, some(&*one)), (2, some(&*two))].into_iter());
        let length = append(&mut file, length.unwrap(), [(2, None)].into_iter()).unwrap();
        (file, length)
    }

    #[test]
    fn journal_is_read_without_an_incomplete_transaction() {
        let (mut file, length) = journal();
        let seids = |file: &File| {
            let bytes = read_file(file.try_clone().unwrap().into()).unwrap();
            read_journal(&bytes).unwrap().into_keys().collect::<Vec<_>>()
        };
        assert_eq!(seids(&file), [1]);
        let three = config(3);
        append(&mut file, length, [(3, Some((&*three, Numbers::default())))].into_iter()).unwrap();
        assert_eq!(seids(&file), [1, 3]);
        file.rewind().unwrap();
        file.write_all(&head(length)).unwrap();
        assert_eq!(seids(&file), [1]);
    }

    #[test]
    fn changed_configuration_changes_only_what_differs() {
        let parse = |text: &str| serde_json::from_str::<SessionConfig>(text).unwrap();
        let session = |seid: u64, ue: u64| {
            parse(&config(ue).replace(&format!("\"seid\":{ue}"), &format!("\"seid\":{seid}")))
        };
        let known = |session: SessionConfig| (session.seid, (session, Numbers::default()));
        let mut past = Past {
            // The first one has changed since it was configured, the second was removed, and the
            // last was added.
            sessions: [session(1, 101), session(3, 3), session(4, 4), session(9, 9)]
                .into_iter()
                .map(known)
                .collect(),
            configured: SessionsFile {
                generate: None,
                sessions: (1..=4).map(|seid| session(seid, seid)).collect(),
            },
            accounts: std::sync::Arc::into_inner(Accounts::new(1).unwrap()).unwrap(),
            counters: Default::default(),
        };
        let interface = "mac = \"02:00:00:00:03:01\"\naddresses = [\"10.0.3.1\"]\n";
        let mut next =
            UpfConfig::from_toml(&format!("[n3]\n{interface}[n6]\n{interface}")).unwrap();
        next.sessions = vec![session(1, 1), session(2, 2), session(3, 103), session(5, 5)];
        let sessions = past.sessions(&next).into_iter().map(|(session, _)| session);
        let expected = [session(1, 101), session(3, 103), session(5, 5), session(9, 9)];
        assert_eq!(sessions.collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn spoiled_journal_is_refused(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let bytes = read_file(journal().0.into()).unwrap();
            prop_assert!(read_journal(&bytes[..cut.index(bytes.len())]).is_err());
            let mut spoiled = bytes.clone();
            spoiled[at.index(bytes.len())] = byte;
            prop_assert!(spoiled == bytes || read_journal(&spoiled).is_err());
        }
    }
}
