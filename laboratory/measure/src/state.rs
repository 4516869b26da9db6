//! State of the machine during a trial, by which the trials that are summed up are chosen.

use dray_results::{Distance, Noise};

use crate::distance::LineTimes;

/// State of the machine during a trial, or during most trials of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Distance between the CPUs, if it was measured.
    pub(crate) distance: Option<Distance>,
    /// True if the machine was busy with other work.
    pub(crate) is_disturbed: bool,
}

impl State {
    pub(crate) fn of(lines: Option<LineTimes>, noise: Noise) -> Self {
        let distance = lines.map(|lines| lines.distance());
        Self { distance, is_disturbed: noise.disturbed_trials > 0 }
    }

    /// Returns the state in most trials: the distance is near or far, if one is known.
    pub(crate) fn of_most(trials: impl IntoIterator<Item = Self>) -> Self {
        let trials: Vec<_> = trials.into_iter().collect();
        let disturbed = trials.iter().filter(|trial| trial.is_disturbed).count();
        Self { distance: distance_of_most(&trials), is_disturbed: disturbed * 2 > trials.len() }
    }
}

fn distance_of_most(trials: &[State]) -> Option<Distance> {
    let count = |distance| trials.iter().filter(|it| it.distance == Some(distance)).count();
    match (count(Distance::Near), count(Distance::Far)) {
        (0, 0) => None,
        (near, far) if near >= far => Some(Distance::Near),
        _ => Some(Distance::Far),
    }
}

/// Trials of a case that are summed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Distance between the CPUs in these trials.
    pub(crate) distance: Option<Distance>,
    /// For each trial of the case, true if it is one of them.
    pub(crate) chosen: Vec<bool>,
    /// Number of trials at that distance that are left out because they were disturbed.
    pub(crate) disturbed: usize,
}

/// Chooses the trials of a case that are summed up, at most `wanted`: those at the distance `of_run`;
/// if there are none, those at another distance; else any. Disturbed ones are left out if more than
/// half of the trials that could be used are quiet.
pub(crate) fn choose(trials: &[State], of_run: Option<Distance>, wanted: usize) -> Choice {
    let known = || trials.iter().filter_map(|trial| trial.distance);
    let distance = of_run
        .filter(|of_run| known().any(|it| it == *of_run))
        .or_else(|| distance_of_most(trials));
    let is_near_enough = |trial: &State| distance.is_none() || trial.distance == distance;
    let near_enough = || trials.iter().filter(|trial| is_near_enough(trial));
    let all = near_enough().count();
    let disturbed = near_enough().filter(|trial| trial.is_disturbed).count();
    let only_quiet = (all - disturbed) * 2 > wanted.min(all);
    let mut left = wanted;
    let choose = |trial: &State| {
        let is_chosen = is_near_enough(trial) && !(only_quiet && trial.is_disturbed) && left > 0;
        left -= usize::from(is_chosen);
        is_chosen
    };
    Choice {
        chosen: trials.iter().map(choose).collect(),
        distance: distance.or_else(|| known().next()),
        disturbed: if only_quiet { disturbed } else { 0 },
    }
}

/// Returns true if fewer than `wanted` of these trials ran in the state `of_run`, or a quieter one,
/// and others in another one.
pub(crate) fn lacks(trials: &[State], of_run: State, wanted: usize) -> bool {
    let has_distance = trials.iter().any(|trial| trial.distance.is_some());
    let is_right = |trial: &&State| {
        (!has_distance || trial.distance == of_run.distance)
            && (of_run.is_disturbed || !trial.is_disturbed)
    };
    let right = trials.iter().filter(is_right).count();
    // A trial that failed is not repeated.
    right < wanted && right < trials.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Distance::{Changed, Far, Near};

    fn at(distance: Distance) -> State {
        State { distance: Some(distance), is_disturbed: false }
    }

    fn disturbed(distance: Distance) -> State {
        State { is_disturbed: true, ..at(distance) }
    }

    /// Distance, trials chosen, and number left out as disturbed.
    fn chosen(
        trials: &[State],
        of_run: Option<Distance>,
        wanted: usize,
    ) -> (Distance, String, usize) {
        let Choice { distance, chosen, disturbed } = choose(trials, of_run, wanted);
        let chosen = chosen.iter().map(|is_chosen| if *is_chosen { 'x' } else { '-' }).collect();
        (distance.unwrap(), chosen, disturbed)
    }

    #[test]
    fn trials_at_the_distance_of_the_run_are_chosen() {
        let mixed = [Near, Far, Changed, Near].map(at);
        assert_eq!(State::of_most(mixed), at(Near));
        assert_eq!(chosen(&mixed, Some(Near), 9), (Near, "x--x".to_owned(), 0));
        assert_eq!(chosen(&mixed, Some(Near), 1), (Near, "x---".to_owned(), 0));
        assert_eq!(chosen(&mixed, Some(Far), 9), (Far, "-x--".to_owned(), 0));
    }

    #[test]
    fn case_without_such_trials_uses_others() {
        assert_eq!(chosen(&[Far, Changed].map(at), Some(Near), 9), (Far, "x-".to_owned(), 0));
        let moved = [Changed; 2].map(at);
        assert_eq!(chosen(&moved, Some(Near), 9), (Changed, "xx".to_owned(), 0));
        // On one CPU no distance is measured.
        let alone = [State::default(); 2];
        let all = Choice { distance: None, chosen: vec![true; 2], disturbed: 0 };
        assert_eq!(choose(&alone, None, 9), all);
        assert_eq!(State::of_most([]), State::default());
    }

    #[test]
    fn quiet_trials_are_chosen_if_they_are_enough() {
        let one = [at(Near), disturbed(Near), at(Near)];
        assert_eq!(chosen(&one, Some(Near), 3), (Near, "x-x".to_owned(), 1));
        assert_eq!(chosen(&one[..2], Some(Near), 2), (Near, "xx".to_owned(), 0));
        // Two of five are too few; after a repetition it is three.
        let two = [at(Near), disturbed(Near), disturbed(Near), disturbed(Near), at(Near)];
        assert_eq!(chosen(&two, Some(Near), 5), (Near, "xxxxx".to_owned(), 0));
        let again = [&two[..], &[at(Near)]].concat();
        assert_eq!(chosen(&again, Some(Near), 5), (Near, "x---xx".to_owned(), 3));
        // Quiet trials at another distance do not help.
        let far = [at(Far), disturbed(Near), disturbed(Near), at(Far)];
        assert_eq!(chosen(&far, Some(Near), 4), (Near, "-xx-".to_owned(), 0));
    }

    #[test]
    fn trials_in_another_state_are_repeated() {
        assert!(lacks(&[Near, Far].map(at), at(Near), 2));
        assert!(!lacks(&[Near, Far, Near].map(at), at(Near), 2));
        assert!(!lacks(&[at(Near)], at(Near), 2), "a trial that failed is not repeated");
        assert!(lacks(&[at(Near), disturbed(Near)], at(Near), 2));
        assert!(!lacks(&[at(Near), disturbed(Near), at(Near)], at(Near), 2));
    }

    #[test]
    fn states_that_no_repetition_changes_are_kept() {
        // Other work goes on during most trials of the run.
        let mostly = State::of_most([disturbed(Near), disturbed(Near), at(Near)]);
        assert!(!lacks(&[at(Near), disturbed(Near)], mostly, 2));
        assert!(lacks(&[at(Far), disturbed(Near)], mostly, 2));
        // Roles of this case share a CPU, those of others do not.
        assert!(!lacks(&[State::default(); 2], at(Near), 2));
    }
}
