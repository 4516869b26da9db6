//! `dray bench paper-all`: every experiment of the five papers, and one report on all of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use dray_lab::{Cancel, LabError};
use dray_measure::rounds::PlannedRun;
use dray_measure::{Choices, Experiment, Technique, experiments};
use dray_report::table;
use dray_report::{Report, Run};
use dray_results::Results;

use crate::common::{Failure, cancel_on_signals, print, usage};
use crate::laboratory::measuring::{Outputs, measure, to_json};
use crate::laboratory::output::{Output, colour};

/// Name in the place of an experiment.
pub(crate) const NAME: &str = "paper-all";
/// Description in the list of experiments.
pub(crate) const ABOUT: &str = "all experiments of the five papers in turn, with one report";

/// Default path of the report.
const REPORT: &str = "paper-all.html";
/// Default folder of the results.
const FOLDER: &str = "paper-all";

/// Paths from the command line.
pub(crate) struct Where {
    /// `--json`: a folder, with a file for each experiment.
    pub(crate) folder: Option<PathBuf>,
    /// `--resume`: the folder of an interrupted run.
    pub(crate) resume: Option<PathBuf>,
    /// `--report`.
    pub(crate) report: Option<PathBuf>,
}

pub(crate) fn run(choices: &Choices, to: &Where) -> Result<(), Failure> {
    only_common(choices)?;
    let folder = folder(to)?;
    let planned = match to.resume {
        Some(_) => begun(choices, &folder)?,
        None => plans(choices, &folder)?,
    };
    let cancel = cancel_on_signals()?;
    fs::create_dir_all(&folder)
        .with_context(|| format!("{}: cannot create the directory", folder.display()))?;
    let report = to.report.clone().unwrap_or_else(|| PathBuf::from(REPORT));
    let page = Output::open("--report", &report)?;
    // The folder holds all planned work from the start, so that the run can be resumed from it.
    for Planned { file, state, .. } in &planned {
        if let State::ToRun(run) = state {
            Output::open("--json", file)?.keep(&to_json(&results(run))?)?;
        }
    }
    let left_out = left_out(&planned);
    let (runs, ended) = measure_all(planned, &cancel)?;
    let is_bare = |run: &Run| run.results.incomplete.as_ref().is_some_and(|it| it.trials_done == 0);
    if let (Some(error), true) = (&ended, runs.iter().all(is_bare)) {
        if to.resume.is_none() {
            remove_files(&runs, &folder);
        }
        return Err(anyhow!("{error}").into());
    }
    let mut report_of_all = Report::new(runs);
    left_out.iter().for_each(|what| report_of_all.add_caveat(what));
    page.write(&report_of_all.html())?;
    let (folder, report) = (folder.display(), report.display());
    match ended {
        None => print(&format!("report of the papers and this machine: {report}\n")),
        Some(error) => Err(Failure::Failed(anyhow!(
            "{error}; continue with dray bench {NAME} --resume {folder}; results so far are in \
             {report}"
        ))),
    }
}

/// Returns the folder for the results.
fn folder(to: &Where) -> Result<PathBuf, Failure> {
    match (&to.folder, &to.resume) {
        (Some(_), Some(_)) => Err(usage!("--resume already names the folder: leave out --json")),
        (None, Some(folder)) if !folder.is_dir() => {
            Err(usage!("--resume {}: no such folder; start a run with --json", folder.display()))
        }
        (Some(file), None) if file.exists() && !file.is_dir() => {
            Err(usage!("--json {}: is a file; {NAME} takes a folder", file.display()))
        }
        (Some(folder), None) | (None, Some(folder)) => Ok(folder.clone()),
        (None, None) => Ok(PathBuf::from(FOLDER)),
    }
}

/// Runs the incomplete experiments and prints a table for each. The second result is the reason if
/// the run ended early; the first includes experiments that did not run.
fn measure_all(
    planned: Vec<Planned>,
    cancel: &Cancel,
) -> Result<(Vec<Run>, Option<LabError>), Failure> {
    let count = planned.len();
    let (mut runs, mut ended) = (Vec::new(), None);
    for (number, Planned { experiment, file, state }) in (1..).zip(planned) {
        if ended.is_none() {
            print(&format!("{number}/{count} {}: {}\n", experiment.name, experiment.about))?;
        }
        let run = match state {
            State::Complete(run) => {
                if ended.is_none() {
                    print(&(colour(&table::render(&run.results)) + "\n"))?;
                }
                *run
            }
            State::ToRun(run) if ended.is_some() => read(&file, results(&run)),
            State::ToRun(mut run) => {
                let outputs = Outputs::to_file(&file)?;
                let (results, error) = measure(&mut run, &outputs, cancel);
                ended = error;
                if results.incomplete.as_ref().is_none_or(|it| it.trials_done > 0) {
                    outputs.write(&results)?;
                    print("\n")?;
                }
                read(&file, results)
            }
        };
        runs.push(run);
    }
    Ok((runs, ended))
}

