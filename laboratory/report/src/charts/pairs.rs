//! Throughput of pairs of containers: a line for each technique and MTU if the number of pairs
//! varies, otherwise a panel of dots.

use dray_results::{Interval, MeasuredStreams, StreamOutcome, StreamRow};

use crate::chart::{Axis, Panel, PanelRow, Plot, Point, Series, Shape};
use crate::charts::rows::{bits, explain, is_of_needs, measured, tip_with};
use crate::distinct::distinct;
use crate::figure::{Figure, Table, TableRow};
use crate::input::Run;
use crate::number::{GIGABITS, Unit, digits, plus_minus, spread};
use crate::scale::Scale;
use crate::technique::Techniques;

/// All pairs of a technique together, in frames or in bytes.
struct Pairs {
    technique: String,
    mtu: u32,
    /// Frame size; 0 for a byte stream.
    size: usize,
    pairs: usize,
    bps: f64,
    interval: Option<Interval>,
    mark: &'static str,
    tip: String,
}

pub(super) fn draw(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    let frames = measured(run).filter(|(row, _)| row.topology == "pairs").map(|row| Pairs {
        technique: row.0.technique.clone(),
        mtu: row.0.mtu,
        size: row.0.frame_size,
        pairs: row.0.pairs,
        bps: bits(row.0, row.1.received_pps),
        interval: row.1.interval().map(|interval| interval.scaled(bits(row.0, 1.0))),
        mark: row.1.mark(),
        tip: tip_with(
            &format!("{} pairs, {}", row.0.pairs, GIGABITS.with(bits(row.0, row.1.received_pps))),
            row,
        ),
    });
    let is_timed = !is_of_needs(run);
    let streams = run.results.streams.iter().filter(|_| is_timed);
    let streams = streams.filter_map(|row| match &row.outcome {
        StreamOutcome::Measured(measured) => Some(of_streams(row, measured)),
        StreamOutcome::Skipped { .. } => None,
    });
    let mut rows: Vec<Pairs> = frames.chain(streams).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    rows.sort_by_key(|row| row.pairs);
    let most = rows.iter().map(|row| row.bps).fold(0.0, f64::max);
    let counts = distinct(&rows, |row| row.pairs);
    if let [count] = counts[..] {
        return vec![of_one_count(count, rows, techniques)];
    }
    let last = counts.iter().copied().max().unwrap_or(1);
    let lines = distinct(&rows, |row| (row.technique.clone(), row.mtu, row.size));
    let series = lines.into_iter().map(|line| {
        let mine = rows.iter().filter(|row| (row.technique.clone(), row.mtu, row.size) == line);
        let point = |row: &Pairs| Point {
            size: row.size,
            x: row.pairs as f64,
            y: row.bps,
            interval: row.interval.map(|it| (it.low(), it.high())),
            tip: row.tip.clone(),
        };
        let (name, ..) = &line;
        Series {
            technique: techniques.number(name),
            points: mine.map(point).collect(),
            label: name.clone(),
        }
    });
    let x = if last > 8 { Scale::log(1.0, last as f64) } else { Scale::linear(last as f64) };
    let plot = Plot {
        label: "Throughput against pairs".to_owned(),
        x: Axis {
            title: "concurrent pairs".to_owned(),
            scale: x,
            unit: Unit { name: "", factor: 1.0 },
            ticks: counts.iter().map(|count| *count as f64).collect(),
        },
        y: Axis {
            title: "all pairs together".to_owned(),
            scale: Scale::linear(most),
            unit: GIGABITS,
            ticks: Vec::new(),
        },
        reference: None,
        series: series.collect(),
    };
    let paper = &run.results.table.paper;
    let mut notes = explain(&distinct(&rows, |row| row.mark));
    notes.extend(paper.iter().map(|paper| format!("The paper: {paper}.")));
    vec![Figure {
        title: "Throughput against pairs".to_owned(),
        reading:
            "Bits per second received by all pairs together: payload of streams, or whole frames. \
             Further up is better."
                .to_owned(),
        chart: plot.draw(techniques),
        notes,
        table: table(&rows, techniques),
    }]
}

