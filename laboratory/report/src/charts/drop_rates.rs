//! The highest rates without loss, and within a small loss: a panel of dots for each size.

use dray_results::{DropRate, Interval, LimitedBy, Measured};

use crate::chart::{Chart, Panel, PanelRow, Shape};
use crate::charts::rows::{
    MeasuredRow, explain_marks, measured, panel_sizes, table_of, technique_and_size, tip_with,
};
use crate::figure::{Column, Figure, Table};
use crate::input::Run;
use crate::number::{digits, percent, plus_minus, rate, rate_unit, spread};
use crate::scale::Scale;
use crate::technique::Techniques;

/// Returns the highest rate of a row and its interval: the one found for the first loss ratio that
/// was searched, or the received rate if there was no search.
pub(crate) fn highest(measured: &Measured) -> (f64, Option<Interval>) {
    match measured.drop_rates.first() {
        Some(found) => (found.pps, found.interval()),
        None => (measured.received_pps, measured.interval()),
    }
}

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let is_here = |(row, measured): &MeasuredRow| {
        row.topology == "chain" && row.forwarders == 0 && !measured.drop_rates.is_empty()
    };
    let mut rows: Vec<MeasuredRow> = measured(run).filter(is_here).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    rows.sort_by(|(_, a), (_, b)| b.drop_rates[0].pps.total_cmp(&a.drop_rates[0].pps));
    let most =
        rows.iter().flat_map(|(_, m)| &m.drop_rates).map(|found| found.pps).fold(0.0, f64::max);
    let unit = rate_unit(most);
    let mut panels = Vec::new();
    for size in panel_sizes(&rows) {
        let here = || rows.iter().filter(|(row, _)| row.frame_size == size);
        let rates = here().flat_map(|(_, m)| &m.drop_rates).map(|found| found.pps);
        let panel_row = |row: &MeasuredRow| {
            let first = &row.1.drop_rates[0];
            let interval = first.interval();
            let mut shapes = vec![Shape::lead(first.pps)];
            shapes.extend(interval.map(Shape::whisker));
            shapes.extend(row.1.drop_rates[1..].iter().map(|found| Shape::ring(found.pps)));
            shapes.push(Shape::dot(first.pps));
            PanelRow {
                technique: techniques.get(&row.0.technique).clone(),
                shapes,
                value: (format!("{}{}", unit.of(first.pps), row.1.mark()), plus_minus(interval)),
                tip: tip_with(&lines(&row.1.drop_rates), *row),
            }
        };
        let rows = here().map(panel_row).collect();
        panels.push(Panel::new(format!("{size} B"), size, Scale::fitting(rates), unit, rows));
    }
    let [first, others @ ..] = &rows[0].1.drop_rates[..] else { return Vec::new() };
    let others: Vec<String> =
        others.iter().map(|found| format!("{} %", percent(found.loss_ratio))).collect();
    let rings = if others.is_empty() {
        String::new()
    } else {
        format!(" Ring: at most {} lost.", others.join(", "))
    };
    let mut notes = explain_marks(&rows);
    notes.push(format!(
        "Trials last {} s; a search ends when its bounds are within {} % of each other. ± is over \
         several searches.",
        digits(first.trial_s),
        percent(first.width)
    ));
    vec![Figure {
        title: "Highest rate within a given loss".to_owned(),
        reading: format!(
            "Highest rate of offered frames with at most {} % lost (dot).{rings} Further right is \
             better.",
            percent(first.loss_ratio)
        ),
        chart: Chart::Panels(panels),
        notes,
        table: table(&rows, techniques),
    }]
}

/// Describes the rates found, in lines.
fn lines(rates: &[DropRate]) -> String {
    let line = |found: &DropRate| {
        format!("at most {} % lost: {}", percent(found.loss_ratio), rate(found.pps))
    };
    rates.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn table(rows: &[MeasuredRow], techniques: &Techniques) -> Table {
    type FoundColumn<'a> = Column<'a, (MeasuredRow<'a>, &'a DropRate)>;
    let found = rows.iter().flat_map(|row| row.1.drop_rates.iter().map(|found| (*row, found)));
    let columns = [
        FoundColumn::number("max loss", "%", |(_, found)| percent(found.loss_ratio)),
        FoundColumn::number("highest rate", "pps", |((_, measured), found)| {
            format!("{:.0}{}", found.pps, measured.mark())
        }),
        FoundColumn::number("±", "%", |(_, found)| spread(found.interval())),
        FoundColumn::number("bound width", "%", |(_, found)| percent(found.width)),
        FoundColumn::number("trial", "s", |(_, found)| digits(found.trial_s)),
        FoundColumn::number("searches", "", |(_, found)| found.searches.len().to_string()),
        FoundColumn::number("trials", "", |(_, found)| {
            found.searches.iter().map(|search| search.trials).sum::<usize>().to_string()
        }),
        FoundColumn::number("limited by", "", |(_, found)| {
            let by_sender = found.searches.iter().any(|it| it.limited_by == LimitedBy::Sender);
            if by_sender { "sender" } else { "loss" }.to_owned()
        }),
    ];
    let columns = technique_and_size().into_iter().chain(columns).collect();
    table_of(&found.collect::<Vec<_>>(), techniques, columns)
}
