//! `dray bench selfcheck`: checks that dray reports what is known to be true.

use std::time::Duration;

use anyhow::anyhow;
use dray_measure::selfcheck::{self, Check, Outcome};
use dray_text::align;
use indicatif::{ProgressBar, ProgressStyle};

use crate::common::{Failure, cancel_on_signals, print};
use crate::laboratory::output::Output;

/// Name in the place of an experiment.
pub(crate) const NAME: &str = "selfcheck";
/// Description in the list of experiments.
pub(crate) const ABOUT: &str =
    "check dray's own sender, receiver, ping and search against known values";

/// Approximate time that it takes.
pub(crate) const DURATION: Duration = Duration::from_secs(50);

pub(crate) fn run(json: Option<Output>) -> Result<(), Failure> {
    let cancel = cancel_on_signals()?;
    let style = ProgressStyle::with_template("{elapsed} {msg}").expect("the template is valid");
    let bar = ProgressBar::new_spinner().with_style(style);
    let checks = selfcheck::run(&cancel, |what| bar.set_message(what.to_owned()));
    bar.finish_and_clear();
    let checks = checks?;
    if json.as_ref().is_none_or(|json| !json.is_stdout()) {
        print(&table(&checks))?;
    }
    if let Some(json) = json {
        json.write(&(serde_json::to_string_pretty(&checks)? + "\n"))?;
    }
    match checks.iter().filter(|check| check.outcome == Outcome::Wrong).count() {
        0 => Ok(()),
        wrong => Err(anyhow!("{wrong} of {} figures are wrong", checks.len()).into()),
    }
}

fn table(checks: &[Check]) -> String {
    let mut cells = vec![["", "known", "reported", ""].map(str::to_owned).to_vec()];
    cells.extend(checks.iter().map(|check| {
        let outcome = match check.outcome {
            Outcome::Right => "right",
            Outcome::Wrong => "WRONG",
            Outcome::Disturbed => "disturbed",
        };
        let cells = [&check.what, &check.expected, &check.reported, outcome];
        cells.map(str::to_owned).to_vec()
    }));
    let mut text = align(&cells, 1, 4);
    if checks.iter().any(|check| check.outcome == Outcome::Disturbed) {
        text.push_str("disturbed: the machine did other work during the check; run it again.\n");
    }
    text
}
