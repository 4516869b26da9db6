//! Findings of papers, beside the ones measured here.

use dray_results::StreamRow;
use serde::Serialize;

use crate::charts::drop_rates::highest;
use crate::charts::needs;
use crate::charts::rows::{MeasuredRow, bits, is_of_needs, measured};
use crate::distinct::distinct;
use crate::input::Run;
use crate::number::{GIGABITS, rate_unit, time};

/// An experiment of a paper.
#[derive(Debug, Serialize)]
pub(crate) struct PaperFigures {
    pub(crate) experiment: String,
    /// Finding of the paper.
    pub(crate) paper: String,
    /// Figures measured here, technique by technique.
    pub(crate) here: Vec<String>,
}

/// Returns the findings of those `runs` that repeat a paper's experiment.
pub(crate) fn of_papers(runs: &[&Run]) -> Vec<PaperFigures> {
    let of_paper = |run: &&Run| {
        let paper = run.results.table.paper.clone()?;
        let here = here(run);
        let experiment = run.results.experiment.clone();
        (!here.is_empty()).then_some(PaperFigures { experiment, paper, here })
    };
    runs.iter().filter_map(of_paper).collect()
}

/// Describes the range of each technique's figures, from lowest to highest.
fn here(run: &Run) -> Vec<String> {
    let rows: Vec<_> = measured(run).collect();
    let techniques = distinct(&rows, |(row, _)| row.technique.clone());
    let of_frames = techniques.into_iter().map(|name| {
        let mine = rows.iter().filter(|(row, _)| row.technique == name).copied();
        let mine: Vec<MeasuredRow> = mine.collect();
        let times = mine.iter().filter_map(|(_, measured)| Some(measured.latency_ns?.p50 as f64));
        let times: Vec<f64> = times.collect();
        let times = (!times.is_empty()).then(|| format!("p50 {}", range(&times, time)));
        let found: Vec<String> = rates(&mine).into_iter().chain(times).collect();
        format!("{name}: {}", found.join("; "))
    });
    let streams = &run.results.streams;
    let of_streams =
        distinct(streams, |row| row.technique.clone()).into_iter().filter_map(|name| {
            let mine = streams.iter().filter(|row| row.technique == name);
            let rates: Vec<f64> =
                mine.filter_map(StreamRow::measured).map(|measured| measured.goodput_bps).collect();
            let range = range(&rates, |bps| GIGABITS.with(bps));
            (!rates.is_empty()).then(|| format!("{name}: {range}"))
        });
    let of_needs = needs::ready(run).into_iter();
    let of_needs = of_needs.map(|(name, ns)| format!("{name}: ready after {}", time(ns)));
    if is_of_needs(run) { of_needs.collect() } else { of_frames.chain(of_streams).collect() }
}

/// Describes the received rates with the paper's figure; for a user plane function, both per core.
fn rates(rows: &[MeasuredRow]) -> Option<String> {
    let is_rate =
        |(row, measured): &&MeasuredRow| row.topology != "echo" && measured.one_way_ns.is_none();
    let rows = || rows.iter().filter(is_rate);
    let with_paper = |rates: &[f64], paper: Option<f64>, in_words: &dyn Fn(f64) -> String| {
        let paper = paper.map_or(String::new(), |rate| format!(" (paper: {})", in_words(rate)));
        (!rates.is_empty()).then(|| range(rates, in_words) + &paper)
    };
    let per_core = rows().filter_map(|(row, it)| Some(bits(row, it.upf_pps_per_core()?)));
    let per_core: Vec<f64> = per_core.collect();
    if !per_core.is_empty() {
        let paper = rows().find_map(|(row, _)| Some(bits(row, row.paper_pps?)));
        return with_paper(&per_core, paper, &|bps| format!("{} per core", GIGABITS.with(bps)));
    }
    let rates: Vec<f64> = rows().map(|(_, measured)| highest(measured).0).collect();
    let unit = rate_unit(rates.iter().copied().fold(0.0, f64::max));
    with_paper(&rates, rows().find_map(|(row, _)| row.paper_pps), &|pps| unit.with(pps))
}

fn range(values: &[f64], in_words: impl Fn(f64) -> String) -> String {
    let least = in_words(values.iter().copied().fold(f64::INFINITY, f64::min));
    let most = in_words(values.iter().copied().fold(0.0, f64::max));
    if least == most { most } else { format!("{least} to {most}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn paper_figures_are_shown_with_measured() {
        let rows = [
            sample::row("bridge/udp", 64).samples(&[5e5, 5e5]).with("paper_pps", "227000.0"),
            sample::row("veth/udp", 64).samples(&[7e5, 7e5]),
            sample::row("veth/udp", 1500).samples(&[6e5, 6e5]),
        ];
        let table = r#""all","table":{"title":"","layout":"list","paper":"Ara et al."}"#;
        let text = sample::results(&rows).replace("\"all\"", table);
        let beside = of_papers(&[&sample::run(&text)]);
        assert_eq!(
            beside[0].here,
            ["bridge/udp: 500 kpps (paper: 227 kpps)", "veth/udp: 600 kpps to 700 kpps"]
        );
        assert!(beside[0].paper.contains("Ara"));
        assert!(super::of_papers(&[&sample::run(&sample::results(&rows))]).is_empty());
    }
}
