//! Reports of packets from addresses that their session does not send to.

use std::time::Duration;

use dray_port::clock;

/// A packet's session, TEID and outer source address.
type Case = (u64, u32, u128);

/// Number of cases that are remembered.
const PLACES: usize = 64;
/// Time after which a case is reported again.
const REPEAT: Duration = Duration::from_secs(10);
/// Maximum number of reports in a second.
const PER_SECOND: u32 = 10;

/// Decides which packets are reported: the first of each case, and one more every [`REPEAT`]; at
/// most [`PER_SECOND`] of all cases.
pub(super) struct WrongGnbReports {
    /// Cases and the ticks of their reports, each at a place that its session and source determine.
    reported: [Option<(Case, u64)>; PLACES],
    /// The current second, and the number of reports in it.
    second: (u64, u32),
}

impl WrongGnbReports {
    pub(super) fn new() -> Self {
        Self { reported: [None; PLACES], second: (0, 0) }
    }

    /// Returns true if a packet at the tick `now` has to be reported.
    #[cold]
    pub(super) fn must_report(&mut self, case: Case, now: u64) -> bool {
        let (seid, _, source) = case;
        let place = (seid ^ source as u64 ^ (source >> 64) as u64) as usize % PLACES;
        let place = &mut self.reported[place];
        let is_recent = |tick| now.saturating_sub(tick) < clock::to_ticks(REPEAT);
        if place.is_some_and(|(known, tick)| known == case && is_recent(tick)) {
            return false;
        }
        let second = now / clock::ticks_per_second();
        if self.second.0 != second {
            self.second = (second, 0);
        }
        let has_room = self.second.1 < PER_SECOND;
        if has_room {
            self.second.1 += 1;
            *place = Some((case, now));
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_reported_at_once_and_seldom_again() {
        let second = clock::ticks_per_second();
        let start = 1000 * second;
        let mut wrong_gnb = WrongGnbReports::new();
        assert!(wrong_gnb.must_report((1, 2, 3), start));
        assert!(!wrong_gnb.must_report((1, 2, 3), start + 1));
        assert!(wrong_gnb.must_report((2, 2, 3), start + 2), "another session");
        assert!(wrong_gnb.must_report((1, 2, 4), start + 3), "another source");
        assert!(!wrong_gnb.must_report((1, 2, 3), start + 9 * second));
        assert!(wrong_gnb.must_report((1, 2, 3), start + 11 * second));
    }

    #[test]
    fn reports_about_many_sources_are_limited() {
        let second = clock::ticks_per_second();
        let mut wrong_gnb = WrongGnbReports::new();
        let mut reports = |from: u64| {
            let cases = (0..1000u64).map(|seid| (seid, 1, 1u128));
            cases.filter(|case| wrong_gnb.must_report(*case, from * second)).count()
        };
        assert_eq!((reports(100), reports(200)), (10, 10));
    }
}
