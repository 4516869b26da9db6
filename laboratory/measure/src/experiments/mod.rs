//! The catalogue of experiments: named sets of trials, each of which answers one question.
//!
//! To add an experiment, write it into a file here, as small as `rtt.rs`, and list it in
//! [`EXPERIMENTS`]; the compiler warns of one that is not listed. Experiments that repeat one paper
//! share a file. CONTRIBUTING.md says what else one may need.

mod af_xdp;
mod all;
mod ara2019;
mod casoni2013;
mod claassen2016;
pub(crate) mod experiment;
mod latency;
mod liang2016;
mod limit;
mod loss_free;
mod receiver_cost;
mod rtt;
mod runtimes;
mod sets;
mod shyamkumar2022;
mod streams;
mod switch_scale;
mod switches;
mod tunnels;
mod upf;

use dray_lab::Runtime;

use crate::technique::Technique;
pub use experiment::Experiment;

/// All experiments, in the order in which they are listed.
pub const EXPERIMENTS: &[Experiment] = &[
    all::ALL,
    switches::SWITCHES,
    limit::LIMIT,
    loss_free::LOSS_FREE,
    rtt::RTT,
    latency::LATENCY,
    receiver_cost::RECEIVER_COST,
    af_xdp::AF_XDP,
    af_xdp::CHAINS,
    streams::STREAMS,
    tunnels::TUNNELS,
    runtimes::RUNTIMES,
    ara2019::TABLE1,
    ara2019::FIG2,
    ara2019::FIG3,
    casoni2013::INCREMENTAL,
    casoni2013::SERIAL,
    casoni2013::PARALLEL,
    casoni2013::SENDER_LOAD,
    casoni2013::NS3,
    claassen2016::LOCAL_TCP,
    claassen2016::LOCAL_UDP,
    claassen2016::SWITCHED_TCP,
    claassen2016::SWITCHED_UDP,
    shyamkumar2022::NEED_WAKEUP,
    shyamkumar2022::FIG6,
    upf::SCALE,
    switch_scale::SWITCH_SCALE,
    liang2016::LATENCY,
    liang2016::NOISY_NEIGHBOUR,
    liang2016::SETUP,
];

/// Name of the default experiment.
pub const DEFAULT: &str = all::ALL.name;

/// Error: a word names no experiment.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown experiment {given:?}: {}", self.advice())]
pub struct UnknownExperiment {
    given: String,
}

impl UnknownExperiment {
    /// Advice on what to give instead: the word may be valid for another option.
    fn advice(&self) -> String {
        let given = &self.given;
        if given.parse::<Runtime>().is_ok() {
            return format!("this is a runtime: give --runtime {given}");
        }
        if Technique::check_name(given).is_ok() {
            return format!("this is a technique: give --technique {given}");
        }
        match dray_text::nearest(given, names()) {
            Some(name) => format!("did you mean {name}?"),
            None => "`dray bench --list` shows the experiments".to_owned(),
        }
    }
}

/// Names of all experiments.
pub fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name).collect()
}

/// Papers, by the prefixes of their experiments' names.
const PAPERS: [&str; 5] =
    ["ara2019-", "casoni2013-", "claassen2016-", "liang2016-", "shyamkumar2022-"];

/// Experiments that repeat those of papers.
pub fn of_papers() -> impl Iterator<Item = &'static Experiment> {
    let is_of_paper = |it: &&Experiment| PAPERS.iter().any(|paper| it.name.starts_with(paper));
    EXPERIMENTS.iter().filter(is_of_paper)
}

/// Returns the experiment called `name`.
pub fn find(name: &str) -> Result<&'static Experiment, UnknownExperiment> {
    let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
    found.ok_or_else(|| UnknownExperiment { given: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Choices, Plan};
    use crate::timing::Timing;
    use dray_results::{Layout, Results};

    #[test]
    fn each_layout_has_a_result_file() {
        // The limit alone is only a list of three figures.
        let mut layouts = vec![Layout::Limits];
        let files = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/results");
        for file in std::fs::read_dir(files).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let results: Results = serde_json::from_str(&text).unwrap();
            assert_eq!(results.table.layout, find(&results.experiment).unwrap().layout);
            layouts.push(results.table.layout);
        }
        for experiment in EXPERIMENTS {
            let (name, layout) = (experiment.name, experiment.layout);
            assert!(
                layouts.contains(&layout),
                "tests/results has no file with the layout {layout:?}: create one with \
                 `dray bench {name} --quick --json tests/results/{name}.json`"
            );
        }
    }

    #[test]
    fn experiment_names_are_unique() {
        for (number, experiment) in EXPERIMENTS.iter().enumerate() {
            assert!(!experiment.name.is_empty() && !experiment.about.is_empty(), "{experiment:?}");
            assert_eq!(names().iter().position(|name| *name == experiment.name), Some(number));
            assert_eq!(find(experiment.name).unwrap().about, experiment.about);
        }
        assert!(find(DEFAULT).is_ok());
    }

    #[test]
    fn unknown_experiment_error_advises() {
        let message = find("tokenring").unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown experiment \"tokenring\": `dray bench --list` shows the experiments"
        );
        let message = find("swiches").unwrap_err().to_string();
        assert_eq!(message, "unknown experiment \"swiches\": did you mean switches?");
        for (word, option) in [("bridge/tcp", "--technique bridge/tcp"), ("lxc", "--runtime lxc")] {
            let message = find(word).unwrap_err().to_string();
            assert!(message.ends_with(option), "{message}");
        }
    }

    #[test]
    fn measurement_page_lists_unusual_trials() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/measurement.md");
        let text = std::fs::read_to_string(path).unwrap();
        let lengths = |it: &Experiment| {
            let Timing { warm_up, measure, interval } = it.timing;
            let [warm_up, measure, interval] =
                [warm_up, measure, interval].map(|t| t.as_secs_f64());
            format!("| {warm_up} s | {measure} s | {interval} s | {} |", it.trials)
        };
        let usual = lengths(&Experiment::USUAL);
        assert!(text.contains(&format!("| unless stated otherwise {usual}")), "{usual}");
        for experiment in EXPERIMENTS.iter().filter(|it| it.layout != Layout::Limits) {
            let name = format!("`{}`", experiment.name);
            let row = text.lines().find(|line| line.starts_with("| `") && line.contains(&name));
            let row =
                row.map_or(usual.clone(), |row| row[row.find(" | ").unwrap() + 1..].to_owned());
            assert_eq!(row, lengths(experiment), "row of {name} in docs/measurement.md");
        }
    }

    #[test]
    fn make_papers_measures_every_experiment_of_papers() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/papers.sh");
        let text = std::fs::read_to_string(path).unwrap();
        for experiment in of_papers() {
            let part = |line: &str| line.split_whitespace().nth(1) == Some(experiment.name);
            assert!(text.lines().any(part), "scripts/papers.sh lacks {}", experiment.name);
        }
    }

    #[test]
    fn every_experiment_has_full_and_quick_plan() {
        for experiment in EXPERIMENTS {
            for quick in [false, true] {
                let choices = Choices { quick, ..Choices::default() };
                let plan = Plan::new(experiment, &choices);
                let plan = plan.unwrap_or_else(|error| panic!("{}: {error}", experiment.name));
                let nothing = plan.cases.is_empty() && plan.limit_sizes.is_empty();
                assert!(!nothing, "{} measures nothing", experiment.name);
            }
        }
    }
}
