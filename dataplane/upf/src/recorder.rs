//! The state of a running user plane function for the process after it, which continues after a crash,
//! a restart, an upgrade, or at a take-over.
//!
//! It is on *pages*, each some text and descriptors: in the supervisor's store, and in the message to a
//! process that takes over. The page of the sessions is always current: what packets use up, counters
//! and neighbours are in memory that outlives the process ([`Accounts`](crate::account::Accounts),
//! [`Ledger`](crate::counters::Ledger), [`Neighbours`](crate::neighbours::Neighbours)), and each
//! transaction on sessions is appended to a journal before its reply. N3 and N6 have a page each, which
//! is kept again whenever the port changes. Data threads know nothing of it.
//!
//! ```text
//! journal:  length in bytes of the records that are valid (8 bytes), its complement (8 bytes), records
//! record:   length of its JSON (4 bytes), checksum of the JSON (8 bytes), JSON
//! ```
//!
//! The length is written last, so that a transaction is in the journal as a whole or not at all. The
//! next process checks sessions as it checks those of a request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dray_daemon::{Kept, Program, Store};
use dray_port::{Live, PortUri};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::config::{SessionConfig, UpfConfig};
use crate::ledger::Numbers;

/// The program, with the version of the state. Two processes must have the same.
pub(crate) const PROGRAM: Program =
    Program { name: "user plane function", command: "dray upf", format: 3 };
/// Length of the numbers before the records, and of those before the text of a record.
const HEAD: usize = 8 + 8;
const RECORD_HEAD: usize = 4 + 8;
/// A journal is written anew once it is longer than twice what it was then, and this much.
const SLACK: u64 = 1 << 20;
/// Number of descriptors of the page of the sessions that every process leaves: the journal, the
/// accounts, the ledgers of both directions, the neighbours of N3 and N6, and the control socket.
pub(crate) const DESCRIPTORS: usize = 7;

/// Text of a page.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Text<L> {
    Sessions(Box<State>),
    /// N3 (0) or N6 (1), how it was opened, and its description.
    Port(usize, PortUri, L),
}

/// Text of the page of the sessions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// Configuration, with the sessions of its file.
    pub(crate) config: UpfConfig,
    /// Options of the program.
    pub(crate) options: String,
    /// True if the last descriptor is that of the socket for metrics.
    pub(crate) has_metrics: bool,
}

/// State that a process leaves to the one after it, beside sessions and their usage.
pub struct Offer<'a> {
    /// Its configuration.
    pub config: &'a UpfConfig,
    /// N3 and N6.
    pub ports: [&'a PortUri; 2],
    /// Options of the program, in a form of its own.
    pub options: String,
    /// The control socket.
    pub control: BorrowedFd<'a>,
    /// The socket for metrics.
    pub metrics: Option<BorrowedFd<'a>>,
}

/// The pages of a process, of which only the journal and the ports change.
pub(crate) struct Pages {
    text: Vec<u8>,
    /// Those of the page of the sessions, but for the journal.
    descriptors: Vec<OwnedFd>,
    ports: [PortUri; 2],
}

impl Pages {
    /// `memory` is all that outlives the process.
    pub(crate) fn new(offer: Offer<'_>, memory: [BorrowedFd<'_>; 5]) -> io::Result<Self> {
        let Offer { config, ports, options, control, metrics } = offer;
        let has_metrics = metrics.is_some();
        let state = State { config: config.clone(), options, has_metrics };
        let text = serde_json::to_vec(&(PROGRAM.hello(), Text::<()>::Sessions(state.into())))?;
        let descriptors = memory.into_iter().chain([control]).chain(metrics);
        let descriptors = descriptors.map(|of| of.try_clone_to_owned());
        let (descriptors, ports) =
            (descriptors.collect::<io::Result<_>>()?, ports.map(Clone::clone));
        Ok(Self { text, descriptors, ports })
    }

    /// Returns the page of the sessions in `journal`.
    pub(crate) fn sessions<'a>(
        &'a self,
        journal: BorrowedFd<'a>,
    ) -> (Vec<u8>, Vec<BorrowedFd<'a>>) {
        let descriptors = self.descriptors.iter().map(AsFd::as_fd);
        (self.text.clone(), [journal].into_iter().chain(descriptors).collect())
    }

    /// Returns the page of a port.
    pub(crate) fn port<'a>(
        &self,
        number: usize,
        live: &'a Live,
    ) -> io::Result<(Vec<u8>, Vec<BorrowedFd<'a>>)> {
        let text = Text::Port(number, self.ports[number].clone(), live);
        let text = serde_json::to_vec(&(PROGRAM.hello(), text))?;
        Ok((text, live.descriptors().iter().map(AsFd::as_fd).collect()))
    }
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
    store: Arc<Store>,
    pages: Arc<Pages>,
    journal: Option<Journal>,
    has_warned: bool,
}

/// Records ports.
pub(crate) struct PortRecorder {
    store: Arc<Store>,
    pages: Arc<Pages>,
    /// The page of each port, and the number of changes of the port before it.
    kept: [Option<(u64, Kept)>; 2],
}

impl PortRecorder {
    pub(crate) fn new(store: Arc<Store>, pages: Arc<Pages>) -> Self {
        Self { store, pages, kept: [None, None] }
    }

    /// Returns true if a port is not recorded as it is, after so many changes.
    pub(crate) fn is_due(&self, number: usize, changes: u64) -> bool {
        self.kept[number].as_ref().is_none_or(|(before, _)| *before != changes)
    }

    /// Records a port.
    pub(crate) fn record(&mut self, number: usize, live: &Live) -> io::Result<()> {
        let (text, descriptors) = self.pages.port(number, live)?;
        let kept = self.store.keep(&text, &descriptors);
        // It is outdated.
        let before = self.kept[number].take();
        before.iter().for_each(|(_, before)| self.store.forget(before));
        self.kept[number] = Some((live.changes(), kept?));
        Ok(())
    }
}

struct Journal {
    file: File,
    length: u64,
    /// Length at which it is written anew.
    limit: u64,
    kept: Kept,
}

impl Recorder {
    pub(crate) fn new(store: Arc<Store>, pages: Arc<Pages>) -> Self {
        Self { store, pages, journal: None, has_warned: false }
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
        let (file, length) = write_journal(all)?;
        let (text, descriptors) = self.pages.sessions(file.as_fd());
        let kept = self.store.keep(&text, &descriptors)?;
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

/// Returns a journal of sessions, and the length of its records.
pub(crate) fn write_journal<'m>(
    all: impl Iterator<Item = Recorded<'m>>,
) -> io::Result<(File, u64)> {
    let mut file = File::from(memfd_create("dray-sessions", MemfdFlags::CLOEXEC)?);
    let length = append(&mut file, 0, all)?;
    Ok((file, length))
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

/// Sessions by SEID, with the accounts of their rules.
pub(crate) type Sessions = BTreeMap<u64, (SessionConfig, Numbers)>;

/// Returns the sessions of a journal.
pub(crate) fn read_journal_file(file: OwnedFd) -> Result<Sessions, String> {
    read_journal(&read_file(file).map_err(|error| error.to_string())?)
}

/// Reads all of a file.
fn read_file(file: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the sessions of a journal with these bytes.
fn read_journal(bytes: &[u8]) -> Result<Sessions, String> {
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
