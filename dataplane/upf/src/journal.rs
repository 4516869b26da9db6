//! Journal of the sessions of a running user plane function, with which the process after it
//! continues ([`RestoredState`](crate::RestoredState)).
//!
//! The page of the state is always current: what packets use up, counters and neighbours are in
//! memory that outlives the process ([`Accounts`](crate::account::Accounts),
//! [`SharedCounters`](crate::counters::SharedCounters),
//! [`Neighbours`](crate::neighbours::Neighbours)), and each transaction on sessions is appended to
//! a journal before its reply.
//!
//! ```text
//! journal:  length in bytes of the records that are valid (8 bytes), its complement (8 bytes),
//!           records
//! record:   length of its JSON (4 bytes), checksum of the JSON (8 bytes), JSON
//! ```
//!
//! The length is written last, so that a transaction is in the journal as a whole or not at all.
//! The next process checks sessions as it checks those of a request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::Deserialize;

use crate::config::SessionConfig;
use crate::leaving::{Leaving, Recorder};
use crate::rule_accounts::Numbers;

/// Length of the numbers before the records, and of those before the text of a record.
const HEAD: usize = 8 + 8;
const RECORD_HEAD: usize = 4 + 8;
/// A journal is written anew once it is longer than twice what it was then, and this much.
const SLACK: u64 = 1 << 20;

/// A record of the journal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
enum Record {
    /// A new or changed session.
    Session(Box<SessionConfig>, Numbers),
    Removed(u64),
}

/// Record of a session: its SEID, its configuration as JSON, and the accounts of its rules; without
/// the latter two the session has been removed.
pub(crate) type Recorded<'m> = (u64, Option<(&'m str, Numbers)>);

/// Recorder of sessions.
pub(crate) struct SessionRecorder {
    recorder: Arc<Recorder>,
    leaving: Arc<Leaving>,
    journal: Option<Journal>,
}

struct Journal {
    file: File,
    length: u64,
    /// Length at which it is written anew.
    limit: u64,
}

impl SessionRecorder {
    pub(crate) fn new(recorder: Arc<Recorder>, leaving: Arc<Leaving>) -> Self {
        Self { recorder, leaving, journal: None }
    }

    /// Returns true if it records sessions. If not, for lack of memory or because the supervisor
    /// was slow to read, the next [`record`](Self::record) tries again.
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
            // It is outdated.
            self.journal = None;
            self.recorder.recording().remove_state();
        }
        let is_due = |journal: &Journal| journal.length >= journal.limit;
        if self.journal.as_ref().is_none_or(is_due) && !self.begin(all()) {
            // A journal that cannot be written anew goes on.
            self.journal.iter_mut().for_each(|journal| journal.limit += SLACK);
        }
    }

    /// Begins a new journal; returns false if it could not be stored.
    fn begin<'m>(&mut self, all: impl Iterator<Item = Recorded<'m>>) -> bool {
        let mut recording = self.recorder.recording();
        let (file, length) = match write_journal(all) {
            Ok(written) => written,
            Err(error) => {
                recording.warn(&error);
                return false;
            }
        };
        let is_kept = recording.record_state(&self.leaving.page(file.as_fd()));
        if is_kept {
            self.journal = Some(Journal { file, length, limit: 2 * length + SLACK });
        }
        is_kept
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

/// Returns the header of records of `length` bytes.
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
