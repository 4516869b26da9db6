//! Tables of byte streams and of pairs: goodput in bits per second, never beside frame rates.

use dray_results::{Measured, MeasuredStreams, ResultRow, Results, StreamRow};
use dray_wire::HEADERS_LEN;
use dray_wire::ethernet::ETHERNET_LEN;

use super::cell::{head, loss, or_dash};
use crate::distinct::distinct;
use crate::number::spread;
use dray_text::{fit, list_of};

/// Formats a row for each result, with all of its figures.
pub(super) fn list(rows: &[StreamRow]) -> String {
    let mut cells = head(
        "streams|MTU|pairs|each|goodput|±|again|cores|user|sys|soft|cycles",
        "|B|||Gb/s|%|||%|%|%|/byte",
    );
    for row in rows {
        // The notes below say why a row has no figures.
        let Some(measured) = row.measured() else { continue };
        let mut line = vec![row.technique.clone(), row.mtu.to_string()];
        line.extend([row.pairs.to_string(), row.streams.to_string()]);
        line.extend(figures(measured));
        cells.push(line);
    }
    list_of(&cells, 1, 4)
}

fn figures(measured: &MeasuredStreams) -> [String; 8] {
    let cpu = &measured.cpu;
    let part = |seconds: f64| format!("{:.0}", 100.0 * seconds / cpu.elapsed_s);
    [
        format!("{}{}", giga(measured.goodput_bps), measured.mark()),
        spread(measured.interval()),
        measured.retransmits.to_string(),
        format!("{:.2}", cpu.cores()),
        part(cpu.total.user_s),
        part(cpu.total.system_s),
        part(cpu.total.softirq_s),
        or_dash(measured.cycles_per_byte, 2),
    ]
}

/// Formats a row for each number of pairs: for each technique and MTU the goodput of all pairs with
/// its interval and, for frames, the loss.
pub(super) fn pairs(results: &Results) -> String {
    let streams = results.streams.iter().map(|row| Cell {
        pairs: row.pairs,
        column: (row.technique.clone(), row.mtu),
        figures: row.measured().map(|measured| {
            let goodput = format!("{}{}", giga(measured.goodput_bps), measured.mark());
            vec![goodput, spread(measured.interval())]
        }),
    });
    let frames = results.results.iter().map(|row| Cell {
        pairs: row.pairs,
        column: (row.technique.clone(), row.mtu),
        figures: row.measured().map(|measured| {
            let goodput = format!("{}{}", giga(goodput_bps(row, measured)), measured.mark());
            vec![goodput, spread(measured.interval()), loss(measured)]
        }),
    });
    // An experiment measures either streams or frames.
    let (cells, below): (Vec<Cell>, &[&str]) = if results.results.is_empty() {
        (streams.collect(), &["Gb/s", "± %"])
    } else {
        (frames.collect(), &["Gb/s", "± %", "loss %"])
    };
    let columns = distinct(&cells, |cell| cell.column.clone());
    let (mut header, mut units) = (vec!["pairs".to_owned()], vec![String::new()]);
    for (technique, mtu) in &columns {
        header.push(format!("{technique} {mtu}"));
        header.extend(below[1..].iter().map(|_| String::new()));
        units.extend(below.iter().map(|unit| (*unit).to_owned()));
    }
    let mut lines = vec![header, units];
    for pairs in distinct(&cells, |cell| cell.pairs) {
        let mut line = vec![pairs.to_string()];
        for column in &columns {
            let cell = cells.iter().find(|cell| cell.pairs == pairs && cell.column == *column);
            let skipped = || std::iter::once("skipped").chain(below[1..].iter().map(|_| ""));
            match cell.and_then(|cell| cell.figures.clone()) {
                Some(figures) => line.extend(figures),
                None => line.extend(skipped().map(str::to_owned)),
            }
        }
        lines.push(line);
    }
    fit(&lines, 1, 1, &[below.len()])
}

struct Cell {
    pairs: usize,
    /// Technique and MTU.
    column: (String, u32),
    figures: Option<Vec<String>>,
}

/// Returns the bits of UDP payload per second.
fn goodput_bps(row: &ResultRow, measured: &Measured) -> f64 {
    measured.received_pps * row.frame_size.saturating_sub(HEADERS_LEN) as f64 * 8.0
}

/// Returns the notes that a reader of stream figures needs.
pub(super) fn notes(results: &Results) -> Vec<String> {
    let rows = &results.streams;
    let measured = || rows.iter().filter_map(StreamRow::measured);
    let mut notes = Vec::new();
    let mut controls = distinct(rows, |row| Some(row.measured()?.congestion.clone()));
    controls.retain(|control| control.as_ref().is_some_and(|control| !control.is_empty()));
    if !controls.is_empty() {
        let controls: Vec<String> = controls.into_iter().flatten().collect();
        notes.push(format!(
            "Streams: payload bytes of all pairs together; congestion control {}.",
            controls.join(", ")
        ));
    }
    if measured().any(MeasuredStreams::counters_disagree) {
        notes.push("! bytes are missing or wrong: do not trust this figure.".to_owned());
    }
    for row in rows {
        if let Some(ratio) = row.measured().and_then(|measured| measured.zerocopy_copied_ratio) {
            let percent = 100.0 * ratio;
            let name = &row.technique;
            notes.push(format!("{name}: the kernel copied anyway in {percent:.0} % of the calls."));
        }
    }
    notes
}

/// Returns a note on the frame length, if all rows use frames as long as the MTU allows.
pub(super) fn full_frames(results: &Results) -> Option<String> {
    let of = |row: &ResultRow| row.frame_size == row.mtu as usize + ETHERNET_LEN;
    let all = !results.results.is_empty() && results.results.iter().all(of);
    let note = "Gb/s: UDP payload of all pairs together; frames as long as the MTU allows.";
    all.then(|| note.to_owned())
}

fn giga(bps: f64) -> String {
    format!("{:.2}", bps / 1e9)
}
