//! Cost of a frame: CPU time of all roles, by where it was spent.

use dray_results::CpuCost;

use crate::chart::{Chart, Panel, PanelRow, Shape};
use crate::charts::rows::{
    MeasuredRow, between_two, cores, panel_sizes, table_of, technique_and_size, tip_with,
};
use crate::figure::{Column, Figure, Table};
use crate::input::Run;
use crate::number::{Unit, digits, whole};
use crate::scale::Scale;
use crate::technique::Techniques;

/// CPU time per frame in nanoseconds: user mode, kernel, soft interrupts, and polling without
/// finding frames.
type Parts = [f64; 4];

fn per_frame((_, measured): MeasuredRow) -> Option<Parts> {
    let frames = measured.received_pps * measured.cpu.elapsed_s;
    let CpuCost { user_s, system_s, softirq_s, polling_s } = measured.cpu.total;
    let polling_s = polling_s.unwrap_or(0.0);
    // A role that polls does so in user mode, and on a socket also in the kernel.
    let in_user = polling_s.min(user_s);
    let (user_s, system_s) = (user_s - in_user, (system_s - (polling_s - in_user)).max(0.0));
    let parts = [user_s, system_s, softirq_s, polling_s].map(|seconds| seconds * 1e9 / frames);
    parts.iter().all(|part| part.is_finite()).then_some(parts)
}

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows: Vec<(MeasuredRow, Parts)> = between_two(run)
        .filter(|(row, _)| row.offered_pps.is_none())
        .filter_map(|row| Some((row, per_frame(row)?)))
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let unit = Unit { name: "ns", factor: 1.0 };
    let mut panels = Vec::new();
    for size in panel_sizes(&rows.iter().map(|(row, _)| *row).collect::<Vec<_>>()) {
        let mut here: Vec<_> = rows.iter().filter(|((row, _), _)| row.frame_size == size).collect();
        here.sort_by(|(_, a), (_, b)| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
        let most = here.iter().map(|(_, parts)| parts.iter().sum()).fold(0.0, f64::max);
        let panel_row = |(row, parts): &&(MeasuredRow, Parts)| {
            let [user, system, softirq, polling] = *parts;
            let (first, second) = (user, user + system);
            let third = second + softirq;
            let all = third + polling;
            PanelRow {
                technique: techniques.get(&row.0.technique).clone(),
                shapes: vec![
                    Shape::bar(0.0, first, "b0"),
                    Shape::bar(first, second, "b1"),
                    Shape::bar(second, third, "b2"),
                    Shape::bar(third, all, "b3"),
                ],
                value: (
                    digits(all),
                    cores(row.1).map_or(String::new(), |cores| format!("{cores:.1} cores")),
                ),
                tip: tip_with(&in_words(parts), *row),
            }
        };
        let rows = here.iter().map(panel_row).collect();
        panels.push(Panel::new(format!("{size} B"), size, Scale::linear(most), unit, rows));
    }
    vec![Figure {
        title: "What a frame costs".to_owned(),
        reading: "CPU time of all roles per frame received, in nanoseconds; shorter is better."
            .to_owned(),
        chart: Chart::Bars(["user mode", "kernel", "soft interrupts", "polling"], panels),
        notes: vec![
            "At full rate. Polling: time spent polling without finding frames, for roles that \
             report it; not included in the other parts."
                .to_owned(),
        ],
        table: table(&rows, techniques),
    }]
}

fn in_words(parts: &Parts) -> String {
    let [user, system, softirq, polling] = parts.map(digits);
    let all = digits(parts.iter().sum());
    format!(
        "{all} ns: user mode {user}, kernel {system}, soft interrupts {softirq}, polling {polling}"
    )
}

/// A column about a row and the parts of its cost.
type CostColumn<'a> = Column<'a, (MeasuredRow<'a>, Parts)>;

fn table(rows: &[(MeasuredRow, Parts)], techniques: &Techniques) -> Table {
    let part = |title, number: usize| {
        CostColumn::number(title, "ns/frame", move |(_, parts): &(_, Parts)| digits(parts[number]))
    };
    let columns = [
        CostColumn::number("busy", "cores", |((_, it), _): &(MeasuredRow, Parts)| {
            cores(it).map_or(String::new(), |cores| format!("{cores:.2}"))
        }),
        part("user", 0),
        part("kernel", 1),
        part("soft interrupts", 2),
        part("polling", 3),
        CostColumn::number("all", "ns/frame", |(_, parts)| digits(parts.iter().sum())),
        CostColumn::number("all", "cycles/frame", |((_, it), _)| whole(it.cycles_per_frame)),
        CostColumn::number("without polling", "cycles/frame", |((_, it), _)| {
            whole(it.work_cycles_per_frame)
        }),
        CostColumn::number("of which switch", "cycles/frame", |((_, it), _)| {
            whole(it.switch_cycles_per_frame)
        }),
        CostColumn::number("received", "Mb/s per core", |((_, it), _)| whole(it.mbps_per_core)),
    ];
    let columns = technique_and_size().into_iter().chain(columns).collect();
    table_of(rows, techniques, columns)
}
