//! Verdict on a load by its trials.

use std::time::Duration;

use crate::Goal;

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Offered load, in frames per second.
    pub load: u64,
    /// Length of the trial.
    pub duration: Duration,
    /// Share of the offered load that did not arrive; frames that were not sent count as lost.
    pub loss_ratio: f64,
}

/// Verdict on a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The load can be carried.
    Carried,
    /// The load is too high.
    TooHigh,
    /// More trials are needed.
    Open,
}

/// Judges a load by its trials.
///
/// The remaining trials are assumed to go well, then to go wrong: if both verdicts agree, the
/// verdict stands. Trials shorter than the goal's can only count against a load, and only as far as
/// short trials that went well do not make up for them.
pub(crate) fn judge(trials: &[Trial], goal: &Goal) -> Verdict {
    let is_long = |trial: &&Trial| trial.duration >= goal.trial;
    let is_good = |trial: &&Trial| trial.loss_ratio <= goal.loss_ratio;
    let sum = |long: bool, good: bool| -> f64 {
        let counted = trials.iter().filter(|t| is_long(t) == long && is_good(t) == good);
        counted.map(|trial| trial.duration.as_secs_f64()).sum()
    };
    let (good, bad) = (sum(true, true), sum(true, false));
    let made_up_for = sum(false, true) * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let bad = bad + (sum(false, false) - made_up_for).max(0.0);
    let whole = (good + bad).max(goal.sum.as_secs_f64());
    // Tolerance, because sums of times are not exact.
    let may_be_bad = whole * goal.exceed_ratio + 1e-9;
    match (bad <= may_be_bad, whole - good <= may_be_bad) {
        (true, true) => Verdict::Carried,
        (false, false) => Verdict::TooHigh,
        _ => Verdict::Open,
    }
}

/// Returns the loss ratio that only the goal's share of the time may exceed at a carried load.
pub(crate) fn loss_ratio(trials: &[Trial], goal: &Goal) -> f64 {
    let mut long: Vec<&Trial> = trials.iter().filter(|t| t.duration >= goal.trial).collect();
    long.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    let all: f64 = long.iter().map(|trial| trial.duration.as_secs_f64()).sum();
    let mut rest = all.max(goal.sum.as_secs_f64()) * (1.0 - goal.exceed_ratio) - 1e-9;
    for trial in &long {
        rest -= trial.duration.as_secs_f64();
        if rest <= 0.0 {
            return trial.loss_ratio;
        }
    }
    long.last().map_or(1.0, |trial| trial.loss_ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(seconds: u64, exceed_ratio: f64) -> Goal {
        let sum = Duration::from_secs(seconds);
        Goal { loss_ratio: 0.1, trial: Duration::from_secs(1), sum, exceed_ratio, width: 0.01 }
    }

    /// Trials of a second, or half a second for a lower-case letter; `b` means bad.
    fn trials(text: &str) -> Vec<Trial> {
        let trial = |letter: char| Trial {
            load: 1,
            duration: Duration::from_millis(if letter.is_uppercase() { 1000 } else { 500 }),
            loss_ratio: if letter.eq_ignore_ascii_case(&'b') { 0.2 } else { 0.1 },
        };
        text.chars().map(trial).collect()
    }

    fn verdict(text: &str, goal: &Goal) -> Verdict {
        judge(&trials(text), goal)
    }

    #[test]
    fn single_trial_decides_if_goal_allows() {
        let strict = goal(1, 0.0);
        assert_eq!(verdict("", &strict), Verdict::Open);
        assert_eq!(verdict("G", &strict), Verdict::Carried);
        assert_eq!(verdict("B", &strict), Verdict::TooHigh);
        assert_eq!(verdict("GB", &strict), Verdict::TooHigh);
    }

    #[test]
    fn verdict_falls_once_trials_left_cannot_change_it() {
        let half = goal(5, 0.5);
        for (text, expected) in [
            ("G", Verdict::Open),
            ("GG", Verdict::Open),
            ("GGG", Verdict::Carried),
            ("GBGBG", Verdict::Carried),
            ("BB", Verdict::Open),
            ("BBB", Verdict::TooHigh),
            ("BGBGB", Verdict::TooHigh),
            ("BGBG", Verdict::Open),
        ] {
            assert_eq!(verdict(text, &half), expected, "{text}");
        }
    }

    #[test]
    fn short_trials_can_only_reject_a_load() {
        let strict = goal(1, 0.0);
        assert_eq!(verdict("ggggg", &strict), Verdict::Open);
        assert_eq!(verdict("b", &strict), Verdict::TooHigh);
        let half = goal(1, 0.5);
        assert_eq!(verdict("gggggggg", &half), Verdict::Open);
        assert_eq!(verdict("bb", &half), Verdict::TooHigh);
        // Two good short trials make up for two bad ones.
        assert_eq!(verdict("bbgg", &half), Verdict::Open);
    }

    #[test]
    fn loss_ratio_excludes_the_exceeding_share() {
        let mut four = trials("GGGG");
        for (trial, loss_ratio) in four.iter_mut().zip([0.4, 0.0, 0.02, 0.01]) {
            trial.loss_ratio = loss_ratio;
        }
        assert_eq!(loss_ratio(&four, &goal(4, 0.5)), 0.01);
        assert_eq!(loss_ratio(&four, &goal(4, 0.25)), 0.02);
        assert_eq!(loss_ratio(&four, &goal(4, 0.0)), 0.4);
        assert_eq!(loss_ratio(&[], &goal(4, 0.0)), 1.0);
    }
}
