//! Interrupted runs keep their results and resume where they were. A run that cannot be resumed is
//! refused, and its file left unchanged.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::{self, alone, assert_schema, dray, eventually, success};
use dray_results::Results;
use rustix::process::Signal;

/// Number of trials, in testbeds of two techniques.
const TRIALS: usize = 8;
/// All on one CPU: no trial is left out or repeated because CPUs moved.
const BENCH: [&str; 13] = [
    "bench",
    "--quick",
    "--duration",
    "0.5",
    "--technique",
    "veth/udp,veth/raw",
    "--size",
    "64,512",
    "--trials",
    "2",
    "--cpus",
    "0",
    "--json",
];

fn read(file: &Path) -> Results {
    let text = fs::read_to_string(file).unwrap();
    let results: Results = serde_json::from_str(&text).unwrap();
    assert_schema(&serde_json::from_str(&text).unwrap());
    results
}

fn start(arguments: &[&str], file: &Path) -> Child {
    let mut command = common::command();
    command.args(arguments).arg(file).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Starts a run, and ends it by `signal` once its file exists. Returns the file's contents and the
/// run's output.
fn interrupt(arguments: &[&str], file: &Path, signal: Signal) -> (Results, String) {
    let mut run = start(arguments, file);
    // The first search of a run has many trials, and more on a busy machine.
    let mut begun = || file.exists() || run.try_wait().unwrap().is_some();
    assert!(eventually(&mut begun) || eventually(&mut begun), "a first trial");
    common::signal(&run, signal);
    let output = run.wait_with_output().unwrap();
    assert!(!output.status.success(), "{signal:?}: {:?}", output.status);
    (read(file), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn interrupted_run_resumes_with_time() {
    let _alone = alone();
    require_root!();
    for signal in [Signal::INT, Signal::KILL] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        let (results, said) = interrupt(&BENCH, &file, signal);
        let incomplete = results.incomplete.as_ref().expect("marked as incomplete");
        assert_eq!(incomplete.trials, TRIALS);
        assert!((1..TRIALS).contains(&incomplete.trials_done), "{incomplete:?}");
        let trials = |results: &Results| {
            let trials = |row: &dray_results::ResultRow| row.measured().map_or(0, |it| it.trials);
            results.results.iter().map(trials).sum::<usize>()
        };
        assert_eq!(trials(&results), incomplete.trials_done);
        let name = file.to_str().unwrap();
        if signal == Signal::INT {
            assert!(said.contains(&format!("--resume {name}")), "{said}");
        }
        let page = success(&["report", name]);
        assert!(page.contains("was interrupted"), "the report says so");

        let table = success(&["bench", "--resume", name, "--size", "64,512"]);
        assert!(table.contains("veth/raw"), "{table}");
        let all = read(&file);
        assert_eq!((&all.incomplete, trials(&all)), (&None, TRIALS));
        assert_eq!((&all.time, all.settings.seed), (&results.time, results.settings.seed));
        // It includes what was measured before.
        let before = results.results.iter().find_map(|row| row.measured()).unwrap();
        let contained = all.results.iter().filter_map(|row| row.measured()).any(|row| {
            let samples = &before.samples_pps[..];
            row.samples_pps.windows(samples.len()).any(|window| window == samples)
        });
        assert!(contained, "{:?}", before.samples_pps);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");

        let again = dray(&["bench", "--resume", name]);
        let message = String::from_utf8(again.stderr).unwrap();
        assert_eq!(again.status.code(), Some(2), "{message}");
        assert!(message.contains("run already complete"), "{message}");
    }
}

#[test]
fn resume_keeps_finished_searches() {
    let _alone = alone();
    require_root!();
    const SEARCHES: usize = 2;
    let words = "bench --quick --duration 0.2 --technique veth/udp --size 64 --loss 0,1% \
                 --trials 2 --cpus 0 --json";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    let arguments: Vec<_> = words.split_whitespace().collect();
    let (results, _) = interrupt(&arguments, &file, Signal::INT);
    let incomplete = results.incomplete.as_ref().expect("marked as incomplete");
    // The second search had begun, and some of its trials may have been run.
    assert_eq!((incomplete.trials_done, incomplete.trials), (1, SEARCHES));
    let found = |results: &Results| {
        let measured = results.results.iter().filter_map(|row| row.measured());
        let rates = measured.flat_map(|measured| measured.drop_rates.clone());
        rates.map(|rate| (rate.loss_ratio, rate.searches)).collect::<Vec<_>>()
    };
    let before = found(&results);
    assert_eq!(before.iter().map(|(loss, _)| *loss).collect::<Vec<_>>(), [0.0, 0.01]);
    assert!(before.iter().all(|(_, searches)| searches.len() == 1), "{before:?}");

    let resumed = dray(&["bench", "--resume", file.to_str().unwrap()]);
    let said = String::from_utf8(resumed.stderr).unwrap();
    assert!(resumed.status.success() && !said.contains("has fewer trials"), "{said}");
    let all = read(&file);
    assert_eq!(all.incomplete, None);
    let now = found(&all);
    assert_eq!(now.len(), 2, "two losses: {now:?}");
    assert!(now.iter().all(|(_, searches)| searches.len() == 2), "{now:?}");
    for (loss, searches) in before {
        let is_kept = now.iter().any(|(other, all)| *other == loss && all[0] == searches[0]);
        assert!(is_kept, "{searches:?} is not in {now:?}");
    }
}

#[test]
fn interrupted_run_prints_partial_results() {
    let _alone = alone();
    require_root!();
    let mut command = common::command();
    let run = command.args(&BENCH[..BENCH.len() - 1]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut stderr = BufReader::new(run.stderr.take().unwrap());
    // Links are tested in containers of their own before.
    let mut announced = String::new();
    stderr.read_line(&mut announced).unwrap();
    assert_eq!(announced, "2 techniques, about 10 s\n");
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", run.id());
        fs::read_to_string(path).unwrap_or_default()
    };
    assert!(eventually(|| !children().is_empty()), "a testbed");
    let first = children().split_whitespace().next().unwrap().to_owned();
    let is_gone = || !children().split_whitespace().any(|pid| pid == first);
    assert!(eventually(is_gone), "the trials in it are over");
    common::signal(&run, Signal::INT);
    let output = run.wait_with_output().unwrap();
    let (table, mut ended) = (String::from_utf8(output.stdout).unwrap(), String::new());
    stderr.read_to_string(&mut ended).unwrap();
    assert_eq!(output.status.code(), Some(1), "{ended}");
    assert!(table.lines().any(|line| line.starts_with("veth/")), "{table}");
    assert!(table.contains("INCOMPLETE: ") && table.contains(" of 8 trials"), "{table}");
    assert!(ended.contains("interrupted; ") && ended.contains("--json FILE"), "{ended}");
    assert_eq!(ended.lines().count(), 1, "{ended}");
}

#[test]
fn resume_with_other_plan_is_refused() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    interrupt(&BENCH, &file, Signal::INT);
    let (name, text) = (file.to_str().unwrap(), fs::read_to_string(&file).unwrap());
    let refused = |arguments: &[&str], what: &str| {
        let output = dray(&[&["bench", "--resume", name], arguments].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{message}");
        assert!(message.contains(name) && message.contains(what), "{what}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    };
    refused(&["rtt"], "run measured experiment all, not rtt");
    refused(&["--size", "64"], "began with --size [64,512], not [64]");
    refused(&["--trials", "3"], "--trials 2, not 3");
    refused(&["--runtime", "docker"], "--runtime left out, not [\"docker\"]");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    for (wrong, what) in [
        (&text[..text.len() / 2], "cut short"),
        ("<html>", "not JSON"),
        (&text.replacen("\"schema\": 1", "\"schema\": 9", 1), "schema version 9"),
        (&text.replacen("\"kernel\": \"", "\"kernel\": \"0", 1), "another host"),
    ] {
        fs::write(&file, wrong).unwrap();
        refused(&[], what);
        assert_eq!(fs::read_to_string(&file).unwrap(), wrong);
    }
    // The baseline is read first.
    let output = dray(&["bench", "--quick", "--baseline", "/nosuch.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nosuch.json: cannot be read"));
}
