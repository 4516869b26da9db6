//! Shows whether links that must isolate containers did so.

use dray_results::{Isolation, ResultRow, Verdict};

use crate::chart::{Panel, PanelRow, Shape};
use crate::distinct::distinct;
use crate::figure::{Figure, Table, TableRow};
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
    let chart = sizes.iter().map(|&size| {
        let here: Vec<_> = rows.iter().filter(|(row, _)| row.frame_size == size).collect();
        let panel = Panel {
            title: format!("{size} B"),
            size,
            scale: Scale::linear(1.0),
            unit: Unit { name: "%", factor: 0.01 },
            reference: None,
            rows: here.iter().map(|row| panel_row(row, techniques)).collect(),
        };
        panel.draw(techniques)
    });
    let chart: String = chart.collect();
    vec![Figure {
        title: "Isolation".to_owned(),
        reading:
            "Share of the frames from one container to another that arrived, over links that must \
             isolate containers."
                .to_owned(),
        chart: format!("<div class=\"panels\">{chart}</div>"),
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
        technique: techniques.number(&row.technique),
        shapes: vec![Shape::Dot(share)],
        value: (percent(share), verdict.to_owned()),
        tip: format!(
            "{} · {} B\n{verdict}\n{offered} frames sent, {left} left the host, {dropped} dropped, \
             {arrived} arrived",
            row.technique, row.frame_size
        ),
    }
}

fn table(rows: &[(&ResultRow, &Isolation)], techniques: &Techniques) -> Table {
    let frames = Some("frames");
    let mut table = Table::new(&[
        ("technique", None),
        ("size", Some("B")),
        ("sent", frames),
        ("left the host", frames),
        ("dropped", frames),
        ("arrived", frames),
        ("verdict", None),
    ]);
    for (row, isolation) in rows {
        let Isolation { verdict, offered, left, dropped, arrived } = **isolation;
        let mut cells = vec![row.technique.clone(), row.frame_size.to_string()];
        cells.extend([offered, left, dropped, arrived].map(|count| count.to_string()));
        cells.push(in_words(verdict).to_owned());
        table.rows.push(TableRow {
            technique: techniques.number(&row.technique),
            size: row.frame_size,
            cells,
        });
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn isolation_table_has_verdict_per_link() {
        let isolation = |verdict: &str, arrived: u64| {
            let isolation = format!(
                "{{\"verdict\":\"{verdict}\",\"offered\":100,\"left\":100,\"dropped\":0,\"arrived\":{arrived}}}"
            );
            // Without figures, only the isolation is left.
            sample::row("macvlan/vepa/raw", 64).with("sent", "null").with("isolation", &isolation)
        };
        let rows = [isolation("isolated by design", 0), isolation("not isolated", 3)];
        let run = sample::run(&sample::results(&rows));
        let mut techniques = Techniques::default();
        techniques.add("macvlan/vepa/raw", "macvlan/vepa");
        let figures = draw(&run, &techniques);
        let verdicts: Vec<_> =
            figures[0].table.rows.iter().map(|row| row.cells[6].as_str()).collect();
        assert_eq!(verdicts, ["isolated by design", "NOT ISOLATED"]);
        assert!(figures[0].chart.contains("NOT ISOLATED"), "{}", figures[0].chart);
        let none = sample::run(&sample::results(&[sample::row("veth/raw", 64)]));
        assert!(draw(&none, &techniques).is_empty());
    }
}
