//! Highest rate against frame size: a line for each technique.

use crate::chart::{Axis, Chart, Plot, Point, Reference, lines};
use crate::charts::rates::table;
use crate::charts::rows::{MeasuredRow, between_two, notes, tip};
use crate::distinct::distinct;
use crate::figure::Figure;
use crate::input::Run;
use crate::number::{Unit, rate_unit};
use crate::scale::Scale;
use crate::technique::Techniques;

/// Minimum number of sizes for a line.
const LEAST_SIZES: usize = 3;

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows: Vec<MeasuredRow> =
        between_two(run).filter(|(row, _)| row.offered_pps.is_none()).collect();
    let mut sizes = distinct(&rows, |(row, _)| row.frame_size);
    if sizes.len() < LEAST_SIZES {
        return Vec::new();
    }
    sizes.sort_unstable();
    let (first, last) = (sizes[0] as f64, sizes[sizes.len() - 1] as f64);
    let mut limits: Vec<(f64, f64)> =
        run.results.limits.iter().map(|limit| (limit.frame_size as f64, limit.pps)).collect();
    limits.retain(|(size, _)| (first..=last).contains(size));
    limits.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rates = rows.iter().map(|(_, measured)| measured.received_pps);
    let rates = rates.chain(limits.iter().map(|limit| limit.1));
    let unit = rate_unit(rates.clone().fold(0.0, f64::max));
    let series = lines(
        &rows,
        |(row, _)| row.technique.clone(),
        |name| (techniques.get(name), name.clone()),
        |row| {
            Point::new(
                row.0.frame_size,
                (row.0.frame_size as f64, row.1.received_pps),
                row.1.interval(),
                tip(*row),
            )
        },
    );
    let bytes = Unit { name: "B", factor: 1.0 };
    let plot = Plot::new(
        Axis::labelled(
            "frame size",
            Scale::linear(last),
            bytes,
            sizes.iter().map(|size| *size as f64),
        ),
        Axis::new("received", Scale::fitting(rates), unit),
        (limits.len() > 1).then_some(Reference { points: limits, label: "limit of the machine" }),
        series,
    );
    vec![Figure {
        title: "Highest receive rate against frame size".to_owned(),
        reading: "Frames received per second, sending as fast as possible; further up is better."
            .to_owned(),
        chart: Chart::Plot(plot),
        notes: notes(run, &rows),
        table: table(&rows, techniques),
    }]
}
