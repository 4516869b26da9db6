//! Results as tables for people, at most 100 columns wide.

mod latency;
mod needs;
mod neighbours;
mod runtimes;
mod streams;
mod user_plane;

use std::collections::BTreeMap;

use dray_traffic::Percentiles;

use crate::Interval;
use crate::experiments::{Experiment, Layout};
use crate::isolation::{Isolation, Verdict};
use crate::results::{DropRate, LimitRow, LimitedBy, Measured, Outcome, ResultRow, Results};

/// Renders the results of `experiment`, with notes below.
pub fn render(results: &Results, experiment: &Experiment) -> String {
    // No other layout tells runtimes apart.
    let by_runtime = runtimes::are_compared(results);
    let layout = if by_runtime { Layout::Runtimes } else { experiment.layout };
    let mut text = match layout {
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
        Layout::SentByForwarders => {
            let count = |row: &ResultRow| row.forwarders.to_string();
            let name = |row: &ResultRow| row.technique.clone();
            grid(&results.results, "forwarders", count, name, |measured| measured.sent_pps)
        }
        Layout::RatesByTechnique => {
            let rate = |row: &ResultRow| row.offered_pps.map_or("max".to_owned(), kilo);
            let behind = |row: &ResultRow| match row.forwarders {
                0 => row.technique.clone(),
                count => format!("{}, {count} forw.", row.technique),
            };
            grid(&results.results, "offered, kpps", rate, behind, |measured| measured.received_pps)
        }
        Layout::TechniquesBySize => {
            let size = |row: &ResultRow| format!("{} B", row.frame_size);
            let name = |row: &ResultRow| row.technique.clone();
            grid(&results.results, "technique", name, size, |measured| measured.received_pps)
        }
        Layout::Switches => switches(results),
        Layout::Limits => String::new(),
        Layout::RoundTrips => round_trips(&results.results),
        Layout::Latencies => latency::by_load(&results.results),
        Layout::Checks => checks(&results.results),
        Layout::PairsByTechnique => streams::pairs(results),
        Layout::DropRates => drop_rates(&results.results),
        Layout::UserPlane => user_plane::render(&results.results),
        Layout::Runtimes => runtimes::table(results),
        Layout::Neighbours => neighbours::table(&results.results),
        Layout::Needs => needs::table(results),
    };
    let has_streams = matches!(layout, Layout::PairsByTechnique | Layout::Runtimes | Layout::Needs);
    if !results.streams.is_empty() && !has_streams {
        if results.results.is_empty() {
            text.clear();
        } else {
            text.push('\n');
        }
        text.push_str(&streams::list(&results.streams));
    }
    if !results.limits.is_empty() && experiment.layout != Layout::Switches {
        text.push_str(&limits(&results.limits));
    }
    let paper = experiment.paper.map(|paper| format!("paper: {paper}."));
    let pairs = (experiment.layout == Layout::PairsByTechnique)
        .then(|| streams::full_frames(results))
        .flatten();
    let notes = notes(results).into_iter().chain(streams::notes(results)).chain(pairs);
    notes.chain(paper).for_each(|note| text.push_str(&wrapped(&note)));
    text
}

/// A terminal has so many columns.
const WIDTH: usize = 100;

/// A note as lines that are not too long, unless a word is.
fn wrapped(note: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for (number, word) in note.split(' ').enumerate() {
        let length = word.chars().count();
        match number {
            0 => {}
            _ if column + 1 + length > WIDTH => {
                text.push_str("\n  ");
                column = 2;
            }
            _ => {
                text.push(' ');
                column += 1;
            }
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
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
        "poll",
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
            Outcome::Isolated { isolation } => line.push(isolated(isolation)),
            // The notes below say why.
            Outcome::Skipped { .. } => continue,
        }
        cells.push(line);
    }
    align(&cells, 2, 2)
}

/// What came of keeping containers apart, in place of figures.
fn isolated(isolation: &Isolation) -> String {
    let Isolation { offered, left, dropped, arrived, .. } = isolation;
    match isolation.verdict {
        Verdict::Isolated => format!("isolated by design: {offered} frames, 0 arrived"),
        Verdict::NotIsolated => format!("NOT ISOLATED: {offered} frames, {arrived} arrived"),
        Verdict::NotVerified => {
            format!("NOT VERIFIED: {offered} frames, {left} left the host, {dropped} dropped")
        }
    }
}

