//! Rate of a switch against the number of its ports.

use dray_results::{PortLoad, Traffic};

use crate::chart::{Axis, Chart, Plot, Point, lines};
use crate::charts::rates::columns;
use crate::charts::rows::{MeasuredRow, RowColumn, explain_marks, measured, table_of, tip_with};
use crate::distinct::distinct;
use crate::figure::Figure;
use crate::input::Run;
use crate::number::{Unit, rate_unit};
use crate::scale::Scale;
use crate::technique::Techniques;

/// A row, and the load of its switch.
type PortsRow<'a> = (PortLoad, MeasuredRow<'a>);

/// Draws a line for each technique and traffic; the table has the other rows too.
pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows: Vec<PortsRow> = measured(run).filter_map(|row| Some((row.0.ports?, row))).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let is_plain = |(load, _): &&PortsRow| load.silent() == 0 && load.stations == 1;
    let mut plain: Vec<PortsRow> = rows.iter().filter(is_plain).copied().collect();
    plain.sort_by_key(|(load, _)| load.ports);
    let counts = distinct(&plain, |(load, _)| load.ports);
    let most = plain.iter().map(|(_, (_, it))| it.received_pps).fold(0.0, f64::max);
    let key = |(load, (row, _)): &PortsRow| (row.technique.clone(), load.traffic, row.frame_size);
    let point = |(load, row): &PortsRow| {
        Point::new(
            row.0.frame_size,
            (load.ports.into(), row.1.received_pps),
            row.1.interval(),
            tip_with(&load.to_string(), *row),
        )
    };
    let name = |(name, traffic, _): &(String, Traffic, usize)| {
        (techniques.get(name), format!("{name}, {traffic}"))
    };
    let [first, last] = [counts.first().copied().unwrap_or(1), counts.last().copied().unwrap_or(2)];
    let scale = Scale::log(first.into(), last.into());
    let plot = Plot::new(
        Axis::labelled("ports", scale, Unit::NONE, counts.iter().map(|count| f64::from(*count))),
        Axis::new("all ports together", Scale::linear(most), rate_unit(most)),
        None,
        lines(&plain, key, name, point),
    );
    let rows: Vec<MeasuredRow> = rows.iter().map(|(_, row)| *row).collect();
    let number = |value: Option<f64>| value.map_or(String::new(), |it| format!("{it:.2}"));
    let mut columns = columns(&rows);
    columns.insert(
        1,
        RowColumn::text("load", |(row, _)| {
            row.ports.map_or(String::new(), |load| load.to_string())
        }),
    );
    columns.extend([
        RowColumn::number("work", "ns/frame", move |(_, it)| number(it.switch_work_ns())),
        RowColumn::number("lowest port", "of mean", move |(_, it)| number(it.lowest_share)),
    ]);
    vec![Figure {
        title: "Rate against ports".to_owned(),
        reading:
            "Frames received per second by all ports together. The flatter the line, the less \
                  each additional port costs."
                .to_owned(),
        chart: if counts.len() > 1 { Chart::Plot(plot) } else { Chart::None },
        notes: explain_marks(&rows),
        table: table_of(&rows, techniques, columns),
    }]
}
