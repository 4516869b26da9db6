//! Pages: the parts in which a [snapshot](crate::Snapshot) is stored and sent.

use std::os::fd::{AsFd, BorrowedFd};

use dray_port::PortSnapshot;
use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::sockets::Sockets;

/// A page to be stored or sent.
#[derive(Debug)]
pub struct Page<'a> {
    pub(crate) text: Vec<u8>,
    pub(crate) descriptors: Vec<BorrowedFd<'a>>,
}

/// Content of a page; `L` describes a port, `P` is the program's own part of that, and `S` its
/// state.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Content<L, P, S> {
    /// The number of the port comes first.
    Port(u64, P, L),
    State {
        has_metrics: bool,
        state: S,
    },
}

impl<'a> Page<'a> {
    /// Creates the page of a port; `own` is the program's own part. The descriptors of `memory`
    /// follow those of the port.
    pub fn of_port(
        program: &Program,
        number: u64,
        own: &impl Serialize,
        live: &'a PortSnapshot,
        memory: Option<BorrowedFd<'a>>,
    ) -> Self {
        let descriptors = live.descriptors().iter().map(AsFd::as_fd).chain(memory).collect();
        Self::new(program, &Content::<_, _, ()>::Port(number, own, live), descriptors)
    }

    /// Creates the page of the state. The descriptors of `memory` follow the `sockets`.
    pub fn of_state(
        program: &Program,
        state: &impl Serialize,
        sockets: &'a Sockets,
        memory: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> Self {
        let has_metrics = sockets.metrics.is_some();
        let descriptors = sockets.descriptors().chain(memory).collect();
        Self::new(program, &Content::<(), (), _>::State { has_metrics, state }, descriptors)
    }

    fn new(program: &Program, content: &impl Serialize, descriptors: Vec<BorrowedFd<'a>>) -> Self {
        let text = serde_json::to_vec(&(program.hello(), content)).expect("plain data");
        Self { text, descriptors }
    }
}
