//! Frame accounting: compares the roles' counters with the kernel's.
//!
//! A frame that was sent but not received was lost at one of four places, each with its own
//! counter, is still queued, or arrived damaged. The receiver's sequence numbers give the number of
//! missing frames independently of these counters; both must agree exactly.

use dray_lab::InterfaceCounters;
use dray_results::LostAt;
use serde::{Deserialize, Serialize};

/// A role's own frame count in one direction of its interfaces, and the kernel's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossing {
    /// Frames counted by the role; on receive, everything its port delivered or dropped.
    pub ours: u64,
    /// Counters of the interfaces over the trial; `None` if only the role itself counts there.
    pub kernel: Option<InterfaceCounters>,
}

/// Frame counts of one trial, from all sources.
#[derive(Clone, Debug, Default)]
pub struct FrameCounts {
    /// Frames sent.
    pub sent: u64,
    /// Distinct frames received intact.
    pub received: u64,
    /// Frames missing by sequence number.
    pub missing: u64,
    /// Frames that arrived damaged.
    pub corrupt: u64,
    /// Frames of an earlier trial that arrived in this one.
    pub earlier: u64,
    /// Transmit side: of the sender and of each forwarder.
    pub outs: Vec<Crossing>,
    /// Receive side: of each forwarder and of the receiver.
    pub ins: Vec<Crossing>,
    /// Frames dropped by sockets.
    pub dropped: u64,
    /// Frames that forwarders received but did not transmit.
    pub refused: u64,
}

/// Result of comparing the counts of a trial, or of several topologies together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Lost frames by place.
    pub lost_at: LostAt,
    /// Frames that an interface delivered but its role neither received nor dropped: they are
    /// still in its socket. Zero for a trial that drains its queues.
    pub queued: u64,
    /// True if all counts agree exactly; `None` if they do, but nothing other than the roles
    /// counted.
    pub agrees: Option<bool>,
}

/// Combines two comparisons: one that failed decides, and one that was possible counts.
pub(crate) fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    if a == Some(false) { a } else { b.or(a) }
}

impl std::ops::AddAssign for Audit {
    fn add_assign(&mut self, other: Self) {
        self.lost_at += other.lost_at;
        self.queued += other.queued;
        self.agrees = both(self.agrees, other.agrees);
    }
}

impl FrameCounts {
    /// Compares the counts with each other.
    pub fn audit(&self) -> Audit {
        let mut lost_at =
            LostAt { socket: self.dropped, forwarder: self.refused, ..LostAt::default() };
        let mut agrees = self.sent == self.received + self.missing;
        let (mut into_links, mut out_of_links, mut queued) = (0, 0, 0);
        let counted = self.outs.iter().chain(&self.ins).any(|crossing| crossing.kernel.is_some());
        for crossing @ Crossing { ours, .. } in &self.outs {
            let kernel = crossing.counters();
            // If the interface drops a frame, a packet socket is notified and does not count the
            // frame as sent; a UDP socket is not notified.
            if *ours != kernel.tx_packets {
                agrees &= *ours == kernel.tx_packets + kernel.tx_dropped;
                lost_at.interface += kernel.tx_dropped;
            }
            into_links += kernel.tx_packets;
        }
        for crossing @ Crossing { ours, .. } in &self.ins {
            let kernel = crossing.counters();
            agrees &= *ours <= kernel.rx_packets;
            queued += kernel.rx_packets.saturating_sub(*ours);
            out_of_links += kernel.rx_packets;
        }
        // Frames of an earlier trial left a link into which none was sent in this one.
        agrees &= self.earlier <= out_of_links;
        out_of_links = out_of_links.saturating_sub(self.earlier);
        agrees &= out_of_links <= into_links;
        lost_at.link = into_links.saturating_sub(out_of_links);
        // Lost, queued and damaged frames together are the missing ones.
        agrees &= lost_at.total() + queued + self.corrupt == self.missing;
        Audit {
            lost_at,
            queued,
            agrees: if agrees { counted.then_some(true) } else { Some(false) },
        }
    }
}

