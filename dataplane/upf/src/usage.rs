//! Counters and limits of usage reporting rules.
//!
//! Both directions count at the same time, each on its own cache line
//! ([`Account`](crate::account)). A limit on the sum is compared with what the other direction has
//! counted so far.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use dray_wire::gtpu::Direction;

use crate::config::{Urr, Volume};
use dray_datapath::{Sharing, lock};

/// No limit.
const NEVER: u64 = u64::MAX;
/// Index of the limit on the volume of both directions together; those of each come first.
const TOTAL: usize = 2;

/// Counter of one direction, in an account.
#[derive(Clone, Copy)]
pub(crate) struct Counter<'a> {
    pub(crate) octets: &'a AtomicU64,
    pub(crate) packets: &'a AtomicU64,
    /// Number of octets from which the limits have to be checked; 0 if there is a limit on the
    /// sum.
    pub(crate) closer: &'a AtomicU64,
    /// Number of octets at which the next report is due.
    pub(crate) next: &'a AtomicU64,
    /// Uplink: number of octets of both directions together at which the next report is due.
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
    pub(crate) fn resume(&self, before: Counter<'_>) {
        self.octets.store(before.octets.load(Relaxed), Relaxed);
        self.packets.store(before.packets.load(Relaxed), Relaxed);
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
    /// The quota as given, and the count at which it is used up.
    quota: AtomicU64,
    end: AtomicU64,
    /// True if the end of the quota has been reported.
    is_reported: AtomicBool,
}

impl Default for Limit {
    fn default() -> Self {
        let never = || AtomicU64::new(NEVER);
        Self { step: never(), quota: never(), end: never(), is_reported: AtomicBool::new(false) }
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

    fn is_used_up(&self, now: u64) -> bool {
        now >= self.end.load(Relaxed)
    }

    /// Returns true if the quota is used up and not reported yet.
    fn must_report(&self, now: u64) -> bool {
        self.is_used_up(now) && !self.is_reported.swap(true, Relaxed)
    }
}

/// Terms of a rule for the next process: the limits as given, and the counts at which the quotas
/// are used up.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Terms {
    step: [u64; 3],
    quota: [u64; 3],
    end: [u64; 3],
}

impl Terms {
    /// Terms of a rule without limits.
    pub(crate) const NONE: Self = Self { step: [NEVER; 3], quota: [NEVER; 3], end: [NEVER; 3] };
}

/// Thresholds and quotas of a usage reporting rule.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    limits: [Limit; 3],
    /// Locked while limits change, and while `closer` of a counter is updated.
    marks: Mutex<()>,
}

/// Returns limits on the uplink, the downlink and both together.
fn values(volume: &Volume) -> [u64; 3] {
    [volume.uplink, volume.downlink, volume.total].map(|octets| octets.unwrap_or(NEVER))
}

impl Limits {
    /// Returns true if a rule has any limits.
    pub(crate) fn are_in(rule: &Urr) -> bool {
        rule.threshold != Volume::default() || rule.quota != Volume::default()
    }

    /// Adopts the limits of `rule`, and returns the report that is due at once.
    ///
    /// Unchanged limits continue. Another threshold is compared with what was counted since the
    /// last report. Another quota is a grant from now; so is a quota that is used up and
    /// `is_given_again`, by a rule that differs otherwise or a session that does not differ at
    /// all (TS 29.244, sections 5.2.2 and 7.5.4.4).
    pub(crate) fn set(&self, rule: &Urr, is_given_again: bool, counters: Counters<'_>) -> Due {
        self.adopt((values(&rule.threshold), values(&rule.quota)), is_given_again, counters)
    }

