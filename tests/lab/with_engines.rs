//! Containers created by container engines: the same roles and links inside, the same counters, and
//! nothing left behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{self, DRAY, Traces, alone, eventually, success};
use dray_lab::runtime::Capability;
use dray_lab::{Cancel, Lab, LinkKind, Runtime};
use dray_results::{Measured, Outcome, ResultRow, Results};
use rustix::process::{Pid, Signal, kill_process};

/// Returns the installed engines. Where nothing may be skipped, all have to be installed.
fn engines() -> Vec<Runtime> {
    let engines = Runtime::ALL.into_iter().filter(|runtime| *runtime != Runtime::Embedded);
    let is_there = |runtime: &Runtime| match runtime.version() {
        Ok(_) => true,
        Err(error) => {
            common::skip(&error.to_string());
            false
        }
    };
    engines.filter(is_there).collect()
}

/// Everything on the machine that shows containers, mounts and engines.
#[derive(Debug, PartialEq, Eq)]
struct Everything {
    traces: Traces,
    mounts: String,
    /// Folders with state of engines. Any call of crun makes an empty one, even one that comes late
    /// on a busy machine.
    folders: Vec<&'static str>,
    /// Contents of our own folder.
    ours: Vec<String>,
}

impl Everything {
    fn now() -> Self {
        let folders = [
            "/etc/docker/key.json",
            "/opt/containerd",
            "/run/containerd",
            "/run/containers",
            "/run/crun",
            "/run/docker",
            "/run/docker.pid",
            "/run/libpod",
            "/run/lxc",
            "/run/runc",
            "/var/lib/containerd",
            "/var/lib/docker",
            "/var/lib/containers/storage",
            "/dev/shm/libpod_lock",
        ];
        let has_state = |path: &&str| match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_some(),
            Err(_) => Path::new(path).exists(),
        };
        let ours = fs::read_dir("/run/dray").into_iter().flatten().flatten();
        let ours = ours.filter(|entry| entry.path().is_dir());
        Self {
            traces: Traces::now(),
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap(),
            folders: folders.into_iter().filter(has_state).collect(),
            ours: ours.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect(),
        }
    }
}

fn bench(runtime: Runtime, techniques: &str) -> Command {
    let mut command = common::command();
    command.args(["bench", "--runtime", runtime.name(), "--technique", techniques]);
    command.args(["--size", "64", "--json", "-", "--quick"]).stdin(Stdio::null());
    command
}

