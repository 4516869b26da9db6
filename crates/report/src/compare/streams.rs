//! Rows of byte streams in both runs.

use dray_measure::streams::{MeasuredStreams, StreamRow};
use serde::Serialize;

use super::Verdict;

/// One row of byte streams in both runs.
#[derive(Debug, Serialize)]
pub struct StreamChange {
    /// Technique, and whatever else tells it from others.
    pub row: String,
    /// In the first run.
    pub a: Goodput,
    /// In the second.
    pub b: Goodput,
    /// `b / a`; absent where nothing was received in the first.
    pub ratio: Option<f64>,
    /// What that means.
    pub verdict: Verdict,
    /// Why it is not judged.
    pub remarks: Vec<String>,
}

/// The figures of a row of byte streams.
#[derive(Debug, Serialize)]
pub struct Goodput {
    /// Bits of payload received per second.
    pub goodput_bps: f64,
    /// Half the 95 % confidence interval of that, where there is one.
    pub half_interval_bps: Option<f64>,
}

impl StreamChange {
    /// `None` where neither has figures.
    pub(super) fn new(row: String, a: &StreamRow, b: &StreamRow) -> Option<Self> {
        let measured = [a, b].map(StreamRow::measured);
        if measured.iter().all(Option::is_none) {
            return None;
        }
        let mut remarks = Vec::new();
        for (name, measured) in ["A", "B"].into_iter().zip(measured) {
            match measured {
                None => remarks.push(format!("skipped in {name}")),
                Some(it) if !it.counters_agree => {
                    remarks.push(format!("in {name} bytes are missing or wrong"));
                }
                Some(it) => {
                    let disturbed = it.disturbed();
                    remarks.extend(disturbed.map(|what| format!("disturbed in {name}: {what}")));
                }
            }
        }
        if let [Some(first), Some(second)] = measured
            && first.setting.role_cores != second.setting.role_cores
        {
            remarks.push("the roles ran on other CPUs".to_owned());
        }
        let intervals = measured.map(|it| it.and_then(MeasuredStreams::interval));
        let verdict = Verdict::of(intervals[0].zip(intervals[1]), &mut remarks);
        let [a, b] = measured.map(|it| Goodput {
            goodput_bps: it.map_or(0.0, |it| it.goodput_bps),
            half_interval_bps: it.and_then(MeasuredStreams::interval).map(|interval| interval.half),
        });
        let ratio = (a.goodput_bps > 0.0).then(|| b.goodput_bps / a.goodput_bps);
        Some(Self { row, a, b, ratio, verdict, remarks })
    }
}
