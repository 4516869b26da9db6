//! The data path: two directions, each with workers on their own threads. A worker has all sessions
//! to itself; accounts are shared.

mod downlink;
mod egress_queue;
mod forwarder;
mod header_buffer;
mod packet_buffer;
mod passes;
mod pending_rates;
mod reading;
mod reassembly;
mod sessions;
mod shaping_queue;
mod unresolved;
mod uplink;

use std::sync::atomic::Ordering;

use dray_port::Frame;

pub(crate) use downlink::Downlink;
pub(crate) use forwarder::Forwarder;
pub(crate) use packet_buffer::{PacketBuffer, Waiting};
pub(crate) use sessions::{CHANGES, Change, Changes, EndMarkers, Sessions};
pub(crate) use unresolved::Unresolved;
pub(crate) use uplink::{MESSAGES_MAX, Uplink};

use passes::Passes;

/// Passes of a direction, and their state.
pub(crate) enum State {
    Uplink(Box<Uplink>),
    Downlink(Box<Downlink>),
}

impl State {
    /// See [`Passes::take`].
    #[inline]
    pub(crate) fn take(&mut self, forwarder: &mut Forwarder, frames: &[Frame<'_>]) -> usize {
        match self {
            Self::Uplink(uplink) => uplink.take(forwarder, frames),
            Self::Downlink(downlink) => downlink.take(forwarder, frames),
        }
    }

    /// Returns the number of packets that wait for their session, or for other fragments.
    pub(crate) fn waiting(&self) -> u64 {
        match self {
            Self::Uplink(uplink) => uplink.waiting(),
            Self::Downlink(downlink) => downlink.store.len(),
        }
    }

    /// Does the work between batches: transmits packets whose next hop has an Ethernet address now,
    /// takes packets from the other direction or from reassembly, and applies changes of
    /// sessions, unless packets that the previous rules let pass wait for the egress port.
    /// Returns true if there was anything to do.
    pub(crate) fn adopt(&mut self, forwarder: &mut Forwarder) -> bool {
        let has_waiting = forwarder.has_waiting();
        let mut any = match self {
            Self::Uplink(uplink) => {
                (has_waiting && uplink.release_waiting(forwarder)) | uplink.prepare(forwarder)
            }
            Self::Downlink(downlink) => {
                (has_waiting && downlink.release_waiting(forwarder)) | downlink.prepare(forwarder)
            }
        };
        for _ in 0..CHANGES {
            if forwarder.is_full() {
                break;
            }
            let Ok(mut change) = forwarder.changes.wanted.try_recv() else { break };
            self.change(forwarder, &mut change);
            any = true;
            // If the control thread does not take it back, its memory is freed here.
            let _ = forwarder.changes.done.try_send(change);
        }
        any
    }

    pub(crate) fn change(&mut self, forwarder: &mut Forwarder, change: &mut Change) {
        forwarder.expedite(change);
        match self {
            Self::Uplink(uplink) => uplink.change(forwarder, change),
            Self::Downlink(downlink) => downlink.change(forwarder, change),
        }
        forwarder.changes.made.fetch_add(1, Ordering::Release);
    }
}
