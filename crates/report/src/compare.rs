//! What changed between two runs, and whether that is more than noise.

use std::fmt::Write;

use dray_measure::results::Measured;
use dray_measure::streams::{MeasuredStreams, StreamRow};
use dray_measure::table::align;
use dray_measure::{Interval, ResultRow, UpfLoad};
use serde::Serialize;

use crate::host::host_differences;
use crate::input::Run;
use crate::number::{GIGABITS, change, percent, rate_unit, time};

/// Two runs, held against each other row by row.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The first file.
    pub a: String,
    /// The second: what changed is said of it.
    pub b: String,
    /// Why figures of the two may differ for other reasons than the technique.
    pub warnings: Vec<String>,
    /// Rows that are in both.
    pub rows: Vec<Change>,
    /// Rows of byte streams that are in both.
    pub streams: Vec<StreamChange>,
    /// Rows that are only in the first.
    pub only_a: Vec<String>,
    /// Rows that are only in the second.
    pub only_b: Vec<String>,
}

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

/// Whether the receive rate changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second is faster: the intervals are apart.
    Faster,
    /// The second is slower: the intervals are apart.
    Slower,
    /// The intervals overlap.
    NoDifference,
    /// One of the two says too little.
    NotJudged,
}

/// Two runs have no row in common.
#[derive(Debug, thiserror::Error)]
#[error(
    "{a} and {b} have no row in common: nothing was measured in both with the same technique, size, \
     rate, burst and flows"
)]
pub struct NothingInCommon {
    a: String,
    b: String,
}

/// What must be equal for figures to be compared.
#[derive(PartialEq)]
struct Key<'a> {
    technique: &'a str,
    topology: &'a str,
    forwarders: usize,
    upf: Option<UpfLoad>,
    frame_size: usize,
    burst: usize,
    flows: u16,
    stations: u16,
    pairs: usize,
    mtu: u32,
    runtime: &'a str,
    neighbour: Option<&'a str>,
    /// `None` where it is a share of what was found in each run.
    offered_pps: Option<f64>,
    load_share: Option<f64>,
    /// How closely receivers looked, where rows differ in nothing else.
    check: Option<&'a str>,
}

impl<'a> Key<'a> {
    fn of(row: &'a ResultRow, tells_checks_apart: bool) -> Self {
        let check = row.measured().map(|measured| measured.check.as_str());
        Self {
            technique: &row.technique,
            topology: &row.topology,
            forwarders: row.forwarders,
            upf: row.upf,
            frame_size: row.frame_size,
            burst: row.burst,
            flows: row.flows,
            stations: row.stations,
            pairs: row.pairs,
            mtu: row.mtu,
            runtime: &row.runtime,
            neighbour: row.neighbour.as_deref(),
            offered_pps: row.offered_pps.filter(|_| row.load_share.is_none()),
            load_share: row.load_share,
            check: check.filter(|_| tells_checks_apart),
        }
    }

    /// Whether some of these rows are told apart only by how closely receivers looked.
    fn checks_differ(rows: &[ResultRow]) -> bool {
        let differ = |row, other| {
            Key::of(row, false) == Key::of(other, false)
                && Key::of(row, true) != Key::of(other, true)
        };
        rows.iter().enumerate().any(|(at, row)| rows[..at].iter().any(|other| differ(row, other)))
    }

    /// In words, without what is usual.
    fn describe(&self) -> String {
        let mut text = format!("{} {} B", self.technique, self.frame_size);
        if let Some(pps) = self.offered_pps {
            write!(text, " at {}", rate_unit(pps).with(pps)).ok();
        }
        if let Some(share) = self.load_share {
            write!(text, " at {:.0} % of the loss-free rate", 100.0 * share).ok();
        }
        if self.topology != "chain" {
            write!(text, " {}", self.topology).ok();
        }
        if let Some(load) = self.upf {
            write!(text, " {load}").ok();
        }
        if self.runtime != dray_lab::Runtime::Embedded.to_string() {
            write!(text, " in {}", self.runtime).ok();
        }
        if let Some(neighbour) = self.neighbour {
            write!(text, ", {neighbour} neighbour").ok();
        }
        if let Some(check) = self.check {
            write!(text, ", check {check}").ok();
        }
        for (count, usual, what) in [
            (self.forwarders, 0, "forwarders"),
            (usize::from(self.flows), 1, "flows"),
            (usize::from(self.stations), 1, "stations"),
            (self.pairs, 1, "pairs"),
            (self.mtu as usize, 1500, "B of MTU"),
        ] {
            if count != usual {
                write!(text, " {count} {what}").ok();
            }
        }
        text
    }
}

