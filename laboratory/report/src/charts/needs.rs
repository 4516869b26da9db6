//! Resources that techniques need: a chart of the time until they are ready, and a table of the
//! rest.

use dray_results::{Needs, SetUp, stats};

use crate::chart::{Chart, Panel, PanelRow, Shape};
use crate::charts::rows::is_of_needs;
use crate::distinct::distinct;
use crate::figure::{Column, Figure, Table};
use crate::input::Run;
use crate::number::time_unit;
use crate::scale::Scale;
use crate::technique::Techniques;

/// A technique, its frame size (0 for streams), and its needs.
type Needy<'a> = (&'a str, usize, &'a Needs);

/// Returns the time until each technique is ready, in nanoseconds, shortest first.
pub(crate) fn ready(run: &Run) -> Vec<(&str, f64)> {
    needy(run).into_iter().map(|(name, _, needs)| (name, ready_ns(needs))).collect()
}

/// Returns one row of each technique, the quickest first.
fn needy(run: &Run) -> Vec<Needy<'_>> {
    let measured = run.results.measured();
    let needy =
        measured.filter_map(|it| Some((it.technique, it.frame_size, it.setting.needs.as_ref()?)));
    let all: Vec<Needy> = needy.collect();
    // Keeps one row of each technique; the others differ in frame size.
    let mut rows: Vec<Needy> = Vec::new();
    for name in distinct(&all, |(name, ..)| *name) {
        rows.extend(all.iter().find(|(other, ..)| *other == name));
    }
    rows.sort_by(|a, b| ready_ns(a.2).total_cmp(&ready_ns(b.2)));
    rows
}

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let rows = needy(run);
    if rows.is_empty() || !is_of_needs(run) {
        return Vec::new();
    }
    let most = rows.iter().map(|(.., needs)| ready_ns(needs)).fold(1.0, f64::max);
    let unit = time_unit(most);
    let panel_row = |(name, _, needs): &Needy| PanelRow {
        technique: techniques.get(name).clone(),
        shapes: vec![Shape::span(0.0, ready_ns(needs)), Shape::dot(ready_ns(needs))],
        value: (unit.of(ready_ns(needs)), String::new()),
        tip: tip(name, needs),
    };
    let panel = Panel::new(
        "time until ready".to_owned(),
        rows[0].1,
        Scale::linear(most),
        unit,
        rows.iter().map(panel_row).collect(),
    );
    vec![Figure {
        title: "What techniques need".to_owned(),
        reading: "Dot: time to create containers and link and to open the ports, mean of all \
                  trials. Further left is better."
            .to_owned(),
        chart: Chart::WidePanels(vec![panel]),
        notes: vec![
            "Memory: that of the programs, shared pages divided among their users; kernel memory, \
             such as socket buffers, is not included."
                .to_owned(),
        ],
        table: table(&rows, techniques),
    }]
}

fn ready_ns(needs: &Needs) -> f64 {
    let sums: Vec<f64> = needs.set_ups.iter().map(SetUp::sum_s).collect();
    stats::mean(&sums) * 1e9
}

fn memory_bytes(needs: &Needs) -> u64 {
    needs.memory_bytes.values().sum()
}

fn files(needs: &Needs) -> usize {
    needs.file_descriptors.values().sum()
}

fn capabilities(needs: &Needs) -> String {
    if needs.capabilities.is_empty() { "none".to_owned() } else { needs.capabilities.join(" ") }
}

fn tip(name: &str, needs: &Needs) -> String {
    let mebibytes = memory_bytes(needs) as f64 / f64::from(1 << 20);
    format!(
        "{name}\nready after {:.1} ms\n{mebibytes:.1} MiB of memory, {} MiB of huge pages, {} files\n\
         in the container: {}\non the host: {}",
        ready_ns(needs) / 1e6,
        needs.hugepages_mib,
        files(needs),
        capabilities(needs),
        needs.on_host
    )
}

/// A column about a technique and its needs.
type NeedyColumn<'a> = Column<'a, Needy<'a>>;

fn table(rows: &[Needy], techniques: &Techniques) -> Table {
    let ms = |title, of: fn(&SetUp) -> f64| {
        NeedyColumn::number(title, "ms", move |(.., needs): &Needy| {
            let times: Vec<f64> = needs.set_ups.iter().map(|set_up| 1e3 * of(set_up)).collect();
            format!("{:.1}", stats::mean(&times))
        })
    };
    let columns = vec![
        NeedyColumn::text("technique", |(name, ..): &Needy| (*name).to_owned()),
        ms("ready", SetUp::sum_s),
        ms("containers", |set_up| set_up.containers_s),
        ms("link", |set_up| set_up.link_s),
        ms("ports", |set_up| set_up.ports_s),
        NeedyColumn::number("memory", "bytes", |(.., needs)| memory_bytes(needs).to_string()),
        NeedyColumn::number("huge pages", "MiB", |(.., needs)| needs.hugepages_mib.to_string()),
        NeedyColumn::number("files", "", |(.., needs)| files(needs).to_string()),
        NeedyColumn::text("in the container", |(.., needs)| capabilities(needs)),
        NeedyColumn::text("on the host", |(.., needs)| needs.on_host.clone()),
    ];
    Table::new(rows, |(name, size, _)| (techniques.get(name), *size), columns)
}