/// Returns the init processes of containers that an engine created, with their names.
fn agents() -> Vec<(String, Pid)> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
        if let [program, inside, name, ..] = &words[..]
            && (&**program, &**inside) == ("/dray", "inside")
        {
            let pid = process.file_name().to_string_lossy().parse().unwrap();
            found.push((name.to_string(), Pid::from_raw(pid).unwrap()));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn wait_for_agents(bench: &mut Child) -> Vec<(String, Pid)> {
    assert!(
        eventually(|| agents().len() == 2 || bench.try_wait().unwrap().is_some()),
        "{:?}",
        agents()
    );
    agents()
}

#[test]
fn counters_balance_in_every_engine() {
    let _alone = alone();
    require_root!();
    let before = Everything::now();
    for runtime in engines() {
        let techniques = "veth/udp,veth/raw-mmsg,veth/afxdp,macvtap/tap,switch/patch";
        let output = bench(runtime, techniques).args(["--duration", "0.5"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{runtime}: {said}");
        let results: Results = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(results.results.len(), techniques.split(',').count(), "{runtime}");
        for row in &results.results {
            let name = format!("{runtime} {}", row.technique);
            let measured = row.measured().unwrap_or_else(|| panic!("{name}: {:?}", row.outcome));
            assert_eq!(row.runtime, runtime.name());
            let engine = measured.setting.engine.as_ref().unwrap();
            assert_eq!(Ok(&engine.version), runtime.version().as_ref().map_err(|_| ()));
            assert!(!measured.counters_disagree() && measured.received > 0, "{name}: {measured:?}");
            assert_eq!(measured.sent, common::accounted(measured), "{name}: {measured:?}");
            let needs = measured.setting.needs.as_ref().unwrap();
            assert!(needs.unlocked.values().all(|why| why.contains("RLIMIT_MEMLOCK")), "{needs:?}");
        }
        // The kernel counts in ticks: in a short trial a role may not reach one.
        for role in ["receiver", "sender"] {
            let costs =
                || results.results.iter().map(|row| &row.measured().unwrap().cpu.roles[role]);
            let all: Vec<_> = costs().collect();
            assert!(costs().any(|cost| cost.total_s() > 0.0), "{runtime}: {role} {all:?}");
        }
        assert_eq!(Everything::now(), before, "{runtime}");
    }
}

#[test]
fn runtimes_alternate_and_are_compared() {
    let _alone = alone();
    require_root!();
    let Some(engine) = engines().last().copied() else { return };
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let list = format!("embedded,{engine}");
    let table = success(
        &[
            &["bench", "runtimes", "--quick", "--duration", "0.5", "--technique", "veth/udp"][..],
            &["--runtime", &list, "--json", json.to_str().unwrap()],
        ]
        .concat(),
    );
    let header = table.lines().next().unwrap();
    assert!(header.contains("embedded") && header.contains(engine.name()), "{table}");
    let results: Results = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    // On a busy machine a receiver may get no CPU time in half a second, and zero is not compared.
    let has_rate = |row: &ResultRow| row.measured().unwrap().received_pps > 0.0;
    let compared = usize::from(results.results.iter().all(has_rate));
    assert!(table.contains(&format!(" of {compared} rows.")), "{table}");
    let rows: Vec<_> = results.results.iter().map(|row| &*row.runtime).collect();
    assert_eq!(rows, ["embedded", engine.name()]);
    // Trials between which the CPUs moved are not averaged.
    let trials = |measured: &Measured| {
        let moved = measured.setting.lines.map_or(0, |lines| lines.left_out);
        measured.trials + moved + measured.noise.map_or(0, |noise| noise.left_out)
    };
    assert!(results.results.iter().all(|row| trials(row.measured().unwrap()) == 2));
}

#[test]
fn counters_balance_over_engine_links() {
    let _alone = alone();
    require_root!();
    let before = Everything::now();
    let mut links: Vec<_> = LinkKind::OF_ENGINES.to_vec();
    links.retain(|link| engines().contains(&link.runtime().unwrap()));
    // Not every kernel supports ipvlan.
    let (ipvlan, links): (Vec<_>, Vec<_>) =
        links.into_iter().partition(|link| link.name.contains("ipvlan"));
    for link in links {
        let runtime = link.runtime().unwrap();
        let techniques = ["udp-mmsg", "raw", "tcp"].map(|endpoint| format!("{link}/{endpoint}"));
        let output = common::command()
            .args(["bench", "--technique", &techniques.join(","), "--mtu", "9000", "--pairs", "2"])
            // On a busy machine four roles may not all run in half a second.
            .args(["--json", "-", "--quick", "--duration", "2", "--trials", "1"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{link}: {said}");
        let results: Results = serde_json::from_slice(&output.stdout).unwrap();
        let rows = &results.results;
        // Two frame sizes each.
        assert_eq!((rows.len(), results.streams.len()), (4, 1), "{link}");
        for row in rows {
            let name = &row.technique;
            let measured = row.measured().unwrap_or_else(|| panic!("{name}: {:?}", row.outcome));
            assert_eq!((&*row.runtime, row.pairs), (runtime.name(), 2), "{name}");
            assert!(!measured.counters_disagree() && measured.sent > 0, "{name}: {measured:?}");
            assert_eq!(measured.sent, common::accounted(measured), "{name}: {measured:?}");
        }
        let stream = results.streams[0].measured().unwrap();
        assert!(!stream.counters_disagree() && stream.received_bytes > 0, "{link}: {stream:?}");
        // The engine set the MTU: a segment fills it.
        assert!(stream.segment_max > 8000, "{link}: {}", stream.segment_max);
        assert_eq!(Everything::now(), before, "{link}");
    }
    for link in ipvlan {
        let technique = format!("{link}/udp-mmsg");
        let output = common::dray(&["bench", "--technique", &technique, "--json", "-", "--quick"]);
        let results: Results = serde_json::from_slice(&output.stdout).unwrap();
        match &results.results[0].outcome {
            Outcome::Skipped { skipped } => assert!(skipped.contains("ipvlan"), "{skipped}"),
            Outcome::Measured(measured) => assert!(!measured.counters_disagree(), "{measured:?}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(Everything::now(), before);
}

#[test]
fn container_gets_only_its_cpu_and_privileges() {
    let _alone = alone();
    require_root!();
    for runtime in engines() {
        let privileges = &[Capability::NetAdmin, Capability::NetRaw];
        let mut lab =
            Lab::with_runtime(DRAY.into(), runtime, privileges, Cancel::default()).unwrap();
        let container = lab.start_container("alone", &[0]).unwrap();
        lab.wait_until_up().unwrap();
        let process = format!("/proc/{}", lab[container].pid().as_raw_nonzero());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().to_owned()
        };
        assert_eq!(field("Cpus_allowed_list"), "0", "{runtime}");
        // CAP_NET_ADMIN is number 12, CAP_NET_RAW 13 (linux/capability.h).
        assert_eq!(field("CapEff"), format!("{:016x}", 0b11 << 12), "{runtime}");
        assert_eq!(field("CapBnd"), field("CapEff"), "{runtime}");
        assert_eq!(field("NoNewPrivs"), "1", "{runtime}");
        assert!(lab.has_control_groups(), "{runtime}");
        let root = format!("{process}/root");
        assert!(Path::new(&format!("{root}/dray")).exists(), "{runtime}");
        for foreign in ["home", "etc/passwd", "usr/bin", "run/engine", "root/.cargo"] {
            assert!(!Path::new(&format!("{root}/{foreign}")).exists(), "{runtime}: /{foreign}");
        }
        let interfaces = lab[container].netlink().interfaces().unwrap();
        let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        assert_eq!(names, ["lo"], "{runtime}");
    }
}

/// Starts a trial of two minutes in containers of a runtime, kills the processes that `dying`
/// returns once it is running, and waits for its end, which has to come long before. Returns the
/// reason in the results.
fn reason_after_killing(runtime: Runtime, dying: impl Fn(&Child) -> Vec<Pid>) -> String {
    let mut bench = bench(runtime, "veth/udp");
    let bench = bench.args(["--duration", "120"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bench = bench.spawn().unwrap();
    wait_for_agents(&mut bench);
    sleep(Duration::from_millis(500));
    let dying = dying(&bench);
    assert!(!dying.is_empty(), "{runtime}");
    // One may have ended together with another.
    for pid in dying {
        let _ = kill_process(pid, Signal::KILL);
    }
    let ends = eventually(|| bench.try_wait().unwrap().is_some());
    assert!(ends, "{runtime}: the trial does not end");
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{runtime}");
    let results: Results = serde_json::from_slice(&output.stdout).unwrap();
    match &results.results[0].outcome {
        Outcome::Skipped { skipped } => skipped.clone(),
        other => panic!("{runtime}: {other:?}"),
    }
}

#[test]
fn killed_container_ends_trial_and_is_named() {
    let _alone = alone();
    require_root!();
    let before = Everything::now();
    for runtime in engines() {
        let reason = reason_after_killing(runtime, |_| {
            let agents = agents().into_iter();
            agents.filter(|(name, _)| name == "receiver").map(|(_, pid)| pid).collect()
        });
        // On a busy machine it may die before it has called the lab.
        let expected = ["container receiver: its first process ended", "container receiver ("];
        assert!(expected.iter().any(|start| reason.starts_with(start)), "{runtime}: {reason}");
        assert_eq!(Everything::now(), before, "{runtime}");
    }
}

#[test]
fn killed_runtime_ends_trial_and_is_named() {
    let _alone = alone();
    require_root!();
    let before = Everything::now();
    for runtime in engines() {
        // Ancestors of the runtime's containers.
        let programs: &[&str] = match runtime {
            Runtime::Embedded => &[],
            Runtime::Docker => &["dockerd", "containerd", "containerd-shim"],
            Runtime::Podman => &["podman", "conmon"],
            Runtime::Lxc => &["lxc-start"],
            Runtime::Crun => &["crun"],
            Runtime::Runc => &["runc"],
        };
        for program in programs {
            let reason = reason_after_killing(runtime, |bench| {
                let is_it = |pid: &u32| {
                    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
                    name.is_ok_and(|name| name.trim() == *program)
                };
                let pids = descendants(bench.id()).into_iter().filter(is_it);
                pids.map(|pid| Pid::from_raw(pid as i32).unwrap()).collect()
            });
            let what = format!("{runtime} without {program}: {reason}");
            assert!(reason.starts_with("container "), "{what}");
            // The container of a runtime that is killed may die with it, and be noticed first; on a
            // busy machine even before its agent has called.
            let names_it = [
                "which runs it, ended",
                "its runtime process ended",
                "its first process ended",
                "ended before connection from its agent",
            ];
            assert!(names_it.iter().any(|text| reason.contains(text)), "{what}");
            assert_eq!(Everything::now(), before, "{what}");
        }
    }
}

/// Returns a process's descendants.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = lists
        .flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .flatten()
        .collect();
    children.iter().copied().chain(children.iter().flat_map(|&child| descendants(child))).collect()
}

#[test]
fn next_start_removes_stale_engine_containers() {
    let _alone = alone();
    require_root!();
    success(&["lab", "clean"]);
    let before = Everything::now();
    for runtime in engines() {
        let mut bench = bench(runtime, "veth/udp");
        let bench = bench.args(["--duration", "20"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut bench = bench.spawn().unwrap();
        wait_for_agents(&mut bench);
        common::signal(&bench, Signal::KILL);
        bench.wait().unwrap();
        assert!(eventually(|| agents().is_empty()), "{runtime}: {:?}", agents());
        assert!(
            eventually(|| Traces::now().is_alive_as(&before.traces)),
            "{runtime}: {:?}",
            Traces::now()
        );
        assert!(!Traces::now().control_groups().is_empty(), "{runtime}");
        let said = success(&["lab", "clean"]);
        assert!(said.contains(&bench.id().to_string()), "{runtime}: {said}");
        assert_eq!(Everything::now(), before, "{runtime}");
    }
}

#[test]
fn interrupted_engine_start_leaves_nothing() {
    let _alone = alone();
    require_root!();
    let before = Everything::now();
    for runtime in engines() {
        for moment in [50, 300, 900] {
            let mut bench = bench(runtime, "veth/udp");
            let bench = bench.stdout(Stdio::null()).stderr(Stdio::null());
            let mut bench = bench.args(["--duration", "20"]).spawn().unwrap();
            sleep(Duration::from_millis(moment));
            common::signal(&bench, Signal::TERM);
            assert!(!bench.wait().unwrap().success());
            assert_eq!(Everything::now(), before, "{runtime} after {moment} ms");
        }
    }
}

#[test]
fn testpmd_is_reported_outside_containers() {
    let _alone = alone();
    require_root!();
    for runtime in engines().into_iter().take(1) {
        let output = common::command()
            .args(["bench", "switches", "--runtime", runtime.name(), "--technique"])
            .args(["switch/patch/dpdk", "--size", "64", "--json", "-", "--quick"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("its program runs on the host"), "{said}");
    }
}
