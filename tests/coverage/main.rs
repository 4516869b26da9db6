//! Coverage: each technique of the catalogue, in containers of the lab and of each engine, on this
//! machine or in a virtual machine.
//!
//! The techniques that were proven to work are listed in `tests/coverage/`, one file for each test
//! below, and `docs/coverage.md` is generated from these lists. `make coverage` tries everything
//! and rewrites the lists and the page. Otherwise the tests try a part, and fail where a line of
//! their lists does not hold.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
mod page;
mod papers;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use common::{DRAY, alone, may_lack};
use dray_lab::link::{Functions, LinkOptions};
use dray_lab::{Cancel, ContainerId, Lab, LabError, Placement, Runtime, placement::Cpu};
use dray_measure::topology::{Hop, Load, Station, Topology};
use dray_measure::{Endpoint, Shape, Technique, Timing, trial};
use dray_results::Verdict;
use dray_testvm::Vm;
use dray_traffic::Check;
use page::{Case, Place, Proven, UNPACKAGED};

/// Long enough for a few frames.
const TIMING: Timing = Timing {
    warm_up: Duration::from_millis(20),
    measure: Duration::from_millis(80),
    interval: Duration::from_millis(20),
};

/// Few frames, so that a slow machine keeps up. Streams run at full speed.
const LOAD: Load = Load {
    size: 200,
    burst: 8,
    flows: 1,
    stations: 1,
    rate: Some(2000.0),
    check: Check::Whole,
    timed: false,
};

/// Least number of frames of a trial: half of what the load offers, since a slow machine sends
/// late.
const FRAMES: u64 = 100;

/// Maximum number of trials until all frames of one arrive.
const TRIES: usize = 20;
/// Time for late frames to arrive.
const LATE: Duration = Duration::from_secs(1);

/// Environment variable: if set, everything is tried, and the lists and the page are rewritten.
const WRITE: &str = "DRAY_COVERAGE_WRITE";
/// File with the versions of the proven switches that Debian does not package.
const VERSIONS: &str = "versions.txt";
/// Environment variable that is set in the virtual machine to the name of its network card.
const CARD: &str = "DRAY_TEST_CARD";
/// Prefix of a proof in the virtual machine's output.
const PROOF: &str = "proven: ";

/// Techniques that share one lab: they run one after the other, each over its own links between the
/// same two containers.
struct Group {
    runtime: Runtime,
    techniques: Vec<Technique>,
}

/// Groups techniques that can share a lab: their programs need the same privileges, and their links
/// do not need something that a lab has only one of.
fn groups(cases: &[Case]) -> Vec<Group> {
    let is_alone = |technique: Technique| {
        technique.link.has_program()
            || technique.link.needs_card()
            || technique.link.runtime().is_some()
            || technique.endpoint == Endpoint::TCP_SOCKMAP
    };
    let mut groups: Vec<Group> = Vec::new();
    for &Case { runtime, technique } in cases {
        let fits = |group: &&mut Group| {
            let first = group.techniques[0];
            group.runtime == runtime
                && !is_alone(first)
                && first.endpoint.facts().privileges == technique.endpoint.facts().privileges
        };
        match groups.iter_mut().find(fits).filter(|_| !is_alone(technique)) {
            Some(group) => group.techniques.push(technique),
            None => groups.push(Group { runtime, techniques: vec![technique] }),
        }
    }
    groups
}

