//! Received against offered rate: a line for each technique.

use crate::chart::{Axis, Plot, Point, Series};
use crate::charts::rates::table;
use crate::charts::rows::{MeasuredRow, explain_marks, measured, tip};
use crate::distinct::distinct;
use crate::figure::Figure;
use crate::input::Run;
use crate::number::rate_unit;
use crate::scale::Scale;
use crate::technique::Techniques;

/// Minimum number of rates for a line.
const LEAST_RATES: usize = 3;

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows: Vec<MeasuredRow> = chains(run).collect();
    let sizes = distinct(&rows, |(row, _)| row.frame_size);
    sizes.into_iter().filter_map(|size| of_size(run, techniques, size)).collect()
}

/// Returns rows at a given rate, with any number of forwarders in a chain.
fn chains(run: &Run) -> impl Iterator<Item = MeasuredRow<'_>> {
    measured(run).filter(|(row, measured)| {
        row.topology == "chain" && row.offered_pps.is_some() && measured.drop_rates.is_empty()
    })
}

fn of_size(run: &Run, techniques: &Techniques, size: usize) -> Option<Figure> {
    let rows: Vec<MeasuredRow> = chains(run).filter(|(row, _)| row.frame_size == size).collect();
    let offered = |(row, _): &MeasuredRow| row.offered_pps.unwrap_or_default();
    if distinct(&rows, offered).len() < LEAST_RATES {
        return None;
    }
    let most_offered = rows.iter().map(offered).fold(0.0, f64::max);
    let least_offered = rows.iter().map(offered).fold(most_offered, f64::min);
    let x = Scale::fitting(rows.iter().map(offered));
    let most_received = rows.iter().map(|(_, m)| m.received_pps).fold(0.0, f64::max);
    // The same kind of scale on both axes makes "everything received" a straight line.
    let y = if x.is_log() {
        let received = rows.iter().map(|(_, m)| m.received_pps).filter(|pps| *pps > 0.0);
        Scale::log(received.fold(least_offered, f64::min), most_received.max(least_offered))
    } else {
        Scale::linear(most_received)
    };
    let lines = distinct(&rows, |(row, _)| (row.technique.clone(), row.forwarders));
    let has_chains = lines.iter().any(|(_, forwarders)| *forwarders > 0);
    let series = lines.into_iter().map(|(name, forwarders)| {
        let is_mine =
            |(row, _): &&MeasuredRow| row.technique == name && row.forwarders == forwarders;
        let mut mine: Vec<_> = rows.iter().filter(is_mine).collect();
        mine.sort_by(|a, b| offered(a).total_cmp(&offered(b)));
        let point = |row: &&MeasuredRow| Point {
            size,
            x: offered(row),
            y: row.1.received_pps,
            interval: row.1.interval().map(|it| (it.low(), it.high())),
            tip: tip(**row),
        };
        Series {
            technique: techniques.number(&name),
            points: mine.iter().map(point).collect(),
            label: if has_chains { format!("{name}, {forwarders} forwarders") } else { name },
        }
    });
    let all = most_offered.min(most_received);
    let first = if x.is_log() { least_offered } else { 0.0 };
    let plot = Plot {
        label: format!("Received against offered rate, {size} B"),
        x: Axis {
            title: "offered".to_owned(),
            scale: x,
            unit: rate_unit(most_offered),
            ticks: Vec::new(),
        },
        y: Axis {
            title: "received".to_owned(),
            scale: y,
            unit: rate_unit(most_received),
            ticks: Vec::new(),
        },
        reference: Some((vec![(first, first), (all, all)], "no loss".to_owned())),
        series: series.collect(),
    };
    let mut notes = explain_marks(&rows);
    if let Some(paper) = &run.results.table.paper {
        notes.push(format!("The paper: {paper}."));
    }
    Some(Figure {
        title: format!("Received against offered rate, {size} B"),
        reading: "Frames per second. Where a line is below the dashed one, frames were lost, or \
                  the sender sent less than it was told to. Further up is better."
            .to_owned(),
        chart: plot.draw(techniques),
        notes,
        table: table(&rows, techniques),
    })
}
