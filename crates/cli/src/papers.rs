//! `dray bench paper-all`: every experiment of the five papers, and one report of all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use dray_lab::Cancel;
use dray_measure::rounds::{Journal, Resumed};
use dray_measure::{Choices, Experiment, Plan, experiments, table};
use dray_report::{Report, Run};

use crate::bench::{Outputs, measure, show_what_there_is};
use crate::output::{Output, colour};
use crate::{Failure, cancel_on_signals, print};

/// What it is called in the place of an experiment.
pub(crate) const NAME: &str = "paper-all";
/// For the list of experiments.
pub(crate) const ABOUT: &str =
    "all experiments of the five papers, one after the other, and one report of them";

/// Where the report goes where nobody says it.
const REPORT: &str = "paper-all.html";
/// Where the results go.
const FOLDER: &str = "paper-all";

/// What is said on the command line beside the choices.
pub(crate) struct Where {
    /// `--json`: a folder, with a file for each experiment.
    pub(crate) folder: Option<PathBuf>,
    /// `--resume`: such a folder, which was begun.
    pub(crate) resume: Option<PathBuf>,
    /// `--report`.
    pub(crate) report: Option<PathBuf>,
}

pub(crate) fn run(choices: &Choices, to: &Where) -> Result<(), Failure> {
    only_common(choices)?;
    let folder = match (&to.folder, &to.resume) {
        (Some(_), Some(_)) => {
            let why = "--resume names the folder already: leave out --json";
            return Err(Failure::usage(anyhow!(why)));
        }
        (None, Some(folder)) if !folder.is_dir() => {
            let why = format!("--resume {}: no such folder; --json begins one", folder.display());
            return Err(Failure::usage(anyhow!(why)));
        }
        (Some(file), None) if file.exists() && !file.is_dir() => {
            let why = format!("--json {}: a file, where {NAME} takes a folder", file.display());
            return Err(Failure::usage(anyhow!(why)));
        }
        (Some(folder), None) | (None, Some(folder)) => folder.clone(),
        (None, None) => PathBuf::from(FOLDER),
    };
    let planned = plans(choices, &folder, to.resume.is_some())?;
    let cancel = cancel_on_signals()?;
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    let report = to.report.clone().unwrap_or_else(|| PathBuf::from(REPORT));
    let page = Output::open("--report", &report)?;
    let mut runs = Vec::new();
    let count = planned.len();
    for (number, (experiment, file, state)) in (1..).zip(planned) {
        print(&format!("{number}/{count} {}: {}\n", experiment.name, experiment.about))?;
        runs.push(one(experiment, &file, state, &cancel, &folder)?);
    }
    page.write(&Report::new(runs).html())?;
    print(&format!("The papers beside this machine: {}\n", report.display()))
}

/// What an experiment finds; its table is printed.
fn one(
    experiment: &Experiment,
    file: &Path,
    state: State,
    cancel: &Cancel,
    folder: &Path,
) -> Result<Run, Failure> {
    let run = match state {
        State::Complete(run) => {
            print(&colour(&table::render(&run.results, experiment)))?;
            *run
        }
        State::ToRun(mut resumed) => {
            let outputs = Outputs::to_file(file)?;
            let (results, ended) = measure(&mut resumed, &outputs, cancel);
            if let Some(error) = ended {
                let failure = show_what_there_is(error, &results, outputs, experiment);
                return Err(match failure {
                    Failure::Failed(error) => {
                        let folder = folder.display();
                        let all = format!("with all papers by dray bench {NAME} --resume {folder}");
                        Failure::Failed(anyhow!("{error:#}, or {all}"))
                    }
                    other => other,
                });
            }
            outputs.write(&results, experiment)?;
            Run { file: file.display().to_string(), results }
        }
    };
    print("\n")?;
    Ok(run)
}

/// How far an experiment is.
enum State {
    Complete(Box<Run>),
    ToRun(Box<Resumed>),
}

/// Every experiment of a paper, with its file. Nothing is started before all are known to be right.
fn plans(
    choices: &Choices,
    folder: &Path,
    resume: bool,
) -> Result<Vec<(&'static Experiment, PathBuf, State)>, Failure> {
    let mut planned = Vec::new();
    for experiment in experiments::of_papers() {
        let file = folder.join(format!("{}.json", experiment.name));
        let state = if resume && file.exists() {
            let run = Run::read(&file)?;
            if run.results.incomplete.is_some() {
                let resumed = Resumed::new(run.results, Some(experiment.name), choices);
                let wrong = |error| Failure::usage(anyhow!("--resume {}: {error}", file.display()));
                State::ToRun(Box::new(resumed.map_err(wrong)?))
            } else {
                State::Complete(Box::new(run))
            }
        } else {
            let plan = Plan::new(experiment, choices).map_err(Failure::usage)?;
            let journal = Journal::new(&plan, dray_lab::command_line(std::env::args_os()));
            State::ToRun(Box::new(Resumed { plan, choices: choices.clone(), journal }))
        };
        planned.push((experiment, file, state));
    }
    Ok(planned)
}

/// Options that mean something to every experiment.
fn only_common(choices: &Choices) -> Result<(), Failure> {
    let Choices { duration, trials, cpus, seed, quick, runtimes, .. } = choices.clone();
    let common = Choices { duration, trials, cpus, seed, quick, runtimes, ..Choices::default() };
    if *choices == common {
        return Ok(());
    }
    Err(Failure::usage(anyhow!(
        "{NAME} takes --quick, --duration, --trials, --cpus, --seed, --runtime, --json FOLDER, --resume \
         FOLDER and --report FILE; what else there is, the experiments say themselves"
    )))
}
