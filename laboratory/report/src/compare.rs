//! Compares two runs, and tells changes from noise.

use dray_results::{ResultRow, StreamRow};

mod change;
mod key;
mod render;
mod verdict;

use serde::Serialize;

pub use self::change::{Change, Counted, Figures};
pub(crate) use self::key::Key;
use self::key::StreamKey;
pub use self::verdict::Judgement;
use crate::host::host_differences;
use crate::input::Run;

/// Comparison of two runs, row by row.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Path of the first file.
    pub a: String,
    /// Path of the second file; changes are from the first to this one.
    pub b: String,
    /// Reasons other than the technique why figures may differ.
    pub warnings: Vec<String>,
    /// Rows that are in both; rows of frames come first.
    pub rows: Vec<Change>,
    /// Rows that are only in the first.
    pub only_a: Vec<String>,
    /// Rows that are only in the second.
    pub only_b: Vec<String>,
}

/// Error for two runs that have no row in common.
#[derive(Debug, thiserror::Error)]
#[error(
    "{a} and {b} have no row in common: rows match if technique, size, rate, burst and flows are \
     the same"
)]
pub struct NothingInCommon {
    a: String,
    b: String,
}

impl Comparison {
    /// Compares `b` with `a`.
    pub fn new(a: &Run, b: &Run) -> Result<Self, NothingInCommon> {
        let (frames_a, frames_b) = (&a.results.results, &b.results.results);
        let by_check = [frames_a, frames_b].into_iter().any(|rows| Key::checks_differ(rows));
        let frames = Matched::new(frames_a, frames_b, |row| Key::of(row, by_check));
        let streams = Matched::new(&a.results.streams, &b.results.streams, StreamKey::of);
        if frames.both.is_empty() && streams.both.is_empty() {
            return Err(NothingInCommon { a: a.file.clone(), b: b.file.clone() });
        }
        let frame = |row: &ResultRow| Key::of(row, by_check).describe();
        let stream = |row: &StreamRow| StreamKey::of(row).describe();
        let only = |frames: Vec<_>, streams: Vec<_>| {
            frames.into_iter().map(frame).chain(streams.into_iter().map(stream)).collect()
        };
        // Rows skipped in both are left out.
        let of_frames = |(a, b): &(&_, &_)| Change::of_frames(frame(a), a, b);
        let of_streams = |(a, b): &(&_, &_)| Change::of_streams(stream(a), a, b);
        let rows = frames.both.iter().filter_map(of_frames);
        Ok(Self {
            a: a.file.clone(),
            b: b.file.clone(),
            warnings: warnings(a, b),
            rows: rows.chain(streams.both.iter().filter_map(of_streams)).collect(),
            only_a: only(frames.only_a, streams.only_a),
            only_b: only(frames.only_b, streams.only_b),
        })
    }

    /// Returns the number of rows with this verdict.
    pub fn count(&self, verdict: Judgement) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

/// Rows of two runs, matched by key, in their order.
struct Matched<'r, R> {
    both: Vec<(&'r R, &'r R)>,
    only_a: Vec<&'r R>,
    only_b: Vec<&'r R>,
}

