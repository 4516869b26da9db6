//! Writes the page of the five papers' claims, each compared with results, to standard output:
//! `dray-papers FILE...`, with files that `dray bench --json` wrote. `docs/papers.md` is that page
//! for the results in `docs/papers/`.
//!
//! A paper is a file here: its tables and figures in their order, what they claim, and a [`Rule`]
//! for each claim that names the figures of the results and decides on them.
//!
//! [`Rule`]: rule::Rule
#![forbid(unsafe_code)]

mod ara2019;
mod casoni2013;
mod claassen2016;
mod figure;
mod liang2016;
mod page;
mod paper;
mod pick;
mod rule;
// Results for tests are those of the reports' tests.
#[cfg(test)]
#[allow(dead_code, reason = "not all of it is used here")]
#[path = "../../report/src/sample.rs"]
mod sample;
mod shyamkumar2022;
#[cfg(test)]
mod tests;

use std::env;
use std::path::PathBuf;

use dray_report::Run;
use paper::Paper;

/// The papers, in the order of the page.
const PAPERS: [Paper; 5] = [
    ara2019::PAPER,
    shyamkumar2022::PAPER,
    claassen2016::PAPER,
    casoni2013::PAPER,
    liang2016::PAPER,
];

fn main() -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    files.sort();
    let runs = files.iter().map(|file| Run::read(file)).collect::<Result<Vec<_>, _>>()?;
    print!("{}", page::render(&PAPERS, &runs));
    Ok(())
}