fn read(file: &Path, results: Results) -> Run {
    Run { file: file.display().to_string(), results }
}

/// Returns what a run has found so far.
fn results(run: &PlannedRun) -> Results {
    run.journal.results(&run.plan, &run.choices)
}

/// Removes the files of a run that found nothing.
fn remove_files(runs: &[Run], folder: &Path) {
    for run in runs {
        let _ = fs::remove_file(&run.file);
    }
    // Fails if the folder holds something else.
    let _ = fs::remove_dir(folder);
}

/// An experiment and the file of its results.
struct Planned {
    experiment: &'static Experiment,
    file: PathBuf,
    state: State,
}

/// State of an experiment.
enum State {
    Complete(Box<Run>),
    ToRun(Box<PlannedRun>),
}

fn file(folder: &Path, experiment: &Experiment) -> PathBuf {
    folder.join(format!("{}.json", experiment.name))
}

/// Plans every paper experiment that has any of the chosen techniques. Nothing starts before all
/// plans are checked.
fn plans(choices: &Choices, folder: &Path) -> Result<Vec<Planned>, Failure> {
    let mut planned = Vec::new();
    for experiment in experiments::of_papers() {
        let file = file(folder, experiment);
        if file.exists() {
            return Err(usage!(
                "{}: already exists; continue with --resume {}, or give --json another folder",
                file.display(),
                folder.display()
            ));
        }
        let Some(choices) = choices_of(choices, experiment) else { continue };
        let command = dray_lab::command_line(std::env::args_os());
        let run = PlannedRun::new(experiment, choices, command).map_err(Failure::usage)?;
        let state = State::ToRun(Box::new(run));
        planned.push(Planned { experiment, file, state });
    }
    match &choices.techniques {
        Some(words) if planned.is_empty() => {
            let words = words.join(",");
            Err(usage!("--technique {words}: not in any experiment of the papers"))
        }
        _ => Ok(planned),
    }
}

/// Returns the experiments of the folder's run.
fn begun(choices: &Choices, folder: &Path) -> Result<Vec<Planned>, Failure> {
    let mut planned = Vec::new();
    for experiment in experiments::of_papers() {
        let file = file(folder, experiment);
        if !file.exists() {
            continue;
        }
        let run = Run::read(&file)?;
        let wrong = |why: String| usage!("--resume {}: {why}", file.display());
        let state = if run.results.incomplete.is_some() {
            let Some(choices) = choices_of(choices, experiment) else {
                return Err(wrong("does not have any technique that --technique names".to_owned()));
            };
            let resumed = PlannedRun::resume(run.results, Some(experiment.name), &choices);
            State::ToRun(Box::new(resumed.map_err(|error| wrong(error.to_string()))?))
        } else {
            State::Complete(Box::new(run))
        };
        planned.push(Planned { experiment, file, state });
    }
    if planned.is_empty() {
        return Err(usage!("--resume {}: contains no results of {NAME}", folder.display()));
    }
    Ok(planned)
}

/// Returns the choices restricted to the experiment's techniques; `None` if it has none of them.
fn choices_of(choices: &Choices, experiment: &Experiment) -> Option<Choices> {
    let mut choices = choices.clone();
    if let Some(words) = &mut choices.techniques {
        // An unknown word is left for the experiment to reject.
        words.retain(|word| Technique::check_name(word).is_err() || experiment.has(word));
        if words.is_empty() {
            return None;
        }
    }
    Some(choices)
}

/// Returns a note that names the experiments missing from a report.
fn left_out(planned: &[Planned]) -> Option<String> {
    let is_planned = |name: &str| planned.iter().any(|it| it.experiment.name == name);
    let names = experiments::of_papers().map(|experiment| experiment.name);
    let others: Vec<_> = names.filter(|name| !is_planned(name)).collect();
    (!others.is_empty()).then(|| {
        format!(
            "Not all experiments have the techniques of this run; left out: {}.",
            others.join(", ")
        )
    })
}

/// Fails for options that do not apply to every experiment.
fn only_common(choices: &Choices) -> Result<(), Failure> {
    let others = Choices {
        techniques: None,
        duration: None,
        trials: None,
        cpus: None,
        seed: None,
        quick: false,
        runtimes: None,
        ..choices.clone()
    };
    if others == Choices::default() {
        return Ok(());
    }
    Err(usage!(
        "{NAME} takes --quick, --technique, --duration, --trials, --cpus, --seed, --runtime, --json FOLDER, \
         --resume FOLDER and --report FILE; the experiments define everything else"
    ))
}