impl Comparison {
    /// Holds `b` against `a`.
    pub fn new(a: &Run, b: &Run) -> Result<Self, NothingInCommon> {
        let by_check = [a, b].iter().any(|run| Key::checks_differ(&run.results.results));
        let key_of = |row| Key::of(row, by_check);
        let mut left: Vec<&ResultRow> = b.results.results.iter().collect();
        let (mut rows, mut only_a) = (Vec::new(), Vec::new());
        for row in &a.results.results {
            let key = key_of(row);
            match left.iter().position(|other| key_of(other) == key) {
                Some(index) => rows.push(Change::new(key.describe(), row, left.remove(index))),
                None => only_a.push(key.describe()),
            }
        }
        let streams = stream_changes(a, b, &mut only_a);
        if rows.is_empty() && streams.is_empty() {
            return Err(NothingInCommon { a: a.file.clone(), b: b.file.clone() });
        }
        // Skipped in both: nothing to say.
        rows.retain(Option::is_some);
        Ok(Self {
            a: a.file.clone(),
            b: b.file.clone(),
            warnings: warnings(a, b),
            rows: rows.into_iter().flatten().collect(),
            streams,
            only_a,
            only_b: left
                .into_iter()
                .map(|row| key_of(row).describe())
                .chain(only_there(&b.results.streams, &a.results.streams))
                .collect(),
        })
    }

    /// How many rows have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let frames = self.rows.iter().map(|row| row.verdict);
        let all = frames.chain(self.streams.iter().map(|row| row.verdict));
        all.filter(|found| *found == verdict).count()
    }

    /// For people, at most 100 columns wide unless names are long.
    pub fn render(&self) -> String {
        let mut text = format!("A: {}\nB: {}\n", self.a, self.b);
        for warning in &self.warnings {
            writeln!(text, "Beware: {warning}.").ok();
        }
        text.push('\n');
        let mut cells =
            vec![["", "A", "±", "B", "±", "", "change", ""].map(str::to_owned).to_vec()];
        for row in &self.rows {
            let unit = rate_unit(row.a.received_pps.max(row.b.received_pps));
            let half = |figures: &Figures| {
                figures.half_interval_pps.map_or("-".into(), |half| unit.half(half))
            };
            cells.push(vec![
                row.row.clone(),
                unit.of(row.a.received_pps),
                half(&row.a),
                unit.of(row.b.received_pps),
                half(&row.b),
                unit.name.to_owned(),
                row.ratio.map_or("-".to_owned(), change),
                row.verdict.in_words().to_owned(),
            ]);
        }
        for StreamChange { row, a, b, ratio, verdict, .. } in &self.streams {
            let half =
                |it: &Goodput| it.half_interval_bps.map_or("-".into(), |half| GIGABITS.half(half));
            cells.push(vec![
                row.clone(),
                GIGABITS.of(a.goodput_bps),
                half(a),
                GIGABITS.of(b.goodput_bps),
                half(b),
                GIGABITS.name.to_owned(),
                ratio.map_or("-".to_owned(), change),
                verdict.in_words().to_owned(),
            ]);
        }
        text.push_str(&align(&cells, 1, 1));
        let count = |verdict| self.count(verdict);
        writeln!(
            text,
            "B is faster in {}, slower in {}; in {} the 95 % intervals overlap; {} not judged.",
            count(Verdict::Faster),
            count(Verdict::Slower),
            count(Verdict::NoDifference),
            count(Verdict::NotJudged)
        )
        .ok();
        let frames = self.rows.iter().map(|it| (&it.row, &it.remarks));
        for (row, remarks) in frames.chain(self.streams.iter().map(|it| (&it.row, &it.remarks))) {
            for remark in remarks {
                writeln!(text, "{row}: {remark}.").ok();
            }
        }
        for (name, rows) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !rows.is_empty() {
                writeln!(text, "Only in {name}: {}.", rows.join(", ")).ok();
            }
        }
        text
    }
}

/// What must be equal for figures of streams to be compared.
fn stream_key(row: &StreamRow) -> (&str, &str, usize, u16, u32) {
    (&row.technique, &row.runtime, row.pairs, row.streams, row.mtu)
}

/// The same in words, without what is usual.
fn describe(row: &StreamRow) -> String {
    let mut text = row.technique.clone();
    if row.runtime != dray_lab::Runtime::Embedded.to_string() {
        write!(text, " in {}", row.runtime).ok();
    }
    for (count, usual, what) in [
        (row.pairs, 1, "pairs"),
        (usize::from(row.streams), 1, "streams each"),
        (row.mtu as usize, 1500, "B of MTU"),
    ] {
        if count != usual {
            write!(text, " {count} {what}").ok();
        }
    }
    text
}

