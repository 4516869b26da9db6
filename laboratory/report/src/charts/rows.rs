//! Rows of a run, and texts about them.

use dray_results::{Layout, Measured, ResultRow};

use crate::distinct::distinct;
use crate::figure::{Column, Table};
use crate::input::Run;
use crate::number::{percent, plus_minus, rate, time};
use crate::technique::Techniques;

/// A row with figures, and the figures.
pub(crate) type MeasuredRow<'a> = (&'a ResultRow, &'a Measured);

/// Returns rows with figures at the requested rate, with one sender, one receiver and only the link
/// in between.
pub(crate) fn between_two(run: &Run) -> impl Iterator<Item = MeasuredRow<'_>> {
    // Rows of a search are at a rate that the search has found.
    measured(run).filter(|(row, measured)| {
        row.topology == "chain" && row.forwarders == 0 && measured.drop_rates.is_empty()
    })
}

/// Returns true if the run's trials show what techniques need; they are too short to measure speed.
pub(crate) fn is_of_needs(run: &Run) -> bool {
    run.results.table.layout == Layout::Needs
}

/// Returns rows with figures that measure speed.
pub(crate) fn measured(run: &Run) -> impl Iterator<Item = MeasuredRow<'_>> {
    let is_timed = !is_of_needs(run);
    let rows = run.results.results.iter().filter(move |_| is_timed);
    rows.filter_map(|row| Some((row, row.measured()?)))
}

/// A column about a row with figures.
pub(super) type RowColumn<'a> = Column<'a, MeasuredRow<'a>>;

/// A value that belongs to one row of results.
pub(super) trait OfRow {
    /// Returns the row.
    fn row(&self) -> &ResultRow;
}

impl<T> OfRow for (&ResultRow, T) {
    fn row(&self) -> &ResultRow {
        self.0
    }
}

impl<T, U> OfRow for ((&ResultRow, T), U) {
    fn row(&self) -> &ResultRow {
        self.0.0
    }
}

/// Returns the columns that most tables begin with.
pub(super) fn technique_and_size<'c, R: OfRow>() -> [Column<'c, R>; 2] {
    [
        Column::text("technique", |it: &R| it.row().technique.clone()),
        Column::number("size", "B", |it: &R| it.row().frame_size.to_string()),
    ]
}

/// Creates a table of rows of results.
pub(super) fn table_of<R: OfRow>(
    rows: &[R],
    techniques: &Techniques,
    columns: Vec<Column<'_, R>>,
) -> Table {
    let number = |it: &R| (techniques.get(&it.row().technique), it.row().frame_size);
    Table::new(rows, number, columns)
}

/// Returns the frame sizes that get a panel each: all, or the smallest and largest of more than
/// three.
pub(super) fn panel_sizes(rows: &[MeasuredRow]) -> Vec<usize> {
    let mut sizes = distinct(rows, |(row, _)| row.frame_size);
    sizes.sort_unstable();
    if sizes.len() > 3 { vec![sizes[0], sizes[sizes.len() - 1]] } else { sizes }
}

/// Converts `pps`, a rate of frames that arrived, to bits per second.
pub(crate) fn bits(row: &ResultRow, pps: f64) -> f64 {
    pps * row.frame_size as f64 * 8.0
}

/// Returns the number of busy CPUs.
pub(crate) fn cores(measured: &Measured) -> Option<f64> {
    let cores = measured.cpu.cores();
    (cores.is_finite() && cores > 0.0).then_some(cores)
}

/// Explains the marks that occur in `rows`.
pub(super) fn explain_marks<'a>(
    rows: impl IntoIterator<Item = &'a MeasuredRow<'a>>,
) -> Vec<String> {
    explain(&distinct(rows, |(_, measured)| measured.mark()))
}

/// Explains the marks that occur in `rows`, and what the paper did.
pub(super) fn notes(run: &Run, rows: &[MeasuredRow]) -> Vec<String> {
    let paper = run.results.table.paper.iter().map(|paper| format!("The paper: {paper}."));
    explain_marks(rows).into_iter().chain(paper).collect()
}

/// Explains `marks`.
pub(super) fn explain(marks: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    if marks.contains(&"!") {
        notes
            .push("! Our counters and the kernel's disagree: do not trust this figure.".to_owned());
    }
    if marks.contains(&"*") {
        notes.push("* Sent less than offered: the sender could not keep up.".to_owned());
    }
    if marks.contains(&"~") {
        notes.push(
            "~ Disturbed: the machine was busy, or the CPUs had moved, so measure again."
                .to_owned(),
        );
    }
    notes
}

/// Returns the [`tip`] with `more` after the line with the technique's name.
pub(super) fn tip_with(more: &str, row: MeasuredRow) -> String {
    let text = tip(row);
    let (name, rest) = text.split_once('\n').unwrap_or((&text, ""));
    format!("{name}\n{more}\n{rest}")
}

/// Returns full details of a figure, in lines: exact values and measurement settings.
pub(crate) fn tip((row, measured): MeasuredRow) -> String {
    let mut lines = vec![format!("{} · {} B", row.technique, row.frame_size)];
    let sure = plus_minus(measured.interval());
    let what = if row.topology == "echo" { "round trips" } else { "received" };
    let received = rate(measured.received_pps);
    lines.push(format!("{what} {received}{} {sure}", measured.mark()).trim_end().to_owned());
    if let Some(pps) = row.offered_pps {
        lines.push(format!("offered {}, sent {}", rate(pps), rate(measured.sent_pps)));
    }
    lines.push(format!("lost {} % of {} frames", percent(measured.loss_ratio), measured.sent));
    for (way, latency) in [("one way", measured.one_way_ns), ("round trip", measured.latency_ns)] {
        let Some(latency) = latency else { continue };
        let [p50, p99, max] = [latency.p50, latency.p99, latency.max].map(|ns| time(ns as f64));
        lines.push(format!("{way}: p50 {p50}, p99 {p99}, max {max}"));
    }
    if let Some(share) = row.load_share {
        lines.push(format!("{:.0} % of the loss-free rate", 100.0 * share));
    }
    let mut cost = cores(measured).map_or(String::new(), |cores| format!("{cores:.2} cores busy"));
    if let Some(cycles) = measured.cycles_per_frame {
        cost.push_str(&format!(", {cycles:.0} cycles per frame"));
    }
    lines.push(cost);
    let mut setting = format!("bursts of {}", row.burst);
    for (count, what) in [
        (usize::from(row.flows), "flows"),
        (usize::from(row.stations), "stations"),
        (row.forwarders, "forwarders"),
    ] {
        if count > usize::from(what != "forwarders") {
            setting.push_str(&format!(", {count} {what}"));
        }
    }
    let times = if measured.trials == 1 { "trial" } else { "trials" };
    setting.push_str(&format!(", check {}, {} {times}", measured.check, measured.trials));
    lines.push(setting);
    let roles = measured.setting.role_cores.iter().take(12);
    let roles: Vec<String> = roles.map(|(role, cpu)| format!("{role} {cpu}")).collect();
    let shared = if measured.setting.shared_cores { " (shared)" } else { "" };
    lines.push(format!("CPU: {}{shared}", roles.join(", ")));
    if let Some(pps) = row.paper_pps {
        lines.push(format!("paper: {}", rate(pps)));
    }
    lines.extend(measured.disturbed().map(|what| format!("disturbed: {what}")));
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}
