//! Rate of a switch against the number of its ports.

use dray_results::PortLoad;

use crate::chart::{Axis, Plot, Point, Series};
use crate::charts::rates::table;
use crate::charts::rows::{MeasuredRow, explain_marks, measured, tip_with};
use crate::distinct::distinct;
use crate::figure::{Column, Figure};
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
    let series = distinct(&plain, key).into_iter().map(|line| {
        let point = |(load, row): &PortsRow| Point {
            size: row.0.frame_size,
            x: load.ports.into(),
            y: row.1.received_pps,
            interval: row.1.interval().map(|it| (it.low(), it.high())),
            tip: tip_with(&load.to_string(), *row),
        };
        Series {
            technique: techniques.number(&line.0),
            points: plain.iter().filter(|row| key(row) == line).map(point).collect(),
            label: format!("{}, {}", line.0, line.1),
        }
    });
    let series = series.collect();
    let plot = Plot {
        label: "Rate against ports".to_owned(),
        x: Axis {
            title: "ports".to_owned(),
            scale: Scale::log(
                counts.first().copied().unwrap_or(1).into(),
                counts.last().copied().unwrap_or(2).into(),
            ),
            unit: Unit { name: "", factor: 1.0 },
            ticks: counts.iter().map(|count| f64::from(*count)).collect(),
        },
        y: Axis {
            title: "all ports together".to_owned(),
            scale: Scale::linear(most),
            unit: rate_unit(most),
            ticks: Vec::new(),
        },
        reference: None,
        series,
    };
    let plain: Vec<MeasuredRow> = rows.iter().map(|(_, row)| *row).collect();
    let mut table = table(&plain, techniques);
    table.columns.insert(1, Column { title: "load", unit: "", is_number: false });
    table.columns.push(Column { title: "work", unit: "ns/frame", is_number: true });
    table.columns.push(Column { title: "lowest port", unit: "of mean", is_number: true });
    for (line, (load, (_, measured))) in table.rows.iter_mut().zip(&rows) {
        let number = |value: Option<f64>| value.map_or(String::new(), |it| format!("{it:.2}"));
        line.cells.insert(1, load.to_string());
        line.cells.push(number(measured.switch_work_ns()));
        line.cells.push(number(measured.lowest_share));
    }
    vec![Figure {
        title: "Rate against ports".to_owned(),
        reading:
            "Frames received per second by all ports together. The flatter the line, the less \
                  each additional port costs."
                .to_owned(),
        chart: if counts.len() > 1 { plot.draw(techniques) } else { String::new() },
        notes: explain_marks(&plain),
        table,
    }]
}
