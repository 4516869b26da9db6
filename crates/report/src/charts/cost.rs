//! What a frame costs: CPU time of all roles, by where it was spent.

use crate::chart::{Panel, PanelRow, Shape};
use crate::charts::{MeasuredRow, between_two, cores, panel_sizes, tip};
use crate::figure::{Figure, Table, TableRow};
use crate::input::Run;
use crate::number::{Unit, digits};
use crate::scale::Scale;
use crate::technique::Techniques;

/// CPU time of one frame in nanoseconds: in user mode, in the kernel, in soft interrupts.
fn per_frame((_, measured): MeasuredRow) -> Option<[f64; 3]> {
    let frames = measured.received_pps * measured.cpu.elapsed_s;
    let total = measured.cpu.total;
    let parts =
        [total.user_s, total.system_s, total.softirq_s].map(|seconds| seconds * 1e9 / frames);
    parts.iter().all(|part| part.is_finite()).then_some(parts)
}

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows: Vec<(MeasuredRow, [f64; 3])> = between_two(run)
        .filter(|(row, _)| row.offered_pps.is_none())
        .filter_map(|row| Some((row, per_frame(row)?)))
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let unit = Unit { name: "ns", factor: 1.0 };
    let mut chart = String::new();
    for size in panel_sizes(&rows.iter().map(|(row, _)| *row).collect::<Vec<_>>()) {
        let mut here: Vec<_> = rows.iter().filter(|((row, _), _)| row.frame_size == size).collect();
        here.sort_by(|(_, a), (_, b)| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
        let most = here.iter().map(|(_, parts)| parts.iter().sum()).fold(0.0, f64::max);
        let panel_row = |(row, parts): &&(MeasuredRow, [f64; 3])| {
            let [user, system, softirq] = *parts;
            let (first, second) = (user, user + system);
            let all = second + softirq;
            PanelRow {
                technique: techniques.number(&row.0.technique),
                shapes: vec![
                    Shape::Bar(0.0, first, 0),
                    Shape::Bar(first, second, 1),
                    Shape::Bar(second, all, 2),
                ],
                value: (
                    digits(all),
                    cores(row.1).map_or(String::new(), |cores| format!("{cores:.1} cores")),
                ),
                tip: tip(*row),
            }
        };
        let panel = Panel {
            title: format!("{size} B"),
            size,
            scale: Scale::linear(most),
            unit,
            reference: None,
            rows: here.iter().map(panel_row).collect(),
        };
        chart.push_str(&panel.draw(techniques));
    }
    vec![Figure {
        title: "What a frame costs".to_owned(),
        reading: "CPU time of all roles per frame received, in nanoseconds; shorter is better.".to_owned(),
        chart: format!(
            "<p class=\"key\"><i class=\"b0\"></i>user mode <i class=\"b1\"></i>kernel \
             <i class=\"b2\"></i>soft interrupts</p><div class=\"panels\">{chart}</div>"
        ),
        notes: vec![
            "A role that polls is busy whether frames come or not, so this is the cost at full rate."
                .to_owned(),
        ],
        table: table(&rows, techniques),
    }]
}

fn table(rows: &[(MeasuredRow, [f64; 3])], techniques: &Techniques) -> Table {
    let ns = Some("ns/frame");
    let mut table = Table::new(&[
        ("technique", None),
        ("size", Some("B")),
        ("busy", Some("cores")),
        ("user", ns),
        ("kernel", ns),
        ("soft interrupts", ns),
        ("all", ns),
        ("all", Some("cycles/frame")),
        ("of these the switch", Some("cycles/frame")),
    ]);
    for ((row, measured), parts) in rows {
        let whole = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.0}"));
        let mut cells = vec![
            row.technique.clone(),
            row.frame_size.to_string(),
            cores(measured).map_or(String::new(), |cores| format!("{cores:.2}")),
        ];
        cells.extend(parts.map(digits));
        cells.push(digits(parts.iter().sum()));
        cells.push(whole(measured.cycles_per_frame));
        cells.push(whole(measured.switch_cycles_per_frame));
        table.rows.push(TableRow {
            technique: techniques.number(&row.technique),
            size: row.frame_size,
            cells,
        });
    }
    table
}