impl<'r, R> Matched<'r, R> {
    fn new<K: PartialEq>(a: &'r [R], b: &'r [R], key: impl Fn(&'r R) -> K) -> Self {
        let mut only_b: Vec<&R> = b.iter().collect();
        let (mut both, mut only_a) = (Vec::new(), Vec::new());
        for row in a {
            match only_b.iter().position(|other| key(other) == key(row)) {
                Some(index) => both.push((row, only_b.remove(index))),
                None => only_a.push(row),
            }
        }
        Self { both, only_a, only_b }
    }
}

/// Returns warnings about other differences between two runs.
fn warnings(a: &Run, b: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    let different = host_differences(&a.results.host, &b.results.host);
    if !different.is_empty() {
        warnings.push(format!(
            "measured on different hosts ({}): a change may come from the host, not the technique",
            different.join("; ")
        ));
    }
    for (name, run) in [("A", a), ("B", b)] {
        if run.results.results.iter().filter_map(ResultRow::measured).any(|it| it.trials == 1) {
            warnings.push(format!(
                "{name} has a technique with one trial: its interval shows how steady the rate \
                 was, not how well it repeats"
            ));
        }
        if let Some(incomplete) = &run.results.incomplete {
            let (done, all) = (incomplete.trials_done, incomplete.trials);
            warnings.push(format!("{name} was interrupted after {done} of {all} trials"));
        }
        if run.results.settings.quick {
            warnings.push(format!(
                "{name} is a quick run (--quick), too short to detect small changes"
            ));
        }
    }
    if a.results.dray != b.results.dray {
        warnings.push(format!("dray is {} in A and {} in B", a.results.dray, b.results.dray));
    }
    warnings
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
    fn rows_with_different_checks_stay_separate() {
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
                ("veth/udp 64 B, check whole", Judgement::NoDifference),
                ("veth/udp 64 B, check none", Judgement::NoDifference)
            ]
        );
        // If there is one row only, a different check is a remark.
        let (a, b) = (run(&[checked("\"whole\"", &slow)]), run(&[checked("\"none\"", &slow)]));
        let comparison = Comparison::new(&a, &b).unwrap();
        assert!(comparison.render().contains("receivers checked whole in A and none in B"));
    }

    #[test]
    fn verdict_follows_interval_overlap() {
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
                ("veth/udp 64 B", Judgement::Faster),
                ("veth/raw 64 B", Judgement::NoDifference),
                ("bridge/udp 64 B", Judgement::Slower),
                ("bridge/raw 64 B", Judgement::NotJudged),
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
    fn different_or_disturbed_trials_are_not_judged() {
        let a = run(&[rates("veth/udp", &[10e5, 10.1e5])]);
        for (field, value, what) in [
            ("counters_agree", "false", "disagree"),
            ("check", "\"sampled\"", "whole in A and sampled in B"),
            ("role_cores", "{\"sender\":0,\"receiver\":0}", "different CPUs"),
            (
                "noise",
                "{\"steal_ratio\":0.5,\"other_cores\":0,\"slower_ratio\":0,\"disturbed_trials\":1}",
                "disturbed in B: the hypervisor took 50.0 %",
            ),
        ] {
            let b = run(&[rates("veth/udp", &[20e5, 20.1e5]).with(field, value)]);
            let comparison = Comparison::new(&a, &b).unwrap();
            assert_eq!(comparison.rows[0].verdict, Judgement::NotJudged, "{field}");
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
    fn rows_are_compared_at_the_same_distance() {
        let run_at = |distance: &str, of_run: &str, samples: &[f64]| {
            let lines = format!(
                "{{\"distance\":\"{distance}\",\"of_run\":\"{of_run}\",\"round_trip_ns\":300,\"left_out\":0}}"
            );
            run(&[rates("veth/udp", samples).with("lines", &lines)])
        };
        let verdict = |a: &_, b: &_| Comparison::new(a, b).unwrap().rows[0].verdict;
        let far = run_at("far", "near", &[10e5, 10.1e5]);
        assert_eq!(verdict(&far, &run_at("far", "far", &[20e5, 20.1e5])), Judgement::Faster);
        assert_eq!(verdict(&far, &run_at("near", "near", &[20e5, 20.1e5])), Judgement::NotJudged);
        let changed = run_at("changed", "near", &[20e5, 20.1e5]);
        assert_eq!(verdict(&changed, &changed), Judgement::NotJudged);
    }

    #[test]
    fn searches_are_compared_by_found_rate() {
        // At each found rate the received rate is steady, even if another search finds a different
        // rate.
        let found = |found: &[f64]| {
            let search = "{\"throughput_pps\":1.0,\"limited_by\":\"loss\",\"trials\":9}";
            let half = dray_results::Interval::of(found).map(|interval| interval.half);
            let drop_rates = format!(
                "[{{\"loss_ratio\":0.0,\"trial_s\":2.0,\"sum_s\":10.0,\"exceed_ratio\":0.5,\"width\":0.005,\
                 \"pps\":{:?},\"interval95_pps\":{},\"searches\":[{search}]}}]",
                dray_results::stats::mean(found),
                half.map_or("null".to_owned(), |half| format!("{half:?}")),
            );
            let steady = [found[0], found[0] + 1.0, found[0]];
            run(&[rates("veth/udp", &steady).with("drop_rates", &drop_rates)])
        };
        let judged = |a: &[f64], b: &[f64]| {
            let comparison = Comparison::new(&found(a), &found(b)).unwrap();
            (comparison.rows[0].verdict, comparison.rows[0].a.rate)
        };
        let before = [10e5, 11e5, 12e5];
        assert_eq!(judged(&before, &[10.5e5, 11.5e5]), (Judgement::NoDifference, 11e5));
        assert_eq!(judged(&before, &[5e5, 5.1e5, 5.2e5]), (Judgement::Slower, 11e5));
        assert_eq!(judged(&before, &[5e5]), (Judgement::NotJudged, 11e5));
    }

    #[test]
    fn streams_compare_only_with_streams() {
        let a =
            sample::run(&sample::streams(&[("veth/tcp", &[9e9, 9.01e9]), ("bridge/tcp", &[5e9])]));
        let b =
            sample::run(&sample::streams(&[("veth/tcp", &[6e9, 6.01e9]), ("macvlan/tcp", &[5e9])]));
        let comparison = Comparison::new(&a, &b).unwrap();
        let verdicts: Vec<_> =
            comparison.rows.iter().map(|row| (&*row.row, row.unit, row.verdict)).collect();
        assert_eq!(verdicts, [("veth/tcp", Counted::Bits, Judgement::Slower)]);
        assert_eq!((&*comparison.only_a[0], &*comparison.only_b[0]), ("bridge/tcp", "macvlan/tcp"));
        assert_eq!(comparison.count(Judgement::Slower), 1);
        let text = comparison.render();
        assert!(text.contains("Gb/s") && text.contains("slower in 1;"), "{text}");
        let frames = run(&[rates("veth/tcp", &[1e5, 1e5])]);
        assert!(Comparison::new(&a, &frames).is_err(), "bytes are no frames");
    }

    #[test]
    fn different_host_gives_warning() {
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
