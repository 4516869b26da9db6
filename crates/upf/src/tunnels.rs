//! The tunnels at gNBs that there are: only of those a gNB may say that they are gone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use crate::counters::DropReason;
use crate::interface::lock;
use crate::session::Peer;

/// By gNB and TEID, how many sessions send into it.
#[derive(Debug, Default)]
pub(crate) struct Tunnels(Mutex<HashMap<(IpAddr, u32), u32>>);

impl Tunnels {
    /// A session sends into `tunnels`.
    pub(crate) fn add(&self, tunnels: &[Peer]) {
        let mut all = lock(&self.0);
        tunnels.iter().for_each(|tunnel| *all.entry(key(tunnel)).or_default() += 1);
    }

    /// A session does so no more.
    pub(crate) fn remove(&self, tunnels: &[Peer]) {
        let mut all = lock(&self.0);
        for tunnel in tunnels {
            if let Some(count) = all.get_mut(&key(tunnel)) {
                *count -= 1;
                if *count == 0 {
                    all.remove(&key(tunnel));
                }
            }
        }
    }

    /// Whether there is such a tunnel. A data thread does not wait for an answer: where there is none at
    /// once, the gNB asks again with the next packet.
    pub(crate) fn check(&self, gnb: IpAddr, teid: u32) -> Result<(), DropReason> {
        let all = self.0.try_lock().map_err(|_| DropReason::Limited)?;
        all.contains_key(&(gnb, teid)).then_some(()).ok_or(DropReason::WrongGnb)
    }
}

fn key(tunnel: &Peer) -> (IpAddr, u32) {
    (tunnel.address, tunnel.teid)
}
