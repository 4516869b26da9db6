//! Highest rate against frame size: a line for each technique.

use crate::chart::{Axis, Plot, Point, Series};
use crate::charts::rates::table;
use crate::charts::rows::{MeasuredRow, between_two, explain_marks, tip};
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
    let names = distinct(&rows, |(row, _)| row.technique.clone());
    let series = names.into_iter().map(|name| {
        let mut mine: Vec<_> = rows.iter().filter(|(row, _)| row.technique == name).collect();
        mine.sort_by_key(|(row, _)| row.frame_size);
        let point = |row: &&MeasuredRow| Point {
            size: row.0.frame_size,
            x: row.0.frame_size as f64,
            y: row.1.received_pps,
            interval: row.1.interval().map(|it| (it.low(), it.high())),
            tip: tip(**row),
        };
        Series {
            technique: techniques.number(&name),
            points: mine.iter().map(point).collect(),
            label: name,
        }
    });
    let plot = Plot {
        label: "Highest receive rate against frame size".to_owned(),
        x: Axis {
            title: "frame size".to_owned(),
            scale: Scale::linear(last),
            unit: Unit { name: "B", factor: 1.0 },
            ticks: sizes.iter().map(|size| *size as f64).collect(),
        },
        y: Axis {
            title: "received".to_owned(),
            scale: Scale::fitting(rates),
            unit,
            ticks: Vec::new(),
        },
        reference: (limits.len() > 1).then(|| (limits, "limit of the machine".to_owned())),
        series: series.collect(),
    };
    let mut notes = explain_marks(&rows);
    if let Some(paper) = &run.results.table.paper {
        notes.push(format!("The paper: {paper}."));
    }
    vec![Figure {
        title: "Highest receive rate against frame size".to_owned(),
        reading: "Frames received per second, sending as fast as possible; further up is better."
            .to_owned(),
        chart: plot.draw(techniques),
        notes,
        table: table(&rows, techniques),
    }]
}
