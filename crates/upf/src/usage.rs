//! What a usage reporting rule has counted.
//!
//! Both directions count at the same time, each on a cache line that nobody else writes. A limit that
//! is on the sum is compared with what the other direction has counted so far.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dray_port::prefetch;

use crate::config::{Urr, Volume};

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From access to core.
    Uplink = 0,
    /// From core to access.
    Downlink = 1,
}

/// No limit.
const NEVER: u64 = u64::MAX;

/// What one direction has counted, and its limits.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    octets: AtomicU64,
    packets: AtomicU64,
    /// Of this direction: when the next report is due, and how far that is from one to the next.
    next: AtomicU64,
    step: u64,
    quota: u64,
    /// Whether there is any limit on the sum; here, so that most packets need no other line.
    sums: bool,
}

/// A usage reporting rule of a session.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) urr: u32,
    /// As in a line, for the sum.
    next: AtomicU64,
    step: u64,
    quota: u64,
    lines: [Line; 2],
}

/// Whether a packet may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// A threshold has been reached.
    Threshold,
    /// The quota has been used up.
    Quota,
}

/// Counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counted {
    /// Bytes of IP packets from access.
    pub uplink_octets: u64,
    /// Those packets.
    pub uplink_packets: u64,
    /// Bytes of IP packets to access.
    pub downlink_octets: u64,
    /// Those packets.
    pub downlink_packets: u64,
}

impl Usage {
    /// Goes on from what the same rule has counted `before`.
    pub(crate) fn new(rule: &Urr, before: Counted) -> Self {
        let Volume { total, uplink, downlink } = rule.threshold;
        let next = |counted: u64, step: Option<u64>| {
            AtomicU64::new(step.map_or(NEVER, |step| counted.saturating_add(step)))
        };
        let sums = total.is_some() || rule.quota.total.is_some();
        let line = |octets, packets, step: Option<u64>, quota: Option<u64>| Line {
            next: next(octets, step),
            octets: AtomicU64::new(octets),
            packets: AtomicU64::new(packets),
            step: step.unwrap_or(NEVER),
            quota: quota.unwrap_or(NEVER),
            sums,
        };
        let sum = before.uplink_octets + before.downlink_octets;
        Self {
            urr: rule.id,
            next: next(sum, total),
            step: total.unwrap_or(NEVER),
            quota: rule.quota.total.unwrap_or(NEVER),
            lines: [
                line(before.uplink_octets, before.uplink_packets, uplink, rule.quota.uplink),
                line(
                    before.downlink_octets,
                    before.downlink_packets,
                    downlink,
                    rule.quota.downlink,
                ),
            ],
        }
    }

    /// Asks for the line of one direction.
    #[inline(always)]
    pub(crate) fn prefetch(&self, way: Way) {
        prefetch(&self.lines[way as usize]);
    }

    /// Whether there is quota left for a packet.
    #[inline(always)]
    pub(crate) fn allows(&self, way: Way) -> bool {
        let line = &self.lines[way as usize];
        line.octets.load(Relaxed) < line.quota && (!line.sums || self.sum() < self.quota)
    }

    /// Counts a packet of `octets`; only the one thread of that direction does.
    #[inline(always)]
    pub(crate) fn count(&self, way: Way, octets: usize) -> Due {
        let line = &self.lines[way as usize];
        let now = line.octets.load(Relaxed) + octets as u64;
        line.octets.store(now, Relaxed);
        line.packets.store(line.packets.load(Relaxed) + 1, Relaxed);
        if now >= line.next.load(Relaxed) || now >= line.quota || line.sums {
            return self.due(line, now);
        }
        Due::Nothing
    }

    #[cold]
    fn due(&self, line: &Line, now: u64) -> Due {
        let sum = self.sum();
        if now >= line.quota || sum >= self.quota {
            return Due::Quota;
        }
        // Whoever moves the mark reports, so that one of two directions does.
        let passed = |next: &AtomicU64, step: u64, now: u64| {
            let mark = next.load(Relaxed);
            now >= mark
                && next.compare_exchange(mark, now.saturating_add(step), Relaxed, Relaxed).is_ok()
        };
        match passed(&line.next, line.step, now) | passed(&self.next, self.step, sum) {
            true => Due::Threshold,
            false => Due::Nothing,
        }
    }

    fn sum(&self) -> u64 {
        self.lines.iter().map(|line| line.octets.load(Relaxed)).sum()
    }

    pub(crate) fn counted(&self) -> Counted {
        let [up, down] = &self.lines;
        Counted {
            uplink_octets: up.octets.load(Relaxed),
            uplink_packets: up.packets.load(Relaxed),
            downlink_octets: down.octets.load(Relaxed),
            downlink_packets: down.packets.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(threshold: Volume, quota: Volume) -> Usage {
        Usage::new(&Urr { id: 1, threshold, quota }, Counted::default())
    }

    #[test]
    fn thresholds_come_again_and_again() {
        let none = Volume::default();
        let up = usage(Volume { uplink: Some(250), ..none }, none);
        let dues: Vec<_> = (0..6).map(|_| up.count(Way::Uplink, 100)).collect();
        use Due::{Nothing, Quota, Threshold};
        assert_eq!(dues, [Nothing, Nothing, Threshold, Nothing, Nothing, Threshold]);
        assert_eq!(up.count(Way::Downlink, 1000), Nothing);
        let total = usage(Volume { total: Some(250), ..none }, Volume { total: Some(500), ..none });
        let ways = [Way::Uplink, Way::Downlink, Way::Uplink, Way::Downlink, Way::Uplink];
        let dues: Vec<_> = ways.iter().map(|way| total.count(*way, 100)).collect();
        assert_eq!(dues, [Nothing, Nothing, Threshold, Nothing, Quota]);
        assert!(!total.allows(Way::Uplink) && !total.allows(Way::Downlink));
        assert_eq!(total.counted().uplink_packets, 3);
    }

    #[test]
    fn a_quota_of_one_direction_leaves_the_other_alone() {
        let quota = Volume { downlink: Some(150), ..Volume::default() };
        let usage = usage(Volume::default(), quota);
        assert!(usage.allows(Way::Downlink));
        assert_eq!(usage.count(Way::Downlink, 100), Due::Nothing);
        assert!(usage.allows(Way::Downlink));
        assert_eq!(usage.count(Way::Downlink, 100), Due::Quota);
        assert!(!usage.allows(Way::Downlink) && usage.allows(Way::Uplink));
    }

    #[test]
    fn a_changed_rule_goes_on_counting() {
        let before = Counted { uplink_octets: 1000, uplink_packets: 3, ..Counted::default() };
        let threshold = Volume { uplink: Some(10), ..Volume::default() };
        let usage = Usage::new(&Urr { id: 1, threshold, quota: Volume::default() }, before);
        assert_eq!(usage.counted(), before);
        assert_eq!(usage.count(Way::Uplink, 9), Due::Nothing);
        assert_eq!(usage.count(Way::Uplink, 1), Due::Threshold);
    }
}
