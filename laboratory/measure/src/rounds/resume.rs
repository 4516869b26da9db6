//! Resuming an interrupted run, which requires that everything is unchanged.

use dray_lab::host;
use dray_results::{HostFacts, Results};
use serde::Deserialize;
use serde_json::Value;

use super::case_trials::CaseTrials;
use super::journal::Journal;
use crate::experiments::{self, Experiment};
use crate::plan::{Case, Choices, Plan, WrongChoice};

/// A run of a plan: one that begins, or an interrupted one.
#[derive(Debug)]
pub struct PlannedRun {
    /// Cases and settings.
    pub plan: Plan,
    /// Choices from which the plan was built.
    pub choices: Choices,
    /// Findings so far.
    pub journal: Journal,
}

/// Why a run cannot be resumed. The messages name what differs, not the file.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the error messages describe the variants")]
pub enum CannotResume {
    #[error("run already complete; nothing to resume")]
    Complete,
    #[error("run made by dray {theirs}, but this is dray {ours}")]
    OtherVersion { theirs: String, ours: &'static str },
    #[error("run measured experiment {theirs}, not {given}")]
    OtherExperiment { theirs: String, given: String },
    #[error(transparent)]
    Unknown(#[from] experiments::UnknownExperiment),
    #[error("run began with {option} {theirs}, not {given}")]
    OtherChoice { option: String, theirs: String, given: String },
    #[error("run began on another host, or the host has changed: {what}")]
    OtherHost { what: String },
    #[error(
        "roles ran on CPUs {theirs:?}, but would now run on {ours:?}; give the original --cpus"
    )]
    OtherCpus { theirs: Vec<usize>, ours: Vec<usize> },
    #[error("{0}")]
    WrongChoice(#[from] WrongChoice),
    #[error("journal cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("recorded cases do not match the plan: {what}")]
    OtherCases { what: String },
}

impl PlannedRun {
    /// Begins a run of `experiment`; `command` is the command line, for the results.
    pub fn new(
        experiment: &'static Experiment,
        choices: Choices,
        command: String,
    ) -> Result<Self, WrongChoice> {
        let plan = Plan::new(experiment, &choices)?;
        let journal = Journal::new(&plan, command);
        Ok(Self { plan, choices, journal })
    }

