//! A report as a page of the papers' claims, each held against the results.

use crate::claims;
use crate::report::Report;

impl Report {
    /// Renders every claim of the five papers, and if it holds on these results, as Markdown.
    pub fn claims(&self) -> String {
        claims::page(&self.runs)
    }
}
