//! Isolation: checks that a link that must keep containers apart did so.

use dray_lab::InterfaceCounters;
use dray_results::Isolation;

/// Returns the verdict on the counters of the sender's interface, of the shared one (`parent`), and
/// of the receiver's.
pub(crate) fn of(
    sender: &InterfaceCounters,
    parent: &InterfaceCounters,
    receiver: &InterfaceCounters,
) -> Isolation {
    Isolation::judge([
        sender.tx_packets + sender.tx_dropped,
        parent.tx_packets,
        sender.tx_dropped,
        receiver.rx_packets,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_results::Verdict;

    #[test]
    fn dropped_frames_were_offered_too() {
        let sender = InterfaceCounters { tx_packets: 6, tx_dropped: 3, ..Default::default() };
        let parent = InterfaceCounters { tx_packets: 6, ..Default::default() };
        let isolation = of(&sender, &parent, &InterfaceCounters::default());
        assert_eq!((isolation.offered, isolation.left, isolation.dropped), (9, 6, 3));
        assert_eq!(isolation.verdict, Verdict::Isolated);
        let came = InterfaceCounters { rx_packets: 1, ..Default::default() };
        assert_eq!(of(&sender, &parent, &came).verdict, Verdict::NotIsolated);
    }
}