/// Draws rows that all have `count` pairs.
fn of_one_count(count: usize, mut rows: Vec<Pairs>, techniques: &Techniques) -> Figure {
    rows.sort_by(|a, b| b.bps.total_cmp(&a.bps));
    let highs = rows.iter().map(|row| row.interval.map_or(row.bps, Interval::high));
    let scale = Scale::linear(highs.fold(0.0, f64::max));
    let panel_row = |row: &Pairs| {
        let whisker = row.interval.map(|it| Shape::Whisker(it.low(), it.high()));
        PanelRow {
            technique: techniques.number(&row.technique),
            shapes: [Shape::Lead(row.bps)]
                .into_iter()
                .chain(whisker)
                .chain([Shape::Dot(row.bps)])
                .collect(),
            value: (format!("{}{}", GIGABITS.of(row.bps), row.mark), plus_minus(row.interval)),
            tip: row.tip.clone(),
        }
    };
    let panels = distinct(&rows, |row| row.size).into_iter().map(|size| {
        let mine = rows.iter().filter(|row| row.size == size);
        let of = if size == 0 { "byte streams".to_owned() } else { format!("frames of {size} B") };
        let pairs = if count == 1 { "one pair".to_owned() } else { format!("{count} pairs") };
        let title = format!("{of}, {pairs}");
        let rows = mine.map(panel_row).collect();
        Panel { title, size, scale, unit: GIGABITS, reference: None, rows }.draw(techniques)
    });
    let chart: String = panels.collect();
    Figure {
        title: "Throughput".to_owned(),
        reading: "Bits per second received by all pairs together: payload of streams, or whole \
                  frames. The line through a dot is its 95 % interval. Further right is better."
            .to_owned(),
        chart: format!("<div class=\"panels\">{chart}</div>"),
        notes: explain(&distinct(&rows, |row| row.mark)),
        table: table(&rows, techniques),
    }
}

fn of_streams(row: &StreamRow, measured: &MeasuredStreams) -> Pairs {
    Pairs {
        technique: row.technique.clone(),
        mtu: row.mtu,
        size: 0,
        pairs: row.pairs,
        bps: measured.goodput_bps,
        interval: measured.interval(),
        mark: measured.mark(),
        tip: tip_of_streams(row, measured),
    }
}

/// Returns full details of a figure of streams, in lines.
pub(crate) fn tip_of_streams(row: &StreamRow, measured: &MeasuredStreams) -> String {
    let interval = measured.interval();
    let sure = plus_minus(interval);
    let mut text = format!(
        "{}, {} pairs\n{} {sure}\nMTU {}, {} streams per pair, {} trials\n{} segments retransmitted",
        row.technique,
        row.pairs,
        GIGABITS.with(measured.goodput_bps),
        row.mtu,
        row.streams,
        measured.trials,
        measured.retransmits
    );
    text.extend(measured.disturbed().map(|what| format!("\ndisturbed: {what}")));
    text
}

fn table(rows: &[Pairs], techniques: &Techniques) -> Table {
    let mut table = Table::new(&[
        ("technique", None),
        ("pairs", Some("")),
        ("MTU", Some("B")),
        ("frame", Some("B")),
        ("received", Some("Gb/s")),
        ("±", Some("%")),
    ]);
    for row in rows {
        let half = spread(row.interval);
        let size = if row.size == 0 { "stream".to_owned() } else { row.size.to_string() };
        table.rows.push(TableRow {
            technique: techniques.number(&row.technique),
            size: row.size,
            cells: vec![
                row.technique.clone(),
                row.pairs.to_string(),
                row.mtu.to_string(),
                size,
                format!("{}{}", digits(row.bps / 1e9), row.mark),
                half,
            ],
        });
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::technique::named;

    #[test]
    fn pairs_chart_has_line_per_technique_and_mtu() {
        let row = |pairs: &str, mtu: &str| {
            let row = sample::row("bridge/udp", 64).with("topology", "\"pairs\"");
            row.with("pairs", pairs).with("mtu", mtu)
        };
        let run = named(&sample::run(&sample::results(&[
            row("16", "1500"),
            row("1", "1500"),
            row("1", "9000"),
            sample::row("bridge/udp", 64),
        ])));
        let mut techniques = Techniques::default();
        techniques.add("bridge/udp", "bridge");
        techniques.add("bridge/udp, MTU 9000", "bridge");
        let figures = draw(&run, &techniques);
        assert_eq!(figures[0].table.rows.len(), 3, "row of another topology is left out");
        let lines = figures[0].chart.matches("<g class=\"series").count();
        assert_eq!(lines, 2, "{}", figures[0].chart);
        assert!(figures[0].chart.contains("bridge/udp, MTU 9000"), "{}", figures[0].chart);
    }
}
