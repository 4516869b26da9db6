//! Counters and limits of usage reporting rules.
//!
//! Both directions count at the same time, each on its own cache line
//! ([`Account`](crate::account)). A limit on the sum is compared with what the other direction has
//! counted so far.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use dray_wire::gtpu::Direction;

use crate::config::{Urr, Volume};
use crate::meter::Sharing;
use dray_datapath::lock;

/// No limit.
const NEVER: u64 = u64::MAX;
/// Index of the limit on the volume of both directions together; those of each come first.
const TOTAL: usize = 2;

/// Counter of one direction, in an account.
#[derive(Clone, Copy)]
pub(crate) struct Counter<'a> {
    pub(crate) octets: &'a AtomicU64,
    pub(crate) packets: &'a AtomicU64,
    /// Number of octets from which the limits have to be checked; 0 if there is a limit on the sum.
    pub(crate) closer: &'a AtomicU64,
    /// Number of octets at which the next report is due.
    pub(crate) next: &'a AtomicU64,
    /// Uplink: the same of both directions together.
    pub(crate) next_sum: &'a AtomicU64,
}

impl Counter<'_> {
    /// Returns true if the limits need not be checked.
    #[inline(always)]
    pub(crate) fn is_free(&self) -> bool {
        self.octets.load(Relaxed) < self.closer.load(Relaxed)
    }

    /// Counts a packet of `octets`; returns true if the limits need not be checked.
    #[inline(always)]
    pub(crate) fn count(&self, octets: usize, sharing: Sharing) -> bool {
        let octets = octets as u64;
        match sharing {
            Sharing::Alone => {
                self.octets.store(self.octets.load(Relaxed) + octets, Relaxed);
                self.packets.store(self.packets.load(Relaxed) + 1, Relaxed);
            }
            Sharing::Shared => {
                self.octets.fetch_add(octets, Relaxed);
                self.packets.fetch_add(1, Relaxed);
            }
        }
        self.is_free()
    }

    /// Continues with what a counter of the process before has counted.
    pub(crate) fn resume(&self, past: Counter<'_>) {
        self.octets.store(past.octets.load(Relaxed), Relaxed);
        self.packets.store(past.packets.load(Relaxed), Relaxed);
    }

    /// Resets the counts and removes the limits.
    pub(crate) fn clear(&self) {
        self.octets.store(0, Relaxed);
        self.packets.store(0, Relaxed);
        [self.closer, self.next, self.next_sum].iter().for_each(|mark| mark.store(NEVER, Relaxed));
    }
}

/// The counters of both directions.
pub(crate) type Counters<'c> = [Counter<'c>; 2];

/// Returns the numbers of octets at which the next reports are due.
fn next(counters: Counters<'_>) -> [&AtomicU64; 3] {
    let [up, down] = counters;
    [up.next, down.next, up.next_sum]
}

fn octets(counters: Counters<'_>) -> [u64; 3] {
    let [up, down] = counters.map(|counter| counter.octets.load(Relaxed));
    [up, down, up + down]
}

/// Volume and packets counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counted {
    /// Bytes of IP packets from access.
    pub uplink_octets: u64,
    /// Number of those packets.
    pub uplink_packets: u64,
    /// Bytes of IP packets to access.
    pub downlink_octets: u64,
    /// Number of those packets.
    pub downlink_packets: u64,
}

impl From<Counters<'_>> for Counted {
    fn from([up, down]: Counters<'_>) -> Self {
        Self {
            uplink_octets: up.octets.load(Relaxed),
            uplink_packets: up.packets.load(Relaxed),
            downlink_octets: down.octets.load(Relaxed),
            downlink_packets: down.packets.load(Relaxed),
        }
    }
}

/// Report that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// A threshold has been reached.
    Threshold,
    /// The quota has been used up.
    Quota,
}

/// Limits in bytes: of the uplink, of the downlink, or of their sum.
#[derive(Debug)]
struct Limit {
    /// Distance from one report to the next.
    step: AtomicU64,
    quota: AtomicU64,
}

impl Default for Limit {
    fn default() -> Self {
        Self { step: NEVER.into(), quota: NEVER.into() }
    }
}

impl Limit {
    /// Returns true if the threshold `next` was passed. Of several threads, only the one that moves
    /// the mark reports.
    fn is_passed(&self, next: &AtomicU64, now: u64) -> bool {
        let (mark, step) = (next.load(Relaxed), self.step.load(Relaxed));
        now >= mark
            && next.compare_exchange(mark, now.saturating_add(step), Relaxed, Relaxed).is_ok()
    }
}