/// Rows of `here` that are not `there`.
fn only_there(here: &[StreamRow], there: &[StreamRow]) -> Vec<String> {
    let is_there = |row: &StreamRow| there.iter().any(|it| stream_key(it) == stream_key(row));
    here.iter().filter(|row| !is_there(row)).map(describe).collect()
}

/// Streams of both; those that are only in the first are added to `only_a`.
fn stream_changes(a: &Run, b: &Run, only_a: &mut Vec<String>) -> Vec<StreamChange> {
    only_a.extend(only_there(&a.results.streams, &b.results.streams));
    let change = |first: &StreamRow| {
        let mut others = b.results.streams.iter();
        let second = others.find(|row| stream_key(row) == stream_key(first))?;
        let measured = [first, second].map(StreamRow::measured);
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
        let row = describe(first);
        // Skipped in both: nothing to say.
        let said = measured.iter().any(Option::is_some);
        said.then_some(StreamChange { row, a, b, ratio, verdict, remarks })
    };
    a.results.streams.iter().filter_map(change).collect()
}

/// What else differs between two runs.
fn warnings(a: &Run, b: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    let different = host_differences(&a.results.host, &b.results.host);
    if !different.is_empty() {
        warnings.push(format!(
            "measured on hosts that differ ({}): a change is theirs as much as the technique's",
            different.join("; ")
        ));
    }
    for (name, run) in [("A", a), ("B", b)] {
        if run.results.results.iter().filter_map(ResultRow::measured).any(|it| it.trials == 1) {
            warnings.push(format!(
                "one trial of a technique in {name}: its interval says how steady it was, not how well \
                 it repeats"
            ));
        }
        if run.results.settings.quick {
            warnings.push(format!("{name} is a first look (--quick), too short for small changes"));
        }
    }
    if a.results.dray != b.results.dray {
        warnings.push(format!("dray is {} in A and {} in B", a.results.dray, b.results.dray));
    }
    warnings
}

