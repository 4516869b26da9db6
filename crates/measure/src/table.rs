//! Results as a table for people, at most 100 columns wide.

use crate::experiments::{Experiment, Layout};
use crate::results::{Measured, Outcome, ResultRow, Results};

/// Renders the results of `experiment`, with notes below.
pub fn render(results: &Results, experiment: &Experiment) -> String {
    let mut text = match experiment.layout {
        Layout::List => list(&results.results),
        Layout::EndpointsByLink => matrix(
            &results.results,
            "endpoint",
            true,
            |row| row.endpoint.clone(),
            |row| row.link.clone(),
        ),
        Layout::ForwardersByTechnique => matrix(
            &results.results,
            "forwarders",
            false,
            |row| row.forwarders.to_string(),
            |row| row.technique.clone(),
        ),
    };
    let paper = experiment.paper.map(|paper| format!("paper: {paper}."));
    for note in notes(results).into_iter().chain(paper) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

fn list(rows: &[ResultRow]) -> String {
    let header = [
        "technique",
        "size",
        "sent",
        "received",
        "±",
        "loss",
        "Gb/s",
        "cores",
        "user",
        "sys",
        "soft",
        "cycles",
    ];
    let units = ["", "B", "kpps", "kpps", "%", "%", "", "", "%", "%", "%", "/frame"];
    let mut cells = vec![header.map(str::to_owned).to_vec(), units.map(str::to_owned).to_vec()];
    for row in rows {
        let mut line = vec![row.technique.clone(), row.frame_size.to_string()];
        match &row.outcome {
            Outcome::Measured(measured) => line.extend(figures(row, measured)),
            Outcome::Skipped { .. } => line.push("skipped".to_owned()),
        }
        cells.push(line);
    }
    align(&cells, 2, 2)
}

fn figures(row: &ResultRow, measured: &Measured) -> [String; 10] {
    let deviation = 100.0 * measured.stddev_pps / measured.received_pps.max(1.0);
    let bits = measured.received_pps * row.frame_size as f64 * 8.0;
    let cpu = &measured.cpu;
    let part = |seconds: f64| format!("{:.0}", 100.0 * seconds / cpu.elapsed_s);
    [
        format!("{}{}", kilo(measured.sent_pps), mark(measured)),
        kilo(measured.received_pps),
        format!("{deviation:.1}"),
        loss(measured),
        format!("{:.2}", bits / 1e9),
        format!("{:.2}", cpu.cores()),
        part(cpu.total.user_s),
        part(cpu.total.system_s),
        part(cpu.total.softirq_s),
        measured.cycles_per_frame.map_or("-".to_owned(), |cycles| format!("{cycles:.0}")),
    ]
}

/// A row for each `row_of`, and for each `column_of` the rate and the loss.
fn matrix(
    rows: &[ResultRow],
    corner: &str,
    paper: bool,
    row_of: impl Fn(&ResultRow) -> String,
    column_of: impl Fn(&ResultRow) -> String,
) -> String {
    let distinct = |of: &dyn Fn(&ResultRow) -> String| {
        let mut names: Vec<String> = Vec::new();
        for name in rows.iter().map(of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let mut columns: Vec<(String, usize)> = Vec::new();
    for row in rows {
        let column = (column_of(row), row.frame_size);
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let mut header = vec![corner.to_owned()];
    let mut units = vec![String::new()];
    if paper {
        header.push("paper".to_owned());
        units.push("kpps".to_owned());
    }
    for (name, size) in &columns {
        header.extend([format!("{name} {size} B"), "±".to_owned(), "loss".to_owned()]);
        units.extend(["kpps", "%", "%"].map(str::to_owned));
    }
    let mut cells = vec![header, units];
    for name in distinct(&row_of) {
        let mine: Vec<_> = rows.iter().filter(|row| row_of(row) == name).collect();
        let mut line = vec![name];
        if paper {
            line.push(mine.iter().find_map(|row| row.paper_pps).map_or("-".to_owned(), kilo));
        }
        for (column, size) in &columns {
            let row = mine.iter().find(|row| column_of(row) == *column && row.frame_size == *size);
            match row.and_then(|row| row.measured()) {
                Some(measured) => {
                    let deviation = 100.0 * measured.stddev_pps / measured.received_pps.max(1.0);
                    let rate = format!("{}{}", kilo(measured.received_pps), mark(measured));
                    line.extend([rate, format!("{deviation:.1}"), loss(measured)]);
                }
                None => line.extend(["skipped", "", ""].map(str::to_owned)),
            }
        }
        cells.push(line);
    }
    align(&cells, 2, 1)
}

/// Lines of cells as text: the first `left` columns to the left, the others to the right; a rule under
/// the first `headers` lines.
pub fn align(cells: &[Vec<String>], headers: usize, left: usize) -> String {
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        cells.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, line) in cells.iter().enumerate() {
        let mut out = String::new();
        for (column, cell) in line.iter().enumerate() {
            let gap = if column == 0 { 0 } else { 2 };
            let pad = widths[column] - cell.chars().count();
            let (before, after) = if column < left { (0, pad) } else { (pad, 0) };
            out.push_str(&" ".repeat(gap + before));
            out.push_str(cell);
            out.push_str(&" ".repeat(after));
        }
        text.push_str(out.trim_end());
        text.push('\n');
        if number + 1 == headers {
            let total: usize = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            text.push_str(&"─".repeat(total));
            text.push('\n');
        }
    }
    text
}

fn kilo(pps: f64) -> String {
    if pps < 99.95e3 { format!("{:.1}", pps / 1e3) } else { format!("{:.0}", pps / 1e3) }
}

/// A loss is never rounded to nothing.
fn loss(measured: &Measured) -> String {
    let percent = 100.0 * measured.loss_ratio;
    match percent {
        0.0 => "0".to_owned(),
        p if p < 0.01 => "<0.01".to_owned(),
        p if p < 10.0 => format!("{p:.2}"),
        p => format!("{p:.1}"),
    }
}

fn mark(measured: &Measured) -> &'static str {
    match (measured.sent_less_than_offered, measured.counters_agree) {
        (_, false) => "!",
        (true, true) => "*",
        (false, true) => "",
    }
}

fn notes(results: &Results) -> Vec<String> {
    let measured = || results.results.iter().filter_map(ResultRow::measured);
    let settings = &results.settings;
    let samples = measured().map(|m| m.samples_pps.len()).max().unwrap_or(0);
    let mut notes = vec![format!(
        "Each figure: mean of {samples} samples of {} s after {} s of warm-up; loss over the whole trial.",
        settings.interval_s, settings.warm_up_s
    )];
    if settings.quick {
        notes.push("--quick: a first look. Without it the samples are longer and more.".to_owned());
    }
    if measured().any(|m| m.shared_cores) {
        notes.push("Roles shared cores; the JSON says which ran where (role_cores).".to_owned());
    }
    if measured().any(|m| m.sent_less_than_offered) {
        notes.push("* sent less than offered: the sender could not keep up.".to_owned());
    }
    if measured().any(|m| !m.counters_agree) {
        notes
            .push("! our counters and the kernel's disagree: do not trust this figure.".to_owned());
    }
    for row in &results.results {
        if let Outcome::Skipped { skipped } = &row.outcome {
            notes.push(format!("{} {} B skipped: {skipped}", row.technique, row.frame_size));
        }
    }
    notes
}
