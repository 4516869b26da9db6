//! The data path: two directions, each with workers on their own threads. A worker has all sessions
//! to itself; the accounts that packets use up are shared.

mod downlink;
mod egress_queue;
mod head;
mod lane;
mod later;
mod packet_buffer;
mod passes;
mod reading;
mod reassembly;
mod sessions;
mod toll;
mod unresolved;
mod uplink;

use std::sync::atomic::Ordering;

use dray_port::Frame;

pub(crate) use downlink::Downlink;
pub(crate) use lane::Lane;
pub(crate) use packet_buffer::{PacketBuffer, Waiting};
pub(crate) use sessions::{CHANGES, Change, Changes, Farewell, Sessions};
pub(crate) use unresolved::Unresolved;
pub(crate) use uplink::{MESSAGES_MAX, Uplink};

use passes::Passes;

/// State of a worker's direction, beside its lane.
pub(crate) enum State {
    Uplink(Box<Uplink>),
    Downlink(Box<Downlink>),
}

impl State {
    /// See [`Passes::take`].
    #[inline]
    pub(crate) fn take(&mut self, lane: &mut Lane, frames: &[Frame<'_>]) -> usize {
        match self {
            Self::Uplink(uplink) => uplink.take(lane, frames),
            Self::Downlink(downlink) => downlink.take(lane, frames),
        }
    }

    /// Returns the number of packets that wait for their session, or for other fragments.
    pub(crate) fn waiting(&self) -> u64 {
        match self {
            Self::Uplink(uplink) => uplink.waiting(),
            Self::Downlink(downlink) => downlink.store.len(),
        }
    }

    /// Sends packets whose next hop has an Ethernet address now, applies changes from control threads, and
    /// takes packets from the other direction or from reassembly; returns true if there was anything. No change is applied while packets wait that
    /// the previous rules let pass.
    pub(crate) fn adopt(&mut self, lane: &mut Lane) -> bool {
        let mut any = match self {
            Self::Uplink(uplink) => uplink.tend(lane) | uplink.prepare(lane),
            Self::Downlink(downlink) => downlink.tend(lane) | downlink.prepare(lane),
        };
        for _ in 0..CHANGES {
            if lane.is_full() {
                break;
            }
            let Ok(mut change) = lane.changes.wanted.try_recv() else { break };
            self.change(lane, &mut change);
            any = true;
            // If the control thread does not take it back, its memory is freed here.
            let _ = lane.changes.done.try_send(change);
        }
        any
    }

    pub(crate) fn change(&mut self, lane: &mut Lane, change: &mut Change) {
        lane.hurry(change);
        match self {
            Self::Uplink(uplink) => uplink.change(lane, change),
            Self::Downlink(downlink) => downlink.change(lane, change),
        }
        lane.changes.made.fetch_add(1, Ordering::Release);
    }
}