impl Group {
    /// Passes frames by each technique, and reports those that fail. Techniques that this kernel or
    /// machine cannot support are not failures.
    fn prove(
        &self,
        proven: &mut Proven,
        versions: &mut BTreeSet<String>,
    ) -> anyhow::Result<Vec<String>> {
        let Self { runtime, ref techniques } = *self;
        let first = techniques[0];
        let privileges = first.endpoint.facts().privileges;
        let mut lab = Lab::with_runtime(DRAY.into(), runtime, privileges, Cancel::default())?;
        std::env::var(CARD).iter().for_each(|card| lab.use_card(card, &Functions::default()));
        if first.link.runtime().is_some() {
            lab.join_by_network(first.link, 1500);
        }
        let placement = Placement::of_this_process();
        let (switch, cpus) = match first.link.switch() {
            Some(_) => placement.assign_around_switch(2),
            None => (placement.assign(1).remove(0), placement.assign(2)),
        };
        let mut start = |name: &str, cpu: &Cpu| lab.start_container(name, &[cpu.id]);
        let ids = [start("sender", &cpus[0])?, start("receiver", &cpus[1])?];
        lab.wait_until_up()?;
        let mut failures = Vec::new();
        for &technique in techniques {
            let case = Case { runtime, technique };
            match pass(&mut lab, ids, &cpus, switch.id, technique) {
                Ok(()) => proven.add(case),
                Err(error) if cannot_be_here(&error) => {}
                Err(error) => failures.push(format!("{case}: {error}")),
            }
        }
        versions.extend(lab.record().into_iter().flat_map(|record| record.versions));
        Ok(failures)
    }
}

/// Joins two containers of `lab`, and passes frames or bytes from one to the other.
fn pass(
    lab: &mut Lab,
    [sender, receiver]: [ContainerId; 2],
    cpus: &[Cpu],
    switch_cpu: usize,
    technique: Technique,
) -> anyhow::Result<()> {
    let Technique { link: kind, endpoint } = technique;
    if endpoint == Endpoint::TCP_SOCKMAP {
        lab.short_cut_tcp()?;
    }
    let options = LinkOptions { functions: 2, ..endpoint.link_options(1500, switch_cpu) };
    let link = lab.link(kind, &[[sender, receiver]], options)?.remove(0);
    let is_both_ends = endpoint.is_both_ends();
    let station = |role: &str, container, side: usize| {
        let other = &cpus[1 - side];
        let cpu = if is_both_ends { &cpus[0] } else { &cpus[side] };
        let sides = if is_both_ends { vec![side, 1 - side] } else { vec![side] };
        let hops = sides.into_iter().map(|side| Hop { link: link.clone(), side });
        let hops: Vec<_> = hops.collect();
        Station {
            role: role.to_owned(),
            container,
            cpu: cpu.id,
            shares_cpu: cpu.id == other.id,
            shares_core: cpu.core == other.core,
            isolated: false,
            ins: hops.clone(),
            outs: hops,
        }
    };
    let topology = Topology {
        shape: Shape::Chain(0),
        sender: station("sender", sender, 0),
        forwarders: Vec::new(),
        receiver: station("receiver", receiver, 1),
        switch_cpu: kind.switch().map(|_| switch_cpu),
        technique,
        mtu: options.mtu,
    };
    let topologies = [topology];
    if endpoint.is_stream() {
        let trial = trial::run_streams(lab, &topologies, &LOAD, &TIMING)?;
        ensure!(trial.is_right(), "{trial:?}");
        return Ok(());
    }
    // Third-party switches drop the first frames, and a busy machine drops some too. On one, frames
    // that wait for the kernel's encryption may arrive in the trial after theirs, whose counters
    // then disagree.
    let mut last = String::new();
    let mut timing = TIMING;
    for _ in 0..TRIES {
        let trial = trial::run(lab, &topologies, &LOAD, &timing)?;
        ensure!(trial.corrupt == 0, "{trial:?}");
        if trial.audit.agrees == Some(false) {
            last = format!("{trial:?}");
            lab.sleep_until(Instant::now() + LATE)?;
            continue;
        }
        let (sent, received) = (trial.sent, trial.received);
        let works = match trial.isolation {
            Some(isolation) if isolation.arrived > 0 => bail!("{isolation:?}"),
            Some(isolation) => {
                isolation.verdict == Verdict::Isolated && isolation.offered >= FRAMES
            }
            // DPDK's programs send as fast as they can, which no link carries without loss.
            None if endpoint.is_dpdk() => received >= FRAMES,
            None => sent >= FRAMES && received == sent && trial.duplicated == 0,
        };
        if works {
            return Ok(());
        }
        if sent < FRAMES {
            // The sender hardly ran.
            timing.measure += TIMING.measure;
        }
        let duplicated = trial.duplicated;
        last = format!("{sent} frames sent, {received} received, {duplicated} duplicated");
    }
    bail!("{TRIES} trials, none without loss; the last: {last}")
}

