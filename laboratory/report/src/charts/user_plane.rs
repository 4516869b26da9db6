//! Throughput of a user plane function: per core, over sessions, and over rules.

use dray_results::UpfLoad;

use crate::chart::{Axis, Panel, PanelRow, Plot, Point, Series, Shape};
use crate::charts::drop_rates::highest;
use crate::charts::rates::table;
use crate::charts::rows::{MeasuredRow, bits, explain_marks, measured, tip, tip_with};
use crate::distinct::distinct;
use crate::figure::{Column, Figure, Table};
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
        let kinds = distinct(&rows, |(load, _)| (load.direction, other(load)));
        let most = kinds.into_iter().map(|kind| {
            let mine =
                rows.iter().filter(|(load, _)| (load.direction, other(load)) == kind).copied();
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

/// Returns a table with all figures and the load.
fn with_loads(rows: &[UpfRow], techniques: &Techniques) -> Table {
    let plain: Vec<MeasuredRow> = rows.iter().map(|(_, row)| *row).collect();
    let mut table = table(&plain, techniques);
    table.columns.insert(1, Column { title: "load", unit: "", is_number: false });
    for (line, (load, _)) in table.rows.iter_mut().zip(rows) {
        line.cells.insert(1, load.to_string());
    }
    table
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
    let ends = rows.iter().flat_map(|row| [Some(bps_per_core(row)), paper(row)]).flatten();
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
        mine.sort_by(|a, b| bps_per_core(b).total_cmp(&bps_per_core(a)));
        let row = |it: &UpfRow| {
            let value = bps_per_core(it);
            let (_, (row, measured)) = it;
            let mut shapes = vec![Shape::Lead(value), Shape::Dot(value)];
            shapes.extend(paper(it).map(Shape::Diamond));
            let small = format!(" at {}", rate(measured.received_pps));
            PanelRow {
                technique: techniques.number(&row.technique),
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
        Panel {
            title: format!("{load}, {size} B, {at}"),
            size: *size,
            scale,
            unit: MBPS,
            reference: None,
            rows: mine.iter().map(row).collect(),
        }
    });
    let chart: String = panels.map(|panel| panel.draw(techniques)).collect();
    Figure {
        title: "Throughput per core of the user plane function".to_owned(),
        reading: "Mb/s forwarded per core that the function kept busy. Further right is better."
            .to_owned(),
        chart: format!("<div class=\"panels\">{chart}</div>"),
        notes: notes(run, rows),
        table: with_cores(rows, techniques),
    }
}

/// Returns a table with all figures and the rate per core.
fn with_cores(rows: &[UpfRow], techniques: &Techniques) -> Table {
    let mut table = with_loads(rows, techniques);
    table.columns.insert(2, Column { title: "per core", unit: "Mb/s", is_number: true });
    for (line, row) in table.rows.iter_mut().zip(rows) {
        line.cells.insert(2, format!("{:.0}", bps_per_core(row) / MBPS.factor));
    }
    table
}

/// Returns the passed bits per second per core that the function was busy on.
fn bps_per_core((_, (row, measured)): &UpfRow) -> f64 {
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
    let lines = distinct(rows, |(_, (row, _))| {
        (row.technique.clone(), row.frame_size, row.offered_pps.map(f64::to_bits))
    });
    let series = lines.into_iter().map(|(name, size, offered)| {
        let is_mine = |(_, (row, _)): &&UpfRow| {
            (&row.technique, row.frame_size, row.offered_pps.map(f64::to_bits))
                == (&name, size, offered)
        };
        let mut mine: Vec<&UpfRow> = rows.iter().filter(is_mine).collect();
        mine.sort_by_key(|(load, _)| of(load));
        let point = |(load, row): &&UpfRow| Point {
            size,
            x: of(load).into(),
            y: highest(row.1).0,
            interval: highest(row.1).1.map(|it| (it.low(), it.high())),
            tip: tip(*row),
        };
        Series {
            technique: techniques.number(&name),
            points: mine.iter().map(point).collect(),
            label: name,
        }
    });
    let plot = Plot {
        label: title.to_owned(),
        x: Axis {
            title: axis.to_owned(),
            scale: Scale::log(values[0].into(), values[values.len() - 1].into()),
            unit: Unit { name: "", factor: 1.0 },
            ticks: values.iter().map(|value| f64::from(*value)).collect(),
        },
        y: Axis {
            title: "received".to_owned(),
            scale: Scale::linear(most),
            unit: rate_unit(most),
            ticks: Vec::new(),
        },
        reference: None,
        series: series.collect(),
    };
    Figure {
        title: title.to_owned(),
        reading: "Packets forwarded per second. The flatter the line, the less each additional \
                  one costs."
            .to_owned(),
        chart: plot.draw(techniques),
        notes: notes(run, rows),
        table: with_loads(rows, techniques),
    }
}
