//! Renders results as tables for people, as wide as their terminal.

use dray_results::{Layout, ResultRow, Results};

mod cell;
mod checks;
mod drop_rates;
mod latency;
mod needs;
mod neighbours;
mod notes;
mod ports;
mod rates;
mod round_trips;
mod runtimes;
mod streams;
mod switches;
mod user_plane;

use cell::kilo;
use dray_text::wrapped;

/// Renders results in their layout, with notes below.
pub fn render(results: &Results) -> String {
    // No other layout distinguishes runtimes.
    let by_runtime = runtimes::are_compared(results);
    let layout = if by_runtime { Layout::Runtimes } else { results.table.layout };
    let mut text = match layout {
        Layout::List => rates::list(&results.results),
        Layout::EndpointsByLink => rates::matrix(
            &results.results,
            "endpoint",
            true,
            |row| row.endpoint.clone(),
            |row| row.link.clone(),
        ),
        Layout::ForwardersByTechnique => rates::matrix(
            &results.results,
            "forwarders",
            false,
            |row| row.forwarders.to_string(),
            |row| row.technique.clone(),
        ),
        Layout::SentByForwarders => {
            let count = |row: &ResultRow| row.forwarders.to_string();
            let name = |row: &ResultRow| row.technique.clone();
            rates::grid(&results.results, "forwarders", count, name, |measured| measured.sent_pps)
        }
        Layout::RatesByTechnique => {
            let rate = |row: &ResultRow| row.offered_pps.map_or("max".to_owned(), kilo);
            let behind = |row: &ResultRow| match row.forwarders {
                0 => row.technique.clone(),
                count => format!("{}, {count} forw.", row.technique),
            };
            rates::grid(&results.results, "offered, kpps", rate, behind, |measured| {
                measured.received_pps
            })
        }
        Layout::TechniquesBySize => {
            let size = |row: &ResultRow| format!("{} B", row.frame_size);
            let name = |row: &ResultRow| row.technique.clone();
            rates::grid(&results.results, "technique", name, size, |measured| measured.received_pps)
        }
        Layout::Switches => switches::table(results),
        Layout::Limits => String::new(),
        Layout::RoundTrips => round_trips::table(&results.results),
        Layout::Latencies => latency::by_load(&results.results),
        Layout::Checks => checks::table(&results.results),
        Layout::PairsByTechnique => streams::pairs(results),
        Layout::DropRates => drop_rates::table(&results.results),
        Layout::UserPlane => user_plane::render(&results.results),
        Layout::Ports => ports::table(&results.results),
        Layout::Runtimes => runtimes::table(results),
        Layout::Neighbours => neighbours::table(&results.results),
        Layout::Needs => needs::table(results),
    };
    let has_streams = matches!(layout, Layout::PairsByTechnique | Layout::Runtimes | Layout::Needs);
    if !results.streams.is_empty() && !has_streams {
        if results.results.is_empty() {
            text.clear();
        }
        let list = streams::list(&results.streams);
        if !text.is_empty() && !list.is_empty() {
            text.push('\n');
        }
        text.push_str(&list);
    }
    if !results.limits.is_empty() && results.table.layout != Layout::Switches {
        text.push_str(&switches::limits(&results.limits));
    }
    let paper = results.table.paper.as_ref().map(|paper| format!("paper: {paper}."));
    let pairs = (results.table.layout == Layout::PairsByTechnique)
        .then(|| streams::full_frames(results))
        .flatten();
    let notes =
        notes::notes(results, &text).into_iter().chain(streams::notes(results)).chain(pairs);
    notes.chain(paper).for_each(|note| text.push_str(&wrapped(&note)));
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use dray_text::width;

    /// Result files: one at least of each layout, as a test of `dray-measure` says.
    const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/results");

    #[test]
    fn tables_fit_terminal_width() {
        let files = fs::read_dir(RESULTS).unwrap().map(|entry| entry.unwrap().path());
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let results: Results = serde_json::from_str(&text).unwrap();
            assert_fits(&render(&results), &file);
        }
    }

    fn assert_fits(text: &str, file: &Path) {
        assert!(text.lines().count() > 5, "{}: {text}", file.display());
        for line in text.lines() {
            let columns = line.chars().count();
            assert!(columns <= width(), "{}: {columns} columns:\n{line}\n{text}", file.display());
            // Allows ASCII and signs that no terminal draws wide, so each is one column.
            let is_narrow = |it: char| it.is_ascii() || "±─µ×".contains(it);
            assert!(line.chars().all(is_narrow), "{}: {line}", file.display());
        }
    }
}
