//! Latency against load: a line for each technique.

use crate::chart::{Axis, Chart, Plot, Point, lines};
use crate::charts::latency::{Timed, Way, table};
use crate::charts::rows::{explain_marks, tip};
use crate::distinct::distinct;
use crate::figure::Figure;
use crate::input::Run;
use crate::number::{rate_unit, time_unit};
use crate::scale::Scale;
use crate::technique::Techniques;

/// Minimum number of loads for a line.
const LEAST_LOADS: usize = 3;

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let of_way = |way: Way| {
        let rows = way.rows(run);
        let sizes = distinct(&rows, |((row, _), _)| row.frame_size);
        let figures = sizes.into_iter().map(move |size| of_size(techniques, way, &rows, size));
        figures.flatten().collect::<Vec<_>>()
    };
    Way::ALL.into_iter().flat_map(of_way).collect()
}

fn of_size(techniques: &Techniques, way: Way, rows: &[Timed], size: usize) -> Option<Figure> {
    let offered = |((row, _), _): &Timed| row.offered_pps.unwrap_or_default();
    let p99 = |(_, times): &Timed| times.p99.max(1) as f64;
    let is_here = |timed: &&Timed| timed.0.0.frame_size == size && offered(timed) > 0.0;
    let rows: Vec<Timed> = rows.iter().filter(is_here).copied().collect();
    let series = lines(
        &rows,
        |((row, _), _)| row.technique.clone(),
        |name| (techniques.get(name), name.clone()),
        |timed| Point::new(size, (offered(timed), p99(timed)), None, tip(timed.0)),
    );
    if !series.iter().any(|line| line.points.len() >= LEAST_LOADS) {
        return None;
    }
    let range = |value: &dyn Fn(&Timed) -> f64| {
        let (least, most) = (rows.iter().map(value), rows.iter().map(value));
        Some((least.reduce(f64::min)?, most.reduce(f64::max)?))
    };
    let (x_range, y_range) = (range(&offered)?, range(&p99)?);
    let log = |(least, most)| Scale::log(least, most);
    let title = format!("{} against load, {size} B", way.title());
    let plot = Plot::new(
        Axis::new("offered", log(x_range), rate_unit(x_range.1)),
        Axis::new("99th percentile", log(y_range), time_unit(y_range.0.max(1e3))),
        None,
        series,
    );
    let mut notes = explain_marks(rows.iter().map(|(row, _)| row));
    notes.push(
        "If loads are shares of each technique's loss-free rate, its line ends near that rate."
            .to_owned(),
    );
    Some(Figure {
        title,
        reading: "99th percentile of the times against frames offered per second; both axes are \
             logarithmic. Further down and further right is better."
            .to_owned(),
        chart: Chart::Plot(plot),
        notes,
        table: table(&rows, techniques),
    })
}
