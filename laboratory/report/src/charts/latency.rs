//! One-way and round-trip times: percentiles of each technique on one logarithmic axis.

use dray_results::{Percentiles, ResultRow};

use crate::chart::{Chart, Panel, PanelRow, Shape};
use crate::charts::rows::{
    MeasuredRow, explain_marks, measured, table_of, technique_and_size, tip,
};
use crate::distinct::distinct;
use crate::figure::{Column, Figure, Table};
use crate::input::Run;
use crate::number::{Unit, percent, rate, time_unit, whole};
use crate::scale::Scale;
use crate::technique::Techniques;

/// A row and its percentiles.
pub(super) type Timed<'a> = (MeasuredRow<'a>, Percentiles);

/// Way of frames that was timed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Way {
    OneWay,
    RoundTrip,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::OneWay, Self::RoundTrip];

    /// Returns the rows that were timed this way.
    pub(super) fn rows(self, run: &Run) -> Vec<Timed<'_>> {
        let times = |row: MeasuredRow<'_>| match self {
            Self::OneWay => row.1.one_way_ns,
            Self::RoundTrip => row.1.latency_ns,
        };
        measured(run).filter_map(|row| Some((row, times(row)?))).collect()
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::OneWay => "One-way times",
            Self::RoundTrip => "Round-trip times",
        }
    }

    fn note(self) -> &'static str {
        match self {
            Self::OneWay => {
                "Times run from when a frame was due, even if the sender was late, until the \
                 receiver has it. Percentiles are over all frames of all trials, so they have no \
                 interval to rank techniques by."
            }
            Self::RoundTrip => {
                "Times run from when a frame was due (for one frame at a time: from before it is \
                 handed to its port) until it is back and read. Percentiles are over all round \
                 trips, so they have no interval to rank techniques by."
            }
        }
    }
}

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    Way::ALL.into_iter().filter_map(|way| of_way(run, techniques, way)).collect()
}

fn of_way(run: &Run, techniques: &Techniques, way: Way) -> Option<Figure> {
    let rows = way.rows(run);
    let least = rows.iter().map(|(_, latency)| latency.p50).min()?.max(1) as f64;
    let most = rows.iter().map(|(_, latency)| latency.max).max()?.max(1) as f64;
    let scale = Scale::log(least, most);
    // Most readers look for the medians.
    let unit = time_unit(least.max(1e3));
    let mut panels = Vec::new();
    // At a load share, each technique has another rate.
    let load = |row: &ResultRow| match row.load_share {
        Some(share) => format!("{:.0} % of the loss-free rate", 100.0 * share),
        None => row.offered_pps.map_or("one frame at a time".to_owned(), rate),
    };
    for (size, load_here) in distinct(&rows, |((row, _), _)| (row.frame_size, load(row))) {
        let is_here = |((row, _), _): &&Timed| row.frame_size == size && load(row) == load_here;
        let mut here: Vec<Timed> = rows.iter().filter(is_here).copied().collect();
        here.sort_by_key(|(_, latency)| (latency.p99, latency.p50));
        let title = format!("{size} B, {load_here}");
        let rows = here.iter().map(|row| panel_row(*row, techniques, unit)).collect();
        panels.push(Panel::new(title, size, scale, unit, rows));
    }
    let mut notes = explain_marks(rows.iter().map(|(row, _)| row));
    notes.push(way.note().to_owned());
    notes.extend(run.results.clock.as_ref().map(|clock| {
        format!(
            "Clock: a reading takes {:.0} ns; times between two CPUs are accurate to {:.0} ns.",
            clock.read_ns,
            clock.error_ns()
        )
    }));
    Some(Figure {
        title: way.title().to_owned(),
        reading:
            "Dot: median. Marks: 90, 99, 99.9 and 99.99 %. Ring: maximum. Further left is better; \
             the axis is logarithmic."
                .to_owned(),
        chart: Chart::WidePanels(panels),
        notes,
        table: table(&rows, techniques),
    })
}

fn panel_row((row, latency): Timed, techniques: &Techniques, unit: Unit) -> PanelRow {
    let Percentiles { p50, p90, p99, p999, p9999, max } = latency;
    let mut shapes = vec![Shape::span(p50 as f64, max as f64)];
    let ticks = [Some(p90), Some(p99), Some(p999), p9999];
    shapes.extend(ticks.into_iter().flatten().map(|ns| Shape::tick(ns as f64)));
    shapes.extend([Shape::ring(max as f64), Shape::dot(p50 as f64)]);
    PanelRow {
        technique: techniques.get(&row.0.technique).clone(),
        shapes,
        value: (
            format!("{}{}", unit.of(p50 as f64), row.1.mark()),
            format!("p99 {}", unit.of(p99 as f64)),
        ),
        tip: tip(row),
    }
}

/// A column about a row and its percentiles.
type TimedColumn<'a> = Column<'a, Timed<'a>>;

pub(super) fn table(rows: &[Timed], techniques: &Techniques) -> Table {
    let number = |title, unit, of: fn(&ResultRow) -> Option<f64>| {
        TimedColumn::number(title, unit, move |((row, _), _): &Timed| whole(of(row)))
    };
    let ns = |title, of: fn(&Percentiles) -> Option<u64>| {
        let text = |ns: u64| ns.to_string();
        TimedColumn::number(title, "ns", move |(_, times): &Timed| {
            of(times).map_or(String::new(), text)
        })
    };
    let columns = [
        number("load", "%", |row| row.load_share.map(|share| 100.0 * share)),
        number("offered", "pps", |row| row.offered_pps),
        TimedColumn::number("received", "pps", |((_, measured), _)| {
            format!("{:.0}{}", measured.received_pps, measured.mark())
        }),
        TimedColumn::number("lost", "%", |((_, measured), _)| percent(measured.loss_ratio)),
        ns("p50", |times| Some(times.p50)),
        ns("p90", |times| Some(times.p90)),
        ns("p99", |times| Some(times.p99)),
        ns("p99.9", |times| Some(times.p999)),
        ns("p99.99", |times| times.p9999),
        ns("max", |times| Some(times.max)),
        TimedColumn::number("sender late, p99", "ns", |((_, measured), _)| {
            measured.sender_late_ns.map_or(String::new(), |late| late.p99.to_string())
        }),
    ];
    let columns = technique_and_size().into_iter().chain(columns).collect();
    table_of(rows, techniques, columns)
}
