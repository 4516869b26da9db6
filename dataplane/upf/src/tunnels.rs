//! The gNB tunnels in use. An error indication from a gNB is accepted only for these.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use crate::counters::DropReason;
use crate::session::Peer;
use dray_datapath::lock;

/// Number of sessions that send into a tunnel, by gNB and TEID.
#[derive(Debug, Default)]
pub(crate) struct Tunnels(Mutex<HashMap<(IpAddr, u32), u32>>);

impl Tunnels {
    /// Adds a session that sends into `tunnels`.
    pub(crate) fn add(&self, tunnels: &[Peer]) {
        let mut all = lock(&self.0);
        tunnels.iter().for_each(|tunnel| *all.entry(key(tunnel)).or_default() += 1);
    }

    /// Removes a session that sends into `tunnels`.
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

    /// Checks that a tunnel is in use. A data thread does not wait for the lock: if it is taken,
    /// the gNB sends another indication with the next packet.
    pub(crate) fn check(&self, gnb: IpAddr, teid: u32) -> Result<(), DropReason> {
        let all = self.0.try_lock().map_err(|_| DropReason::Limited)?;
        all.contains_key(&(gnb, teid)).then_some(()).ok_or(DropReason::WrongGnb)
    }
}

fn key(tunnel: &Peer) -> (IpAddr, u32) {
    (tunnel.address, tunnel.teid)
}
