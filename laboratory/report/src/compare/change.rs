//! Change of a row that is in both runs, of frames or of byte streams.

use std::collections::BTreeMap;

use dray_results::{
    Check, Interval, Lines, Measured, MeasuredStreams, Noise, ResultRow, StreamRow,
};
use serde::Serialize;

use super::Judgement;
use crate::charts::drop_rates::highest;
use crate::number::{GIGABITS, Unit, percent, rate_unit, time};

/// A row in both runs.
#[derive(Debug, Serialize)]
pub struct Change {
    /// Technique, frame size, and everything else that identifies the row.
    pub row: String,
    /// Unit of the rates.
    pub unit: Counted,
    /// Figures of the first run.
    pub a: Figures,
    /// Figures of the second run.
    pub b: Figures,
    /// `b / a` of the rates; `None` if nothing was received in the first run.
    pub ratio: Option<f64>,
    /// Judgement on the change.
    pub verdict: Judgement,
    /// Reasons why the row is not judged, or not by its rate alone.
    pub remarks: Vec<String>,
}

/// Unit of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Counted {
    /// Frames per second.
    #[serde(rename = "pps")]
    Frames,
    /// Bits of payload per second.
    #[serde(rename = "bps")]
    Bits,
}

/// Compared figures of a row.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// Frames or bits received per second; for a search, the rate found.
    pub rate: f64,
    /// Half the 95 % confidence interval of the rate, if there is one.
    pub half_interval: Option<f64>,
    /// `lost / sent`; frames only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// CPU cycles of all roles per frame received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_frame: Option<f64>,
    /// 99th percentile of the round-trip time, or else of the one-way time, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
}

/// A row in one run.
struct Side<'r> {
    figures: Figures,
    /// Reason not to trust the figures.
    wrong: Option<&'static str>,
    disturbed: Option<String>,
    role_cores: &'r BTreeMap<String, usize>,
    lines: Option<Lines>,
    /// Extent of the receivers' checks of frames; `None` for streams.
    check: Option<Check>,
}

impl Change {
    /// Compares rows of frames; returns `None` if neither has figures.
    pub(super) fn of_frames(row: String, a: &ResultRow, b: &ResultRow) -> Option<Self> {
        let sides = [a, b].map(|row| row.measured().map(Side::of_frames));
        Self::new(row, Counted::Frames, sides)
    }

    /// Compares rows of byte streams; returns `None` if neither has figures.
    pub(super) fn of_streams(row: String, a: &StreamRow, b: &StreamRow) -> Option<Self> {
        let sides = [a, b].map(|row| row.measured().map(Side::of_streams));
        Self::new(row, Counted::Bits, sides)
    }

    fn new(row: String, unit: Counted, sides: [Option<Side>; 2]) -> Option<Self> {
        if sides.iter().all(Option::is_none) {
            return None;
        }
        let mut remarks = remarks(&sides);
        let [a, b] = sides.map(|side| side.map_or_else(Figures::default, |side| side.figures));
        let verdict = Judgement::of(a.interval().zip(b.interval()), &mut remarks);
        if let Some((first, second)) = a.p99_ns.zip(b.p99_ns) {
            let [from, to] = [first, second].map(|ns| time(ns as f64));
            remarks.push(format!(
                "p99 latency changed from {from} to {to}; it has no interval to judge by"
            ));
        }
        if let Some((first, second)) = a.loss_ratio.zip(b.loss_ratio)
            && (first - second).abs() >= 0.0001
        {
            let [from, to] = [first, second].map(percent);
            remarks.push(format!("loss from {from} % to {to} %"));
        }
        let ratio = (a.rate > 0.0).then(|| b.rate / a.rate);
        Some(Self { row, unit, a, b, ratio, verdict, remarks })
    }

    /// Returns the unit in which the rates are shown.
    pub(super) fn shown_in(&self) -> Unit {
        match self.unit {
            Counted::Frames => rate_unit(self.a.rate.max(self.b.rate)),
            Counted::Bits => GIGABITS,
        }
    }
}

/// Returns the reasons why the figures of a row cannot be compared.
fn remarks(sides: &[Option<Side>; 2]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (name, side) in ["A", "B"].into_iter().zip(sides) {
        let Some(side) = side else {
            remarks.push(format!("skipped in {name}"));
            continue;
        };
        remarks.extend(side.wrong.map(|what| format!("in {name} {what}")));
        remarks.extend(side.disturbed.as_ref().map(|what| format!("disturbed in {name}: {what}")));
    }
    if let [Some(a), Some(b)] = sides {
        if a.role_cores != b.role_cores {
            remarks.push("roles ran on different CPUs".to_owned());
        }
        if let (Some(a), Some(b)) = (a.lines, b.lines)
            && a.distance != b.distance
        {
            let [a, b] = [a, b].map(|lines| lines.describe());
            remarks.push(format!("the CPUs were {a} in A and {b} in B"));
        }
        if let (Some(a), Some(b)) = (a.check, b.check)
            && a != b
        {
            remarks.push(format!("receivers checked {a} in A and {b} in B"));
        }
    }
    remarks
}

/// Describes what disturbed a measurement, if anything did. CPUs that were not as near to each
/// other, or as far, as in the other rows of their run do not disturb a comparison with another
/// run.
fn disturbed(noise: Option<Noise>, lines: Option<Lines>) -> Option<String> {
    noise.and_then(|noise| noise.in_words()).or_else(|| lines?.changed())
}

impl<'r> Side<'r> {
    fn of_frames(measured: &'r Measured) -> Self {
        let (rate, interval) = highest(measured);
        Self {
            figures: Figures {
                rate,
                half_interval: interval.map(|interval| interval.half),
                loss_ratio: Some(measured.loss_ratio),
                cycles_per_frame: measured.cycles_per_frame,
                p99_ns: measured.latency_ns.or(measured.one_way_ns).map(|latency| latency.p99),
            },
            wrong: measured.counters_disagree().then_some("our counters and the kernel's disagree"),
            disturbed: disturbed(measured.noise, measured.setting.lines),
            role_cores: &measured.setting.role_cores,
            lines: measured.setting.lines,
            check: Some(measured.check),
        }
    }

    fn of_streams(measured: &'r MeasuredStreams) -> Self {
        Self {
            figures: Figures {
                rate: measured.goodput_bps,
                half_interval: measured.interval().map(|interval| interval.half),
                ..Figures::default()
            },
            wrong: measured.counters_disagree().then_some("bytes are missing or wrong"),
            disturbed: disturbed(measured.noise, measured.setting.lines),
            role_cores: &measured.setting.role_cores,
            lines: measured.setting.lines,
            check: None,
        }
    }
}

impl Figures {
    pub(super) fn interval(&self) -> Option<Interval> {
        self.half_interval.map(|half| Interval { mean: self.rate, half })
    }
}
