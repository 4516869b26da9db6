//! How long round trips take: percentiles of each technique along one logarithmic axis.

use dray_traffic::Percentiles;

use crate::chart::{Panel, PanelRow, Shape};
use crate::charts::{MeasuredRow, distinct, explain_marks, mark, measured, tip};
use crate::figure::{Figure, Table, TableRow};
use crate::input::Run;
use crate::number::{Unit, percent, rate, time_unit};
use crate::scale::Scale;
use crate::technique::Techniques;

/// A row, and its percentiles.
type Timed<'a> = (MeasuredRow<'a>, Percentiles);

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows: Vec<Timed> = measured(run).filter_map(|row| Some((row, row.1.latency_ns?))).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let least = rows.iter().map(|(_, latency)| latency.p50).min().unwrap_or(1).max(1) as f64;
    let most = rows.iter().map(|(_, latency)| latency.max).max().unwrap_or(1).max(1) as f64;
    let scale = Scale::log(least, most);
    // Medians are what most axes are read for.
    let unit = time_unit(least.max(1e3));
    let mut chart = String::new();
    for (size, offered) in distinct(&rows, |((row, _), _)| (row.frame_size, row.offered_pps)) {
        let is_here = |((row, _), _): &&Timed| row.frame_size == size && row.offered_pps == offered;
        let mut here: Vec<Timed> = rows.iter().filter(is_here).copied().collect();
        here.sort_by_key(|(_, latency)| (latency.p99, latency.p50));
        let title = match offered {
            Some(pps) => format!("{size} B, {}", rate(pps)),
            None => format!("{size} B, one frame at a time"),
        };
        let rows = here.iter().map(|row| panel_row(*row, techniques, unit)).collect();
        let panel = Panel { title, size, scale, unit, reference: None, rows };
        chart.push_str(&panel.draw(techniques));
    }
    let mut notes = explain_marks(rows.iter().map(|(row, _)| row));
    notes.push(
        "The time runs from before a frame is handed to its port until it is back and read; percentiles \
         are over all round trips, so that there is no interval to say which is faster for sure."
            .to_owned(),
    );
    vec![Figure {
        title: "Round-trip times".to_owned(),
        reading:
            "Dot: the median. Marks: 90, 99 and 99.9 %. Ring: the longest. Further left is better; \
                  the axis is logarithmic."
                .to_owned(),
        chart: format!("<div class=\"panels wide\">{chart}</div>"),
        notes,
        table: table(&rows, techniques),
    }]
}

fn panel_row((row, latency): Timed, techniques: &Techniques, unit: Unit) -> PanelRow {
    let [p50, p90, p99, p999, max] = percentiles(latency).map(|ns| ns as f64);
    PanelRow {
        technique: techniques.number(&row.0.technique),
        shapes: vec![
            Shape::Span(p50, max),
            Shape::Tick(p90),
            Shape::Tick(p99),
            Shape::Tick(p999),
            Shape::Ring(max),
            Shape::Dot(p50),
        ],
        value: (format!("{}{}", unit.of(p50), mark(row.1)), format!("p99 {}", unit.of(p99))),
        tip: tip(row),
    }
}

fn percentiles(latency: Percentiles) -> [u64; 5] {
    let Percentiles { p50, p90, p99, p999, max } = latency;
    [p50, p90, p99, p999, max]
}

fn table(rows: &[Timed], techniques: &Techniques) -> Table {
    let ns = Some("ns");
    let mut table = Table::new(&[
        ("technique", None),
        ("size", Some("B")),
        ("round trips", Some("/s")),
        ("lost", Some("%")),
        ("p50", ns),
        ("p90", ns),
        ("p99", ns),
        ("p99.9", ns),
        ("max", ns),
    ]);
    for ((row, measured), latency) in rows {
        let mut cells = vec![
            row.technique.clone(),
            row.frame_size.to_string(),
            format!("{:.0}{}", measured.received_pps, mark(measured)),
            percent(measured.loss_ratio),
        ];
        cells.extend(percentiles(*latency).map(|ns| ns.to_string()));
        table.rows.push(TableRow {
            technique: techniques.number(&row.technique),
            size: row.frame_size,
            cells,
        });
    }
    table
}