impl Change {
    /// `None` where neither has figures.
    fn new(row: String, a: &ResultRow, b: &ResultRow) -> Option<Self> {
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

impl Verdict {
    /// By intervals, where there are no `remarks` that speak against it.
    fn of(intervals: Option<(Interval, Interval)>, remarks: &mut Vec<String>) -> Self {
        match intervals {
            Some(_) if !remarks.is_empty() => Self::NotJudged,
            Some((first, second)) if first.overlaps(second) => Self::NoDifference,
            Some((first, second)) if second.mean > first.mean => Self::Faster,
            Some(_) => Self::Slower,
            None => {
                if remarks.is_empty() {
                    remarks.push("one sample only: no interval".to_owned());
                }
                Self::NotJudged
            }
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifference => "not told apart",
            Self::NotJudged => "not judged",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn run(rows: &[sample::Row]) -> Run {
        sample::run(&sample::results(rows))
    }

    fn rates(name: &str, samples: &[f64]) -> sample::Row {
        sample::row(name, 64).samples(samples)
    }

    #[test]
    fn rows_that_differ_by_the_check_alone_are_told_apart() {
        let checked =
            |check: &str, samples: &[f64]| rates("veth/udp", samples).with("check", check);
        let (slow, fast) = ([10e5, 10.1e5], [20e5, 20.1e5]);
        let a = run(&[checked("\"whole\"", &slow), checked("\"none\"", &fast)]);
        // In another order.
        let b = run(&[checked("\"none\"", &fast), checked("\"whole\"", &slow)]);
        let comparison = Comparison::new(&a, &b).unwrap();
        let rows: Vec<_> = comparison.rows.iter().map(|row| (&row.row[..], row.verdict)).collect();
        assert_eq!(
            rows,
            [
                ("veth/udp 64 B, check whole", Verdict::NoDifference),
                ("veth/udp 64 B, check none", Verdict::NoDifference)
            ]
        );
        // Where there is but one, another check is a remark.
        let (a, b) = (run(&[checked("\"whole\"", &slow)]), run(&[checked("\"none\"", &slow)]));
        let comparison = Comparison::new(&a, &b).unwrap();
        assert!(comparison.render().contains("receivers checked whole in A and none in B"));
    }

    #[test]
    fn changes_are_judged_by_intervals() {
        let a = run(&[
            rates("veth/udp", &[10e5, 10.1e5]),
            rates("veth/raw", &[10e5, 12e5]),
            rates("bridge/udp", &[10e5, 10.1e5, 10.2e5]),
            rates("bridge/raw", &[10e5]),
            rates("direct", &[1e5, 1e5]),
        ]);
        let b = run(&[
            rates("bridge/udp", &[5e5, 5.1e5, 5.2e5]),
            rates("veth/udp", &[20e5, 20.1e5]),
            rates("veth/raw", &[11e5, 12e5]),
            rates("bridge/raw", &[30e5]),
            rates("switch/patch", &[1e5, 1e5]),
        ]);
        let comparison = Comparison::new(&a, &b).unwrap();
        let verdicts: Vec<_> = comparison.rows.iter().map(|row| (&*row.row, row.verdict)).collect();
        assert_eq!(
            verdicts,
            [
                ("veth/udp 64 B", Verdict::Faster),
                ("veth/raw 64 B", Verdict::NoDifference),
                ("bridge/udp 64 B", Verdict::Slower),
                ("bridge/raw 64 B", Verdict::NotJudged),
            ]
        );
        assert_eq!(
            (&comparison.only_a[..], &comparison.only_b[..]),
            (&["direct 64 B".to_owned()][..], &["switch/patch 64 B".to_owned()][..])
        );
        let text = comparison.render();
        assert!(
            text.contains(
                "faster in 1, slower in 1; in 1 the 95 % intervals overlap; 1 not judged"
            ),
            "{text}"
        );
        assert!(text.contains("Only in B: switch/patch 64 B."), "{text}");
    }

    #[test]
    fn what_was_measured_otherwise_is_not_judged() {
        let a = run(&[rates("veth/udp", &[10e5, 10.1e5])]);
        for (field, value, what) in [
            ("counters_agree", "false", "disagree"),
            ("check", "\"sampled\"", "whole in A and sampled in B"),
            ("role_cores", "{\"sender\":0,\"receiver\":0}", "other CPUs"),
            (
                "noise",
                "{\"steal_ratio\":0.5,\"other_cores\":0,\"slower_ratio\":0,\"disturbed_trials\":1}",
                "disturbed in B: the hypervisor took 50.0 %",
            ),
        ] {
            let b = run(&[rates("veth/udp", &[20e5, 20.1e5]).with(field, value)]);
            let comparison = Comparison::new(&a, &b).unwrap();
            assert_eq!(comparison.rows[0].verdict, Verdict::NotJudged, "{field}");
            assert!(
                comparison.rows[0].remarks[0].contains(what),
                "{:?}",
                comparison.rows[0].remarks
            );
        }
        let other = run(&[rates("veth/udp", &[20e5, 20.1e5]).with("burst", "1")]);
        let message = Comparison::new(&a, &other).unwrap_err().to_string();
        assert!(message.contains("no row in common"), "{message}");
    }

    #[test]
    fn streams_are_compared_with_streams() {
        let a =
            sample::run(&sample::streams(&[("veth/tcp", &[9e9, 9.01e9]), ("bridge/tcp", &[5e9])]));
        let b =
            sample::run(&sample::streams(&[("veth/tcp", &[6e9, 6.01e9]), ("macvlan/tcp", &[5e9])]));
        let comparison = Comparison::new(&a, &b).unwrap();
        let verdicts: Vec<_> =
            comparison.streams.iter().map(|row| (&*row.row, row.verdict)).collect();
        assert_eq!(verdicts, [("veth/tcp", Verdict::Slower)]);
        assert_eq!((&*comparison.only_a[0], &*comparison.only_b[0]), ("bridge/tcp", "macvlan/tcp"));
        assert_eq!(comparison.count(Verdict::Slower), 1);
        let text = comparison.render();
        assert!(text.contains("Gb/s") && text.contains("slower in 1;"), "{text}");
        let frames = run(&[rates("veth/tcp", &[1e5, 1e5])]);
        assert!(Comparison::new(&a, &frames).is_err(), "bytes are no frames");
    }

    #[test]
    fn another_host_is_said() {
        let text = sample::text();
        let other = sample::run(&text.replace("\"6.1\"", "\"6.2\""));
        let comparison = Comparison::new(&sample::run(&text), &other).unwrap();
        assert!(comparison.warnings[0].contains("kernel 6.1, 6.2"), "{:?}", comparison.warnings);
        let same = Comparison::new(&other, &other).unwrap();
        assert!(
            !same.warnings.iter().any(|warning| warning.contains("hosts")),
            "{:?}",
            same.warnings
        );
    }
}
