//! Exit status of `dray bench --baseline`.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common::{self, alone, dray, eventually, success};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A technique with results, and one that isolates containers and has none. With this seed the
/// first technique is measured first.
const BENCH: [&str; 9] = [
    "bench",
    "--quick",
    "--technique",
    "veth/raw,macvlan/private/raw",
    "--size",
    "64",
    "--seed",
    SEED,
    "--json",
];
const SEED: &str = "3";

fn read(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Returns the results of a run that was interrupted once it had measured something. Notes of
/// disturbance are removed, because disturbed results are not compared.
fn half_done(file: &Path) -> Value {
    let mut command = common::command();
    let run = command.args(BENCH).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = run.spawn().unwrap();
    assert!(eventually(|| file.exists()), "a first trial");
    common::signal(&run, Signal::INT);
    assert!(!run.wait().unwrap().success());
    let mut results = read(file);
    let trials = |index: usize| format!("/incomplete/journal/cases/{index}/trials");
    let done = results.pointer_mut(&trials(0)).and_then(Value::as_array_mut);
    let done = done.expect("the first technique has its trial: else another seed is right");
    for quiet in done[0]["noise"].as_object_mut().unwrap().values_mut() {
        *quiet = json!(0);
    }
    done[0]["lines"] = json!({ "before_ns": 60, "after_ns": 60 });
    assert_eq!(results.pointer(&trials(1)), None, "the second has none");
    results
}

/// Returns `results` with each receive rate multiplied by `factor`.
fn faster(results: &Value, factor: f64) -> Value {
    let mut results = results.clone();
    let row = &mut results["results"][0];
    let scale = |rate: &mut Value| *rate = json!(rate.as_f64().unwrap() * factor);
    scale(&mut row["received_pps"]);
    scale(&mut row["interval95_pps"]);
    row["samples_pps"].as_array_mut().unwrap().iter_mut().for_each(scale);
    results
}

#[test]
fn baseline_exit_status_reports_regression_with_time() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let [now, baseline] = ["now.json", "baseline.json"].map(|name| folder.path().join(name));
    let begun = half_done(&now);
    let go_on = |with: Option<&Value>| {
        fs::write(&now, begun.to_string()).unwrap();
        let mut arguments = vec!["bench", "--resume", now.to_str().unwrap()];
        let Some(with) = with else {
            success(&arguments);
            return (0, String::new(), String::new());
        };
        fs::write(&baseline, with.to_string()).unwrap();
        arguments.extend(["--baseline", baseline.to_str().unwrap()]);
        let output = dray(&arguments);
        let [table, said] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code().unwrap(), table, said)
    };
    go_on(None);
    let same = read(&now);
    assert_eq!(same["incomplete"], Value::Null);

    let (status, table, said) = go_on(Some(&same));
    assert_eq!(status, 0, "{said}");
    assert!(table.contains("isolated by design"), "the run itself is whole: {table}");
    assert!(said.contains("overlapping"), "{said}");
    let (status, _, said) = go_on(Some(&faster(&same, 0.1)));
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("B is faster in 1, slower in 0;"), "{said}");

    let (status, table, said) = go_on(Some(&faster(&same, 10.0)));
    assert_eq!(status, 3, "{said}");
    assert!(table.contains("veth/raw"), "{table}");
    assert!(said.contains("-90.0 %  slower"), "{said}");
    let last = said.lines().last().unwrap();
    let name = baseline.to_str().unwrap();
    assert_eq!(last, format!("dray: --baseline {name}: slower rows: 1"));

    // Disturbed in the baseline, or not measured now.
    let mut disturbed = faster(&same, 10.0);
    disturbed["results"][0]["noise"] = json!({
        "steal_ratio": 0.5, "other_cores": 0.0, "slower_ratio": 0.0, "disturbed_trials": 1
    });
    let mut missing = same.clone();
    let mut row = missing["results"][0].clone();
    row["technique"] = json!("veth/udp");
    missing["results"].as_array_mut().unwrap().push(row);
    for (with, what) in [
        (&disturbed, "1 could not be judged and 0 of the"),
        (&missing, "0 could not be judged and 1 of the"),
    ] {
        let (status, _, said) = go_on(Some(with));
        assert_eq!(status, 4, "{said}");
        assert!(said.lines().last().unwrap().contains(what), "{what}: {said}");
    }

    // Without a common result the comparison fails, but the results are kept.
    let mut other = same.clone();
    for row in other["results"].as_array_mut().unwrap() {
        row["frame_size"] = json!(65);
    }
    let (status, table, said) = go_on(Some(&other));
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("no row in common") && table.contains("veth/raw"), "{said}");
    assert_eq!(read(&now)["incomplete"], Value::Null, "they are kept");
}
