//! A worker's account of frames.

use std::sync::Arc;

use dray_capture::{Kind, Tap};
use dray_port::Frame;

use super::ledger;
use super::port::{OpenPort, bytes};
use crate::counters::{Counters, DropReason};

/// By index: the ports that mirror each port; empty if there are none.
pub(super) type Mirrors = Vec<Arc<[Arc<OpenPort>]>>;

/// Counts of a worker that are not yet published, by port, and what shows its frames to others.
pub(super) struct Tally {
    counters: Vec<Counters>,
    /// Number of the worker.
    worker: usize,
    tap: Arc<Tap>,
    mirrors: Mirrors,
    /// Indices of the ports at which frames of the worker wait for the rate or for the receiver.
    pub(super) backlog: Vec<u16>,
}

impl Tally {
    /// Creates counters of a worker for ports with indices below `ports`.
    pub(super) fn new(ports: usize, worker: usize, tap: Arc<Tap>) -> Self {
        let counters = vec![Counters::default(); ports];
        Self { counters, worker, tap, mirrors: Vec::new(), backlog: Vec::new() }
    }

    /// Returns the counters of the port `index`.
    #[inline]
    pub(super) fn of(&mut self, index: u16) -> &mut Counters {
        &mut self.counters[usize::from(index)]
    }

    /// Accounts for frames that `port` has received.
    #[inline]
    pub(super) fn received(&mut self, port: &OpenPort, frames: &[Frame<'_>]) {
        let counters = self.of(port.index);
        counters.rx_frames += frames.len() as u64;
        counters.rx_bytes += bytes(frames);
        self.show(port, Kind::In, frames);
    }

    /// Accounts for frames that `port` has transmitted.
    #[inline]
    pub(super) fn transmitted(&mut self, port: &OpenPort, frames: &[Frame<'_>]) {
        let counters = self.of(port.index);
        counters.tx_frames += frames.len() as u64;
        counters.tx_bytes += bytes(frames);
        self.show(port, Kind::Out, frames);
    }

    /// Accounts for frames that are dropped; `port` counts them.
    #[inline]
    pub(super) fn dropped(&mut self, port: &OpenPort, reason: DropReason, frames: &[Frame<'_>]) {
        self.of(port.index).drops.add(reason, frames.len() as u64);
        self.show(port, reason.side().dropped(reason as u8), frames);
    }

    /// Shows frames to captures and mirrors.
    #[inline]
    pub(super) fn show(&mut self, port: &OpenPort, kind: Kind, frames: &[Frame<'_>]) {
        if self.tap.is_on() | !self.mirrors.is_empty() {
            self.show_all(port, kind, frames);
        }
    }

    #[cold]
    #[inline(never)]
    fn show_all(&mut self, port: &OpenPort, kind: Kind, frames: &[Frame<'_>]) {
        if self.tap.is_on() {
            self.tap.show(port.number, kind, frames);
        }
        if !matches!(kind, Kind::In | Kind::Out) || frames.is_empty() {
            return;
        }
        let Some(mirrors) = self.mirrors.get(usize::from(port.index)).cloned() else { return };
        // No port mirrors a mirror, so this ends.
        for mirror in &*mirrors {
            let taken = mirror.transmit(self.worker, frames, self);
            if taken < frames.len() {
                mirror.refused(self.worker, &frames[taken..], self);
            }
        }
    }

    /// Notes that frames wait at the port `index`.
    pub(super) fn wait_at(&mut self, index: u16) {
        if !self.backlog.contains(&index) {
            self.backlog.push(index);
        }
    }

    /// Publishes the counters of some ports.
    pub(super) fn publish<'a>(&self, ports: impl Iterator<Item = &'a Arc<OpenPort>>) {
        for port in ports {
            port.ledger.set(ledger::worker(self.worker), &self.counters[usize::from(port.index)]);
        }
    }

    /// Adopts the ports that mirror others, and makes room for ports with indices below `ports`.
    pub(super) fn adopt(&mut self, ports: usize, mirrors: &Mirrors) {
        self.counters.resize(ports.max(self.counters.len()), Counters::default());
        self.mirrors.clone_from(mirrors);
    }
}