fn figures(row: &ResultRow, measured: &Measured) -> [String; 10] {
    let bits = measured.received_pps * row.frame_size as f64 * 8.0;
    let cpu = &measured.cpu;
    let part = |seconds: f64| format!("{:.0}", 100.0 * seconds / cpu.elapsed_s);
    [
        format!("{}{}", kilo(measured.sent_pps), mark(measured)),
        kilo(measured.received_pps),
        spread(measured.interval()),
        loss(measured),
        format!("{:.2}", bits / 1e9),
        format!("{:.2}", cpu.cores()),
        cpu.total.polling_s.map_or("-".to_owned(), part),
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
                    let rate = format!("{}{}", kilo(measured.received_pps), mark(measured));
                    line.extend([rate, spread(measured.interval()), loss(measured)]);
                }
                None => line.extend(["skipped", "", ""].map(str::to_owned)),
            }
        }
        cells.push(line);
    }
    fit(&cells, if paper { 2 } else { 1 }, 3)
}

/// What `of` says of the rows, each once, in their order.
fn distinct<R, T: PartialEq>(rows: &[R], of: impl Fn(&R) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for value in rows.iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// A row for each `row_of`, a column for each `column_of`, and nothing but one rate in each.
fn grid(
    rows: &[ResultRow],
    corner: &str,
    row_of: impl Fn(&ResultRow) -> String,
    column_of: impl Fn(&ResultRow) -> String,
    rate_of: fn(&Measured) -> f64,
) -> String {
    let columns = distinct(rows, &column_of);
    let highest = rows.iter().filter_map(ResultRow::measured).map(rate_of).fold(0.0, f64::max);
    let (unit, in_unit): (_, fn(f64) -> String) =
        if highest < 10e6 { ("kpps", kilo) } else { ("Mpps", mega) };
    let header = std::iter::once(corner.to_owned()).chain(columns.clone()).collect();
    let units = std::iter::repeat_n(unit.to_owned(), columns.len());
    let units = std::iter::once(String::new()).chain(units).collect();
    let mut cells = vec![header, units];
    for name in distinct(rows, &row_of) {
        let cell = |column: &String| {
            let row = rows.iter().find(|row| row_of(row) == name && column_of(row) == *column);
            match row.and_then(ResultRow::measured) {
                Some(measured) => format!("{}{}", in_unit(rate_of(measured)), mark(measured)),
                None => "-".to_owned(),
            }
        };
        cells.push(std::iter::once(name.clone()).chain(columns.iter().map(cell)).collect());
    }
    fit(&cells, 1, 1)
}

/// A row for each technique and size: round trips per second, and how long they take.
fn round_trips(rows: &[ResultRow]) -> String {
    let header = ["technique", "size", "round trips", "loss", "p50", "p90", "p99", "p99.9", "max"];
    let units = ["", "B", "k/s", "%", "us", "us", "us", "us", "us"];
    let mut cells = vec![header.map(str::to_owned).to_vec(), units.map(str::to_owned).to_vec()];
    for row in rows {
        let mut line = vec![row.technique.clone(), row.frame_size.to_string()];
        if let Some(measured) = row.measured() {
            line.push(format!("{}{}", kilo(measured.received_pps), mark(measured)));
            line.push(loss(measured));
            let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
            match measured.latency_ns {
                Some(Percentiles { p50, p90, p99, p999, max, .. }) => {
                    line.extend([p50, p90, p99, p999, max].map(us));
                }
                None => line.extend([const { String::new() }; 5]),
            }
        } else {
            line.push("skipped".to_owned());
        }
        cells.push(line);
    }
    align(&cells, 2, 1)
}

/// A row for each technique and size: what is received when the receiver looks at nothing, and by how
/// much less when it looks more closely.
fn checks(rows: &[ResultRow]) -> String {
    let closely = ["none", "sampled", "whole"];
    let header = ["technique", "size", "none", "±", "sampled", "±", "costs", "whole", "±", "costs"];
    let units = ["", "B", "kpps", "%", "kpps", "%", "%", "kpps", "%", "%"];
    let mut cells = vec![header.map(str::to_owned).to_vec(), units.map(str::to_owned).to_vec()];
    for (technique, size) in distinct(rows, |row| (row.technique.clone(), row.frame_size)) {
        let mut line = vec![technique.clone(), size.to_string()];
        let found = |check: &str| {
            let mine = |row: &&ResultRow| row.technique == technique && row.frame_size == size;
            let mut measured = rows.iter().filter(mine).filter_map(ResultRow::measured);
            measured.find(|measured| measured.check == check)
        };
        for check in closely {
            let figures = found(check).map(|it| {
                let rate = format!("{}{}", kilo(it.received_pps), mark(it));
                let less = found("none").map(|none| 1.0 - it.received_pps / none.received_pps);
                let costs = less.map_or("-".to_owned(), |less| format!("{:.1}", 100.0 * less));
                [rate, spread(it.interval()), costs]
            });
            let figures = figures.unwrap_or(["-", "", ""].map(str::to_owned));
            line.extend(figures.into_iter().take(if check == "none" { 2 } else { 3 }));
        }
        cells.push(line);
    }
    align(&cells, 2, 1)
}

/// A row for each technique and size: for each loss that was allowed the highest rate, what limits it;
/// and what the first of these rates costs.
fn drop_rates(rows: &[ResultRow]) -> String {
    let losses = rows.iter().filter_map(ResultRow::measured).map(|m| m.drop_rates.as_slice());
    let losses = losses.max_by_key(|rates| rates.len()).unwrap_or_default();
    let mut header = ["technique", "size"].map(str::to_owned).to_vec();
    let mut units = ["", "B"].map(str::to_owned).to_vec();
    for rate in losses {
        let name = if rate.loss_ratio == 0.0 { "NDR".to_owned() } else { "PDR".to_owned() };
        header.extend([name, "±".to_owned(), "limit".to_owned()]);
        let allowed = format!("{} %", 100.0 * rate.loss_ratio);
        units.extend([format!("kpps, {allowed}"), "%".to_owned(), String::new()]);
    }
    header.extend(["Gb/s", "cores", "cycles", "trials"].map(str::to_owned));
    units.extend(["", "", "/frame", ""].map(str::to_owned));
    let mut cells = vec![header, units];
    for row in rows {
        // The notes below say why.
        let Some(measured) = row.measured() else { continue };
        let mut line = vec![row.technique.clone(), row.frame_size.to_string()];
        for rate in &measured.drop_rates {
            let by = |limit| rate.searches.iter().all(|search| search.limited_by == limit);
            let limit = if by(LimitedBy::Sender) { "sender" } else { "loss" };
            line.extend([
                format!("{}{}", kilo(rate.pps), mark(measured)),
                spread(rate.interval()),
                limit.to_owned(),
            ]);
        }
        let bits = measured.received_pps * row.frame_size as f64 * 8.0;
        let trials = measured
            .drop_rates
            .first()
            .map_or(0, |rate| rate.searches.iter().map(|search| search.trials).sum::<usize>());
        line.extend([
            format!("{:.2}", bits / 1e9),
            format!("{:.2}", measured.cpu.cores()),
            measured.cycles_per_frame.map_or("-".to_owned(), |cycles| format!("{cycles:.0}")),
            trials.to_string(),
        ]);
        cells.push(line);
    }
    align(&cells, 2, 1)
}

/// A row for each switch with each endpoint, and below what each switch had to be given.
fn switches(results: &Results) -> String {
    const FIGURES: [(&str, &str); 5] =
        [("", "Mpps"), ("", "± %"), ("ours", "/ it"), ("cycles", "/frame"), ("of", "limit")];
    let rows = &results.results;
    let sizes = distinct(rows, |row| row.frame_size);
    let mut header = vec!["switch".to_owned(), "endpoints".to_owned()];
    let mut units = vec![String::new(), String::new()];
    for size in &sizes {
        for (index, (above, below)) in FIGURES.iter().enumerate() {
            header.push(if index == 0 { format!("{size} B") } else { (*above).to_owned() });
            units.push((*below).to_owned());
        }
    }
    let find = |link: &str, endpoint: &str, size: usize| {
        let is_it = |row: &&ResultRow| {
            (row.link.as_str(), row.endpoint.as_str(), row.frame_size) == (link, endpoint, size)
        };
        rows.iter().find(is_it).and_then(ResultRow::measured)
    };
    let mut cells = vec![header, units];
    if !results.limits.is_empty() {
        let mut line = vec!["limit of the machine".to_owned(), String::new()];
        for size in &sizes {
            let limit = results.limits.iter().find(|limit| limit.frame_size == *size);
            line.extend(match limit {
                Some(limit) => {
                    let spread = 100.0 * limit.stddev_pps / limit.pps;
                    [mega(limit.pps), format!("{spread:.1}"), "".into(), "".into(), "1".into()]
                }
                None => std::array::from_fn(|_| String::new()),
            });
        }
        cells.push(line);
    }
    for (link, endpoint) in distinct(rows, |row| (row.link.clone(), row.endpoint.clone())) {
        if sizes.iter().all(|size| find(&link, &endpoint, *size).is_none()) {
            continue;
        }
        // The one of ours that does the same; our own learning is held against patching.
        let ours = match link.as_str() {
            "switch/learning" => "switch/patch",
            link if link.ends_with("/learning") => "switch/learning",
            _ => "switch/patch",
        };
        let mut line = vec![link.clone(), endpoint.clone()];
        for size in &sizes {
            let Some(it) = find(&link, &endpoint, *size) else {
                line.push("skipped".to_owned());
                line.extend(std::iter::repeat_n(String::new(), FIGURES.len() - 1));
                continue;
            };
            let ratio = find(ours, &endpoint, *size)
                .filter(|_| it.received_pps > 0.0)
                .map(|ours| ours.received_pps / it.received_pps);
            let or_dash = |figure: Option<f64>, digits: usize| {
                figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
            };
            line.extend([
                format!("{}{}", mega(it.received_pps), mark(it)),
                spread(it.interval()),
                or_dash(ratio, 2),
                or_dash(it.switch_cycles_per_frame, 0),
                or_dash(it.limit_share, 2),
            ]);
        }
        cells.push(line);
    }
    let mut text = fit(&cells, 2, FIGURES.len());
    for link in distinct(rows, |row| row.link.clone()) {
        let mine = || rows.iter().filter(|row| row.link == link).filter_map(ResultRow::measured);
        let Some(switch) = mine().find_map(|measured| measured.setting.switch.as_ref()) else {
            continue;
        };
        let others: String = switch.others.iter().map(|other| format!("; {other}")).collect();
        text.push_str(&format!(
            "{link}: ready in {:.0} ms; huge pages: {} MiB; privileges: {}{others}.\n",
            switch.ready_s * 1e3,
            switch.hugepages_mib,
            switch.privileges
        ));
    }
    text
}

/// The limit of the machine, a row for each size.
fn limits(limits: &[LimitRow]) -> String {
    let line = |cells: [String; 5]| cells.to_vec();
    let mut cells = vec![
        line(["limit of the machine", "size", "best", "±", "Gb/s"].map(str::to_owned)),
        line(["", "B", "Mpps", "%", ""].map(str::to_owned)),
    ];
    for limit in limits {
        cells.push(line([
            "one copy, two CPUs".to_owned(),
            limit.frame_size.to_string(),
            mega(limit.pps),
            format!("{:.1}", 100.0 * limit.stddev_pps / limit.pps.max(1.0)),
            format!("{:.1}", limit.pps * limit.frame_size as f64 * 8.0 / 1e9),
        ]));
    }
    align(&cells, 2, 1)
}

fn mega(pps: f64) -> String {
    format!("{:.2}", pps / 1e6)
}

/// Lines of cells as tables below each other, none wider than a terminal if that can be helped. The first
/// `front` columns are in each; of the others, so many as `together` says are not parted.
fn fit(cells: &[Vec<String>], front: usize, together: usize) -> String {
    const HEADERS: usize = 2;
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let table = |range: std::ops::Range<usize>| {
        let part = |line: &Vec<String>| {
            let behind = line.iter().skip(range.start).take(range.len());
            line.iter().take(front).chain(behind).cloned().collect()
        };
        align(&cells.iter().map(part).collect::<Vec<_>>(), HEADERS, front)
    };
    let is_narrow = |text: &str| text.lines().all(|line| line.chars().count() <= WIDTH);
    let (mut tables, mut from) = (Vec::new(), front);
    while from < columns {
        let groups = (columns - from).div_ceil(together);
        let ends = (1..=groups).rev().map(|count| (from + count * together).min(columns));
        let to = ends.clone().find(|&to| is_narrow(&table(from..to)));
        // One group is the least.
        let to = to.unwrap_or((from + together).min(columns));
        tables.push(table(from..to));
        from = to;
    }
    tables.join("\n")
}

/// Lines of cells as text: the first `left` columns to the left, the others to the right; a rule under
/// the first `headers` lines. The last cell of a line that has fewer than others runs on over the
/// columns behind it.
pub fn align(cells: &[Vec<String>], headers: usize, left: usize) -> String {
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let runs_on = |line: &[String], column| {
        column >= left && column + 1 == line.len() && column + 1 < columns
    };
    let width = |column: usize| {
        let lines = cells.iter().filter(|line| !runs_on(line, column));
        lines.filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, line) in cells.iter().enumerate() {
        let mut out = String::new();
        for (column, cell) in line.iter().enumerate() {
            let gap = if column == 0 { 0 } else { 2 };
            let pad = widths[column].saturating_sub(cell.chars().count());
            let to_the_left = column < left || runs_on(line, column);
            let (before, after) = if to_the_left { (0, pad) } else { (pad, 0) };
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

/// Half an interval, in percent of its mean.
fn spread(interval: Option<Interval>) -> String {
    interval.map_or("-".to_owned(), |interval| match interval.percent() {
        percent if percent < 99.95 => format!("{percent:.1}"),
        percent => format!("{:.0}", percent.min(999.0)),
    })
}

fn mark(measured: &Measured) -> &'static str {
    match (measured.counters_agree, measured.sent_less_than_offered) {
        (false, _) => "!",
        (true, true) => "*",
        (true, false) if measured.disturbed().is_some() => "~",
        (true, false) => "",
    }
}

/// What the marks of disturbed figures say.
fn disturbed(results: &Results) -> Option<String> {
    let frames = results.results.iter().filter_map(|row| row.measured()?.disturbed());
    let streams = results.streams.iter().filter_map(|row| row.measured()?.disturbed());
    let words: Vec<String> = frames.chain(streams).collect();
    let first = words.first()?;
    let others = if words.len() > 1 { ", and so on: see noise in the JSON" } else { "" };
    Some(format!("~ disturbed in {} figures ({first}{others}): measure again.", words.len()))
}

/// What the kernel gave AF_XDP ports, which a technique's name does not say.
fn af_xdp(rows: &[ResultRow]) -> Vec<String> {
    let mut given: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows {
        let agreements = row.measured().map(|measured| &measured.setting.agreements);
        let ports = agreements.into_iter().flat_map(BTreeMap::values).flatten();
        for port in ports.filter(|port| port.port.starts_with("afxdp:")) {
            let features = port.features.join(", ");
            let at = given.iter().position(|(other, _)| *other == features).unwrap_or_else(|| {
                given.push((features, Vec::new()));
                given.len() - 1
            });
            let techniques = &mut given[at].1;
            if !techniques.contains(&row.technique.as_str()) {
                techniques.push(&row.technique);
            }
        }
    }
    given
        .into_iter()
        .map(|(features, techniques)| format!("{}: {features}.", techniques.join(", ")))
        .collect()
}

/// How far searches for the same rate are apart, where there were several.
fn searches_apart<'m>(measured: impl Iterator<Item = &'m Measured>) -> Option<String> {
    let apart = |rate: &DropRate| {
        let lowers = || rate.searches.iter().filter_map(|search| search.lower_pps);
        let (least, most) = (lowers().min()? as f64, lowers().max()? as f64);
        (rate.searches.len() > 1).then_some(100.0 * (most - least) / least)
    };
    let most = measured.flat_map(|it| it.drop_rates.iter().filter_map(apart)).reduce(f64::max)?;
    Some(format!("Searches for the same rate found it within {most:.1} % of each other."))
}

fn notes(results: &Results) -> Vec<String> {
    let measured = || results.results.iter().filter_map(ResultRow::measured);
    let streams = || results.streams.iter().filter_map(|row| row.measured());
    let settings = &results.settings;
    let trials = measured().map(|m| m.trials).chain(streams().map(|m| m.trials)).max().unwrap_or(0);
    let frame_samples = measured().map(|m| m.samples_pps.len());
    let samples = frame_samples.chain(streams().map(|m| m.samples_bps.len())).max().unwrap_or(0);
    if results.results.is_empty() && results.streams.is_empty() {
        let note = "Nobody who copies once can be faster: see docs/measurement.md.";
        return vec![note.to_owned()];
    }
    let mut notes = vec![format!(
        "Each figure: mean of {samples} samples of {} s after {} s of warm-up; loss over the whole trial.",
        settings.interval_s, settings.warm_up_s
    )];
    notes.push(format!(
        "±: half the 95 % interval, {}.",
        if trials > 1 { "over the trials" } else { "over the samples of one trial" }
    ));
    notes.extend(searches_apart(measured()));
    if let Some(incomplete) = &results.incomplete {
        notes.push(format!(
            "INCOMPLETE: {} of {} trials; --resume goes on with them.",
            incomplete.trials_done, incomplete.trials
        ));
    }
    let frames_and_streams = || {
        let frames = results.results.iter();
        let frames = frames.filter_map(|row| Some((&row.runtime, &row.measured()?.setting)));
        let streams = results.streams.iter();
        frames.chain(streams.filter_map(|row| Some((&row.runtime, &row.measured()?.setting))))
    };
    let engines = frames_and_streams()
        .filter_map(|(runtime, setting)| Some((runtime, setting.engine.as_ref()?)));
    let engines: Vec<_> =
        engines.map(|(name, engine)| format!("{name} {}", engine.version)).collect();
    let engines = distinct(&engines, Clone::clone);
    if !engines.is_empty() {
        notes.push(format!("Containers by {}.", engines.join(", ")));
    }
    if settings.quick {
        notes.push(format!(
            "--quick: a first look; trials of each: {trials}. Without it the samples are longer and more."
        ));
    }
    let mut settings = measured().map(|m| &m.setting).chain(streams().map(|m| &m.setting));
    if settings.any(|setting| setting.shared_cores) {
        notes.push("Roles shared cores; the JSON says which ran where (role_cores).".to_owned());
    }
    let needs = frames_and_streams().filter_map(|(_, setting)| setting.needs.as_ref());
    let unlocked: Vec<_> = needs.flat_map(|needs| &needs.unlocked).collect();
    if let Some((role, why)) = unlocked.first() {
        notes.push(format!("Some roles' memory was not locked ({role}: {why})."));
    }
    if measured().any(|m| m.sent_less_than_offered) {
        notes.push("* sent less than offered: the sender could not keep up.".to_owned());
    }
    if measured().any(|m| !m.counters_agree) {
        notes
            .push("! our counters and the kernel's disagree: do not trust this figure.".to_owned());
    }
    notes.extend(disturbed(results));
    if measured().any(|m| m.check == "sampled") {
        notes.push(format!(
            "Where memory is shared, receivers look at headers, and at one frame in {} whole.",
            dray_traffic::Check::SAMPLE
        ));
    }
    notes.extend(results.clock.as_ref().map(latency::clock));
    notes.extend(af_xdp(&results.results));
    notes.extend(skipped(&results.results));
    notes
}

/// What could not run, by reason.
fn skipped(rows: &[ResultRow]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&ResultRow>)> = Vec::new();
    for row in rows {
        let Outcome::Skipped { skipped: why } = &row.outcome else { continue };
        match reasons.iter_mut().find(|(other, _)| other == why) {
            Some((_, cases)) => cases.push(row),
            None => reasons.push((why, vec![row])),
        }
    }
    let note = |(why, cases): (&str, Vec<&ResultRow>)| {
        let mut links: Vec<&str> = cases.iter().map(|row| row.link.as_str()).collect();
        links.dedup();
        match (&cases[..], &links[..]) {
            ([case], _) => format!("{} {} B skipped: {why}", case.technique, case.frame_size),
            (_, [link]) => format!("{link} skipped ({} cases): {why}", cases.len()),
            _ => {
                let mut families: Vec<_> =
                    links.iter().filter_map(|link| link.split('/').next()).collect();
                families.dedup();
                format!("{} skipped ({} cases): {why}", families.join(", "), cases.len())
            }
        }
    };
    reasons.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_becomes_several() {
        let line = |name: &str, cell: &str| {
            std::iter::once(name.to_owned()).chain((0..8).map(|_| cell.to_owned())).collect()
        };
        let cells: Vec<Vec<String>> =
            vec![line("", "twenty-two characters."), line("", "kpps"), line("row", "1")];
        let text = fit(&cells, 1, 2);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        // Three columns would fit, but two belong together.
        assert_eq!(text.lines().filter(|line| line.starts_with("row")).count(), 2, "{text}");
        assert_eq!(text.matches("twenty-two").count(), 8);
        assert_eq!(text.matches('─').count() / 2, text.lines().nth(2).unwrap().chars().count());
        let narrow: Vec<_> = cells.iter().map(|line| line[..3].to_vec()).collect();
        assert_eq!(fit(&narrow, 1, 2), align(&narrow, 2, 1));
    }

    #[test]
    fn notes_are_wrapped_between_words() {
        let note = "word ".repeat(50);
        let text = wrapped(note.trim());
        assert!(
            text.lines().count() == 3 && text.lines().all(|line| line.len() <= WIDTH),
            "{text}"
        );
        assert_eq!(text.split_whitespace().count(), 50);
        assert_eq!(wrapped("short"), "short\n");
    }
}
