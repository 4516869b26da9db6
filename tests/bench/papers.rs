//! `dray bench paper-all`: one report of all papers' experiments, also for an interrupted run.

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use crate::common::{self, alone, assert_schema, dray, eventually, success};
use dray_measure::experiments;
use dray_results::Results;
use rustix::process::Signal;

/// The smallest run: techniques that three of the papers have, in the shortest trials.
const BENCH: [&str; 10] = [
    "bench",
    "paper-all",
    "--quick",
    "--trials",
    "1",
    "--duration",
    "0.2",
    "--technique",
    "veth/udp,veth/afxdp-no-wakeup",
    "--json",
];
/// Experiments that include these techniques.
const MINE: [&str; 3] = ["ara2019-table1", "shyamkumar2022-needwakeup", "liang2016-setup"];

fn start(folder: &Path) -> Child {
    let mut command = common::command();
    command.args(BENCH).arg(folder.join("all")).arg("--report").arg(folder.join("page.html"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finished(output: Output) -> (Option<i32>, String, String) {
    let [table, said] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    (output.status.code(), table, said)
}

/// Returns the number of missing trials of each experiment that has a file in `folder`.
fn left(folder: &Path) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for experiment in experiments::of_papers() {
        let file = folder.join("all").join(format!("{}.json", experiment.name));
        let Ok(text) = fs::read_to_string(file) else { continue };
        assert_schema(&serde_json::from_str(&text).unwrap());
        let results: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(results.experiment, experiment.name);
        let left = results.incomplete.map_or(0, |it| it.trials - it.trials_done);
        found.push((results.experiment, left));
    }
    found
}

/// Checks that the page has a section for each experiment with this technique, and names the others
/// as left out.
fn assert_all_are_in(page: &str) {
    let caveat =
        page.lines().find(|line| line.contains("left out: ")).expect("a list of what is left out");
    for experiment in experiments::of_papers() {
        let name = experiment.name;
        let is_mine = MINE.contains(&name);
        assert_eq!(page.contains(&format!("<h2>{name}")), is_mine, "{name}");
        assert_eq!(caveat.contains(name), !is_mine, "{name}: {caveat}");
    }
}

#[test]
fn interrupted_papers_run_reports_and_resumes() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let run = start(folder.path());
    let is_measured = || {
        let all = folder.path().join("all");
        all.is_dir() && left(folder.path()).first().is_some_and(|(_, left)| *left == 0)
    };
    assert!(eventually(is_measured), "the first experiment is complete");
    common::signal(&run, Signal::INT);
    let (status, table, words) = finished(run.wait_with_output().unwrap());
    assert_eq!(status, Some(1), "{words}");
    assert!(table.contains("1/3 ara2019-table1: ") && table.contains("veth"), "{table}");
    assert!(!table.contains("3/3 "), "no experiment starts when no time is left: {table}");
    let again = format!("paper-all --resume {}", folder.path().join("all").display());
    assert!(words.contains("interrupted") && words.contains(&again), "{words}");
    assert!(words.contains(page.to_str().unwrap()), "{words}");
    assert!(words.lines().last().unwrap().starts_with("dray: "), "{words}");
    let before = left(folder.path());
    assert_eq!(before.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), MINE);
    assert!(before[0].1 == 0 && before[2].1 > 0, "{before:?}");
    let half = fs::read_to_string(&page).unwrap();
    assert_all_are_in(&half);
    assert!(half.contains("Not measured yet: ") && half.contains("liang2016-setup"));
    assert!(half.contains("the run was interrupted"), "reason");

    // `--resume` needs no other option, and keeps what is complete.
    let first = folder.path().join("all/ara2019-table1.json");
    let measured = fs::read(&first).unwrap();
    let all = folder.path().join("all");
    let all = all.to_str().unwrap();
    let report = page.to_str().unwrap();
    let table = success(&["bench", "paper-all", "--resume", all, "--report", report]);
    for (number, name) in (1..).zip(MINE) {
        assert!(table.contains(&format!("{number}/3 {name}: ")), "{table}");
    }
    assert_eq!(left(folder.path()), MINE.map(|name| (name.to_owned(), 0)));
    assert_eq!(fs::read(&first).unwrap(), measured);
    let whole = fs::read_to_string(&page).unwrap();
    assert_all_are_in(&whole);
    assert!(!whole.contains("interrupted") && !whole.contains("Not measured yet"));
    assert!(whole.contains("The papers <span>beside this machine"), "figures beside the papers'");

    // Existing results are not overwritten.
    let output = dray(&[&BENCH[..], &[all]].concat());
    let (status, _, words) = finished(output);
    assert_eq!(status, Some(2), "{words}");
    assert!(words.contains("ara2019-table1.json: already exists"), "{words}");
    assert_eq!(fs::read(&first).unwrap(), measured);
}

#[test]
fn empty_papers_run_leaves_no_files() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let run = start(folder.path());
    assert!(eventually(|| folder.path().join("all/liang2016-setup.json").exists()), "it has begun");
    common::signal(&run, Signal::INT);
    let (status, _, words) = finished(run.wait_with_output().unwrap());
    assert_eq!((status, &*words), (Some(1), "dray: interrupted\n"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "neither results nor report");
}

#[test]
fn unknown_paper_options_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let all = folder.path().join("all");
    let refused = |arguments: &[&str], what: &str| {
        let (status, _, words) = finished(dray(&[&["bench", "paper-all"], arguments].concat()));
        assert_eq!(status, Some(2), "{words}");
        assert!(words.contains(what) && words.lines().count() == 1, "{words}");
        assert!(!all.exists());
    };
    let folder = all.to_str().unwrap();
    refused(&["--technique", "unix/dgram", "--json", folder, "--size", "64"], "paper-all takes");
    refused(&["--technique", "smc", "--json", folder], "--technique smc: not in any experiment");
    refused(&["--technique", "tokenring", "--json", folder], "unknown technique \"tokenring\"");
    refused(&["--resume", "/var/empty/nothing"], "--resume /var/empty/nothing: no such folder");
    refused(&["--resume", "/tmp"], "contains no results of paper-all");
}
