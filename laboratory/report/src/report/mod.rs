//! Reports: results of runs, grouped by host, in several formats.

mod csv;
mod html;
mod markdown;
mod svg;
mod text;

use dray_results::Results;
use serde::Serialize;

use crate::charts;
use crate::charts::rows::measured;
use crate::distinct::distinct;
use crate::figure::Figure;
use crate::host::{facts, host_differences};
use crate::input::Run;
use crate::overview::Overview;
use crate::papers::{self, PaperFigures};
use crate::summary::{self, Answer};
use crate::technique::{Techniques, named};

/// Report on one or more runs.
#[derive(Debug)]
pub struct Report {
    techniques: Techniques,
    sizes: Vec<usize>,
    hosts: Vec<Host>,
    runs: Vec<Run>,
}

/// A host, and its measurements. Figures of different hosts never share a chart.
#[derive(Debug, Serialize)]
struct Host {
    name: String,
    facts: Vec<(&'static str, String)>,
    /// Reasons to trust the figures less than they suggest.
    caveats: Vec<String>,
    answers: Vec<Answer>,
    /// Questions that these results do not answer.
    open: Vec<&'static str>,
    #[serde(skip)]
    overview: Option<Overview>,
    /// Figures of papers, beside the ones measured here.
    papers: Vec<PaperFigures>,
    sections: Vec<Section>,
}

/// A run.
#[derive(Debug, Serialize)]
struct Section {
    experiment: String,
    about: String,
    file: String,
    time: String,
    settings: String,
    figures: Vec<Figure>,
    /// Techniques that could not run, with the reason.
    skipped: Vec<String>,
}

impl Report {
    /// Creates a report of runs, in their order.
    pub fn new(all: Vec<Run>) -> Self {
        let runs: Vec<Run> = all.iter().map(named).collect();
        let mut techniques = Techniques::default();
        for row in runs.iter().flat_map(|run| &run.results.results) {
            techniques.add(&row.technique, &row.link);
        }
        for row in runs.iter().flat_map(|run| &run.results.streams) {
            techniques.add(&row.technique, &row.link);
        }
        let mut sizes: Vec<usize> =
            distinct(runs.iter().flat_map(measured), |(row, _)| row.frame_size);
        sizes.sort_unstable();
        let mut hosts: Vec<Vec<&Run>> = Vec::new();
        for run in &runs {
            let is_same = |known: &&mut Vec<&Run>| {
                host_differences(&known[0].results.host, &run.results.host).is_empty()
            };
            match hosts.iter_mut().find(is_same) {
                Some(host) => host.push(run),
                None => hosts.push(vec![run]),
            }
        }
        let hosts = hosts.into_iter().map(|runs| Host::new(&runs, &techniques)).collect();
        Self { techniques, sizes, hosts, runs: all }
    }

    /// Creates a report of results that are not in a file yet.
    pub fn of(results: Results) -> Self {
        Self::new(vec![Run { file: String::new(), results }])
    }

    /// Adds a caveat about all figures to every host.
    pub fn add_caveat(&mut self, of: &str) {
        self.hosts.iter_mut().for_each(|host| host.caveats.push(of.to_owned()));
    }

    /// Renders one line for every result, with all fields that identify it.
    pub fn csv(&self) -> String {
        csv::render(&self.runs)
    }
}

impl Host {
    fn new(runs: &[&Run], techniques: &Techniques) -> Self {
        let host = &runs[0].results.host;
        let model = host.cpu_model.as_deref().unwrap_or("unknown processor");
        let cores =
            if host.cores == 1 { "1 core".to_owned() } else { format!("{} cores", host.cores) };
        let (answers, open) = summary::answers(runs, techniques);
        Self {
            name: format!("{model}, {cores}, Linux {}", host.kernel),
            facts: facts(host),
            caveats: caveats(runs),
            answers,
            open,
            overview: Overview::new(runs),
            papers: papers::of_papers(runs),
            sections: runs.iter().map(|run| Section::new(run, techniques)).collect(),
        }
    }
}

fn caveats(runs: &[&Run]) -> Vec<String> {
    let all = || runs.iter().flat_map(|run| measured(run)).map(|(_, measured)| measured);
    let mut caveats = Vec::new();
    if runs.iter().any(|run| run.results.settings.quick) {
        caveats.push(
            "Quick run (--quick): trials last about a second, too short for a decision.".to_owned(),
        );
    }
    let wrong = all().filter(|measured| measured.counters_disagree()).count();
    if wrong > 0 {
        caveats.push(format!(
            "In {wrong} of {} results our counters and the kernel's disagree; they are marked \
             with ! and not ranked.",
            all().count()
        ));
    }
    let incomplete = runs.iter().filter_map(|run| Some((run, run.results.incomplete.as_ref()?)));
    let (part, none): (Vec<_>, Vec<_>) = incomplete.partition(|(_, it)| it.trials_done > 0);
    caveats.extend(part.iter().map(|(run, it)| {
        let (name, done, all) = (&run.results.experiment, it.trials_done, it.trials);
        format!("{name} was interrupted after {done} of {all} trials.")
    }));
    if !none.is_empty() {
        let names: Vec<&str> = none.iter().map(|(run, _)| &*run.results.experiment).collect();
        caveats.push(format!("Not measured yet: {}.", names.join(", ")));
    }
    let streams = || runs.iter().flat_map(|run| &run.results.streams);
    let streams = || streams().filter_map(|row| row.measured());
    let disturbed = all().filter(|measured| measured.disturbed().is_some()).count()
        + streams().filter(|measured| measured.disturbed().is_some()).count();
    if disturbed > 0 {
        caveats.push(format!(
            "In {disturbed} of {} results the machine was busy with other work, or the CPUs were \
             not as near to each other as in most trials; they are marked with ~ and should be \
             measured again.",
            all().count() + streams().count()
        ));
    }
    if all().any(|measured| measured.setting.shared_cores) {
        caveats.push(
            "Roles shared cores: figures show what they can do together on these CPUs, not what each \
             could do alone."
                .to_owned(),
        );
    }
    if all().any(|measured| measured.trials == 1) {
        caveats.push(
            "A technique with one trial: its interval shows how steady the rate was, not how well \
             it repeats. Use --trials 5 for that."
                .to_owned(),
        );
    }
    if all().any(|measured| measured.trials == 2) {
        caveats.push(
            "A technique with two trials: its interval is wide, so few differences are certain. \
             Use --trials 5 for a narrower one."
                .to_owned(),
        );
    }
    caveats
}

impl Section {
    fn new(run: &Run, techniques: &Techniques) -> Self {
        let results = &run.results;
        let settings = &results.settings;
        Self {
            experiment: results.experiment.clone(),
            about: results.table.title.clone(),
            file: run.name(),
            time: results.time.clone(),
            settings: format!(
                "dray {}; {} s measured after {} s of warm-up, samples of {} s{}{}{}",
                results.dray,
                settings.measure_s,
                settings.warm_up_s,
                settings.interval_s,
                settings.cable_bps.map_or(String::new(), |bps| {
                    format!("; cables between hosts: {} Gb/s", bps as f64 / 1e9)
                }),
                settings.seed.map_or(String::new(), |seed| format!("; trial order by seed {seed}")),
                Some(&results.command)
                    .filter(|command| !command.is_empty())
                    .map_or(String::new(), |command| format!("; command: `{command}`"))
            ),
            figures: charts::figures(run, techniques),
            skipped: results.reasons_for_skipping(),
        }
    }
}
