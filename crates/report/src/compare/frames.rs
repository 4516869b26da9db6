//! Rows of frames in both runs.

use dray_measure::results::Measured;
use dray_measure::{Interval, ResultRow};
use serde::Serialize;

use super::Verdict;
use crate::number::{percent, time};

/// One row in both runs.
#[derive(Debug, Serialize)]
pub struct Change {
    /// Technique, size, and whatever else tells it from others.
    pub row: String,
    /// In the first run.
    pub a: Figures,
    /// In the second.
    pub b: Figures,
    /// `b / a` of the receive rates; absent where nothing was received in the first.
    pub ratio: Option<f64>,
    /// What that means.
    pub verdict: Verdict,
    /// Why it is not judged, or should not be judged alone.
    pub remarks: Vec<String>,
}

/// The figures of a row that are compared.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Frames received per second.
    pub received_pps: f64,
    /// Half the 95 % confidence interval of that, where there is one.
    pub half_interval_pps: Option<f64>,
    /// `lost / sent`.
    pub loss_ratio: f64,
    /// CPU cycles of all roles per frame received.
    pub cycles_per_frame: Option<f64>,
    /// Round-trip time that 99 % of frames stayed within, in nanoseconds.
    pub p99_ns: Option<u64>,
}

impl Change {
    /// `None` where neither has figures.
    pub(super) fn new(row: String, a: &ResultRow, b: &ResultRow) -> Option<Self> {
        let (mut remarks, (a, b)) = match (a.measured(), b.measured()) {
            (None, None) => return None,
            (Some(a), Some(b)) => (remarks(a, b), (Figures::of(Some(a)), Figures::of(Some(b)))),
            (a, b) => {
                let skipped = if a.is_none() { "A" } else { "B" };
                (vec![format!("skipped in {skipped}")], (Figures::of(a), Figures::of(b)))
            }
        };
        let interval = |figures: &Figures| {
            figures.half_interval_pps.map(|half| Interval { mean: figures.received_pps, half })
        };
        let verdict = Verdict::of(interval(&a).zip(interval(&b)), &mut remarks);
        if let Some((first, second)) = a.p99_ns.zip(b.p99_ns) {
            let [from, to] = [first, second].map(|ns| time(ns as f64));
            remarks.push(format!(
                "p99 of round trips from {from} to {to}; there is no interval to judge by"
            ));
        }
        if (a.loss_ratio - b.loss_ratio).abs() >= 0.0001 {
            let [from, to] = [a.loss_ratio, b.loss_ratio].map(percent);
            remarks.push(format!("loss from {from} % to {to} %"));
        }
        let ratio = (a.received_pps > 0.0).then(|| b.received_pps / a.received_pps);
        Some(Self { row, a, b, ratio, verdict, remarks })
    }
}

/// Why the figures of a row are not to be compared.
fn remarks(a: &Measured, b: &Measured) -> Vec<String> {
    let mut remarks = Vec::new();
    for (name, measured) in [("A", a), ("B", b)] {
        if !measured.counters_agree {
            remarks.push(format!("in {name} our counters and the kernel's disagree"));
        }
        if let Some(what) = measured.disturbed() {
            remarks.push(format!("disturbed in {name}: {what}"));
        }
    }
    if a.setting.role_cores != b.setting.role_cores {
        remarks.push("the roles ran on other CPUs".to_owned());
    }
    if a.check != b.check {
        remarks.push(format!("receivers checked {} in A and {} in B", a.check, b.check));
    }
    remarks
}

impl Figures {
    fn of(measured: Option<&Measured>) -> Self {
        Self {
            received_pps: measured.map_or(0.0, |it| it.received_pps),
            half_interval_pps: measured.and_then(Measured::interval).map(|interval| interval.half),
            loss_ratio: measured.map_or(0.0, |it| it.loss_ratio),
            cycles_per_frame: measured.and_then(|it| it.cycles_per_frame),
            p99_ns: measured
                .and_then(|it| it.latency_ns.or(it.one_way_ns))
                .map(|latency| latency.p99),
        }
    }
}
