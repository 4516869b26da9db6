//! Cost of forwarding containers: a line for each technique over their number.

use dray_results::{Interval, Layout, Measured};

use crate::chart::{Axis, Plot, Point, Series};
use crate::charts::drop_rates::highest;
use crate::charts::rates::table;
use crate::charts::rows::{MeasuredRow, explain_marks, measured, tip_with};
use crate::distinct::distinct;
use crate::figure::{Column, Figure};
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
    let rates = rows.iter().map(|(_, measured)| rate_of(run, measured).0);
    let sizes = distinct(rows, |(row, _)| row.frame_size);
    let lines = distinct(rows, |(row, _)| {
        (row.technique.clone(), row.frame_size, row.offered_pps.map(f64::to_bits))
    });
    let series = lines.into_iter().map(|(name, size, offered)| {
        let is_mine = |(row, _): &&MeasuredRow| {
            (&row.technique, row.frame_size, row.offered_pps.map(f64::to_bits))
                == (&name, size, offered)
        };
        let mut mine: Vec<_> = rows.iter().filter(is_mine).collect();
        mine.sort_by_key(|(row, _)| row.forwarders);
        let point = |row: &&MeasuredRow| Point {
            size,
            x: row.0.forwarders as f64,
            y: rate_of(run, row.1).0,
            interval: rate_of(run, row.1).1.map(|it| (it.low(), it.high())),
            tip: tip_with(&format!("{what} {}", rate(rate_of(run, row.1).0)), **row),
        };
        Series {
            technique: techniques.number(&name),
            points: mine.iter().map(point).collect(),
            label: if sizes.len() > 1 { format!("{name}, {size} B") } else { name },
        }
    });
    let plot = Plot {
        label: title.to_owned(),
        x: Axis {
            title: axis.to_owned(),
            scale: Scale::linear(most as f64),
            unit: Unit { name: "", factor: 1.0 },
            ticks: counts.iter().map(|count| *count as f64).collect(),
        },
        y: Axis {
            title: what.to_owned(),
            scale: Scale::linear(rates.clone().fold(0.0, f64::max)),
            unit: rate_unit(rates.fold(0.0, f64::max)),
            ticks: Vec::new(),
        },
        reference: None,
        series: series.collect(),
    };
    let mut notes = explain_marks(rows);
    if let Some(paper) = &run.results.table.paper {
        notes.push(format!("The paper: {paper}."));
    }
    let mut table = table(rows, techniques);
    for (line, (_, measured)) in table.rows.iter_mut().zip(rows).filter(|_| is_searched) {
        line.cells.insert(3, format!("{:.0}", highest(measured).0));
    }
    if is_searched {
        table.columns.insert(3, Column { title: "highest rate", unit: "pps", is_number: true });
    }
    if is_of_sender(run) {
        for (line, (_, measured)) in table.rows.iter_mut().zip(rows) {
            line.cells.insert(3, format!("{:.0}", measured.sent_pps));
        }
        table.columns.insert(3, Column { title: "sent", unit: "pps", is_number: true });
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
        chart: plot.draw(techniques),
        notes,
        table,
    }
}
