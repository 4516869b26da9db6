//! What the data path tells the control plane.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::interface::lock;
use crate::usage::Counted;

/// Something that the control plane asked to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A usage reporting rule has come to a threshold, or to the end of its quota.
    Usage {
        /// The session.
        seid: u64,
        /// The rule.
        urr: u32,
        /// Whether its quota is used up.
        quota: bool,
        /// Counted so far.
        counted: Counted,
    },
    /// There are packets for a session that keeps them, or would if there were room. Told once until
    /// the session forwards packets, and again where they have waited in vain.
    DownlinkData {
        /// The session.
        seid: u64,
        /// The rule that keeps them.
        pdr: u16,
    },
    /// A gNB does not know a tunnel that packets were sent to.
    TunnelGone {
        /// The gNB.
        gnb: IpAddr,
        /// The tunnel at its end.
        teid: u32,
    },
}

/// Events that wait to be read; more are lost and counted.
const WAITING_MAX: usize = 4096;

/// The data path's end. Telling takes no lock and makes no system call.
#[derive(Clone)]
pub(crate) struct Teller {
    sender: SyncSender<Event>,
    lost: Arc<AtomicU64>,
}

impl Teller {
    /// Returns true if there was room for the event.
    pub(crate) fn tell(&self, event: Event) -> bool {
        // Nobody ever sleeps at the other end, so nobody is woken.
        let told = self.sender.try_send(event).is_ok();
        if !told {
            self.lost.fetch_add(1, Relaxed);
        }
        told
    }
}

/// The control plane's end.
pub(crate) struct Events {
    receiver: Mutex<Receiver<Event>>,
    lost: Arc<AtomicU64>,
}

impl Events {
    /// What has been told since the last time.
    pub(crate) fn take(&self) -> Vec<Event> {
        lock(&self.receiver).try_iter().collect()
    }

    /// How many were lost because nobody read them.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// Both ends.
pub(crate) fn events() -> (Teller, Events) {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let lost = Arc::default();
    (Teller { sender, lost: Arc::clone(&lost) }, Events { receiver: Mutex::new(receiver), lost })
}
