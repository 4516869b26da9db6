//! Isolation: share of the frames that crossed links that must isolate containers.

use dray_results::{Isolation, ResultRow, Verdict};

use crate::chart::{Chart, Panel, PanelRow, Shape};
use crate::charts::rows::{table_of, technique_and_size};
use crate::distinct::distinct;
use crate::figure::{Column, Figure, Table};
use crate::input::Run;
use crate::number::{Unit, percent};
use crate::scale::Scale;
use crate::technique::Techniques;

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let isolated = |row| Some((row, ResultRow::isolation(row)?));
    let rows: Vec<(&ResultRow, &Isolation)> =
        run.results.results.iter().filter_map(isolated).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut sizes = distinct(&rows, |(row, _)| row.frame_size);
    sizes.sort_unstable();
    let panels = sizes.iter().map(|&size| {
        let here: Vec<_> = rows.iter().filter(|(row, _)| row.frame_size == size).collect();
        let rows = here.iter().map(|row| panel_row(row, techniques)).collect();
        let percent = Unit { name: "%", factor: 0.01 };
        Panel::new(format!("{size} B"), size, Scale::linear(1.0), percent, rows)
    });
    vec![Figure {
        title: "Isolation".to_owned(),
        reading:
            "Share of the frames from one container to another that arrived, over links that must \
             isolate containers."
                .to_owned(),
        chart: Chart::Panels(panels.collect()),
        notes: Vec::new(),
        table: table(&rows, techniques),
    }]
}

fn in_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Isolated => "isolated by design",
        Verdict::NotIsolated => "NOT ISOLATED",
        Verdict::NotVerified => "NOT VERIFIED",
    }
}

fn panel_row((row, isolation): &(&ResultRow, &Isolation), techniques: &Techniques) -> PanelRow {
    let Isolation { verdict, offered, left, dropped, arrived } = **isolation;
    let (verdict, share) = (in_words(verdict), arrived as f64 / offered.max(1) as f64);
    PanelRow {
        technique: techniques.get(&row.technique).clone(),
        shapes: vec![Shape::dot(share)],
        value: (percent(share), verdict.to_owned()),
        tip: format!(
            "{} · {} B\n{verdict}\n{offered} frames sent, {left} left the host, {dropped} dropped, \
             {arrived} arrived",
            row.technique, row.frame_size
        ),
    }
}

/// A column about a row and its verdict.
type IsolationColumn<'a> = Column<'a, (&'a ResultRow, &'a Isolation)>;

fn table(rows: &[(&ResultRow, &Isolation)], techniques: &Techniques) -> Table {
    let frames = |title, of: fn(&Isolation) -> u64| {
        IsolationColumn::number(title, "frames", move |(_, found): &(&ResultRow, &Isolation)| {
            of(found).to_string()
        })
    };
    let columns = [
        frames("sent", |found| found.offered),
        frames("left the host", |found| found.left),
        frames("dropped", |found| found.dropped),
        frames("arrived", |found| found.arrived),
        IsolationColumn::text("verdict", |(_, found)| in_words(found.verdict).to_owned()),
    ];
    let columns = technique_and_size().into_iter().chain(columns).collect();
    table_of(rows, techniques, columns)
}
