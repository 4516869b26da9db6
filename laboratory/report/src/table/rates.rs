//! Receive rates: all figures of each case, or one figure of many cases side by side.

use dray_results::{Isolation, Measured, Outcome, ResultRow, Verdict};

use super::cell::{add_columns, head, kilo, loss, mega, or_dash};
use crate::charts::rows::bits;
use crate::distinct::distinct;
use crate::number::spread;
use dray_text::{fit, list_of};

pub(super) fn list(rows: &[ResultRow]) -> String {
    let mut cells = head(
        "technique|size|sent|received|±|loss|Gb/s|cores|poll|sys|soft|cycles",
        "|B|kpps|kpps|%|%|||%|%|%|/frame",
    );
    for row in rows {
        let mut line = vec![row.technique.clone(), row.frame_size.to_string()];
        match &row.outcome {
            Outcome::Measured(measured) => line.extend(figures(row, measured)),
            Outcome::Isolated { isolation } => line.push(isolated(isolation)),
            // The notes below say why.
            Outcome::Skipped { .. } => continue,
        }
        cells.push(line);
    }
    list_of(&cells, 2, 2)
}

/// Formats the verdict on isolation, in place of figures.
fn isolated(isolation: &Isolation) -> String {
    let Isolation { offered, left, dropped, arrived, .. } = isolation;
    match isolation.verdict {
        Verdict::Isolated => format!("isolated by design: {offered} frames, 0 arrived"),
        Verdict::NotIsolated => format!("NOT ISOLATED: {offered} frames, {arrived} arrived"),
        Verdict::NotVerified => {
            format!("NOT VERIFIED: {offered} frames, {left} left the host, {dropped} dropped")
        }
    }
}

fn figures(row: &ResultRow, measured: &Measured) -> [String; 10] {
    let cpu = &measured.cpu;
    let part = |seconds: f64| format!("{:.0}", 100.0 * seconds / cpu.elapsed_s);
    [
        format!("{}{}", kilo(measured.sent_pps), measured.mark()),
        kilo(measured.received_pps),
        spread(measured.interval()),
        loss(measured),
        format!("{:.2}", bits(row, measured.received_pps) / 1e9),
        format!("{:.2}", cpu.cores()),
        cpu.total.polling_s.map_or("-".to_owned(), part),
        part(cpu.total.system_s),
        part(cpu.total.softirq_s),
        or_dash(measured.cycles_per_frame, 0),
    ]
}

/// Formats a row for each `row_of`, with the rate and the loss for each `column_of`.
pub(super) fn matrix(
    rows: &[ResultRow],
    corner: &str,
    paper: bool,
    row_of: impl Fn(&ResultRow) -> String,
    column_of: impl Fn(&ResultRow) -> String,
) -> String {
    let columns = distinct(rows, |row| (column_of(row), row.frame_size));
    let mut cells = head(corner, "");
    if paper {
        add_columns(&mut cells, &[("paper", "kpps")]);
    }
    for (name, size) in &columns {
        let name = format!("{name} {size} B");
        add_columns(&mut cells, &[(name.as_str(), "kpps"), ("±", "%"), ("loss", "%")]);
    }
    for name in distinct(rows, &row_of) {
        let mine: Vec<_> = rows.iter().filter(|row| row_of(row) == name).collect();
        let mut line = vec![name];
        if paper {
            line.push(mine.iter().find_map(|row| row.paper_pps).map_or("-".to_owned(), kilo));
        }
        for (column, size) in &columns {
            let row = mine.iter().find(|row| column_of(row) == *column && row.frame_size == *size);
            match row.and_then(|row| row.measured()) {
                Some(measured) => {
                    let rate = format!("{}{}", kilo(measured.received_pps), measured.mark());
                    line.extend([rate, spread(measured.interval()), loss(measured)]);
                }
                None => line.extend(["skipped", "", ""].map(str::to_owned)),
            }
        }
        cells.push(line);
    }
    let front = if paper { 2 } else { 1 };
    fit(&cells, front, front, &[3])
}

/// Formats a row for each `row_of` and a column for each `column_of`, with only a rate in each
/// cell.
pub(super) fn grid(
    rows: &[ResultRow],
    corner: &str,
    row_of: impl Fn(&ResultRow) -> String,
    column_of: impl Fn(&ResultRow) -> String,
    rate_of: fn(&Measured) -> f64,
) -> String {
    let columns = distinct(rows, &column_of);
    let highest = rows.iter().filter_map(ResultRow::measured).map(rate_of).fold(0.0, f64::max);
    let (unit, in_unit): (_, fn(f64) -> String) =
        if highest < 10e6 { ("kpps", kilo) } else { ("Mpps", mega) };
    let mut cells = head(corner, "");
    columns.iter().for_each(|name| add_columns(&mut cells, &[(name.as_str(), unit)]));
    for name in distinct(rows, &row_of) {
        let cell = |column: &String| {
            let row = rows.iter().find(|row| row_of(row) == name && column_of(row) == *column);
            match row.and_then(ResultRow::measured) {
                Some(measured) => format!("{}{}", in_unit(rate_of(measured)), measured.mark()),
                None => "-".to_owned(),
            }
        };
        cells.push(std::iter::once(name.clone()).chain(columns.iter().map(cell)).collect());
    }
    fit(&cells, 1, 1, &[1])
}
