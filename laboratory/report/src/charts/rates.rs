//! Receive rate of each technique: a panel of dots for each size and offered rate.

use dray_results::Interval;

use crate::chart::{Chart, Panel, PanelRow, Shape};
use crate::charts::rows::{
    MeasuredRow, RowColumn, between_two, bits, cores, explain_marks, panel_sizes, table_of,
    technique_and_size, tip,
};
use crate::distinct::distinct;
use crate::figure::{Figure, Table};
use crate::input::Run;
use crate::number::{Unit, digits, percent, plus_minus, rate, rate_unit, spread, whole};
use crate::scale::Scale;
use crate::technique::Techniques;

/// Maximum number of rates; for more, a line is the better chart.
const MOST_RATES: usize = 2;

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows: Vec<MeasuredRow> = between_two(run).collect();
    let rates = distinct(&rows, |(row, _)| row.offered_pps);
    if rows.is_empty() || rates.len() > MOST_RATES {
        return Vec::new();
    }
    let highest = rows.iter().map(|(_, measured)| measured.received_pps).fold(0.0, f64::max);
    let unit = rate_unit(highest);
    let mut panels = Vec::new();
    for size in panel_sizes(&rows) {
        for rate in &rates {
            let is_here =
                |(row, _): &&MeasuredRow| row.frame_size == size && row.offered_pps == *rate;
            let here: Vec<MeasuredRow> = rows.iter().filter(is_here).copied().collect();
            if !here.is_empty() {
                panels.push(panel(run, techniques, here, unit));
            }
        }
    }
    let mut notes = explain_marks(&rows);
    if panels.iter().any(Panel::has_reference) {
        notes.push(
            "Limit of the machine: two CPUs only pass frames on, with one copy per frame."
                .to_owned(),
        );
    }
    let paper = rows.iter().any(|(row, _)| row.paper_pps.is_some());
    if paper && let Some(paper) = &run.results.table.paper {
        notes.push(format!("◇ The paper's figure: {paper}."));
    }
    let title = if rates == [None] { "Highest receive rate" } else { "Receive rate" };
    vec![Figure {
        title: title.to_owned(),
        reading:
            "Frames received per second; the line through a dot is its 95 % interval. Further \
                  right is better."
                .to_owned(),
        chart: Chart::Panels(panels),
        notes,
        table: table(&rows, techniques),
    }]
}

/// Creates a panel of rows with the same size and offered rate: best first, on one scale.
fn panel(run: &Run, techniques: &Techniques, mut rows: Vec<MeasuredRow>, unit: Unit) -> Panel {
    rows.sort_by(|(_, a), (_, b)| b.received_pps.total_cmp(&a.received_pps));
    let (first, _) = rows[0];
    let limit = run.results.limits.iter().find(|limit| limit.frame_size == first.frame_size);
    // The limit is irrelevant for a given rate.
    let limit = limit.filter(|_| first.offered_pps.is_none()).map(|limit| limit.pps);
    let ends = rows.iter().flat_map(|(row, measured)| {
        let high = measured.interval().map(Interval::high);
        [Some(measured.received_pps), high, row.paper_pps].into_iter().flatten()
    });
    let scale = Scale::fitting(ends.chain(limit));
    let title = match first.offered_pps {
        Some(pps) => format!("{} B, offered {}", first.frame_size, rate(pps)),
        None => format!("{} B", first.frame_size),
    };
    let rows = rows.iter().map(|row| panel_row(*row, techniques, unit)).collect();
    let panel = Panel::new(title, first.frame_size, scale, unit, rows);
    match limit {
        Some(pps) => {
            panel.with_reference(scale.percent(pps), format!("limit of the machine, {}", rate(pps)))
        }
        None => panel,
    }
}

fn panel_row((row, measured): MeasuredRow, techniques: &Techniques, unit: Unit) -> PanelRow {
    let interval = measured.interval();
    let mut shapes = Shape::figure(measured.received_pps, interval);
    shapes.extend(row.paper_pps.map(Shape::diamond));
    let mut small = plus_minus(interval);
    if measured.loss_ratio >= 0.0001 {
        small.push_str(&format!(" lost {} %", percent(measured.loss_ratio)));
    }
    PanelRow {
        technique: techniques.get(&row.technique).clone(),
        shapes,
        value: (format!("{}{}", unit.of(measured.received_pps), measured.mark()), small),
        tip: tip((row, measured)),
    }
}

/// Returns columns for all figures of the rows.
pub(super) fn columns<'a>(rows: &[MeasuredRow<'a>]) -> Vec<RowColumn<'a>> {
    let [technique, size] = technique_and_size();
    let mut columns = vec![
        technique,
        size,
        RowColumn::number("offered", "pps", |(row, _)| {
            row.offered_pps.map_or("max".to_owned(), |pps| format!("{pps:.0}"))
        }),
        RowColumn::number("received", "pps", |(_, measured)| {
            format!("{:.0}{}", measured.received_pps, measured.mark())
        }),
        RowColumn::number("±", "%", |(_, measured)| spread(measured.interval())),
        RowColumn::number("lost", "%", |(_, measured)| percent(measured.loss_ratio)),
        RowColumn::number("received", "Gb/s", |(row, it)| digits(bits(row, it.received_pps) / 1e9)),
        RowColumn::number("busy", "cores", |(_, measured)| {
            cores(measured).map_or(String::new(), |cores| format!("{cores:.2}"))
        }),
        RowColumn::number("cycles", "/frame", |(_, measured)| whole(measured.cycles_per_frame)),
    ];
    if rows.iter().any(|(_, measured)| measured.limit_share.is_some()) {
        columns.push(RowColumn::number("of the limit", "%", |(_, measured)| {
            whole(measured.limit_share.map(|share| 100.0 * share))
        }));
    }
    if rows.iter().any(|(row, _)| row.paper_pps.is_some()) {
        columns.push(RowColumn::number("paper", "pps", |(row, _)| whole(row.paper_pps)));
    }
    if rows.iter().any(|(row, _)| row.forwarders > 0) {
        let forwarders = |(row, _): &MeasuredRow| row.forwarders.to_string();
        columns.insert(1, RowColumn::number("forwarders", "", forwarders));
    }
    columns
}

/// Returns a table with all figures of the rows.
pub(super) fn table(rows: &[MeasuredRow], techniques: &Techniques) -> Table {
    table_of(rows, techniques, columns(rows))
}
