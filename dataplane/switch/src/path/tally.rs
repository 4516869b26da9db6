//! A worker's account of frames.

use std::sync::Arc;

use dray_capture::{Kind, Tap};
use dray_port::Frame;

use super::port::{Fate, OpenPort, Outcome};
use super::shaper::{Released, bytes};
use crate::counters::{Counters, DropReason, SharedCounters};

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

    /// Transmits `frames` at the port `to`; returns how many are done with. The receiver had no
    /// room for the others.
    #[inline]
    pub(super) fn transmit(&mut self, to: &OpenPort, frames: &[Frame<'_>]) -> usize {
        let worker = self.worker;
        let account = |fate, frames: &[Frame<'_>]| self.account(to, fate, frames);
        let Outcome { done, waits } = to.transmit(worker, frames, account);
        if waits {
            self.wait_at(to.index);
        }
        done
    }

    /// Transmits `frames` at the port `to`, and drops those that the receiver has no room for.
    #[inline]
    pub(super) fn deliver(&mut self, to: &OpenPort, frames: &[Frame<'_>]) {
        let done = self.transmit(to, frames);
        if done < frames.len() {
            self.account(to, to.refusal(self.worker), &frames[done..]);
        }
    }

    /// Transmits the frames that have waited at `port` for their time by the tick `now`.
    pub(super) fn release(&mut self, port: &OpenPort, now: u64) -> Released {
        port.release(self.worker, now, &mut |fate, frames| self.account(port, fate, frames))
    }

    /// Transmits the frames that wait at `port`, or drops them.
    pub(super) fn flush(&mut self, port: &OpenPort) {
        port.flush(self.worker, &mut |fate, frames| self.account(port, fate, frames));
    }

    /// Accounts for frames that `port` has received.
    #[inline]
    pub(super) fn received(&mut self, port: &OpenPort, frames: &[Frame<'_>]) {
        let counters = self.of(port.index);
        counters.rx_frames += frames.len() as u64;
        counters.rx_bytes += bytes(frames);
        self.show(port, Kind::In, frames);
    }

    /// Accounts for frames that are dropped; `port` counts them.
    #[inline]
    pub(super) fn dropped(&mut self, port: &OpenPort, reason: DropReason, frames: &[Frame<'_>]) {
        self.account(port, Fate::Dropped(reason), frames);
    }

    /// Counts frames that `port` was to transmit, and shows them to captures and mirrors.
    #[inline]
    fn account(&mut self, port: &OpenPort, fate: Fate, frames: &[Frame<'_>]) {
        if let Some(kind) = self.count(port, fate, frames) {
            self.show(port, kind, frames);
        }
    }

    /// Counts frames that `port` was to transmit; returns what they are for captures.
    #[inline]
    fn count(&mut self, port: &OpenPort, fate: Fate, frames: &[Frame<'_>]) -> Option<Kind> {
        let counters = self.of(port.index);
        match fate {
            Fate::Sent => {
                counters.tx_frames += frames.len() as u64;
                counters.tx_bytes += bytes(frames);
                Some(Kind::Out)
            }
            Fate::Delayed => {
                counters.delayed_out += frames.len() as u64;
                None
            }
            Fate::Dropped(reason) => {
                counters.drops.add(reason, frames.len() as u64);
                Some(reason.side().dropped(reason as u8))
            }
        }
    }

    /// Shows frames to captures and mirrors.
    #[inline]
    fn show(&mut self, port: &OpenPort, kind: Kind, frames: &[Frame<'_>]) {
        if self.tap.is_on() | !self.mirrors.is_empty() {
            self.show_all(port, kind, frames);
        }
    }

    #[cold]
    #[inline(never)]
    fn show_all(&mut self, port: &OpenPort, kind: Kind, frames: &[Frame<'_>]) {
        self.capture(port, kind, frames);
        if !matches!(kind, Kind::In | Kind::Out) || frames.is_empty() {
            return;
        }
        let Some(mirrors) = self.mirrors.get(usize::from(port.index)).cloned() else { return };
        mirrors.iter().for_each(|mirror| self.mirror(mirror, frames));
    }

    fn capture(&self, port: &OpenPort, kind: Kind, frames: &[Frame<'_>]) {
        if self.tap.is_on() {
            self.tap.show(port.number, kind, frames);
        }
    }

    /// Transmits copies of `frames` at a port that no port mirrors.
    fn mirror(&mut self, mirror: &OpenPort, frames: &[Frame<'_>]) {
        let worker = self.worker;
        let mut account = |fate, frames: &[Frame<'_>]| {
            if let Some(kind) = self.count(mirror, fate, frames) {
                self.capture(mirror, kind, frames);
            }
        };
        let Outcome { done, waits } = mirror.transmit(worker, frames, &mut account);
        if done < frames.len() {
            account(mirror.refusal(worker), &frames[done..]);
        }
        if waits {
            self.wait_at(mirror.index);
        }
    }

    /// Notes that frames wait at the port `index`.
    fn wait_at(&mut self, index: u16) {
        if !self.backlog.contains(&index) {
            self.backlog.push(index);
        }
    }

    /// Publishes the counters of some ports.
    pub(super) fn publish<'a>(&self, ports: impl Iterator<Item = &'a Arc<OpenPort>>) {
        for port in ports {
            let row = SharedCounters::row_of(self.worker);
            port.published.set(row, &self.counters[usize::from(port.index)]);
        }
    }

    /// Adopts the ports that mirror others, and makes room for ports with indices below `ports`.
    pub(super) fn adopt(&mut self, ports: usize, mirrors: &Mirrors) {
        self.counters.resize(ports.max(self.counters.len()), Counters::default());
        self.mirrors.clone_from(mirrors);
    }
}