    fn adopt(
        &self,
        (steps, quotas): ([u64; 3], [u64; 3]),
        is_given_again: bool,
        counters: Counters<'_>,
    ) -> Due {
        let _marks = lock(&self.marks);
        let counted = octets(counters);
        let all = || self.limits.iter().zip(counted);
        let are_same = |values: [u64; 3], of: fn(&Limit) -> &AtomicU64| {
            self.limits.iter().zip(values).all(|(limit, value)| of(limit).load(Relaxed) == value)
        };
        let has_other_steps = !are_same(steps, |limit| &limit.step);
        let is_used_up = all().any(|(limit, counted)| limit.is_used_up(counted));
        let is_grant = !are_same(quotas, |limit| &limit.quota)
            || is_used_up && (is_given_again || has_other_steps);
        for ((limit, counted), (mark, step)) in all().zip(next(counters).into_iter().zip(steps)) {
            let before = limit.step.swap(step, Relaxed);
            if before != step {
                let last = match before {
                    NEVER => counted,
                    before => mark.load(Relaxed).saturating_sub(before),
                };
                mark.store(last.saturating_add(step), Relaxed);
            }
        }
        if is_grant {
            for ((limit, counted), quota) in all().zip(quotas) {
                limit.quota.store(quota, Relaxed);
                limit.end.store(counted.saturating_add(quota), Relaxed);
                limit.is_reported.store(false, Relaxed);
            }
        }
        let due = self.passed(&[0, 1, TOTAL], counters);
        Direction::ALL.iter().for_each(|direction| self.mark(*direction, counters));
        due
    }

    /// Returns the terms of the rule.
    pub(crate) fn terms(&self) -> Terms {
        let of = |of: fn(&Limit) -> &AtomicU64| {
            self.limits.each_ref().map(|limit| of(limit).load(Relaxed))
        };
        Terms {
            step: of(|limit| &limit.step),
            quota: of(|limit| &limit.quota),
            end: of(|limit| &limit.end),
        }
    }

    /// Continues with the reports and quotas where the process before has stopped; its counts are
    /// already in `counters`. The limits are its `terms`, and then those that this process has
    /// [set](Self::set). Returns the report that is due; the end of a quota is reported again,
    /// since the process before may have been killed before it did.
    pub(crate) fn resume(
        &self,
        terms: &Terms,
        counters: Counters<'_>,
        before: Counters<'_>,
    ) -> Due {
        let Terms { step, quota, .. } = self.terms();
        for (index, limit) in self.limits.iter().enumerate() {
            limit.step.store(terms.step[index], Relaxed);
            limit.quota.store(terms.quota[index], Relaxed);
            limit.end.store(terms.end[index], Relaxed);
            limit.is_reported.store(false, Relaxed);
        }
        for (mark, before) in next(counters).into_iter().zip(next(before)) {
            mark.store(before.load(Relaxed), Relaxed);
        }
        self.adopt((step, quota), false, counters)
    }

    /// Returns true if any limit is on the sum.
    fn sums(&self) -> bool {
        let Limit { step, end, .. } = &self.limits[TOTAL];
        step.load(Relaxed) != NEVER || end.load(Relaxed) != NEVER
    }

    /// Updates from when on the limits have to be checked; the caller holds the lock.
    fn mark(&self, direction: Direction, counters: Counters<'_>) {
        let end = &self.limits[direction as usize].end;
        let closer = counters[direction as usize].next.load(Relaxed).min(end.load(Relaxed));
        counters[direction as usize].closer.store(if self.sums() { 0 } else { closer }, Relaxed);
    }

    /// Returns true if there is quota left for a packet.
    #[cold]
    pub(crate) fn allow(&self, direction: Direction, counters: Counters<'_>) -> bool {
        let counted = octets(counters);
        [direction as usize, TOTAL].iter().all(|of| !self.limits[*of].is_used_up(counted[*of]))
    }

    /// Returns the report that is due after a packet was counted.
    #[cold]
    pub(crate) fn due(&self, direction: Direction, counters: Counters<'_>) -> Due {
        let due = self.passed(&[direction as usize, TOTAL], counters);
        if !self.sums() {
            let _marks = lock(&self.marks);
            self.mark(direction, counters);
        }
        due
    }

