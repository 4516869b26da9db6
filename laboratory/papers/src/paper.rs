//! Structure of a paper: its tables and figures, what they claim, and what it leaves open.

use crate::rule::Rule;

/// A paper.
#[derive(Debug)]
pub(crate) struct Paper {
    /// Short name, with which the names of its experiments begin.
    pub(crate) name: &'static str,
    /// Authors, title and place.
    pub(crate) title: &'static str,
    /// Machine and method of its measurements, as far as it states them.
    pub(crate) conditions: &'static str,
    /// Tables and figures of the paper, in its order.
    pub(crate) exhibits: &'static [Exhibit],
    /// Open questions and future work, with what dray has on each.
    pub(crate) open: &'static [Open],
}

/// A table or a figure; in slides, one with a picture or figures.
#[derive(Debug)]
pub(crate) struct Exhibit {
    /// Name in the paper.
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) content: Content,
}

/// Content of a table or a figure.
#[derive(Debug)]
pub(crate) enum Content {
    /// A drawing or a listing, which claims nothing that can be measured: where dray has what it
    /// shows.
    Drawing(&'static str),
    /// Measurements, with the claims that the paper makes of them.
    Claims(&'static [Claim]),
}

/// A claim: an ordering, a ratio, or a shape.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The claim in words.
    pub(crate) says: &'static str,
    /// Figures that the paper states; those only drawn are lost in its text.
    pub(crate) paper: &'static str,
    /// Difference between the paper's set-up and the one measured here; empty: none.
    pub(crate) instead: &'static str,
    pub(crate) rule: Rule,
    /// Reasons why the claim may not hold, each with a rule that shows it in the results. A reason
    /// is given only if its rule holds.
    pub(crate) because: &'static [(Rule, &'static str)],
}

impl Claim {
    /// Creates a claim that is measured as in the paper.
    pub(crate) const fn new(says: &'static str, paper: &'static str, rule: Rule) -> Self {
        Self { says, paper, instead: "", rule, because: &[] }
    }

    pub(crate) const fn instead(self, instead: &'static str) -> Self {
        Self { instead, ..self }
    }

    pub(crate) const fn because(self, because: &'static [(Rule, &'static str)]) -> Self {
        Self { because, ..self }
    }
}

/// An open question or a plan of a paper.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) question: &'static str,
    /// Results of dray on it, with links relative to `docs/`.
    pub(crate) here: &'static str,
}
