//! Received against offered rate: a line for each technique.

use crate::chart::{Axis, Chart, Plot, Point, Reference, lines};
use crate::charts::rates::table;
use crate::charts::rows::{MeasuredRow, measured, notes, tip};
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
    // Equal scales on both axes make "everything received" a straight line.
    let y = if x.is_log() {
        let received = rows.iter().map(|(_, m)| m.received_pps).filter(|pps| *pps > 0.0);
        Scale::log(received.fold(least_offered, f64::min), most_received.max(least_offered))
    } else {
        Scale::linear(most_received)
    };
    let has_chains = rows.iter().any(|(row, _)| row.forwarders > 0);
    let name = |(name, forwarders): &(String, usize)| {
        let label =
            if has_chains { format!("{name}, {forwarders} forwarders") } else { name.clone() };
        (techniques.get(name), label)
    };
    let point = |row: &MeasuredRow| {
        let at = (offered(row), row.1.received_pps);
        Point::new(size, at, row.1.interval(), tip(*row))
    };
    let all = most_offered.min(most_received);
    let first = if x.is_log() { least_offered } else { 0.0 };
    let plot = Plot::new(
        Axis::new("offered", x, rate_unit(most_offered)),
        Axis::new("received", y, rate_unit(most_received)),
        Some(Reference { points: vec![(first, first), (all, all)], label: "no loss" }),
        lines(&rows, |(row, _)| (row.technique.clone(), row.forwarders), name, point),
    );
    Some(Figure {
        title: format!("Received against offered rate, {size} B"),
        reading: "Frames per second. Where a line is below the dashed one, frames were lost, or \
                  the sender sent less than it was told to. Further up is better."
            .to_owned(),
        chart: Chart::Plot(plot),
        notes: notes(run, &rows),
        table: table(&rows, techniques),
    })
}