impl Crossing {
    /// The interfaces' counters, or in their place the role's own count.
    fn counters(&self) -> InterfaceCounters {
        let ours =
            InterfaceCounters { rx_packets: self.ours, tx_packets: self.ours, tx_dropped: 0 };
        self.kernel.unwrap_or(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(ours: u64, tx_packets: u64, tx_dropped: u64) -> Crossing {
        let kernel = InterfaceCounters { tx_packets, tx_dropped, ..Default::default() };
        Crossing { ours, kernel: Some(kernel) }
    }

    fn way_in(ours: u64, rx_packets: u64) -> Crossing {
        let kernel = InterfaceCounters { rx_packets, ..Default::default() };
        Crossing { ours, kernel: Some(kernel) }
    }

    fn counts() -> FrameCounts {
        FrameCounts {
            sent: 100,
            received: 70,
            missing: 30,
            corrupt: 0,
            earlier: 0,
            outs: vec![out(100, 98, 2), out(80, 80, 7)],
            ins: vec![way_in(95, 95), way_in(80, 80)],
            dropped: 18,
            refused: 7,
        }
    }

    #[test]
    fn audit_places_every_lost_frame() {
        let audit = counts().audit();
        assert_eq!(audit.lost_at, LostAt { interface: 2, link: 3, socket: 18, forwarder: 7 });
        assert_eq!(audit.agrees, Some(true));
        assert_eq!(audit.queued, 0);
    }

    #[test]
    fn queued_frames_are_not_lost() {
        let mut counts = counts();
        counts.received -= 5;
        counts.missing += 5;
        counts.ins[1].ours -= 5;
        let audit = counts.audit();
        assert_eq!((audit.queued, audit.lost_at.total(), audit.agrees), (5, 30, Some(true)));
    }

    #[test]
    fn audit_agrees_with_corrupt_frames() {
        let mut counts = counts();
        counts.received -= 2;
        counts.missing += 2;
        counts.corrupt = 2;
        assert_eq!(counts.audit().agrees, Some(true));
    }

    #[test]
    fn audit_agrees_with_frames_of_an_earlier_trial() {
        let mut counts = counts();
        counts.earlier = 5;
        // They were held up on the first link.
        counts.ins[0] = way_in(100, 100);
        counts.outs[1] = out(85, 85, 7);
        counts.ins[1] = way_in(85, 85);
        let audit = counts.audit();
        assert_eq!((audit.lost_at.link, audit.queued, audit.agrees), (3, 0, Some(true)));
        counts.earlier = 4;
        assert_eq!(counts.audit().agrees, Some(false));
    }

    #[test]
    fn audit_detects_wrong_count_anywhere() {
        let wrongs: [fn(&mut FrameCounts); 7] = [
            |counts| counts.sent += 1,
            |counts| counts.received -= 1,
            |counts| counts.missing += 1,
            |counts| counts.outs[0].ours -= 1,
            |counts| counts.ins[0].ours += 1,
            |counts| counts.ins[1].kernel.as_mut().unwrap().rx_packets += 30,
            |counts| counts.dropped -= 1,
        ];
        for (index, wrong) in wrongs.iter().enumerate() {
            let mut counts = counts();
            wrong(&mut counts);
            assert_eq!(counts.audit().agrees, Some(false), "{index}");
        }
    }

    #[test]
    fn audit_without_other_counters_agrees_with_nothing() {
        let mut counts = counts();
        (counts.dropped, counts.refused, counts.missing) = (0, 0, 0);
        (counts.outs, counts.ins) = (vec![], vec![]);
        counts.sent = counts.received;
        counts.outs.push(Crossing { ours: counts.sent, kernel: None });
        counts.ins.push(Crossing { ours: counts.received, kernel: None });
        assert_eq!(counts.audit().agrees, None);
        counts.missing = 1;
        assert_eq!(counts.audit().agrees, Some(false));
        let pairs =
            [(None, None), (Some(true), None), (None, Some(true)), (Some(true), Some(false))];
        assert_eq!(pairs.map(|(a, b)| both(a, b)), [None, Some(true), Some(true), Some(false)]);
        assert_eq!(both(Some(false), Some(true)), Some(false));
    }
}
