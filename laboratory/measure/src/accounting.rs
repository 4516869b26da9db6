//! Frame accounting: compares our own counters with the kernel's.
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
pub struct Books {
    /// Frames sent.
    pub sent: u64,
    /// Distinct frames received intact.
    pub received: u64,
    /// Frames missing by sequence number.
    pub missing: u64,
    /// Frames that arrived damaged.
    pub corrupt: u64,
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
    /// Frames that an interface delivered but its role neither received nor dropped: they are still
    /// in its socket. Zero for a trial that drains its queues.
    pub queued: u64,
    /// True if all counts agree exactly; `None` if they do, but nothing other than the roles counted.
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

impl Books {
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

    fn books() -> Books {
        Books {
            sent: 100,
            received: 70,
            missing: 30,
            corrupt: 0,
            outs: vec![out(100, 98, 2), out(80, 80, 7)],
            ins: vec![way_in(95, 95), way_in(80, 80)],
            dropped: 18,
            refused: 7,
        }
    }

    #[test]
    fn audit_places_every_lost_frame() {
        let audit = books().audit();
        assert_eq!(audit.lost_at, LostAt { interface: 2, link: 3, socket: 18, forwarder: 7 });
        assert_eq!(audit.agrees, Some(true));
        assert_eq!(audit.queued, 0);
    }

    #[test]
    fn queued_frames_are_not_lost() {
        let mut books = books();
        books.received -= 5;
        books.missing += 5;
        books.ins[1].ours -= 5;
        let audit = books.audit();
        assert_eq!((audit.queued, audit.lost_at.total(), audit.agrees), (5, 30, Some(true)));
    }

    #[test]
    fn audit_agrees_with_corrupt_frames() {
        let mut books = books();
        books.received -= 2;
        books.missing += 2;
        books.corrupt = 2;
        assert_eq!(books.audit().agrees, Some(true));
    }

    #[test]
    fn audit_detects_wrong_count_anywhere() {
        let wrongs: [fn(&mut Books); 7] = [
            |books| books.sent += 1,
            |books| books.received -= 1,
            |books| books.missing += 1,
            |books| books.outs[0].ours -= 1,
            |books| books.ins[0].ours += 1,
            |books| books.ins[1].kernel.as_mut().unwrap().rx_packets += 30,
            |books| books.dropped -= 1,
        ];
        for (index, wrong) in wrongs.iter().enumerate() {
            let mut books = books();
            wrong(&mut books);
            assert_eq!(books.audit().agrees, Some(false), "{index}");
        }
    }

    #[test]
    fn audit_without_other_counters_agrees_with_nothing() {
        let mut books = books();
        (books.dropped, books.refused, books.missing) = (0, 0, 0);
        (books.outs, books.ins) = (vec![], vec![]);
        books.sent = books.received;
        books.outs.push(Crossing { ours: books.sent, kernel: None });
        books.ins.push(Crossing { ours: books.received, kernel: None });
        assert_eq!(books.audit().agrees, None);
        books.missing = 1;
        assert_eq!(books.audit().agrees, Some(false));
        let pairs =
            [(None, None), (Some(true), None), (None, Some(true)), (Some(true), Some(false))];
        assert_eq!(pairs.map(|(a, b)| both(a, b)), [None, Some(true), Some(true), Some(false)]);
        assert_eq!(both(Some(false), Some(true)), Some(false));
    }
}