/// Thresholds and quotas of a usage reporting rule.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    limits: [Limit; 3],
    /// True if the end of the quota has been reported.
    told: AtomicBool,
    /// Held while limits change, and while `closer` of a counter is updated.
    marks: Mutex<()>,
}

impl Limits {
    /// Returns true if a rule has any limits.
    pub(crate) fn are_in(rule: &Urr) -> bool {
        rule.threshold != Volume::default() || rule.quota != Volume::default()
    }

    /// Adopts the limits of `rule`.
    pub(crate) fn set(&self, rule: &Urr, counters: Counters<'_>) {
        let _marks = lock(&self.marks);
        let all = |volume: &Volume| [volume.uplink, volume.downlink, volume.total];
        let values = all(&rule.threshold).into_iter().zip(all(&rule.quota));
        let marks = next(counters).into_iter().zip(octets(counters));
        for ((limit, (mark, counted)), (step, quota)) in self.limits.iter().zip(marks).zip(values) {
            mark.store(step.map_or(NEVER, |step| counted.saturating_add(step)), Relaxed);
            limit.step.store(step.unwrap_or(NEVER), Relaxed);
            limit.quota.store(quota.unwrap_or(NEVER), Relaxed);
        }
        self.told.store(false, Relaxed);
        for direction in Direction::ALL {
            self.mark(direction, counters);
        }
    }

    /// Continues with the reports where the process before has stopped, with the same limits; its
    /// counts are already in `counters`. Returns true if the end of the quota has to be reported: the
    /// process before may have been killed before it did.
    pub(crate) fn resume(&self, counters: Counters<'_>, past: Counters<'_>) -> bool {
        let _marks = lock(&self.marks);
        for ((limit, mark), past) in self.limits.iter().zip(next(counters)).zip(next(past)) {
            if limit.step.load(Relaxed) != NEVER {
                mark.store(past.load(Relaxed), Relaxed);
            }
        }
        for direction in Direction::ALL {
            self.mark(direction, counters);
        }
        let is_used_up = Direction::ALL.iter().any(|way| !self.allow(*way, counters));
        self.told.store(is_used_up, Relaxed);
        is_used_up
    }

    /// Returns true if any limit is on the sum.
    fn sums(&self) -> bool {
        let Limit { step, quota } = &self.limits[TOTAL];
        step.load(Relaxed) != NEVER || quota.load(Relaxed) != NEVER
    }

    /// Updates from when on the limits have to be checked; the caller holds the lock.
    fn mark(&self, direction: Direction, counters: Counters<'_>) {
        let quota = &self.limits[direction as usize].quota;
        let closer = counters[direction as usize].next.load(Relaxed).min(quota.load(Relaxed));
        counters[direction as usize].closer.store(if self.sums() { 0 } else { closer }, Relaxed);
    }

    /// Returns true if there is quota left for a packet.
    #[cold]
    pub(crate) fn allow(&self, direction: Direction, counters: Counters<'_>) -> bool {
        let counted = octets(counters);
        let left = |index: usize| counted[index] < self.limits[index].quota.load(Relaxed);
        left(direction as usize) && left(TOTAL)
    }

