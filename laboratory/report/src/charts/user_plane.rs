//! Throughput of a user plane function: per core, over sessions, and over rules.

use dray_results::UpfLoad;

use crate::chart::{Axis, Chart, Panel, PanelRow, Plot, Point, Shape, lines};
use crate::charts::drop_rates::highest;
use crate::charts::rates::columns;
use crate::charts::rows::{
    MeasuredRow, RowColumn, bits, explain_marks, measured, table_of, tip, tip_with,
};
use crate::distinct::distinct;
use crate::figure::{Figure, Table};
use crate::input::Run;
use crate::number::{Unit, rate, rate_unit};
use crate::scale::Scale;
use crate::technique::Techniques;

const MBPS: Unit = Unit { name: "Mb/s", factor: 1e6 };

/// A row, and the load of its user plane function.
type UpfRow<'a> = (UpfLoad, MeasuredRow<'a>);

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows: Vec<UpfRow> = measured(run).filter_map(|row| Some((row.0.upf?, row))).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let sessions = |load: &UpfLoad| load.sessions;
    let pdrs = |load: &UpfLoad| u32::from(load.pdrs);
    let over = |of: fn(&UpfLoad) -> u32, other: fn(&UpfLoad) -> u32, title, axis| {
        // Groups rows that differ in nothing else, and takes the group with most values.
        let kinds = distinct(&rows, |(load, _)| (load.way, other(load)));
        let most = kinds.into_iter().map(|kind| {
            let mine = rows.iter().filter(|(load, _)| (load.way, other(load)) == kind).copied();
            mine.collect::<Vec<UpfRow>>()
        });
        let values = |rows: &Vec<UpfRow>| distinct(rows, |(load, _)| of(load)).len();
        let most = most.max_by_key(values).filter(|most| values(most) > 1)?;
        Some(line(run, techniques, &most, of, title, axis))
    };
    let sessions_line = over(sessions, pdrs, "Rate against sessions", "sessions");
    let pdrs_line = over(pdrs, sessions, "Rate against rules", "PDRs per session");
    let lines: Vec<Figure> = sessions_line.into_iter().chain(pdrs_line).collect();
    if lines.is_empty() { vec![per_core(run, techniques, &rows)] } else { lines }
}

/// Returns a table with all figures, the load and, if `has_cores`, the rate per core.
fn table(rows: &[UpfRow], techniques: &Techniques, has_cores: bool) -> Table {
    let rows: Vec<MeasuredRow> = rows.iter().map(|(_, row)| *row).collect();
    let mut columns = columns(&rows);
    let load = |(row, _): &MeasuredRow| row.upf.map_or(String::new(), |load| load.to_string());
    columns.insert(1, RowColumn::text("load", load));
    if has_cores {
        let per_core = |row: &MeasuredRow| format!("{:.0}", bps_per_core(*row) / MBPS.factor);
        columns.insert(2, RowColumn::number("per core", "Mb/s", per_core));
    }
    table_of(&rows, techniques, columns)
}

fn notes(run: &Run, rows: &[UpfRow]) -> Vec<String> {
    let plain: Vec<MeasuredRow> = rows.iter().map(|(_, row)| *row).collect();
    let mut notes = explain_marks(&plain);
    if let Some(paper) = &run.results.table.paper {
        notes.push(format!("◇ The paper's figure: {paper}."));
    }
    notes
}

/// Draws Mb/s per core that the function was busy on: a panel for each way and offered rate.
fn per_core(run: &Run, techniques: &Techniques, rows: &[UpfRow]) -> Figure {
    let paper = |(_, (row, _)): &UpfRow| row.paper_pps.map(|pps| bits(row, pps));
    let ends = rows.iter().flat_map(|row| [Some(bps_per_core(row.1)), paper(row)]).flatten();
    let scale = Scale::fitting(ends);
    let kinds = distinct(rows, |(load, (row, measured))| {
        let searched = !measured.drop_rates.is_empty();
        (load.to_string(), row.offered_pps, searched, row.frame_size)
    });
    let panels = kinds.iter().map(|(load, offered, searched, size)| {
        let is_mine = |(of, (row, measured)): &&UpfRow| {
            (of.to_string(), row.offered_pps, !measured.drop_rates.is_empty(), row.frame_size)
                == (load.clone(), *offered, *searched, *size)
        };
        let mut mine: Vec<UpfRow> = rows.iter().filter(is_mine).copied().collect();
        mine.sort_by(|a, b| bps_per_core(b.1).total_cmp(&bps_per_core(a.1)));
        let row = |it: &UpfRow| {
            let value = bps_per_core(it.1);
            let (_, (row, measured)) = it;
            let mut shapes = Shape::figure(value, None);
            shapes.extend(paper(it).map(Shape::diamond));
            let small = format!(" at {}", rate(measured.received_pps));
            PanelRow {
                technique: techniques.get(&row.technique).clone(),
                shapes,
                value: (format!("{}{}", MBPS.of(value), measured.mark()), small),
                tip: tip_with(&format!("{} per core", MBPS.with(value)), (row, measured)),
            }
        };
        let at = match (offered, searched) {
            (Some(pps), _) => format!("offered {}", rate(*pps)),
            (None, true) => "without loss".to_owned(),
            (None, false) => "at full rate".to_owned(),
        };
        let rows = mine.iter().map(row).collect();
        Panel::new(format!("{load}, {size} B, {at}"), *size, scale, MBPS, rows)
    });
    Figure {
        title: "Throughput per core of the user plane function".to_owned(),
        reading: "Mb/s forwarded per core that the function kept busy. Further right is better."
            .to_owned(),
        chart: Chart::Panels(panels.collect()),
        notes: notes(run, rows),
        table: table(rows, techniques, true),
    }
}

/// Returns the passed bits per second per core that the function was busy on.
fn bps_per_core((row, measured): MeasuredRow) -> f64 {
    measured.upf_pps_per_core().map_or(0.0, |pps| bits(row, pps))
}

/// Draws a line for each technique and rate over the value of the load that `of` returns.
fn line(
    run: &Run,
    techniques: &Techniques,
    rows: &[UpfRow],
    of: fn(&UpfLoad) -> u32,
    title: &str,
    axis: &str,
) -> Figure {
    let mut values = distinct(rows, |(load, _)| of(load));
    values.sort_unstable();
    let most = rows.iter().map(|(_, (_, measured))| highest(measured).0).fold(0.0, f64::max);
    let key = |(_, (row, _)): &UpfRow| {
        (row.technique.clone(), row.frame_size, row.offered_pps.map(f64::to_bits))
    };
    let point = |(load, row): &UpfRow| {
        let (pps, interval) = highest(row.1);
        Point::new(row.0.frame_size, (of(load).into(), pps), interval, tip(*row))
    };
    let scale = Scale::log(values[0].into(), values[values.len() - 1].into());
    let plot = Plot::new(
        Axis::labelled(axis, scale, Unit::NONE, values.iter().map(|value| f64::from(*value))),
        Axis::new("received", Scale::linear(most), rate_unit(most)),
        None,
        lines(rows, key, |(name, ..)| (techniques.get(name), name.clone()), point),
    );
    Figure {
        title: title.to_owned(),
        reading: "Packets forwarded per second. The flatter the line, the less each additional \
                  one costs."
            .to_owned(),
        chart: Chart::Plot(plot),
        notes: notes(run, rows),
        table: table(rows, techniques, false),
    }
}
