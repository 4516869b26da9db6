//! Latency of frames by load.

use dray_results::{ClockFacts, Measured, Percentiles, ResultRow};

use super::cell::{head, kilo, loss};
use crate::distinct::distinct;
use dray_text::fit;

/// Formats a table for each kind of time (one way, round trip) and size, with a row for each
/// technique and load.
pub(super) fn by_load(rows: &[ResultRow]) -> String {
    let mut text = String::new();
    for (topology, size) in distinct(rows, |row| (row.topology.clone(), row.frame_size)) {
        let way = if topology == "echo" { "there and back" } else { "one way" };
        let mut cells = head(
            "technique|load|sent|loss|late|p50|p99|p99.9|p99.99|max",
            "||kpps|%|p99 us|us|us|us|us|us",
        );
        let mine = rows.iter().filter(|row| (&row.topology, row.frame_size) == (&topology, size));
        for (row, measured) in mine.filter_map(|row| Some((row, row.measured()?))) {
            cells.push(line(row, measured));
        }
        if cells.len() > 2 {
            text.push_str(&format!("{size} B, {way}\n{}\n", fit(&cells, 1, 2, &[1])));
        }
    }
    text
}

fn line(row: &ResultRow, measured: &Measured) -> Vec<String> {
    let load = match (row.load_share, row.offered_pps) {
        (Some(share), _) => format!("{:.0} %", 100.0 * share),
        (None, Some(_)) => "fixed".to_owned(),
        (None, None) => "max".to_owned(),
    };
    let late = measured.sender_late_ns.map_or("-".to_owned(), |late| us(late.p99));
    let mut line = vec![
        row.technique.clone(),
        load,
        format!("{}{}", kilo(measured.sent_pps), measured.mark()),
        loss(measured),
        late,
    ];
    if let Some(times) = measured.one_way_ns.or(measured.latency_ns) {
        let Percentiles { p50, p99, p999, p9999, max, .. } = times;
        line.extend([p50, p99, p999].map(us));
        line.extend([p9999.map_or("-".to_owned(), us), us(max)]);
    }
    line
}

fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if us < 999.95 { format!("{us:.2}") } else { format!("{us:.0}") }
}

/// Describes the accuracy of the clock.
pub(super) fn clock(facts: &ClockFacts) -> String {
    let ClockFacts { read_ns, rate_ppm, .. } = facts;
    let error = facts.error_ns();
    format!(
        "Clock: a reading takes {read_ns:.0} ns; times between two CPUs are accurate to \
         {error:.0} ns plus {rate_ppm:.1} ppm."
    )
}
