//! A measurement with its progress on the terminal, and the destinations of its results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_lab::{Cancel, LabError};
use dray_measure::rounds::{Journal, Listener, PlannedRun, Step};
use dray_measure::{Choices, Plan, rounds};
use dray_report::{Report, table};
use dray_results::Results;
use indicatif::{ProgressBar, ProgressStyle};

use crate::common::{Failure, print, usage};
use crate::laboratory::output::{Output, colour};

/// Runs the rest of the plan and saves results as they come. The second result is the reason if the
/// run ended early.
pub(crate) fn measure(
    run: &mut PlannedRun,
    outputs: &Outputs,
    cancel: &Cancel,
) -> (Results, Option<LabError>) {
    run.plan = run.plan.clone().on_this_host();
    let mut progress = Progress::new(run, outputs);
    let program = Path::new("/proc/self/exe");
    let ended = rounds::run(&run.plan, program, cancel, &mut run.journal, &mut progress);
    progress.bar.finish_and_clear();
    (run.journal.results(&run.plan, &run.choices), ended.err())
}

/// Destinations of results, as paths by default.
pub(crate) struct Outputs<T = Output> {
    pub(super) json: Option<T>,
    pub(super) page: Option<T>,
    pub(super) summary: bool,
    /// True if an existing file of results may be replaced.
    pub(super) force: bool,
}

impl Outputs<PathBuf> {
    /// Opens the outputs before the run, so that an unwritable one is reported at the start.
    pub(super) fn open(self) -> Result<Outputs, Failure> {
        let json = self.json.map(|path| Output::create("--json", &path, self.force)).transpose()?;
        let page = self.page.map(|path| Output::open("--report", &path)).transpose()?;
        if [&json, &page].into_iter().all(|to| to.as_ref().is_some_and(Output::is_stdout)) {
            return Err(usage!("--json - and --report -: give - for only one of them"));
        }
        Ok(Outputs { json, page, summary: self.summary, force: self.force })
    }
}

impl Outputs {
    /// Results only, in a file.
    pub(crate) fn to_file(path: &Path) -> Result<Self, Failure> {
        let json = Some(Output::open("--json", path)?);
        Ok(Self { json, page: None, summary: false, force: true })
    }

    /// Prints the table or the summary, unless standard output is used for something else, and
    /// writes the files.
    pub(crate) fn write(self, results: &Results) -> Result<(), Failure> {
        let Self { json, page, summary, .. } = self;
        let report = Report::of(results.clone());
        if [&json, &page].into_iter().flatten().all(|output| !output.is_stdout()) {
            let mut text = if summary { report.text() } else { table::render(results) };
            let files = [("All figures", &json), ("Report", &page)].into_iter().filter(|_| summary);
            for (what, output) in files {
                if let Some(path) = output.as_ref().and_then(Output::file) {
                    text.push_str(&format!("{what}: {}\n", path.display()));
                }
            }
            print(&colour(&text))?;
        }
        if let Some(json) = json {
            json.write(&to_json(results)?)?;
        }
        page.map_or(Ok(()), |page| page.write(&report.html()))
    }
}

pub(crate) fn to_json(results: &Results) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(results)? + "\n")
}

/// Shows the progress of a run and saves its results.
struct Progress<'r> {
    bar: ProgressBar,
    plan: Plan,
    choices: Choices,
    outputs: &'r Outputs,
    /// Approximate time of what is left of the plan; `None` once it was announced.
    left: Option<Duration>,
    /// True if saving failed, which is reported once.
    has_failed: bool,
}

/// A run that takes longer is announced with its length.
const LONG: Duration = Duration::from_secs(10);

impl<'r> Progress<'r> {
    fn new(run: &PlannedRun, outputs: &'r Outputs) -> Self {
        let style =
            ProgressStyle::with_template("{pos}/{len} [{bar:10}] {prefix:>8} left  {wide_msg}")
                .expect("the template is valid");
        let bar = ProgressBar::new(run.plan.trials() as u64).with_style(style);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        let (plan, choices) = (run.plan.clone(), run.choices.clone());
        let left = Some(plan.left(&run.journal));
        Self { bar, plan, choices, outputs, left, has_failed: false }
    }

    fn announce(&self, left: Duration) {
        let left = in_words(left);
        let [present, absent] = self.plan.techniques();
        let mut line = match present {
            0 => format!("about {left}"),
            1 => format!("1 technique, about {left}"),
            count => format!("{count} techniques, about {left}"),
        };
        if absent > 0 {
            line += &format!("; this host lacks {absent} more (notes at the end say why)");
        }
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Prints a line whether or not the bar is shown.
    fn warn(&self, line: &str) {
        self.bar.suspend(|| eprintln!("dray: {line}"));
    }
}

impl Listener for Progress<'_> {
    fn began(&mut self, step: &Step) {
        if let Some(left) = self.left.take().filter(|left| *left >= LONG) {
            self.announce(left);
        }
        self.bar.set_position(step.done as u64);
        let left = in_words(step.left);
        // The parts of the template before the message.
        let front = format!("{}/{} [{:10}] {left:>8} left  ", step.done, self.plan.trials(), "");
        let columns = dray_text::columns(std::io::stderr()).unwrap_or(80);
        self.bar.set_prefix(left);
        self.bar.set_message(step.describe(columns.saturating_sub(front.chars().count())));
    }

    fn found(&mut self, journal: &Journal) {
        let Some(json) = &self.outputs.json else { return };
        let results = journal.results(&self.plan, &self.choices);
        let kept = to_json(&results).and_then(|text| json.keep(&text));
        if let (Err(error), false) = (kept, self.has_failed) {
            self.has_failed = true;
            self.warn(&format!("{error:#}; continuing without saving results"));
        }
    }

    fn lost_trial(&mut self, case: &str, why: &str) {
        self.warn(&format!("{case} has fewer trials, because one failed: {why}"));
    }
}

/// Formats an approximate duration for people.
pub(super) fn in_words(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..=59 => format!("{seconds} s"),
        seconds @ 60..=3599 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_formatted_in_one_unit_or_two() {
        let words = [59, 60, 61, 3599, 3600, 7261].map(|s| in_words(Duration::from_secs(s)));
        assert_eq!(words, ["59 s", "1 min", "2 min", "60 min", "1 h 00 min", "2 h 01 min"]);
    }
}
