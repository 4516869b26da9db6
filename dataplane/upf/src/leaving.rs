//! State that a process leaves to the one after it, besides the sessions in the journal.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dray_port::PortUri;
use dray_service::{Page, Program, Sockets};
use serde::{Deserialize, Serialize};

use crate::config::UpfConfig;

/// The program, with the version of the state. Two processes must have the same.
pub(crate) const PROGRAM: Program =
    Program { name: "user plane function", command: "dray upf", format: 4 };
/// Number of descriptors of the state: the journal, the accounts, the counters of both directions,
/// and the neighbours of N3 and N6.
pub(crate) const DESCRIPTORS: usize = 6;

pub(crate) type Recorder = dray_service::Recorder<PortUri>;

/// State of a process, apart from sessions, their usage, and ports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Configuration, with the sessions of its file.
    pub config: UpfConfig,
    /// Options of the program, in a form of its own.
    pub options: String,
}

/// State that a process leaves to the one after it; only the journal and the ports change.
pub(crate) struct Leaving {
    pub(crate) state: State,
    pub(crate) sockets: Sockets,
    /// All that outlives the process but for the journal.
    pub(crate) memory: Vec<OwnedFd>,
    /// N3 and N6.
    pub(crate) ports: [PortUri; 2],
}

impl Leaving {
    /// Returns the page of the state, with the sessions in `journal`.
    pub(crate) fn page<'a>(&'a self, journal: BorrowedFd<'a>) -> Page<'a> {
        let memory = [journal].into_iter().chain(self.memory.iter().map(AsFd::as_fd));
        Page::of_state(&PROGRAM, &self.state, &self.sockets, memory)
    }
}
