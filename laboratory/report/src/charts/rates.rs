//! Receive rate of each technique: a panel of dots for each size and offered rate.

use dray_results::Interval;

use crate::chart::{Panel, PanelRow, Shape};
use crate::charts::rows::{MeasuredRow, between_two, bits, cores, explain_marks, panel_sizes, tip};
use crate::distinct::distinct;
use crate::figure::{Figure, Table, TableRow};
use crate::input::Run;
use crate::number::{Unit, digits, percent, plus_minus, rate, rate_unit, spread};
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
    let chart: String = panels.iter().map(|panel| panel.draw(techniques)).collect();
    let mut notes = explain_marks(&rows);
    if panels.iter().any(|panel| panel.reference.is_some()) {
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
        chart: format!("<div class=\"panels\">{chart}</div>"),
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
    Panel {
        title,
        size: first.frame_size,
        scale,
        unit,
        reference: limit.map(|pps| (pps, format!("limit of the machine, {}", rate(pps)))),
        rows: rows.iter().map(|row| panel_row(*row, techniques, unit)).collect(),
    }
}

fn panel_row((row, measured): MeasuredRow, techniques: &Techniques, unit: Unit) -> PanelRow {
    let interval = measured.interval();
    let mut shapes = vec![Shape::Lead(measured.received_pps)];
    shapes.extend(interval.map(|it| Shape::Whisker(it.low(), it.high())));
    shapes.push(Shape::Dot(measured.received_pps));
    shapes.extend(row.paper_pps.map(Shape::Diamond));
    let mut small = plus_minus(interval);
    if measured.loss_ratio >= 0.0001 {
        small.push_str(&format!(" lost {} %", percent(measured.loss_ratio)));
    }
    PanelRow {
        technique: techniques.number(&row.technique),
        shapes,
        value: (format!("{}{}", unit.of(measured.received_pps), measured.mark()), small),
        tip: tip((row, measured)),
    }
}

/// Returns a table with all figures of the rows.
pub(super) fn table(rows: &[MeasuredRow], techniques: &Techniques) -> Table {
    let has_paper = rows.iter().any(|(row, _)| row.paper_pps.is_some());
    let has_limit = rows.iter().any(|(_, measured)| measured.limit_share.is_some());
    let mut columns = vec![
        ("technique", None),
        ("size", Some("B")),
        ("offered", Some("pps")),
        ("received", Some("pps")),
        ("±", Some("%")),
        ("lost", Some("%")),
        ("received", Some("Gb/s")),
        ("busy", Some("cores")),
        ("cycles", Some("/frame")),
    ];
    columns.extend(has_limit.then_some(("of the limit", Some("%"))));
    columns.extend(has_paper.then_some(("paper", Some("pps"))));
    let has_forwarders = rows.iter().any(|(row, _)| row.forwarders > 0);
    if has_forwarders {
        columns.insert(1, ("forwarders", Some("")));
    }
    let mut table = Table::new(&columns);
    for (row, measured) in rows {
        let pps = measured.received_pps;
        let or_nothing =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.0}"));
        let mut cells = vec![
            row.technique.clone(),
            row.frame_size.to_string(),
            row.offered_pps.map_or("max".to_owned(), |pps| format!("{pps:.0}")),
            format!("{pps:.0}{}", measured.mark()),
            spread(measured.interval()),
            percent(measured.loss_ratio),
            digits(bits(row, pps) / 1e9),
            cores(measured).map_or(String::new(), |cores| format!("{cores:.2}")),
            or_nothing(measured.cycles_per_frame),
        ];
        if has_limit {
            cells.push(
                measured.limit_share.map_or(String::new(), |share| format!("{:.0}", 100.0 * share)),
            );
        }
        if has_paper {
            cells.push(or_nothing(row.paper_pps));
        }
        if has_forwarders {
            cells.insert(1, row.forwarders.to_string());
        }
        table.rows.push(TableRow {
            technique: techniques.number(&row.technique),
            size: row.frame_size,
            cells,
        });
    }
    table
}