/// Returns true if the technique was not tried because the kernel or the machine lacks something.
fn cannot_be_here(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref();
    matches!(error, Some(LabError::NotInKernel { .. } | LabError::NoCard { .. }))
}

/// Returns those of `cases` that work, and the versions of third-party programs.
fn prove(cases: &[Case]) -> (Proven, BTreeSet<String>) {
    let (mut proven, mut versions) = (Proven::default(), BTreeSet::new());
    let mut failures = Vec::new();
    for group in groups(cases) {
        let (runtime, first) = (group.runtime, group.techniques[0]);
        eprintln!("{runtime}: {first} and {} like it", group.techniques.len() - 1);
        match group.prove(&mut proven, &mut versions) {
            Ok(failed) => failures.extend(failed),
            Err(error) if cannot_be_here(&error) => {}
            Err(error) => failures.push(format!("{runtime}, a lab for {first}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    (proven, versions)
}

/// Records the versions with which programs that Debian does not package were proven. Programs that
/// were not used now keep their earlier entries.
fn write_versions(used: &BTreeSet<String>) {
    let before = read_versions();
    let version = |(_, name): &(_, &str)| {
        let mut all = used.iter().chain(&before);
        all.find(|version| version.starts_with(name)).map(|version| format!("{version}\n"))
    };
    fs::write(folder().join(VERSIONS), UNPACKAGED.iter().filter_map(version).collect::<String>())
        .unwrap();
}

fn read_versions() -> Vec<String> {
    let text = fs::read_to_string(folder().join(VERSIONS)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Compares what was proven of the `tried` cases with the earlier list, or rewrites the list.
fn check(place: Place, tried: &[Case], (proven, versions): &(Proven, BTreeSet<String>)) {
    let list = folder().join(place.list());
    let claimed: Proven = fs::read_to_string(&list).unwrap_or_default().parse().unwrap();
    if is_whole() {
        // Cases that need a missing program were not tried: their earlier entries stay.
        let mut all = proven.clone();
        all.add_all(claimed.of(&cases_without_program()));
        write_versions(versions);
        return fs::write(list, all.to_string()).unwrap();
    }
    let claimed = claimed.of(tried);
    assert_ne!(claimed, Proven::default(), "no case of the list was tried");
    let false_claims: Vec<_> = claimed.without(proven).collect();
    assert!(
        false_claims.is_empty(),
        "tests/coverage/{} lists cases that do not work: {false_claims:?}; `make coverage` \
         rewrites it",
        place.list()
    );
}

fn folder() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/coverage").into()
}

fn is_whole() -> bool {
    std::env::var_os(WRITE).is_some()
}

/// Returns the cases to try in containers of a runtime: all of them, or each link with one endpoint
/// and each endpoint on one link. For engines the smaller set is always enough.
fn cases(runtime: Runtime) -> Vec<Case> {
    let techniques = match runtime {
        Runtime::Embedded if is_whole() => page::every_technique().collect(),
        _ => page::once_each(),
    };
    let cases = techniques.into_iter().map(|technique| Case { runtime, technique });
    cases.filter(|case| case.can_be() && case.is_tried()).collect()
}

/// Returns the cases that need an optional program which is not installed.
fn cases_without_program() -> Vec<Case> {
    let of = |runtime| page::every_technique().map(move |technique| Case { runtime, technique });
    Runtime::ALL.into_iter().flat_map(of).filter(Case::lacks_program).collect()
}

#[test]
fn techniques_with_dpdk() {
    let _alone = alone();
    require_root!();
    let cases = cases(Runtime::Embedded);
    check(Place::Here, &cases, &prove(&cases));
}

#[test]
fn techniques_with_engines() {
    let _alone = alone();
    require_root!();
    let engines = Runtime::ALL.into_iter().filter(|runtime| *runtime != Runtime::Embedded);
    // `tests/lab/with_engines.rs` shows that each engine passes frames.
    let engines = engines.filter(|engine| is_whole() || *engine == Runtime::Docker);
    let is_there = |runtime: &Runtime| match runtime.version() {
        Ok(_) => true,
        Err(error) => {
            common::skip(&error.to_string());
            false
        }
    };
    let cases: Vec<_> = engines.filter(is_there).flat_map(cases).collect();
    if !cases.is_empty() {
        check(Place::Engines, &cases, &prove(&cases));
    }
}

#[test]
fn techniques_with_vm() {
    let _alone = alone();
    if let Err(why) = Vm::check() {
        common::skip(&why.to_string());
        return;
    }
    let script = format!(
        "modprobe -a ipvlan openvswitch tun vfio-pci vfio_iommu_type1 vhost_net geneve ip_gre ipip \
             wireguard || exit 1
         for functions in /sys/bus/pci/devices/*/sriov_totalvfs; do
             test $(cat $functions) = 0 || card=$(ls ${{functions%/*}}/virtio*/net)
         done
         /busybox ip link set $card up
         mkdir -p /sys/fs/cgroup
         /busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
         {CARD}=$card {} {} --exact inside_guest_with_vm --ignored --nocapture",
        if is_whole() { format!("{WRITE}=1") } else { String::new() },
        std::env::current_exe().unwrap().display()
    );
    let output = Vm::new("coverage")
        .cpus(2)
        .memory_mib(2048)
        .card(2)
        .script(&script)
        .boot(Duration::from_secs(if is_whole() { 3600 } else { 900 }))
        .unwrap();
    let said = output.output;
    assert_eq!(output.status, 0, "{said}\n{}", output.console);
    let lines = said.lines().filter_map(|line| line.strip_prefix(PROOF));
    let proven: String = lines.map(|line| format!("{line}\n")).collect();
    check(Place::Vm, &cases_of_vm(), &(proven.parse().unwrap(), BTreeSet::new()));
}

#[test]
#[ignore = "run by techniques_with_vm in its virtual machine"]
fn inside_guest_with_vm() {
    if std::env::var_os(CARD).is_none() {
        return;
    }
    let (proven, _) = prove(&cases_of_vm());
    proven.to_string().lines().for_each(|line| println!("{PROOF}{line}"));
}

/// Cases that this machine may not support.
fn cases_of_vm() -> Vec<Case> {
    let runtimes =
        Runtime::ALL.into_iter().filter(|runtime| is_whole() || *runtime == Runtime::Embedded);
    let cases = runtimes.flat_map(cases);
    let may_lack = |Technique { link, endpoint }: Technique| {
        may_lack(link.name) || endpoint == Endpoint::DPDK_VHOST_NET
    };
    cases.filter(|case| may_lack(case.technique)).collect()
}

#[test]
fn page_matches_lists() {
    let read = |place: Place| {
        let list = folder().join(place.list());
        (place, fs::read_to_string(list).unwrap_or_default().parse().unwrap())
    };
    let page = page::render(&Place::ALL.map(read).into(), &read_versions());
    let file = folder().join("../../docs/coverage.md");
    if is_whole() {
        fs::write(file, page).unwrap();
    } else {
        let there = fs::read_to_string(file).unwrap();
        assert!(there == page, "docs/coverage.md is out of date: run `make coverage`");
    }
}
