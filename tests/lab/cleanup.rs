//! Nothing is left behind after success, an error, Ctrl-C or SIGTERM. After SIGKILL the next start
//! removes what was left, and only what the lab created.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use crate::common::{self, DRAY, Traces, alone, eventually, success};
use dray_lab::{Cancel, Lab, placement};
use rustix::process::{Pid, Signal, kill_process};

fn start_bench(arguments: &[&str]) -> Child {
    common::command()
        .args(["bench", "--quick"])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A linear congruential generator (Knuth's MMIX constants); the seed is printed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn fifty_random_interrupts_leave_nothing() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut random = Random(now.as_nanos() as u64);
    println!("seed {}", random.0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    for round in 0..50 {
        let experiment = ["all", "casoni2013-serial", "casoni2013-parallel"][round % 3];
        let signal = [Signal::INT, Signal::TERM, Signal::HUP][random.below(3) as usize];
        // The first moments, when containers and links are created, are the most interesting.
        let limit = [150, 150, 150, 2000][random.below(4) as usize];
        let moment = random.below(limit);
        let mut bench = start_bench(&[experiment, "--json", file.to_str().unwrap()]);
        sleep(Duration::from_millis(moment));
        common::signal(&bench, signal);
        let status = bench.wait().unwrap();
        let what = format!("round {round}: {experiment}, {signal:?} after {moment} ms, {status}");
        // Until the handlers are installed, the signal itself ends the process.
        assert!(!status.success(), "{what}");
        assert_eq!(Traces::now(), before, "{what}");
        // Results measured until then are kept, and nothing else.
        if let Ok(text) = fs::read_to_string(&file) {
            let results: dray_results::Results = serde_json::from_str(&text).expect(&what);
            assert!(results.incomplete.is_some(), "{what}");
            fs::remove_file(&file).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a file is left; {what}");
    }
}

#[test]
fn killed_role_loses_only_its_own_row() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let arguments = ["--technique", "veth/udp,bridge/tcp,switch/patch", "--size", "64"];
    let bench = common::command()
        .args(["bench", "--quick", "--duration", "120", "--json", "-"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Processes that were killed, by testbed.
    let mut killed: Vec<(Vec<Pid>, &str)> = Vec::new();
    for _ in 0..3 {
        let is_new =
            || children(&bench).iter().all(|pid| killed.iter().all(|(old, _)| !old.contains(pid)));
        let find = |word: &str| {
            let children = children(&bench);
            children.into_iter().find(|pid| words(*pid).contains(&word.to_owned()))
        };
        // Either a switch or an interface follows the containers.
        let has_interface = |pid: Pid| {
            let path = format!("/proc/{}/net/dev", pid.as_raw_nonzero());
            fs::read_to_string(path).is_ok_and(|text| text.contains("eth0:"))
        };
        let is_linked = || find("switch").is_some() || find("receiver").is_some_and(has_interface);
        assert!(eventually(|| is_new() && is_linked()), "no new testbed after {killed:?}");
        sleep(Duration::from_millis(500));
        let now = children(&bench);
        let victim = if find("switch").is_some() { "switch" } else { "receiver" };
        kill_process(find(victim).unwrap(), Signal::KILL).unwrap();
        killed.push((now, victim));
    }
    let output = bench.wait_with_output().unwrap();
    let results: dray_results::Results = serde_json::from_slice(&output.stdout).unwrap();
    let text = serde_json::to_string(&(&results.results, &results.streams)).unwrap();
    let count = |what: &str| text.matches(what).count();
    assert_eq!(count("\"skipped\":\"container receiver: its first process ended\""), 2, "{text}");
    assert_eq!(count("\"skipped\":\"dray: ended unexpectedly; "), 1, "{text}");
    before.assert_unchanged();
}

/// Returns a process's command line.
fn words(pid: Pid) -> Vec<String> {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn children(parent: &Child) -> Vec<Pid> {
    let path = format!("/proc/{0}/task/{0}/children", parent.id());
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

#[test]
fn next_start_removes_only_stale_state() {
    let _alone = alone();
    require_root!();
    success(&["lab", "clean"]);
    let before = Traces::now();
    let mut bench = start_bench(&["casoni2013-serial"]);
    assert!(eventually(|| !Traces::now().control_groups().is_empty()));
    sleep(Duration::from_millis(200));
    common::signal(&bench, Signal::KILL);
    bench.wait().unwrap();
    // Processes, namespaces and links end with the parent; only control groups stay.
    assert!(eventually(|| Traces::now().is_alive_as(&before)), "{:?}", Traces::now());
    let left = Traces::now();
    assert!(!left.control_groups().is_empty(), "SIGKILL leaves control groups");

    // Beside the stale lab: a live lab, and a group that does not belong to a lab.
    let lab = Lab::new(DRAY.into(), Cancel::default()).unwrap();
    assert!(
        Traces::now().control_groups().is_disjoint(left.control_groups()),
        "a new lab removes a stale one"
    );
    let group = Traces::now().control_groups().first().cloned().unwrap();
    let parent = Path::new(&group).ancestors().find(|folder| folder.ends_with("dray")).unwrap();
    let foreign = parent.join("somebody-elses");
    fs::create_dir(&foreign).unwrap();
    let with_lab = Traces::now();
    assert_eq!(success(&["lab", "clean"]), "nothing to remove\n");
    with_lab.assert_unchanged();
    drop(lab);
    assert!(foreign.exists());
    fs::remove_dir(&foreign).unwrap();
    success(&["lab", "clean"]);
    let _ = fs::remove_dir(parent);
    before.assert_unchanged();
}

#[test]
fn lab_clean_lists_what_it_removes() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let mut bench = start_bench(&[]);
    assert!(eventually(
        || !children(&bench).is_empty() && !Traces::now().control_groups().is_empty()
    ));
    common::signal(&bench, Signal::KILL);
    bench.wait().unwrap();
    let pid = bench.id().to_string();
    let said = success(&["lab", "clean"]);
    assert!(said.starts_with("removed ") && said.contains(&pid), "{said}");
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
}

#[test]
fn starts_and_removes_256_containers() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let mut lab = Lab::new(DRAY.into(), Cancel::default()).unwrap();
    for number in 0..256 {
        lab.start_container(&format!("c{number}"), &placement::allowed()).unwrap();
    }
    lab.wait_until_up().unwrap();
    assert_ne!(Traces::now(), before);
    drop(lab);
    before.assert_unchanged();
}

#[test]
fn labs_of_one_process_are_isolated() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let new = || Lab::new(DRAY.into(), Cancel::default()).unwrap();
    let first = new();
    let with_one = Traces::now();
    drop(new());
    with_one.assert_unchanged();
    drop(first);
    before.assert_unchanged();
}

#[test]
fn inner_command_is_refused_outside_containers() {
    let _alone = alone();
    let name = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (before, mounts) = (name(), fs::read_to_string("/proc/self/mounts").unwrap());
    let output = common::dray(&["inside", "somewhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!((name(), fs::read_to_string("/proc/self/mounts").unwrap()), (before, mounts));
}

#[test]
fn concurrent_labs_are_independent() {
    let _alone = alone();
    require_root!();
    let before = Traces::now();
    let first = start_bench(&["--technique", "veth/udp", "--size", "64"]);
    let second = start_bench(&["--technique", "bridge/raw", "--size", "64"]);
    for mut bench in [first, second] {
        assert!(bench.wait().unwrap().success());
    }
    before.assert_unchanged();
}
