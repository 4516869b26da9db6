//! `dray bench selfcheck`: dray reports what is known to be true.

use crate::common::{alone, dray, success};
use dray_measure::selfcheck::{Check, Outcome};

#[test]
fn selfcheck_reports_known_faults_with_time() {
    let _alone = alone();
    require_root!();
    let checks: Vec<Check> =
        serde_json::from_str(&success(&["bench", "selfcheck", "--json", "-"])).unwrap();
    for what in ["frames lost", "duplicates", "reordered", "damaged", "p50", "p99", "without loss"]
    {
        assert!(checks.iter().any(|check| check.what.contains(what)), "{what}: {checks:?}");
    }
    // Counts and rates are right however busy the machine is.
    let (timed, counted): (Vec<_>, Vec<_>) =
        checks.iter().partition(|check| check.what.ends_with("of round trips"));
    let wrong = |check: &&&Check| check.outcome != Outcome::Right;
    assert_eq!(counted.iter().filter(wrong).collect::<Vec<_>>(), Vec::<&&Check>::new());
    // A busy machine delays frames by any time, but they are never early. The exit status says the
    // same.
    let ms = |text: &str| text.split(' ').next().unwrap().parse::<f64>().unwrap();
    assert_eq!(timed.len(), 3, "{checks:?}");
    for check in timed {
        let late = ms(&check.reported) / ms(&check.expected);
        let allowed = match check.outcome {
            Outcome::Right => 0.999..1.01,
            Outcome::Disturbed => 1.01..f64::INFINITY,
            Outcome::Wrong => panic!("{check:?}"),
        };
        assert!(allowed.start - 1e-4 <= late && late < allowed.end + 1e-4, "{check:?}");
    }
    // Frames were indeed lost, duplicated and reordered.
    let counted = checks.iter().filter(|check| check.what.starts_with("frames lost"));
    assert!(counted.clone().count() > 1 && counted.clone().all(|check| check.expected != "0"));
}

#[test]
fn selfcheck_rejects_bench_options() {
    for option in [&["--quick"][..], &["--size", "64"], &["--report", "/nosuch/page.html"]] {
        let output = dray(&[&["bench", "selfcheck"], option].concat());
        assert_eq!(output.status.code(), Some(2), "{option:?}");
    }
}
