//! Throughput of pairs of containers: a line for each technique and MTU if the number of pairs
//! varies, otherwise a panel of dots.

use dray_results::{Interval, MeasuredStreams, StreamOutcome, StreamRow};

use crate::chart::{Axis, Chart, Panel, PanelRow, Plot, Point, Shape, lines};
use crate::charts::rows::{bits, explain, is_of_needs, measured, tip_with};
use crate::distinct::distinct;
use crate::figure::{Column, Figure, Table};
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
    let series = lines(
        &rows,
        |row| (row.technique.clone(), row.mtu, row.size),
        |(name, ..)| (techniques.get(name), name.clone()),
        |row| Point::new(row.size, (row.pairs as f64, row.bps), row.interval, row.tip.clone()),
    );
    let x = if last > 8 { Scale::log(1.0, last as f64) } else { Scale::linear(last as f64) };
    let plot = Plot::new(
        Axis::labelled("concurrent pairs", x, Unit::NONE, counts.iter().map(|count| *count as f64)),
        Axis::new("all pairs together", Scale::linear(most), GIGABITS),
        None,
        series,
    );
    let paper = &run.results.table.paper;
    let mut notes = explain(&distinct(&rows, |row| row.mark));
    notes.extend(paper.iter().map(|paper| format!("The paper: {paper}.")));
    vec![Figure {
        title: "Throughput against pairs".to_owned(),
        reading:
            "Bits per second received by all pairs together: payload of streams, or whole frames. \
             Further up is better."
                .to_owned(),
        chart: Chart::Plot(plot),
        notes,
        table: table(&rows, techniques),
    }]
}

/// Draws rows that all have `count` pairs.
fn of_one_count(count: usize, mut rows: Vec<Pairs>, techniques: &Techniques) -> Figure {
    rows.sort_by(|a, b| b.bps.total_cmp(&a.bps));
    let highs = rows.iter().map(|row| row.interval.map_or(row.bps, Interval::high));
    let scale = Scale::linear(highs.fold(0.0, f64::max));
    let panel_row = |row: &Pairs| PanelRow {
        technique: techniques.get(&row.technique).clone(),
        shapes: Shape::figure(row.bps, row.interval),
        value: (format!("{}{}", GIGABITS.of(row.bps), row.mark), plus_minus(row.interval)),
        tip: row.tip.clone(),
    };
    let panels = distinct(&rows, |row| row.size).into_iter().map(|size| {
        let mine = rows.iter().filter(|row| row.size == size);
        let of = if size == 0 { "byte streams".to_owned() } else { format!("frames of {size} B") };
        let pairs = if count == 1 { "one pair".to_owned() } else { format!("{count} pairs") };
        let title = format!("{of}, {pairs}");
        let rows = mine.map(panel_row).collect();
        Panel::new(title, size, scale, GIGABITS, rows)
    });
    Figure {
        title: "Throughput".to_owned(),
        reading: "Bits per second received by all pairs together: payload of streams, or whole \
                  frames. The line through a dot is its 95 % interval. Further right is better."
            .to_owned(),
        chart: Chart::Panels(panels.collect()),
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

type PairsColumn<'a> = Column<'a, Pairs>;

fn table(rows: &[Pairs], techniques: &Techniques) -> Table {
    let columns = vec![
        PairsColumn::text("technique", |row: &Pairs| row.technique.clone()),
        PairsColumn::number("pairs", "", |row| row.pairs.to_string()),
        PairsColumn::number("MTU", "B", |row| row.mtu.to_string()),
        PairsColumn::number("frame", "B", |row| match row.size {
            0 => "stream".to_owned(),
            size => size.to_string(),
        }),
        PairsColumn::number("received", "Gb/s", |row| {
            format!("{}{}", digits(row.bps / 1e9), row.mark)
        }),
        PairsColumn::number("±", "%", |row| spread(row.interval)),
    ];
    Table::new(rows, |row| (techniques.get(&row.technique), row.size), columns)
}
