//! One row per link: the best figures of all its endpoints.

use dray_results::Interval;

use crate::charts::rows::{MeasuredRow, between_two, bits};
use crate::distinct::distinct;
use crate::input::Run;
use crate::number::GIGABITS;

/// Best figures of a link.
#[derive(Debug)]
pub(crate) struct LinkRow {
    pub(crate) link: String,
    /// Endpoint with the highest rate of small frames.
    pub(crate) endpoint: String,
    /// Rate of small frames, in frames per second.
    pub(crate) small: Rate,
    /// Share of the small frames that were lost at that rate.
    pub(crate) loss_ratio: f64,
    /// CPU cycles of all roles per small frame.
    pub(crate) cycles: Option<f64>,
    /// Rate of large frames, in bits per second.
    pub(crate) large: Option<f64>,
    /// Payload of one byte stream, in bits per second.
    pub(crate) stream: Option<f64>,
    /// True if one of the figures is less reliable than it looks.
    pub(crate) is_disturbed: bool,
}

/// A rate and its interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) pps: f64,
    pub(crate) interval: Option<Interval>,
}

/// The links of a host's runs, fastest first.
#[derive(Debug)]
pub(crate) struct Overview {
    /// Sizes of small and large frames, in bytes.
    pub(crate) sizes: [usize; 2],
    pub(crate) rows: Vec<LinkRow>,
}

impl Overview {
    /// Compares what the links of `runs` carry at full rate. Returns `None` if no run measured
    /// that.
    pub(crate) fn new(runs: &[&Run]) -> Option<Self> {
        let is_full = |(row, measured): &MeasuredRow| {
            row.offered_pps.is_none() && row.neighbour.is_none() && !measured.counters_disagree()
        };
        let all: Vec<MeasuredRow> =
            runs.iter().flat_map(|run| between_two(run)).filter(is_full).collect();
        let sizes = [
            all.iter().map(|(row, _)| row.frame_size).min()?,
            all.iter().map(|(row, _)| row.frame_size).max()?,
        ];
        let streams = |link: &str| {
            let rows = runs.iter().flat_map(|run| &run.results.streams);
            rows.filter(|row| row.link == link && row.pairs == 1)
                .filter_map(|row| row.measured())
                .filter(|measured| !measured.counters_disagree())
                .max_by(|a, b| a.goodput_bps.total_cmp(&b.goodput_bps))
        };
        let row = |link: String| {
            let best = |size: usize| {
                let here = all.iter().filter(|(row, _)| row.link == link && row.frame_size == size);
                here.max_by(|a, b| a.1.received_pps.total_cmp(&b.1.received_pps))
            };
            let (small, large, stream) = (best(sizes[0])?, best(sizes[1]), streams(&link));
            let frames_disturbed = |row: &MeasuredRow| row.1.disturbed().is_some();
            Some(LinkRow {
                endpoint: small.0.endpoint.clone(),
                small: Rate { pps: small.1.received_pps, interval: small.1.interval() },
                loss_ratio: small.1.loss_ratio,
                cycles: small.1.cycles_per_frame,
                large: large
                    .filter(|_| sizes[1] > sizes[0])
                    .map(|(row, measured)| bits(row, measured.received_pps)),
                is_disturbed: frames_disturbed(small)
                    || large.is_some_and(frames_disturbed)
                    || stream.is_some_and(|it| it.disturbed().is_some()),
                stream: stream.map(|it| it.goodput_bps),
                link,
            })
        };
        let links = distinct(&all, |(row, _)| row.link.clone());
        let mut rows: Vec<LinkRow> = links.into_iter().filter_map(row).collect();
        rows.sort_by(|a, b| b.small.pps.total_cmp(&a.small.pps));
        Some(Self { sizes, rows })
    }
}

/// Formats bits per second in gigabits, or a dash.
pub(crate) fn gigabits(bps: Option<f64>) -> String {
    bps.map_or("-".to_owned(), |bps| GIGABITS.of(bps))
}
