//! State of the machine during a trial, by which the trials that are summed up are chosen.

use dray_results::{Distance, Noise};

use crate::distance::LineTimes;

/// State of the machine during a trial.
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
}

/// Returns the distance, near or far, in most trials, if one is known.
pub(crate) fn distance_of_most<'t>(
    trials: impl IntoIterator<Item = &'t State>,
) -> Option<Distance> {
    let (mut near, mut far) = (0, 0);
    for trial in trials {
        match trial.distance {
            Some(Distance::Near) => near += 1,
            Some(Distance::Far) => far += 1,
            Some(Distance::Changed) | None => {}
        }
    }
    match (near, far) {
        (0, 0) => None,
        _ if near >= far => Some(Distance::Near),
        _ => Some(Distance::Far),
    }
}

/// Trials of a case that are summed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Distance between the CPUs in these trials.
    pub(crate) distance: Option<Distance>,
    /// For each trial of the case, true if it is one of them.
    pub(crate) trials: Vec<bool>,
    /// Number of the others that were disturbed, at the same distance.
    pub(crate) disturbed: usize,
}

/// Chooses the trials of a case that are summed up, at most `wanted`: those at the distance
/// `of_run`; if there are none, those at another distance; else any. Of these the quiet ones, if
/// they are more than half of those wanted (or of all, if there are fewer); else disturbed ones as
/// well.
pub(crate) fn choose(trials: &[State], of_run: Option<Distance>, wanted: usize) -> Chosen {
    let known = || trials.iter().filter_map(|trial| trial.distance);
    let distance = of_run
        .filter(|of_run| known().any(|it| it == *of_run))
        .or_else(|| distance_of_most(trials));
    let usable = |disturbed: bool| {
        trials.iter().enumerate().filter(move |(_, trial)| {
            (distance.is_none() || trial.distance == distance) && trial.is_disturbed == disturbed
        })
    };
    let (quiet, disturbed) = (usable(false).count(), usable(true).count());
    let most = wanted.min(quiet + disturbed);
    let of_disturbed = if 2 * quiet > most { 0 } else { most - quiet };
    let mut chosen = vec![false; trials.len()];
    for (index, _) in usable(false).take(wanted).chain(usable(true).take(of_disturbed)) {
        chosen[index] = true;
    }
    Chosen {
        distance: distance.or_else(|| known().next()),
        trials: chosen,
        disturbed: disturbed - of_disturbed,
    }
}

/// Returns true if fewer than `wanted` of these trials were quiet and at the distance `of_run`, and
/// a repetition may change that: the CPUs were elsewhere in others, or some were disturbed, but not
/// by work that goes on all the time.
pub(crate) fn lacks(trials: &[State], of_run: Option<Distance>, wanted: usize) -> bool {
    /// Number of disturbed trials more than quiet ones from which on a case is always disturbed.
    const ALWAYS: usize = 3;
    // Roles that share a CPU have no distance.
    let has_distance = trials.iter().any(|trial| trial.distance.is_some());
    let is_elsewhere =
        |trial: &&State| has_distance && (of_run.is_none() || trial.distance != of_run);
    let elsewhere = trials.iter().filter(is_elsewhere).count();
    let is_disturbed = |trial: &&State| !is_elsewhere(trial) && trial.is_disturbed;
    let disturbed = trials.iter().filter(is_disturbed).count();
    let quiet = trials.len() - elsewhere - disturbed;
    quiet < wanted && (elsewhere > 0 || (disturbed > 0 && disturbed < quiet + ALWAYS))
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
        let Chosen { distance, trials, disturbed } = choose(trials, of_run, wanted);
        let marks = trials.iter().map(|is_chosen| if *is_chosen { 'x' } else { '-' }).collect();
        (distance.unwrap(), marks, disturbed)
    }

    #[test]
    fn trials_at_the_distance_of_the_run_are_chosen() {
        let mixed = [Near, Far, Changed, Near].map(at);
        assert_eq!(distance_of_most(&mixed), Some(Near));
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
        let all = Chosen { distance: None, trials: vec![true; 2], disturbed: 0 };
        assert_eq!(choose(&[State::default(); 2], None, 9), all);
        assert_eq!(distance_of_most(&[]), None);
    }

    #[test]
    fn quiet_trials_are_chosen_if_they_are_enough() {
        let one = [at(Near), disturbed(Near), at(Near)];
        assert_eq!(chosen(&one, Some(Near), 3), (Near, "x-x".to_owned(), 1));
        assert_eq!(chosen(&one[..2], Some(Near), 2), (Near, "xx".to_owned(), 0));
        // Two of five are too few; after a repetition there are three.
        let two = [at(Near), disturbed(Near), disturbed(Near), disturbed(Near), at(Near)];
        assert_eq!(chosen(&two, Some(Near), 5), (Near, "xxxxx".to_owned(), 0));
        let again = [&two[..], &[at(Near)]].concat();
        assert_eq!(chosen(&again, Some(Near), 5), (Near, "x---xx".to_owned(), 3));
        // Quiet trials at another distance do not help.
        let far = [at(Far), disturbed(Near), disturbed(Near), at(Far)];
        assert_eq!(chosen(&far, Some(Near), 4), (Near, "-xx-".to_owned(), 0));
        // Too few quiet ones are chosen before others.
        let late = [[disturbed(Near); 4].as_slice(), &[at(Near)]].concat();
        assert_eq!(chosen(&late, Some(Near), 2), (Near, "x---x".to_owned(), 3));
    }

    #[test]
    fn trials_in_another_state_are_repeated() {
        let near = Some(Near);
        assert!(lacks(&[Near, Far].map(at), near, 2));
        assert!(!lacks(&[Near, Far, Near].map(at), near, 2));
        assert!(!lacks(&[at(Near)], near, 2), "another one failed");
        assert!(lacks(&[at(Near), disturbed(Near)], near, 2));
        assert!(!lacks(&[at(Near), disturbed(Near), at(Near)], near, 2));
        assert!(lacks(&[disturbed(Near)], near, 1));
        // The run's CPUs were never in one place.
        assert!(lacks(&[at(Changed)], None, 1));
    }

    #[test]
    fn states_without_better_repetition_are_kept() {
        assert!(lacks(&[disturbed(Near); 2], Some(Near), 1));
        assert!(!lacks(&[disturbed(Near); 3], Some(Near), 1), "always disturbed");
        // Roles share a CPU in this case, not in others.
        assert!(!lacks(&[State::default(); 2], Some(Near), 2));
    }
}