    /// Resumes the run of `results`, if `experiment` and `choices`, as far as given again, are
    /// unchanged.
    pub fn resume(
        results: Results,
        experiment: Option<&str>,
        choices: &Choices,
    ) -> Result<Self, CannotResume> {
        let Some(incomplete) = results.incomplete.as_deref().cloned() else {
            return Err(CannotResume::Complete);
        };
        let ours = env!("CARGO_PKG_VERSION");
        if results.dray != ours {
            return Err(CannotResume::OtherVersion { theirs: results.dray, ours });
        }
        let theirs = Choices::deserialize(incomplete.choices)?;
        let journal = Journal::deserialize(incomplete.journal)?;
        let cpus = incomplete.cpus;
        if let Some(given) = experiment.filter(|given| *given != results.experiment) {
            let (theirs, given) = (results.experiment, given.to_owned());
            return Err(CannotResume::OtherExperiment { theirs, given });
        }
        same_choices(&theirs, choices)?;
        same_host(&results.host, &host::facts())?;
        let experiment = experiments::find(&results.experiment)?;
        let plan = Plan::new(experiment, &theirs)?;
        let here = plan.settings.placement.cpus();
        if here != cpus {
            return Err(CannotResume::OtherCpus { theirs: cpus, ours: here });
        }
        same_cases(&journal, &plan, &theirs, &results)?;
        Ok(Self { plan, choices: theirs, journal })
    }
}

/// Fails if a choice in `given` is not the same in `theirs`.
fn same_choices(theirs: &Choices, given: &Choices) -> Result<(), CannotResume> {
    let [theirs, given] = [theirs, given].map(Choices::given);
    let differs = given.into_iter().find(|(option, value)| theirs.get(option) != Some(value));
    match differs {
        None => Ok(()),
        Some((option, value)) => Err(CannotResume::OtherChoice {
            theirs: theirs.get(&option).map_or("left out".to_owned(), Value::to_string),
            given: value.to_string(),
            option: format!("--{option}"),
        }),
    }
}

/// Fails if the host differs in more than what changes during use.
fn same_host(then: &HostFacts, now: &HostFacts) -> Result<(), CannotResume> {
    let lasting = |host: &HostFacts| {
        let mut host = host.clone();
        host.hugepages.clear();
        serde_json::to_value(host).unwrap_or_default()
    };
    let (then, now) = (lasting(then), lasting(now));
    let fields = then.as_object().into_iter().flatten();
    match fields.into_iter().find(|(name, value)| now.get(name) != Some(value)) {
        None => Ok(()),
        Some((name, value)) => {
            let now = now.get(name).unwrap_or(&Value::Null);
            Err(CannotResume::OtherHost { what: format!("{name} was {value} and is {now}") })
        }
    }
}

/// Fails if the plan's cases are not those of the results, in the same order.
fn same_cases(
    journal: &Journal,
    plan: &Plan,
    choices: &Choices,
    results: &Results,
) -> Result<(), CannotResume> {
    let wrong = |what: String| Err(CannotResume::OtherCases { what });
    if !journal.fits(plan) {
        let (there, here) = (journal.cases.len(), plan.cases.len());
        return wrong(format!("{there} cases instead of {here}"));
    }
    let is_sound = |(trials, case): (&CaseTrials, &Case)| {
        trials.is_sound(plan.settings.goals_of(case).len())
            && trials.rounds <= plan.settings.rounds()
    };
    if !journal.cases.iter().zip(&plan.cases).all(is_sound) {
        return wrong("a case has inconsistent trials".to_owned());
    }
    let names = |results: &Results| {
        let frames = results.results.iter().map(|row| {
            // The rate of a share is known only after the rate that it refers to was found.
            let rate = match row.load_share {
                Some(share) => format!("{share} of the loss-free rate"),
                None => format!("{} pps", row.offered_pps.unwrap_or_default()),
            };
            let (topology, forwarders) = (&row.topology, row.forwarders);
            format!("{} {} B {topology} {forwarders} {rate}", row.technique, row.frame_size)
        });
        let streams = results.streams.iter();
        let streams =
            streams.map(|row| format!("{} {} pairs {}", row.technique, row.pairs, row.mtu));
        frames.chain(streams).collect::<Vec<_>>()
    };
    let (there, here) =
        (names(results), names(&Journal::new(plan, String::new()).results(plan, choices)));
    match there.iter().zip(&here).find(|(there, here)| there != here) {
        Some((there, here)) => wrong(format!("{there} instead of {here}")),
        None if there.len() != here.len() => {
            wrong(format!("{} rows instead of {}", there.len(), here.len()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;

    fn interrupted(choices: &Choices) -> Results {
        interrupted_in("all", choices)
    }

    fn interrupted_in(experiment: &str, choices: &Choices) -> Results {
        let plan = Plan::new(find(experiment).unwrap(), choices).unwrap();
        Journal::new(&plan, String::new()).results(&plan, choices)
    }

    fn of(words: &str) -> Choices {
        Choices { techniques: Some(vec![words.to_owned()]), seed: Some(7), ..Choices::default() }
    }

    #[test]
    fn resume_keeps_plan_and_choices() {
        let results = interrupted(&of("veth"));
        let text = serde_json::to_string(&results).unwrap();
        let results: Results = serde_json::from_str(&text).unwrap();
        for again in [Choices::default(), of("veth")] {
            let resumed = PlannedRun::resume(results.clone(), None, &again).unwrap();
            assert_eq!(resumed.plan.settings.seed, 7);
            assert!(resumed.plan.cases.iter().all(|case| case.technique.link.name == "veth"));
        }
        assert!(PlannedRun::resume(results, Some("all"), &Choices::default()).is_ok());
    }

    #[test]
    fn resume_ignores_rate_of_load_share() {
        let mut results = interrupted_in("latency", &of("veth/raw"));
        let shares = results.results.iter_mut().filter(|row| row.load_share.is_some());
        assert_ne!(shares.map(|row| row.offered_pps = Some(1234.5)).count(), 0);
        PlannedRun::resume(results, None, &Choices::default()).unwrap();
    }

    #[test]
    fn run_is_resumed_while_it_repeats_trials() {
        let rounds = |choices: &Choices, rounds: usize| {
            let mut results = interrupted(choices);
            journal(&mut results)["cases"][0]["rounds"] = rounds.into();
            PlannedRun::resume(results, None, &Choices::default())
                .map(|resumed| resumed.plan.settings)
        };
        let choices = of("veth");
        let settings = rounds(&choices, 0).unwrap();
        rounds(&choices, settings.rounds()).unwrap();
        rounds(&choices, settings.rounds() + 1).unwrap_err();
        let quick = Choices { quick: true, ..choices };
        rounds(&quick, settings.trials + 1).unwrap_err();
    }

    fn journal(results: &mut Results) -> &mut Value {
        &mut results.incomplete.as_mut().unwrap().journal
    }

    #[test]
    fn resume_error_names_difference() {
        let message = |change: fn(&mut Results), experiment, choices: &Choices| {
            let mut results = interrupted(&of("veth"));
            change(&mut results);
            PlannedRun::resume(results, experiment, choices).unwrap_err().to_string()
        };
        let none = Choices::default;
        let sizes = Choices { sizes: Some(vec![64]), ..none() };
        for (message, what) in [
            (message(|_| (), Some("rtt"), &none()), "experiment all, not rtt"),
            (message(|_| (), None, &of("bridge")), "--technique [\"veth\"], not [\"bridge\"]"),
            (message(|_| (), None, &sizes), "--size left out, not [64]"),
            (message(|it| it.dray = "0.0.1".into(), None, &none()), "dray 0.0.1"),
            (message(|it| it.host.kernel = "1.0".into(), None, &none()), "kernel was \"1.0\""),
            (message(|it| it.incomplete = None, None, &none()), "complete"),
            (message(|it| it.results.truncate(3), None, &none()), "instead of veth"),
            (message(|it| it.results.swap(0, 1), None, &none()), "1500 B"),
            (
                message(|it| journal(it)["cases"][0]["rounds"] = 99.into(), None, &none()),
                "inconsistent trials",
            ),
            (
                message(
                    |it| {
                        let trials = serde_json::json!([crate::trial::Trial::default()]);
                        journal(it)["cases"][0]["trials"] = trials;
                    },
                    None,
                    &none(),
                ),
                "inconsistent trials",
            ),
            (
                message(|it| it.incomplete.as_mut().unwrap().cpus = vec![99], None, &none()),
                "CPUs [99]",
            ),
            (
                message(
                    |it| drop(journal(it)["cases"].as_array_mut().unwrap().pop()),
                    None,
                    &none(),
                ),
                "cases",
            ),
        ] {
            assert!(message.contains(what), "{what}: {message}");
        }
    }
}
