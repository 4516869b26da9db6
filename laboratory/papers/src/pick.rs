//! Selection of figures from results: which rows, and which of their figures.

use dray_report::Run;
use dray_report::escape::markdown;
use dray_report::number::rate;
use dray_results::{Neighbour, ResultRow, StreamRow, Way};

use crate::figure::{Figure, Quantity};

/// Selects rows of results by experiment, technique and conditions, and one of their figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) experiment: &'static str,
    technique: &'static str,
    pub(crate) of: Quantity,
    /// Conditions that a row must meet, in the order in which they are described.
    conditions: [Option<Condition>; 3],
}

/// Condition that a row must meet. A row of byte streams meets none but those of MTU and pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    /// Frame size in bytes.
    Size(usize),
    /// Frames per burst.
    Burst(usize),
    /// MTU of the links in bytes.
    Mtu(u32),
    /// Number of concurrent sender/receiver pairs.
    Pairs(usize),
    Topology(&'static str),
    /// Topology, `chain` or `fan`, and number of forwarders in it.
    Forwarders(&'static str, usize),
    /// Offered frames per second.
    Offered(f64),
    /// Offered rate as a share of the loss-free rate.
    Share(f64),
    Beside(Neighbour),
    /// Way through a user plane function.
    To(Way),
}

impl Condition {
    /// Returns true if a row of frames meets the condition.
    fn fits(self, row: &ResultRow) -> bool {
        match self {
            Self::Size(bytes) => row.frame_size == bytes,
            Self::Burst(frames) => row.burst == frames,
            Self::Mtu(bytes) => row.mtu == bytes,
            Self::Pairs(count) => row.pairs == count,
            Self::Topology(name) => row.topology == name,
            Self::Forwarders(topology, count) => {
                row.topology == topology && row.forwarders == count
            }
            Self::Offered(pps) => row.offered_pps == Some(pps),
            Self::Share(share) => row.load_share == Some(share),
            Self::Beside(neighbour) => row.neighbour == Some(neighbour),
            Self::To(way) => row.upf.is_some_and(|load| load.way == way),
        }
    }

    /// Returns true if a row of byte streams meets the condition.
    fn fits_stream(self, row: &StreamRow) -> bool {
        match self {
            Self::Mtu(bytes) => row.mtu == bytes,
            Self::Pairs(count) => row.pairs == count,
            _ => false,
        }
    }

    /// Describes the condition, unless it is the same for all rows of its experiment that claims
    /// compare.
    fn in_words(self) -> Option<String> {
        Some(match self {
            Self::Size(bytes) => format!("{bytes} B"),
            Self::Burst(frames) => format!("burst {frames}"),
            Self::Mtu(1500) | Self::Topology(_) | Self::To(_) => return None,
            Self::Mtu(bytes) => format!("MTU {bytes}"),
            Self::Pairs(1) => "1 pair".to_owned(),
            Self::Pairs(count) => format!("{count} pairs"),
            Self::Forwarders(topology, count) => {
                let noun = if count == 1 { "forwarder" } else { "forwarders" };
                let side_by_side = if topology == "fan" { " side by side" } else { "" };
                format!("{count} {noun}{side_by_side}")
            }
            Self::Offered(pps) => format!("{} offered", rate(pps)),
            Self::Share(share) => format!("at {:.0} % of its loss-free rate", 100.0 * share),
            Self::Beside(neighbour) => format!("{neighbour} neighbour"),
        })
    }
}

impl Pick {
    /// Selects the received rate of `technique` in the results of `experiment`.
    pub(crate) const fn new(experiment: &'static str, technique: &'static str) -> Self {
        Self { experiment, technique, of: Quantity::Received, conditions: [None; 3] }
    }

    pub(crate) const fn of(self, of: Quantity) -> Self {
        Self { of, ..self }
    }

    /// Adds a condition.
    pub(crate) const fn with(mut self, condition: Condition) -> Self {
        let mut at = 0;
        while self.conditions[at].is_some() {
            at += 1;
        }
        self.conditions[at] = Some(condition);
        self
    }

    fn conditions(&self) -> impl Iterator<Item = Condition> {
        self.conditions.into_iter().flatten()
    }

    /// Describes the rows.
    pub(crate) fn label(&self) -> String {
        let technique = format!("`{}`", self.technique);
        let words = self.conditions().filter_map(Condition::in_words);
        [technique].into_iter().chain(words).collect::<Vec<_>>().join(", ")
    }

    fn runs<'r>(&self, runs: &'r [Run]) -> impl Iterator<Item = &'r Run> {
        let experiment = self.experiment;
        runs.iter().filter(move |run| run.results.experiment == experiment)
    }

    /// Returns the rows of frames that fit.
    fn frames<'r>(&self, run: &'r Run) -> impl Iterator<Item = &'r ResultRow> {
        let pick = *self;
        let fits = move |row: &&ResultRow| pick.conditions().all(|it| it.fits(row));
        run.results.results.iter().filter(move |row| row.technique == pick.technique).filter(fits)
    }

    /// Returns the rows of byte streams that fit.
    fn streams<'r>(&self, run: &'r Run) -> impl Iterator<Item = &'r StreamRow> {
        let pick = *self;
        let fits = move |row: &&StreamRow| pick.conditions().all(|it| it.fits_stream(row));
        run.results.streams.iter().filter(move |row| row.technique == pick.technique).filter(fits)
    }

    /// Returns all figures that fit.
    pub(crate) fn find_all<'r>(&self, runs: &'r [Run]) -> Vec<Figure<'r>> {
        let of_run = |run| {
            let of_frames = move |row| Figure::of_frames(self.of, self.label(), run, row);
            let of_streams = move |row| Figure::of_streams(self.of, self.label(), run, row);
            let frames = self.frames(run).filter_map(of_frames);
            frames.chain(self.streams(run).filter_map(of_streams))
        };
        self.runs(runs).flat_map(of_run).collect()
    }

    /// Returns the figure that fits, the one measured for the longest time if there are several, or
    /// why there is none.
    pub(crate) fn find<'r>(&self, runs: &'r [Run]) -> Result<Figure<'r>, String> {
        longest(self.find_all(runs).into_iter()).ok_or_else(|| self.missing(runs))
    }

    /// Explains why no figure fits.
    pub(crate) fn missing(&self, runs: &[Run]) -> String {
        let (experiment, label) = (self.experiment, self.label());
        if self.runs(runs).next().is_none() {
            return format!("no results of `{experiment}`");
        }
        let skipped = self.runs(runs).find_map(|run| {
            let frames = self.frames(run).find_map(ResultRow::skipped);
            frames.or_else(|| self.streams(run).find_map(StreamRow::skipped))
        });
        if let Some(reason) = skipped {
            return format!("{label}: {}", markdown(reason));
        }
        match self.runs(runs).filter_map(|run| run.results.incomplete.as_ref()).last() {
            Some(incomplete) => format!(
                "the run of `{experiment}` was cut after {} of {} trials, before {label}",
                incomplete.trials_done, incomplete.trials
            ),
            None => format!("the run of `{experiment}` did not include {label}"),
        }
    }
}

/// Returns the figure measured for the longest time.
pub(crate) fn longest<'r>(figures: impl Iterator<Item = Figure<'r>>) -> Option<Figure<'r>> {
    figures.reduce(|best, next| if next.length_s() > best.length_s() { next } else { best })
}
