//! The claims of the five papers, and a page that holds each against results.
//!
//! A paper is a file here: its tables and figures in their order, what they claim, and a [`Rule`]
//! for each claim that names the figures of the results and decides on them. `docs/papers.md` is
//! that page for the results in `docs/papers/`.
//!
//! [`Rule`]: rule::Rule

mod ara2019;
mod casoni2013;
mod claassen2016;
mod liang2016;
mod page;
mod paper;
mod pick;
mod rule;
mod shyamkumar2022;
#[cfg(test)]
mod tests;

use crate::input::Run;
use paper::Paper;

/// The papers, in the order of the page.
const PAPERS: [Paper; 5] = [
    ara2019::PAPER,
    shyamkumar2022::PAPER,
    claassen2016::PAPER,
    casoni2013::PAPER,
    liang2016::PAPER,
];

/// Renders the page of all claims, held against `runs`, as Markdown.
pub(crate) fn page(runs: &[Run]) -> String {
    page::render(&PAPERS, runs)
}
