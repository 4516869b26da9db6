//! Cost of forwarding containers: a line for each technique over their number.

use dray_results::{Interval, Layout, Measured};

use crate::chart::{Axis, Chart, Plot, Point, lines};
use crate::charts::drop_rates::highest;
use crate::charts::rates::columns;
use crate::charts::rows::{MeasuredRow, RowColumn, measured, notes, table_of, tip_with};
use crate::distinct::distinct;
use crate::figure::Figure;
use crate::input::Run;
use crate::number::{Unit, percent, rate, rate_unit};
use crate::scale::Scale;
use crate::technique::Techniques;

/// Maximum number of offered rates for these charts.
const MOST_RATES: usize = 2;

/// Returns the rate to draw and its interval: the sent rate in experiments about it, otherwise the
/// highest carried rate.
fn rate_of(run: &Run, measured: &Measured) -> (f64, Option<Interval>) {
    if is_of_sender(run) { (measured.sent_pps, None) } else { highest(measured) }
}

fn is_of_sender(run: &Run) -> bool {
    run.results.table.layout == Layout::SentByForwarders
}

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let kinds = [
        ("chain", "Chains of forwarders", "forwarders in a chain"),
        ("fan", "Forwarders side by side", "forwarders side by side"),
    ];
    let of_kind = |(topology, title, axis): &(&str, &str, &str)| {
        let rows: Vec<MeasuredRow> =
            measured(run).filter(|(row, _)| row.topology == *topology).collect();
        let counts = distinct(&rows, |(row, _)| row.forwarders);
        let offered = distinct(&rows, |(row, _)| row.offered_pps.map(f64::to_bits));
        // For more rates, a line over the rates is the better chart.
        (counts.len() > 1 && offered.len() <= MOST_RATES)
            .then(|| figure(run, techniques, &rows, title, axis))
    };
    kinds.iter().filter_map(of_kind).collect()
}

fn figure(
    run: &Run,
    techniques: &Techniques,
    rows: &[MeasuredRow],
    title: &str,
    axis: &str,
) -> Figure {
    let most = rows.iter().map(|(row, _)| row.forwarders).max().unwrap_or(0);
    let mut counts = distinct(rows, |(row, _)| row.forwarders);
    counts.sort_unstable();
    let is_searched = rows.iter().any(|(_, measured)| !measured.drop_rates.is_empty());
    let what = match (is_of_sender(run), is_searched) {
        (true, _) => "sent",
        (false, true) => "highest rate",
        (false, false) => "received",
    };
    let most_rate = rows.iter().map(|(_, measured)| rate_of(run, measured).0).fold(0.0, f64::max);
    let sizes = distinct(rows, |(row, _)| row.frame_size);
    let key = |(row, _): &MeasuredRow| {
        (row.technique.clone(), row.frame_size, row.offered_pps.map(f64::to_bits))
    };
    let name = |(name, size, _): &(String, usize, _)| {
        let label = if sizes.len() > 1 { format!("{name}, {size} B") } else { name.clone() };
        (techniques.get(name), label)
    };
    let point = |row: &MeasuredRow| {
        let (pps, interval) = rate_of(run, row.1);
        Point::new(
            row.0.frame_size,
            (row.0.forwarders as f64, pps),
            interval,
            tip_with(&format!("{what} {}", rate(pps)), *row),
        )
    };
    let ticks = counts.iter().map(|count| *count as f64);
    let plot = Plot::new(
        Axis::labelled(axis, Scale::linear(most as f64), Unit::NONE, ticks),
        Axis::new(what, Scale::linear(most_rate), rate_unit(most_rate)),
        None,
        lines(rows, key, name, point),
    );
    let mut columns = columns(rows);
    if is_searched {
        columns.insert(
            3,
            RowColumn::number("highest rate", "pps", |(_, it)| format!("{:.0}", highest(it).0)),
        );
    }
    if is_of_sender(run) {
        columns
            .insert(3, RowColumn::number("sent", "pps", |(_, it)| format!("{:.0}", it.sent_pps)));
    }
    let what = match rows[0].1.drop_rates.first() {
        _ if is_of_sender(run) => "sent".to_owned(),
        Some(found) => format!("highest rate with at most {} % lost", percent(found.loss_ratio)),
        None => "received".to_owned(),
    };
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    Figure {
        title: title.to_owned(),
        reading: format!(
            "Frames of {} B per second, {what}. The flatter the line, the less a forwarder costs.",
            sizes.join(", ")
        ),
        chart: Chart::Plot(plot),
        notes: notes(run, rows),
        table: table_of(rows, techniques, columns),
    }
}
