//! Events that the data path reports to the control plane.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::config::teid;
use crate::usage::Counted;
use dray_datapath::lock;

/// An event for the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A usage reporting rule has reached a threshold or the end of its quota.
    Usage {
        /// The session.
        seid: u64,
        /// The rule.
        urr: u32,
        /// True if the quota is used up.
        quota: bool,
        /// Volume and packets counted so far.
        counted: Counted,
    },
    /// Packets have arrived for a session that buffers them, or would if there were room. Reported
    /// once until the session forwards packets, and again after packets have expired.
    DownlinkData {
        /// The session.
        seid: u64,
        /// The rule that buffers them.
        pdr: u16,
    },
    /// A gNB does not know a tunnel that packets were sent into.
    TunnelGone {
        /// The gNB.
        gnb: IpAddr,
        /// TEID of the tunnel at the gNB's end.
        #[serde(serialize_with = "teid::serialize")]
        teid: u32,
    },
    /// A packet has arrived in a session's tunnel from an address that the session does not send
    /// to. Reported seldom, however many such packets there are.
    WrongGnb {
        /// The session.
        seid: u64,
        /// TEID of the tunnel at our end.
        #[serde(serialize_with = "teid::serialize")]
        teid: u32,
        /// Address that the packet came from.
        from: IpAddr,
        /// Addresses of the gNBs that the session sends to.
        expected: Vec<IpAddr>,
    },
}

impl Event {
    /// Returns the index of the event's kind.
    fn kind(&self) -> usize {
        match self {
            Self::Usage { .. } => 0,
            Self::DownlinkData { .. } => 1,
            Self::TunnelGone { .. } => 2,
            Self::WrongGnb { .. } => 3,
        }
    }
}

/// Events lost because the control plane did not read them in time, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsLost {
    /// Events about usage.
    pub usage: u64,
    /// Events about packets for sessions that buffer them.
    pub downlink_data: u64,
    /// Events about tunnels that a gNB does not know.
    pub tunnel_gone: u64,
    /// Events about packets from unexpected gNBs.
    pub wrong_gnb: u64,
}

impl EventsLost {
    /// Returns the sum of all kinds.
    pub fn total(&self) -> u64 {
        let Self { usage, downlink_data, tunnel_gone, wrong_gnb } = self;
        usage + downlink_data + tunnel_gone + wrong_gnb
    }
}

const KINDS: usize = 4;
/// Maximum number of unread events of a kind; further ones are lost and counted. Each kind has its
/// own queue, so messages from gNBs cannot displace usage events, which are used for charging.
const WAITING_MAX: usize = 4096;

type Lost = Arc<[AtomicU64; KINDS]>;

/// The data path's end. Sending takes no lock and makes no system call.
#[derive(Clone)]
pub(crate) struct EventSender {
    senders: [SyncSender<Event>; KINDS],
    lost: Lost,
}

impl EventSender {
    /// Sends an event; returns true if there was room for it.
    pub(crate) fn send(&self, event: Event) -> bool {
        let kind = event.kind();
        // The receiver never blocks, so `try_send` never has to wake it.
        let is_sent = self.senders[kind].try_send(event).is_ok();
        if !is_sent {
            self.lost[kind].fetch_add(1, Relaxed);
        }
        is_sent
    }
}

/// The control plane's end.
pub(crate) struct Events {
    receivers: Mutex<[Receiver<Event>; KINDS]>,
    lost: Lost,
    /// Events of the process before that it may not have reported.
    first: Mutex<Vec<Event>>,
}

impl Events {
    /// Adds events that come before those of the data path.
    pub(crate) fn begin_with(&self, events: impl IntoIterator<Item = Event>) {
        lock(&self.first).extend(events);
    }

    /// Returns the events since the last call; events of one kind are in order.
    pub(crate) fn take(&self) -> Vec<Event> {
        let mut events = std::mem::take(&mut *lock(&self.first));
        events.extend(lock(&self.receivers).iter().flat_map(Receiver::try_iter));
        events
    }

    /// Returns the number of events lost because they were not read in time.
    pub(crate) fn lost(&self) -> EventsLost {
        let [usage, downlink_data, tunnel_gone, wrong_gnb] =
            self.lost.each_ref().map(|lost| lost.load(Relaxed));
        EventsLost { usage, downlink_data, tunnel_gone, wrong_gnb }
    }
}

/// Creates both ends of the event queues.
pub(crate) fn events() -> (EventSender, Events) {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..KINDS).map(|_| sync_channel(WAITING_MAX)).unzip();
    let senders = senders.try_into().unwrap_or_else(|_| unreachable!("one for each kind"));
    let receivers = receivers.try_into().unwrap_or_else(|_| unreachable!("one for each kind"));
    let lost = Lost::default();
    let sender = EventSender { senders, lost: Arc::clone(&lost) };
    (sender, Events { receivers: Mutex::new(receivers), lost, first: Mutex::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_kinds_have_separate_queues() {
        let (sender, events) = events();
        let gone = || Event::TunnelGone { gnb: [10, 0, 0, 1].into(), teid: 1 };
        let accepted = (0..2 * WAITING_MAX).filter(|_| sender.send(gone())).count();
        assert_eq!(accepted, WAITING_MAX);
        assert!(sender.send(Event::DownlinkData { seid: 1, pdr: 2 }));
        let counted = Counted::default();
        assert!(sender.send(Event::Usage { seid: 1, urr: 2, quota: true, counted }));
        let lost = EventsLost { tunnel_gone: WAITING_MAX as u64, ..EventsLost::default() };
        assert_eq!((events.lost(), events.lost().total()), (lost, WAITING_MAX as u64));
        assert_eq!(events.take().len(), WAITING_MAX + 2);
        assert!(events.take().is_empty() && sender.send(gone()));
    }
}
