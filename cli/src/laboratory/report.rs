//! `dray report` and `dray compare`: contents of result files, and changes between two runs.

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use dray_report::{Comparison, Report, Run};

use crate::common::{Failure, print, print_json, usage};
use crate::laboratory::output::Output;

/// Create a report of results: one page that opens in any browser, without a network.
///
/// The report recommends techniques by purpose, and shows every figure as a chart and in a table.
/// Results of different hosts are shown separately and never share a chart.
#[derive(clap::Args)]
#[command(after_help = REPORT_EXAMPLES)]
pub(crate) struct ReportArguments {
    /// Results that `dray bench --json` wrote.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output file of the report; without it, or with `-`, standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the report; by default from the output's extension (.html, .md, .csv, .txt,
    /// .svg), else HTML.
    #[arg(long)]
    format: Option<Format>,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  dray report results.json -o report.html
  dray report switches.json rtt.json ara2019-table1.json -o report.html
  dray report results.json --format markdown >> notes.md
  dray report results/*.json -o all.csv
  dray report results/demo.json --format text
  dray report results/demo.json -o links.svg";

/// Show what changed between two runs, and if that is more than noise.
///
/// Rows are compared if technique, size, offered rate, burst, flows and topology are equal. They
/// count as faster or slower only if the 95 % confidence intervals do not overlap.
#[derive(clap::Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArguments {
    /// Results of the run before the change.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// Results of the run after the change.
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  dray compare monday.json tuesday.json
  dray compare before.json after.json --json | jq '.rows[] | select(.verdict == \"slower\")'";

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Html,
    Markdown,
    Csv,
    /// The summary alone, for a terminal.
    Text,
    /// One picture: a bar for each link.
    Svg,
}

impl Format {
    fn by_name(output: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = output else { return Ok(Self::Html) };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("md" | "markdown") => Ok(Self::Markdown),
            Some("csv") => Ok(Self::Csv),
            Some("txt") => Ok(Self::Text),
            Some("svg") => Ok(Self::Svg),
            Some("html" | "htm") | None => Ok(Self::Html),
            Some(other) => Err(usage!(
                "-o {}: unknown extension .{other}: give .html, .md, .csv, .txt, .svg, or --format",
                path.display()
            )),
        }
    }
}

pub(crate) fn report(arguments: &ReportArguments) -> Result<(), Failure> {
    let path = arguments.output.as_deref();
    let format = arguments.format.map_or_else(|| Format::by_name(path), Ok)?;
    let to_stdout = path.is_none_or(|path| path == Path::new("-"));
    if to_stdout && matches!(format, Format::Html) && stdout().is_terminal() {
        return Err(usage!("HTML is not written to a terminal: give -o FILE.html"));
    }
    if let Some(path) = path {
        refuse_input(path, &arguments.files)?;
    }
    // All files must be valid before anything is written.
    let runs = arguments.files.iter().map(|file| Run::read(file)).collect::<Result<Vec<_>, _>>()?;
    let output = path.map_or_else(|| Ok(Output::stdout()), |path| Output::open("-o", path))?;
    let report = Report::new(runs);
    output.write(&match format {
        Format::Html => report.html(),
        Format::Markdown => report.markdown(),
        Format::Csv => report.csv(),
        Format::Text => report.text(),
        Format::Svg => Some(report.svg()).filter(|svg| !svg.is_empty()).ok_or_else(|| {
            usage!("--format svg: these results do not compare links at full rate")
        })?,
    })
}

/// Fails if the report would replace one of its own result files.
fn refuse_input(output: &Path, files: &[PathBuf]) -> Result<(), Failure> {
    let Ok(output) = output.canonicalize() else { return Ok(()) };
    match files.iter().find(|file| file.canonicalize().is_ok_and(|file| file == output)) {
        Some(file) => {
            let name = file.display();
            Err(usage!("-o {name}: is one of the result files; give another name"))
        }
        None => Ok(()),
    }
}

pub(crate) fn compare(arguments: &CompareArguments) -> Result<(), Failure> {
    let (before, after) = (Run::read(&arguments.before)?, Run::read(&arguments.after)?);
    let comparison = Comparison::new(&before, &after)?;
    if arguments.json {
        return print_json(&comparison);
    }
    print(&comparison.render())
}
