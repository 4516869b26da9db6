//! Snapshot of a running program, with which the next process of the program continues.
//!
//! It consists of *pages*, each some text and descriptors: one page for each port, and one for the
//! rest of the state, whose first descriptors are the listening sockets. The text is JSON: the
//! version of the process, then the content. The pages are in the supervisor's store
//! ([`Recorder`](crate::Recorder)), or are sent at a take-over ([`Outgoing`](crate::Outgoing)).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::path::Path;

use dray_daemon::{OwnedPage, Store};
use dray_port::{PortSnapshot, clock};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::handover::Incoming;
use crate::page::Content;
use crate::program::{Hello, Program, TakeoverError};
use crate::sockets::Sockets;

/// Snapshot of a program; `P` is the program's own part of the description of a port, and `S` its
/// state.
#[derive(Debug)]
pub struct Snapshot<P, S> {
    /// The process that hands over; `None` if it has ended.
    running: Option<Incoming>,
    /// Ports by their numbers.
    pub ports: BTreeMap<u64, PortPage<P>>,
    /// State apart from the ports.
    pub state: S,
    /// Listening sockets, until they are taken.
    pub sockets: Option<Sockets>,
    /// Memory that belongs to the state.
    pub memory: Vec<OwnedFd>,
}

/// Content of the page of a port.
#[derive(Debug)]
pub struct PortPage<P> {
    /// The program's own part.
    pub own: P,
    /// Description of the port; empty if it can only be opened again.
    pub live: PortSnapshot,
    /// Memory that belongs to the port, such as its counters.
    pub memory: Option<OwnedFd>,
}

impl<P: DeserializeOwned, S: DeserializeOwned> Snapshot<P, S> {
    /// Takes the snapshot that an earlier process has left in `store`, if there is one.
    pub fn of_store(program: Program, store: &Store) -> Result<Option<Self>, TakeoverError> {
        let pages = store.take().map_err(TakeoverError)?;
        if pages.is_empty() {
            return Ok(None);
        }
        Self::read(&program, None, pages).map(Some)
    }

    /// Requests a take-over from the program at the socket `control`.
    pub fn request(program: Program, control: &Path) -> Result<Self, TakeoverError> {
        // Measuring it takes 20 ms, for which packets would wait.
        clock::ticks_per_second();
        let (running, pages) = Incoming::request(control, program)?;
        Self::read(&program, Some(running), pages)
    }

    /// Reads pages, the oldest first: a process that was killed may have left two pages of a port,
    /// or of its state.
    fn read(
        program: &Program,
        running: Option<Incoming>,
        pages: Vec<OwnedPage>,
    ) -> Result<Self, TakeoverError> {
        let (mut ports, mut last) = (BTreeMap::new(), None);
        for OwnedPage { text, descriptors } in pages {
            let mut descriptors = descriptors.into_iter();
            match read_text(program, &text)? {
                Content::Port(number, own, mut live) => {
                    let adopted = PortSnapshot::adopt(&mut live, &mut descriptors);
                    match adopted {
                        Ok(()) => {}
                        Err(what) if running.is_some() => {
                            return Err(wrong(program, &format!("port {number}: {what}")));
                        }
                        Err(what) => {
                            warn!("port {number} does not continue, and is opened again: {what}");
                            live = PortSnapshot::default();
                        }
                    }
                    // It is the last one, even if the others could not be adopted.
                    let memory = descriptors.last();
                    ports.insert(number, PortPage { own, live, memory });
                }
                Content::State { has_metrics, state } => {
                    last = Some((has_metrics, state, descriptors));
                }
            }
        }
        let incomplete = |what| wrong(program, &format!("it is incomplete: no {what}"));
        let (has_metrics, state, mut descriptors) =
            last.ok_or_else(|| incomplete("page of the state"))?;
        let control = descriptors.next().ok_or_else(|| incomplete("control socket"))?;
        let metrics = if has_metrics { descriptors.next() } else { None };
        let sockets = Some(Sockets { control, metrics });
        // The files belong to the other process until this one continues; and ports that share a
        // socket have several duplicates of it.
        dray_socket::borrow_files(true);
        Ok(Self { running, ports, state, sockets, memory: descriptors.collect() })
    }
}

impl<P, S> Snapshot<P, S> {
    /// Returns true if the process hands over, and has not ended.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Reports to a process that hands over that this one is ready, and returns once that one has
    /// stopped. From then on, this process continues the program.
    pub fn complete(&self) -> Result<(), TakeoverError> {
        self.running.as_ref().map_or(Ok(()), Incoming::complete)?;
        dray_socket::borrow_files(false);
        Ok(())
    }
}

/// Returns the error for a snapshot that cannot be used.
fn wrong(program: &Program, what: &dyn Display) -> TakeoverError {
    TakeoverError(format!("invalid state of the {} before: {what}", program.name))
}

fn read_text<P: DeserializeOwned, S: DeserializeOwned>(
    program: &Program,
    text: &[u8],
) -> Result<Content<PortSnapshot, P, S>, TakeoverError> {
    let (before, content): (Hello, serde_json::Value) =
        serde_json::from_slice(text).map_err(|error| wrong(program, &error))?;
    program.check_readable(&before)?;
    serde_json::from_value(content).map_err(|error| wrong(program, &error))
}

/// Returns the time on the machine's monotonic clock in seconds, which all processes share.
pub fn monotonic_s() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::Page;

    const PROGRAM: Program = Program { name: "switch", command: "dray switch", format: 3 };

    fn read(text: &[u8]) -> Result<Content<PortSnapshot, String, u32>, TakeoverError> {
        read_text(&PROGRAM, text)
    }

    #[test]
    fn page_is_read_as_written() {
        let page = Page::of_port(&PROGRAM, 7, &"own", &PortSnapshot::default(), None).text;
        let Ok(Content::Port(number, own, live)) = read(&page) else { panic!("no port") };
        assert_eq!((number, &*own, live.is_empty()), (7, "own", true));
        let next = Program { format: 4, ..PROGRAM };
        let Err(error) = read_text::<String, u32>(&next, &page) else { panic!("another format") };
        assert!(error.to_string().contains("whose states differ (formats 3 and 4)"), "{error}");
    }

    proptest! {
        #[test]
        fn changed_text_neither_panics_nor_is_read_in_part(
            at: prop::sample::Index,
            byte: u8,
            cut: prop::sample::Index,
        ) {
            let mut text = Page::of_port(&PROGRAM, 3, &"own", &PortSnapshot::default(), None).text;
            let length = text.len();
            text[at.index(length)] = byte;
            let _ = read(&text);
            text.truncate(cut.index(length));
            prop_assert!(read(&text).is_err());
        }
    }
}