    /// Returns the report that is due after a packet was counted.
    #[cold]
    pub(crate) fn due(&self, direction: Direction, counters: Counters<'_>) -> Due {
        let counted = octets(counters);
        let marks = next(counters);
        let passed = |index: usize| self.limits[index].is_passed(marks[index], counted[index]);
        let passed = passed(direction as usize) | passed(TOTAL);
        if !self.sums() {
            let _marks = lock(&self.marks);
            self.mark(direction, counters);
        }
        match (self.allow(direction, counters), passed) {
            (false, _) if !self.told.swap(true, Relaxed) => Due::Quota,
            (true, true) => Due::Threshold,
            _ => Due::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dray_wire::gtpu::Direction::{Downlink, Uplink};

    use super::*;
    use crate::account::Accounts;
    use Due::{Nothing, Quota, Threshold};

    struct Usage {
        accounts: Arc<Accounts>,
        limits: Limits,
    }

    impl Usage {
        fn unlimited() -> Self {
            let accounts = Accounts::new(1).unwrap();
            accounts.clear(0);
            Self { accounts, limits: Limits::default() }
        }

        fn new(threshold: Volume, quota: Volume) -> Self {
            let usage = Self::unlimited();
            usage.limits.set(&Urr { id: 1, threshold, quota }, usage.both());
            usage
        }

        fn both(&self) -> Counters<'_> {
            Direction::ALL.map(|direction| self.accounts.of(direction, 0).counter)
        }

        fn count(&self, direction: Direction, octets: usize) -> Due {
            match self.both()[direction as usize].count(octets, Sharing::Alone) {
                true => Nothing,
                false => self.limits.due(direction, self.both()),
            }
        }

        fn allows(&self, direction: Direction) -> bool {
            self.both()[direction as usize].is_free() || self.limits.allow(direction, self.both())
        }
    }

    #[test]
    fn threshold_is_reported_repeatedly() {
        let none = Volume::default();
        let up = Usage::new(Volume { uplink: Some(250), ..none }, none);
        let dues: Vec<_> = (0..6).map(|_| up.count(Uplink, 100)).collect();
        assert_eq!(dues, [Nothing, Nothing, Threshold, Nothing, Nothing, Threshold]);
        assert_eq!(up.count(Downlink, 1000), Nothing);
        let total =
            Usage::new(Volume { total: Some(250), ..none }, Volume { total: Some(500), ..none });
        let directions = [Uplink, Downlink, Uplink, Downlink, Uplink];
        let dues: Vec<_> =
            directions.iter().map(|direction| total.count(*direction, 100)).collect();
        assert_eq!(dues, [Nothing, Nothing, Threshold, Nothing, Quota]);
        assert!(!total.allows(Uplink) && !total.allows(Downlink));
        assert_eq!(Counted::from(total.both()).uplink_packets, 3);
    }

    #[test]
    fn quota_closes_only_its_direction() {
        let quota = Volume { downlink: Some(150), ..Volume::default() };
        let usage = Usage::new(Volume::default(), quota);
        assert!(usage.allows(Downlink));
        assert_eq!(usage.count(Downlink, 100), Nothing);
        assert!(usage.allows(Downlink));
        assert_eq!(usage.count(Downlink, 100), Quota);
        assert!(!usage.allows(Downlink) && usage.allows(Uplink));
        assert_eq!(usage.count(Downlink, 100), Nothing, "a spent quota is reported once");
    }

    #[test]
    fn next_process_continues_counts_reports_and_quota() {
        let none = Volume::default();
        let (threshold, quota) =
            (Volume { total: Some(250), ..none }, Volume { uplink: Some(500), ..none });
        let past = Usage::new(threshold, quota);
        let dues: Vec<_> = (0..4).map(|_| past.count(Uplink, 100)).collect();
        assert_eq!(dues, [Nothing, Nothing, Threshold, Nothing]);
        let resumed = |past: &Usage| {
            let usage = Usage::new(threshold, quota);
            usage.both().iter().zip(past.both()).for_each(|(counter, past)| counter.resume(past));
            let is_used_up = usage.limits.resume(usage.both(), past.both());
            assert_eq!(Counted::from(usage.both()), Counted::from(past.both()));
            (usage, is_used_up)
        };
        // The second report is due at 550, as before.
        let (usage, is_used_up) = resumed(&past);
        assert!(!is_used_up);
        assert_eq!([usage.count(Downlink, 149), usage.count(Downlink, 1)], [Nothing, Threshold]);
        assert_eq!(usage.count(Uplink, 100), Quota);
        let (usage, is_used_up) = resumed(&usage);
        assert!(is_used_up && !usage.allows(Uplink) && usage.allows(Downlink));
    }

    #[test]
    fn changed_rule_keeps_counting() {
        let usage = Usage::unlimited();
        assert_eq!(usage.count(Uplink, 1000), Nothing);
        let threshold = Volume { uplink: Some(10), ..Volume::default() };
        usage.limits.set(&Urr { id: 1, threshold, quota: Volume::default() }, usage.both());
        assert_eq!(usage.count(Uplink, 9), Nothing);
        assert_eq!(usage.count(Uplink, 1), Threshold);
        usage.limits.set(
            &Urr { id: 1, threshold: Volume::default(), quota: Volume::default() },
            usage.both(),
        );
        assert_eq!(usage.count(Uplink, 1000), Nothing);
    }
}