    /// Returns the report that is due because of some of the limits.
    fn passed(&self, which: &[usize], counters: Counters<'_>) -> Due {
        let (counted, marks) = (octets(counters), next(counters));
        let [mut is_passed, mut is_used_up] = [false; 2];
        for of in which {
            let limit = &self.limits[*of];
            is_passed |= limit.is_passed(marks[*of], counted[*of]);
            is_used_up |= limit.must_report(counted[*of]);
        }
        match (is_used_up, is_passed) {
            (true, _) => Due::Quota,
            (false, true) => Due::Threshold,
            (false, false) => Due::Nothing,
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
            usage.limits.set(&Urr { id: 1, threshold, quota }, false, usage.both());
            usage
        }

        /// Changes the rule, or gives it again with a session that is the same.
        fn change(&self, threshold: Volume, quota: Volume, is_given_again: bool) -> Due {
            self.limits.set(&Urr { id: 1, threshold, quota }, is_given_again, self.both())
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
        let before = Usage::new(threshold, quota);
        let dues: Vec<_> = (0..4).map(|_| before.count(Uplink, 100)).collect();
        assert_eq!(dues, [Nothing, Nothing, Threshold, Nothing]);
        let resumed = |before: &Usage| {
            let usage = Usage::new(threshold, quota);
            usage
                .both()
                .iter()
                .zip(before.both())
                .for_each(|(counter, before)| counter.resume(before));
            let due = usage.limits.resume(&before.limits.terms(), usage.both(), before.both());
            assert_eq!(Counted::from(usage.both()), Counted::from(before.both()));
            (usage, due)
        };
        // The second report is due at 550, as before.
        let (usage, due) = resumed(&before);
        assert_eq!(due, Nothing);
        assert_eq!([usage.count(Downlink, 149), usage.count(Downlink, 1)], [Nothing, Threshold]);
        assert_eq!(usage.count(Uplink, 100), Quota);
        let (usage, due) = resumed(&usage);
        assert!(due == Quota && !usage.allows(Uplink) && usage.allows(Downlink));
        // A second grant ends where it would have.
        assert_eq!(usage.change(threshold, Volume { uplink: Some(150), ..none }, false), Nothing);
        assert_eq!(usage.count(Uplink, 100), Nothing);
        let after = Usage::new(threshold, Volume { uplink: Some(150), ..none });
        after.both().iter().zip(usage.both()).for_each(|(counter, before)| counter.resume(before));
        assert_eq!(after.limits.resume(&usage.limits.terms(), after.both(), usage.both()), Nothing);
        assert_eq!(after.count(Uplink, 50), Quota);
    }

    #[test]
    fn rule_changed_between_processes_is_a_grant_from_then() {
        let none = Volume::default();
        let before = Usage::new(none, Volume { total: Some(100), ..none });
        assert_eq!(before.count(Uplink, 100), Quota);
        for (terms, expected) in [(before.limits.terms(), Nothing), (Terms::NONE, Nothing)] {
            let usage = Usage::new(none, Volume { total: Some(60), ..none });
            usage
                .both()
                .iter()
                .zip(before.both())
                .for_each(|(counter, before)| counter.resume(before));
            assert_eq!(usage.limits.resume(&terms, usage.both(), before.both()), expected);
            assert!(usage.allows(Downlink));
            assert_eq!(usage.count(Downlink, 60), Quota);
        }
    }

    #[test]
    fn modification_that_leaves_rule_alone_changes_nothing() {
        let none = Volume::default();
        let (threshold, quota) =
            (Volume { total: Some(100), ..none }, Volume { uplink: Some(200), ..none });
        let usage = Usage::new(threshold, quota);
        for _ in 0..10 {
            assert_eq!(usage.count(Uplink, 9), Nothing);
            assert_eq!(usage.change(threshold, quota, true), Nothing);
        }
        assert_eq!(usage.count(Uplink, 10), Threshold);
        assert_eq!(usage.count(Uplink, 99), Nothing);
        assert_eq!(usage.change(threshold, quota, false), Nothing);
        assert_eq!(usage.count(Uplink, 1), Quota);
        // Other rules of the session change.
        assert_eq!(usage.change(threshold, quota, false), Nothing);
        assert!(!usage.allows(Uplink) && usage.allows(Downlink));
    }

    #[test]
    fn changed_threshold_counts_from_last_report() {
        let of = |total| Volume { total: Some(total), ..Volume::default() };
        let none = Volume::default();
        let usage = Usage::new(of(100), none);
        assert_eq!([usage.count(Uplink, 100), usage.count(Downlink, 60)], [Threshold, Nothing]);
        assert_eq!(usage.change(of(200), none, false), Nothing);
        assert_eq!([usage.count(Uplink, 139), usage.count(Uplink, 1)], [Nothing, Threshold]);
        assert_eq!(usage.count(Uplink, 60), Nothing);
        assert_eq!(usage.change(of(50), none, false), Threshold, "already passed");
        assert_eq!([usage.count(Uplink, 49), usage.count(Uplink, 1)], [Nothing, Threshold]);
    }

    #[test]
    fn quota_is_a_grant_from_now() {
        let none = Volume::default();
        let of = |total| Volume { total: Some(total), ..none };
        let usage = Usage::new(none, of(100));
        assert_eq!([usage.count(Uplink, 60), usage.count(Downlink, 60)], [Nothing, Quota]);
        for (quota, is_given_again) in [(100, true), (50, false), (100, false)] {
            assert!(!usage.allows(Uplink) && !usage.allows(Downlink));
            assert_eq!(usage.change(none, of(quota), is_given_again), Nothing);
            assert!(usage.allows(Uplink) && usage.allows(Downlink));
            assert_eq!(usage.count(Uplink, quota as usize - 1), Nothing);
            assert_eq!(usage.count(Downlink, 1), Quota);
        }
        // Of several limits, all are granted anew.
        let both = Volume { uplink: Some(100), downlink: Some(10), ..none };
        assert_eq!(usage.change(none, both, false), Nothing);
        assert_eq!([usage.count(Uplink, 100), usage.count(Downlink, 10)], [Quota, Quota]);
        assert_eq!(usage.change(none, Volume { downlink: Some(20), ..both }, false), Nothing);
        assert!(usage.allows(Uplink) && usage.allows(Downlink));
        // No quota, and one again.
        assert_eq!(usage.count(Uplink, 1000), Quota);
        assert_eq!(usage.change(none, none, false), Nothing);
        assert!(usage.allows(Uplink));
        assert_eq!(usage.change(none, both, false), Nothing);
        assert!(usage.allows(Uplink));
    }

    #[test]
    fn quota_without_volume_is_reported_when_given() {
        let none = Volume::default();
        let usage = Usage::new(none, Volume { total: Some(1000), ..none });
        assert_eq!(usage.count(Uplink, 120), Nothing);
        let zero = Volume { total: Some(0), ..none };
        assert_eq!(usage.change(none, zero, false), Quota);
        assert!(!usage.allows(Uplink) && !usage.allows(Downlink));
        assert_eq!(usage.change(none, zero, false), Nothing, "it is reported once");
        assert_eq!(usage.change(none, Volume { total: Some(10), ..none }, false), Nothing);
        assert!(usage.allows(Downlink));
    }

    #[test]
    fn changed_rule_keeps_counting() {
        let usage = Usage::unlimited();
        assert_eq!(usage.count(Uplink, 1000), Nothing);
        let threshold = Volume { uplink: Some(10), ..Volume::default() };
        usage.change(threshold, Volume::default(), false);
        assert_eq!(usage.count(Uplink, 9), Nothing);
        assert_eq!(usage.count(Uplink, 1), Threshold);
        usage.change(Volume::default(), Volume::default(), false);
        assert_eq!(usage.count(Uplink, 1000), Nothing);
    }
}
