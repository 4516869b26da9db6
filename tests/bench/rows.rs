//! `dray bench` on the real kernel: complete results, and counters that balance to the frame.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::common::{self, alone, assert_schema, may_lack, success};
use dray_lab::peer::SwitchKind;
use dray_results::{Check, Outcome, ResultRow, Results, Verdict};

/// Short trials: counters balance in them as in long ones.
const DURATION: [&str; 2] = ["--duration", "0.2"];

fn run(arguments: &[&str]) -> (serde_json::Value, Results) {
    let text = success(&[&["bench", "--json", "-"], &DURATION[..], arguments].concat());
    (serde_json::from_str(&text).unwrap(), serde_json::from_str(&text).unwrap())
}

/// Runs like [`run`], and returns the table as well.
fn run_with_table(arguments: &[&str]) -> (serde_json::Value, Results, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let json = ["bench", "--json", file.path().to_str().unwrap()];
    let table = success(&[&json, &DURATION[..], arguments].concat());
    let text = std::fs::read_to_string(file.path()).unwrap();
    (serde_json::from_str(&text).unwrap(), serde_json::from_str(&text).unwrap(), table)
}

/// Returns the values of the rows for each link, in order.
fn by_link<'a, T: Ord>(
    results: &'a Results,
    value: impl Fn(&'a ResultRow) -> T,
) -> BTreeMap<&'a str, BTreeSet<T>> {
    let mut links = BTreeMap::<_, BTreeSet<T>>::new();
    for row in &results.results {
        links.entry(row.link.as_str()).or_default().insert(value(row));
    }
    links
}

/// Checks what must hold for every trial, whatever the machine did meanwhile.
fn check_books(results: &Results) {
    for row in &results.results {
        let name = format!("{} {} B {}", row.technique, row.frame_size, row.forwarders);
        let measured = row.measured().unwrap_or_else(|| panic!("{name}: {:?}", row.outcome));
        assert!(!measured.counters_disagree(), "{name}: {measured:?}");
        // Only the ends count on links of shared memory; the kernel counts at every interface.
        if ["direct", "unix"].contains(&row.link.as_str()) {
            assert_eq!(measured.counters_agree, None, "{name}");
        } else if ["veth", "bridge"].contains(&row.link.as_str()) {
            assert_eq!(measured.counters_agree, Some(true), "{name}");
        }
        assert_eq!(measured.sent, common::accounted(measured), "{name}");
        assert_eq!(measured.queued, 0, "{name}: queues are drained");
        assert_eq!(measured.lost, measured.lost_at.total(), "{name}");
        assert_eq!((measured.duplicated, measured.corrupt), (0, 0), "{name}");
        assert!(measured.received > 0, "{name}");
        let each = (results.settings.measure_s / results.settings.interval_s).round() as usize;
        let most = each * measured.trials;
        let samples = &measured.samples_pps;
        assert!((most / 2..=most).contains(&samples.len()), "{name}: {samples:?}");
        assert!(measured.cpu.total.total_s() > 0.0, "{name}");
    }
}

#[test]
fn every_technique_balances_and_matches_the_schema_with_time() {
    let _alone = alone();
    require_root!();
    let (json, mut results) = run(&["--quick", "--size", "1500"]);
    assert_eq!(
        results.results.len(),
        88,
        "2 links with 10 endpoints, 27 with 2, 8 that isolate and macvtap with 1, \
         unix with 2, 3 that share memory"
    );
    results.results.retain(|row| match &row.outcome {
        Outcome::Measured(_) => true,
        Outcome::Isolated { isolation } => {
            assert_eq!(isolation.verdict, Verdict::Isolated, "{row:?}");
            false
        }
        Outcome::Skipped { .. } if common::lacks_ovs(&row.link) => false,
        // Links that this kernel may lack are tested in a virtual machine.
        Outcome::Skipped { skipped } => {
            assert!(may_lack(&row.link) && skipped.starts_with("no "), "{row:?}");
            false
        }
    });
    check_books(&results);
    for row in &results.results {
        let agreements = &row.measured().unwrap().setting.agreements;
        let xdp = match row.endpoint.as_str() {
            "afxdp" | "afxdp-deferred" => "xdp native",
            "afxdp-generic" => "xdp generic",
            _ => continue,
        };
        for role in ["sender", "receiver"] {
            let features = &agreements[role][0].features;
            assert_eq!(features[..3], [xdp, "copy", "need wakeup"], "{}: {role}", row.technique);
        }
    }

    let validator = assert_schema(&json);

    // The schema rejects invalid results.
    for spoil in [
        |row: &mut serde_json::Value| row["received_pps"] = "fast".into(),
        |row: &mut serde_json::Value| drop(row.as_object_mut().unwrap().remove("loss_ratio")),
        |row: &mut serde_json::Value| row["loss_ratio"] = 1.5.into(),
        |row: &mut serde_json::Value| row["unheard_of"] = 1.into(),
    ] {
        let mut wrong = json.clone();
        spoil(&mut wrong["results"][0]);
        assert!(!validator.is_valid(&wrong), "{}", wrong["results"][0]);
    }
}

#[test]
fn paced_trials_do_not_exceed_offered_rate_with_time() {
    let _alone = alone();
    require_root!();
    let any = "veth,bridge/raw-mmsg,macvlan/bridge/udp,vxlan/udp-mmsg,xdp/pairs/raw,direct,switch";
    let rate = ["--rate", "20k", "--size", "1514", "--burst", "16", "--quick"];
    let (_, any) = run(&[&rate[..], &["--technique", any]].concat());
    let raw = "veth/raw,bridge/raw-mmsg,macvlan/passthru/raw,vxlan/raw-mmsg,xdp/learning/raw";
    let (_, raw) = run(&["--rate", "20k", "--flows", "7", "--quick", "--technique", raw]);
    let twice = ["--quick", "--rate", "10k", "--trials", "2", "--size", "64"];
    let (_, twice) = run(&[&twice[..], &["--technique", "veth/udp,bridge/udp"]].concat());
    assert!(twice.results.iter().all(|row| trials(row.measured().unwrap()) >= 2));
    for results in [any, raw, twice] {
        check_books(&results);
        for row in &results.results {
            let measured = row.measured().unwrap();
            // 0.3 s of warm-up and 0.2 s of measurement.
            let offered = row.offered_pps.unwrap() * 0.5 * measured.trials as f64;
            assert!(measured.sent as f64 <= offered, "{row:?}");
        }
    }
}

/// Returns the number of trials, those left out among them.
fn trials(measured: &dray_results::Measured) -> usize {
    let moved = measured.setting.lines.map_or(0, |lines| lines.left_out);
    measured.trials + moved + measured.noise.map_or(0, |noise| noise.left_out)
}

#[test]
fn disturbed_trials_are_noticed_and_accounted_for_with_time() {
    let _alone = alone();
    require_root!();
    // Other work on every CPU while the first of three trials begins.
    let began = Instant::now();
    let busy = || while began.elapsed().as_millis() < 1000 {};
    let words = ["--technique", "veth/udp", "--size", "64", "--trials", "3", "--rate", "1k"];
    let (_, results, table) = std::thread::scope(|scope| {
        let cpus = std::thread::available_parallelism().unwrap().get();
        (0..cpus).for_each(|_| drop(scope.spawn(busy)));
        run_with_table(&words)
    });
    let measured = results.results[0].measured().unwrap();
    let noise = measured.noise.unwrap();
    let elsewhere = measured.setting.lines.map_or(0, |lines| lines.left_out);
    // The first trial is left out as disturbed, or because the CPUs were elsewhere, unless most
    // others were disturbed as well.
    assert!(noise.left_out + elsewhere + noise.disturbed_trials > 0, "{measured:?}");
    // Three are asked for, and four may be repeated.
    assert!(measured.trials <= 3 && (3..=7).contains(&trials(measured)), "{measured:?}");
    let note = format!("{} disturbed trial", noise.left_out);
    assert_eq!(table.contains(&note), noise.left_out > 0, "{table}");
}

#[test]
fn isolating_links_are_reported_as_isolated_with_time() {
    let _alone = alone();
    require_root!();
    let isolating = ["macvlan/private", "macvlan/vepa"];
    let techniques = isolating.map(|link| format!("{link}/raw,{link}/udp,{link}/afxdp-generic"));
    let techniques = techniques.join(",");
    let words = ["--quick", "--size", "64", "--technique", &techniques, "--trials", "2"];
    let (json, results, table) = run_with_table(&words);
    let validator = assert_schema(&json);
    let endpoints = by_link(&results, |row| row.endpoint.as_str());
    let each = BTreeSet::from(["afxdp-generic", "raw", "udp"]);
    assert_eq!(endpoints, isolating.map(|link| (link, each.clone())).into());
    for row in &results.results {
        let isolation = row.isolation().unwrap_or_else(|| panic!("{row:?}"));
        assert_eq!(isolation.verdict, Verdict::Isolated, "{row:?}");
        assert_eq!((isolation.dropped, isolation.arrived), (0, 0), "{row:?}");
        assert!(isolation.left > 0, "{row:?}");
    }
    let mut wrong = json.clone();
    wrong["results"][0]["isolation"]["verdict"] = "perhaps".into();
    assert!(!validator.is_valid(&wrong));
    let rows = table.lines().filter(|line| line.contains("isolated by design"));
    assert_eq!(rows.count(), results.results.len(), "{table}");
}

#[test]
fn json_output_replaces_files_not_devices() {
    let _alone = alone();
    require_root!();
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    std::fs::write(&file, "old").unwrap();
    let quick = "bench --quick --duration 0.2 --technique veth/udp --size 64 --force";
    let quick: Vec<&str> = quick.split(' ').collect();
    for path in [file.to_str().unwrap(), "/dev/null"] {
        let table = success(&[&quick[..], &["--json", path]].concat());
        assert!(table.contains("veth/udp"), "{table}");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(serde_json::from_str::<Results>(&text).is_ok(), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    let link = folder.path().join("link.json");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    success(&[&quick[..], &["--json", link.to_str().unwrap()]].concat());
    assert!(link.is_symlink() && file.is_file());

    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let unread = common::dray(&[&quick[..], &["--json", pipe.to_str().unwrap()]].concat());
    let message = String::from_utf8(unread.stderr).unwrap();
    assert_eq!(unread.status.code(), Some(1), "a pipe without a reader: {message}");
    assert!(message.contains("--json") && message.lines().count() == 1, "{message}");

    let null = std::fs::metadata("/dev/null").unwrap();
    assert!(null.file_type().is_char_device(), "a device is not replaced by a file");
}

#[test]
fn bench_limit_reports_each_frame_size() {
    let _alone = alone();
    let text = run_with_table(&["limit", "--quick", "--trials", "2", "--size", "64,1514"]).2;
    for size in ["64", "1514"] {
        let row = text.lines().find(|line| line.split_whitespace().any(|word| word == size));
        assert!(row.is_some_and(|row| row.contains("one copy")), "{text}");
    }
    let (_, results) = run(&["limit", "--size", "100", "--trials", "2"]);
    assert_eq!(results.limits[0].frame_size, 100);
    assert!((1..=4).contains(&results.limits[0].samples_pps.len()));
    assert!(results.limits[0].pps > 0.0 && results.results.is_empty());
}

#[test]
fn direct_and_switch_counters_balance() {
    let _alone = alone();
    require_root!();
    let words = ["--quick", "--technique", "direct,switch", "--size", "64", "--trials", "2"];
    let (_, results) = run(&words);
    check_books(&results);
    let techniques: Vec<_> = results.results.iter().map(|row| row.technique.as_str()).collect();
    assert_eq!(techniques, ["direct", "switch/patch", "switch/learning"]);
    for row in &results.results {
        let measured = row.measured().unwrap();
        assert!(measured.check == Check::Sampled && trials(measured) >= 2, "{measured:?}");
        let comparable = measured.setting.lines.map(|it| it.distance) == results.limits[0].distance;
        assert_eq!(measured.limit_share.is_some_and(|share| share > 0.0), comparable);
        let has_switch = row.technique != "direct";
        assert_eq!(measured.setting.switch.is_some(), has_switch);
        assert_eq!(measured.cpu.roles.contains_key("switch"), has_switch, "{measured:?}");
        // On a busy machine a trial may pass no frames within the measurement.
        assert!(has_switch || measured.switch_cycles_per_frame.is_none());
    }
    let has_cycles = |row: &ResultRow| row.measured().unwrap().switch_cycles_per_frame.is_some();
    assert!(results.results.iter().any(has_cycles), "{results:?}");
    // With backpressure, and between two of our own ports, nothing is lost.
    assert!(results.results[..2].iter().all(|row| row.measured().unwrap().lost == 0));
    let (_, whole) = run(&["--quick", "--technique", "switch/patch", "--check", "whole"]);
    assert!(whole.results.iter().all(|row| row.measured().unwrap().check == Check::Whole));
    check_books(&whole);
}

#[test]
fn round_trips_are_timed_and_balance() {
    let _alone = alone();
    require_root!();
    let words =
        ["rtt", "--quick", "--technique", "direct,switch,veth,bridge/raw", "--size", "64,1500"];
    let (json, results) = run(&words);
    assert_schema(&json);
    check_books(&results);
    let sizes = by_link(&results, |row| row.frame_size);
    assert!(sizes.values().all(|sizes| sizes.iter().eq(&[64, 1500])), "{sizes:?}");
    for link in ["direct", "switch", "veth", "bridge"] {
        assert!(sizes.keys().any(|name| name.starts_with(link)), "{link}: {sizes:?}");
    }
    let has_times = |row: &ResultRow| row.measured().unwrap().latency_ns.is_some();
    assert!(results.results.iter().any(has_times), "{results:?}");
    for row in &results.results {
        let measured = row.measured().unwrap();
        let name = format!("{} {}", row.technique, row.frame_size);
        let Some(times) = measured.latency_ns else {
            // On a busy machine no round trip may end within the measurement.
            assert!(measured.received_pps == 0.0, "{name}: {measured:?}");
            continue;
        };
        let order = [1, times.p50, times.p90, times.p99, times.p999, times.max];
        assert!(order.is_sorted(), "{name}: {times:?}");
        assert_eq!((row.topology.as_str(), measured.check), ("echo", Check::Whole), "{name}");
        assert_eq!((measured.lost, measured.reordered), (0, 0), "{name}: one at a time");
        // Half of the round trips, one after the other, took the median or longer; the first of a
        // trial may have begun before the measurement.
        let (trials, measure_ns) = (measured.trials as f64, results.settings.measure_s * 1e9);
        let longer = measured.received_pps * measure_ns / 1e9 * trials / 2.0 - trials;
        let took = times.p50 as f64 * longer;
        assert!(took < 1.1 * measure_ns * trials, "{name}: {times:?}, {longer} of them");
        assert_eq!(measured.limit_share, None, "{name}");
    }
    let (_, paced) = run(&["rtt", "--quick", "--technique", "veth/raw", "--rate", "1000"]);
    let measured = paced.results[0].measured().unwrap();
    assert!(measured.sent <= 1000, "no more than asked for: {measured:?}");
}

#[test]
fn latency_is_measured_at_shares_of_the_loss_free_rate_with_time() {
    let _alone = alone();
    require_root!();
    let (json, results) = run(&["latency", "--quick", "--technique", "direct", "--trials", "1"]);
    assert_schema(&json);
    check_books(&results);
    let clock = results.clock.as_ref().expect("frames are timed");
    assert!(clock.read_ns > 0.0 && clock.error_ns() < 1e6, "{clock:?}");
    let shares: Vec<_> =
        results.results.iter().map(|row| (row.topology.as_str(), row.load_share)).collect();
    let loads = [None, Some(0.1), Some(0.5), Some(0.9)];
    assert_eq!(shares, ["chain", "echo"].map(|way| loads.map(|load| (way, load))).concat());
    for row in &results.results {
        let measured = row.measured().unwrap();
        let name = format!("{} {:?}", row.topology, row.load_share);
        let (timed, other) = match row.topology.as_str() {
            "chain" => (measured.one_way_ns, measured.latency_ns),
            _ => (measured.latency_ns, measured.one_way_ns),
        };
        assert_eq!(other, None, "{name}");
        let Some(times) = timed else {
            // The machine may be several times slower now than during the search. Then the sender
            // sends no frame that was due after the warm-up.
            let is_high = row.load_share.is_some_and(|share| share >= 0.5);
            assert!(measured.sent_less_than_offered && is_high, "{name}: none");
            continue;
        };
        let order = [1, times.p50, times.p90, times.p99, times.p999, times.max];
        assert!(order.is_sorted(), "{name}: {times:?}");
        assert!(times.p9999.is_none_or(|p9999| (times.p999..=times.max).contains(&p9999)));
        // A frame is late before it is in flight; a burst counts as late as its first frame.
        let late = measured.sender_late_ns.unwrap_or_else(|| panic!("{name}: not known"));
        assert!(late.p50 <= times.max, "{name}: {late:?} of {times:?}");
        let offered = row.offered_pps.unwrap();
        assert_eq!(measured.loss_free_pps.is_some(), row.load_share.is_some(), "{name}");
        if let (Some(pps), Some(share)) = (measured.loss_free_pps, row.load_share) {
            assert!((offered / pps - share).abs() < 1e-9, "{name}: {offered} of {pps}");
        }
        assert!(measured.sent as f64 <= offered * 0.801, "{name}: 0.3 s of warm-up and 0.5 s");
    }
    // At 10 kpps, two polling roles find nothing most of the time, if nothing else needs their
    // CPUs.
    let idle = results.results[0].measured().unwrap();
    let total = idle.cpu.total;
    let share = if idle.noise.is_some_and(|noise| noise.disturbed_trials == 0) { 0.5 } else { 0.0 };
    assert!(total.polling_s.unwrap() > total.total_s() * share, "{total:?}");
    assert!(idle.work_cycles_per_frame.unwrap() < idle.cycles_per_frame.unwrap() * (1.0 - share));
    assert!(idle.mbps_per_core.unwrap() > 0.0 && idle.cpu.roles.contains_key("kernel"));
}

#[test]
fn receiver_counts_agree_at_every_check() {
    let _alone = alone();
    require_root!();
    let words = ["receiver-cost", "--quick", "--technique", "veth/raw-mmsg", "--size", "64"];
    let (json, results) = run(&[&words[..], &["--trials", "1"]].concat());
    assert_schema(&json);
    check_books(&results);
    let checks: Vec<_> = results.results.iter().map(|row| row.measured().unwrap().check).collect();
    assert_eq!(checks, [Check::None, Check::Fetched, Check::Sampled, Check::Whole]);
}

#[test]
fn tunnels_between_hosts_account_for_every_frame() {
    let _alone = alone();
    require_root!();
    let techniques = "hosts/bridge/raw-mmsg,vxlan/raw-mmsg,switch-vxlan";
    let words = ["tunnels", "--quick", "--technique", techniques, "--trials", "1"];
    let (json, results) = run(&words);
    assert_schema(&json);
    check_books(&results);
    let links = by_link(&results, |row| row.endpoint.as_str());
    assert_eq!(
        links.keys().copied().collect::<Vec<_>>(),
        ["hosts/bridge", "switch-vxlan/patch", "vxlan"]
    );
    let ours = results.results.iter().find(|row| row.link == "switch-vxlan/patch");
    assert_eq!(ours.unwrap().measured().unwrap().counters_agree, Some(true));
}

/// A chain needs a segment for each hop, and a switch that learns has them all.
#[test]
fn chains_through_a_learning_switch_account_for_every_frame() {
    let _alone = alone();
    require_root!();
    let trial = ["--quick", "--trials", "1", "--rate", "1k"];
    let words = ["casoni2013-serial", "--technique", "switch/learning"];
    let (json, results) = run(&[&words[..], &trial].concat());
    assert_schema(&json);
    check_books(&results);
    let forwarders: Vec<_> = results.results.iter().map(|row| row.forwarders).collect();
    assert_eq!(forwarders, [1, 2, 3, 4, 5, 6, 7, 8]);
    for row in &results.results {
        let measured = row.measured().unwrap();
        assert!(measured.received > 0 && measured.lost == 0, "{row:?}");
    }
}

#[test]
fn chains_through_other_switches_account_for_every_frame_with_dpdk() {
    let _alone = alone();
    require_root!();
    let trial = ["--quick", "--trials", "1", "--rate", "1k"];
    let techniques = "ovs-dpdk/learning,testpmd/pairs";
    let words = ["casoni2013-incremental", "--technique", techniques];
    let (json, results) = run(&[&words[..], &trial].concat());
    assert_schema(&json);
    check_books(&results);
    let of = |row: &ResultRow| (row.link.clone(), row.forwarders);
    let rows: BTreeSet<_> = results.results.iter().map(of).collect();
    let of = |link: &str| [1, 6].map(|forwarders| (link.to_owned(), forwarders));
    assert_eq!(rows, [of("ovs-dpdk/learning"), of("testpmd/pairs")].concat().into_iter().collect());
    for row in &results.results {
        assert!(row.measured().is_some_and(|measured| measured.received > 0), "{row:?}");
    }
}

#[test]
fn switches_are_compared_with_dpdk() {
    let _alone = alone();
    require_root!();
    let words = ["switches", "--quick", "--size", "64", "--trials", "1"];
    let (json, results) = run(&words);
    assert_schema(&json);
    // Every switch has the same endpoints, except that memif has its own.
    let mut endpoints = by_link(&results, |row| row.endpoint.as_str());
    let memif = endpoints.remove("vpp/memif").unwrap();
    assert!(memif.iter().eq(&["dpdk-memif", "memif"]), "{memif:?}");
    let ours = endpoints["switch/learning"].clone();
    assert!(ours.contains("virtio") && endpoints.values().all(|of| *of == ours), "{endpoints:?}");
    // Learning switches have rows with many stations, from our endpoints.
    let by_stations = |stations| {
        let rows = results.results.iter().filter(move |row| row.stations == stations);
        rows.map(|row| row.technique.as_str()).collect::<BTreeSet<_>>()
    };
    let learns = |link: &str| link.ends_with("/learning") || link == "vpp/memif";
    let rows = results.results.iter().filter(|row| learns(&row.link));
    let learning = rows.filter(|row| !row.endpoint.starts_with("dpdk"));
    assert_eq!(by_stations(1000), learning.map(|row| row.technique.as_str()).collect());
    assert!(by_stations(1).is_superset(&by_stations(1000)) && by_stations(1000).len() > 2);
    let switches: BTreeSet<_> = endpoints.keys().map(|link| link.split('/').next()).collect();
    assert_eq!(switches, ["ovs-dpdk", "snabb", "switch", "testpmd", "vpp"].map(Some).into());
    for row in &results.results {
        let switch = match row.link.split('/').next().unwrap() {
            "switch" => SwitchKind::Dray,
            "testpmd" => SwitchKind::Testpmd,
            "ovs-dpdk" => SwitchKind::OvsDpdk,
            "vpp" => SwitchKind::Vpp,
            "snabb" => SwitchKind::Snabb,
            other => panic!("{other}"),
        };
        // Snabb is too old for the other endpoints.
        let fits = switch != SwitchKind::Snabb || row.endpoint == "virtio";
        let is_dpdk = row.endpoint.starts_with("dpdk");
        let is_there =
            fits && switch.find().is_ok() && (!is_dpdk || SwitchKind::Testpmd.find().is_ok());
        let measured = row.measured();
        assert_eq!(
            measured.is_some(),
            is_there,
            "{} {}: {:?}",
            row.link,
            row.endpoint,
            row.outcome
        );
        if let Some(measured) = measured {
            assert!(measured.received > 0, "{} {}", row.link, row.endpoint);
            assert_eq!((measured.duplicated, measured.corrupt), (0, 0), "{}", row.link);
            // The results name the programs, so that a reader can repeat the run.
            let programs = measured.setting.programs.as_ref().unwrap();
            // VPP says its number only when it runs.
            let version = switch.find().unwrap().version;
            let is_ours = switch == SwitchKind::Dray;
            let is_named = programs.versions.iter().any(|it| it.starts_with(&version));
            assert!(is_ours || is_named, "{programs:?}");
            assert!(!is_dpdk || programs.versions.iter().any(|version| version.contains("DPDK")));
            // In the tests, our own switch is found as the tested program.
            let file = switch.find().unwrap().program;
            let file =
                if is_ours { " switch " } else { file.file_name().unwrap().to_str().unwrap() };
            assert!(programs.commands.iter().any(|line| line.contains(file)), "{programs:?}");
        }
    }
    assert!(results.command.contains("bench") && results.command.contains("switches --quick"));
}

#[test]
fn slow_sender_is_reported_below_offered_rate() {
    let _alone = alone();
    require_root!();
    let technique = ["--quick", "--technique", "veth/udp", "--size", "64"];
    let (_, results, text) = run_with_table(&[&technique[..], &["--rate", "1Gpps"]].concat());
    check_books(&results);
    assert!(results.results[0].measured().unwrap().sent_less_than_offered);
    assert!(text.contains("sent less than offered"), "{text}");
}

#[test]
fn chain_and_fan_counters_balance_with_time() {
    let _alone = alone();
    require_root!();
    // More than any sender can send: shows what one sender at full speed does to the others.
    let most = ["--quick", "--rate", "20M"];
    let (_, serial) = run(&[&["casoni2013-serial"], &most[..]].concat());
    let forwarders = by_link(&serial, |row| row.forwarders);
    assert!(forwarders.values().all(|counts| counts.iter().copied().eq(1..=8)), "{forwarders:?}");
    check_books(&serial);
    let (_, parallel) = run(&[&["casoni2013-parallel", "--flows", "3"], &most[..]].concat());
    let forwarders = by_link(&parallel, |row| row.forwarders);
    assert!(forwarders.values().all(|counts| counts.iter().copied().eq(2..=4)), "{forwarders:?}");
    check_books(&parallel);
    for row in &parallel.results {
        let roles = &row.measured().unwrap().cpu.roles;
        let with_switch = if roles.contains_key("switch") { 2 } else { 0 };
        let all = 2 + row.forwarders + 1 + with_switch;
        assert_eq!(roles.len(), all, "and the kernel by itself: {roles:?}");
    }
}

#[test]
fn rate_search_respects_each_loss_limit_with_time() {
    let _alone = alone();
    require_root!();
    let search = [
        "loss-free",
        "--loss",
        "0,0.5%",
        "--technique",
        "veth/raw-mmsg,direct",
        "--size",
        "64",
        "--quick",
    ];
    let (json, results, table) = run_with_table(&search);
    assert_schema(&json);
    assert!(table.contains("NDR") && table.contains("PDR"), "{table}");
    for row in &results.results {
        let measured = row.measured().unwrap_or_else(|| panic!("{:?}", row.outcome));
        let [ndr, pdr] = &measured.drop_rates[..] else { panic!("two losses: {measured:?}") };
        assert_eq!((ndr.loss_ratio, pdr.loss_ratio), (0.0, 0.005));
        for rate in [ndr, pdr] {
            let [search] = &rate.searches[..] else { panic!("one search: {rate:?}") };
            let lower = search.lower_pps.unwrap();
            assert!(search.upper_pps.is_none_or(|upper| lower < upper), "{search:?}");
            assert!(search.throughput_pps <= rate.pps && rate.pps == lower as f64, "{rate:?}");
        }
        // Frames lost at the found rate itself were lost in a disturbed trial.
        assert!(
            !measured.counters_disagree() && measured.sent >= measured.received,
            "{measured:?}"
        );
    }
}

#[test]
fn switch_with_many_ports_serves_each_with_time() {
    let _alone = alone();
    require_root!();
    let (json, results, table) = run_with_table(&["switch-scale", "--quick", "--trials", "1"]);
    assert_schema(&json);
    check_books(&results);
    for row in &results.results {
        let (load, measured) = (row.ports.unwrap(), row.measured().unwrap());
        // Frames to stations that the switch does not know are flooded, and counted twice.
        assert_eq!(measured.counters_agree, Some(true), "{load}");
        // On a busy machine all frames of a short trial may arrive outside its samples.
        let has_work = measured.switch_work_ns().is_some();
        assert_eq!(has_work, measured.received_pps > 0.0, "{load}: {measured:?}");
        let lowest = measured.lowest_share.unwrap();
        assert!((0.1..=1.0).contains(&lowest), "{load}: {lowest}");
    }
    let of = |link: &str| results.results.iter().filter(|row| row.link == link).count();
    assert_eq!((of("switch/patch"), of("switch/learning")), (6, 11));
    let all_work =
        results.results.iter().all(|row| row.measured().unwrap().switch_work_ns().is_some());
    assert!(!all_work || table.contains("62 silent ports cost"), "{table}");
}

#[test]
fn offered_rate_rises_and_sender_runs_alone() {
    let _alone = alone();
    require_root!();
    let words = ["casoni2013-incremental", "--quick", "--technique", "veth", "--rate", "5k"];
    let (json, results, table) = run_with_table(&words);
    assert_schema(&json);
    check_books(&results);
    let forwarders: Vec<_> = results.results.iter().map(|row| row.forwarders).collect();
    assert_eq!(forwarders, [1, 6]);
    assert!(table.contains("veth/raw-mmsg, 6 forw."), "{table}");
    let words = ["casoni2013-sender-load", "--quick", "--technique", "veth", "--rate", "5k"];
    let (_, results, table) = run_with_table(&words);
    check_books(&results);
    for row in &results.results {
        let sent = row.measured().unwrap().sent_pps;
        let line = table.lines().find(|line| line.starts_with(&format!("{} ", row.forwarders)));
        // The figure may have a mark, for example as disturbed.
        let shown = line.unwrap().split_whitespace().nth(1).unwrap();
        let shown: f64 = shown.trim_end_matches(['~', '*', '!']).parse().unwrap();
        assert!((shown * 1e3 - sent).abs() <= 51.0, "{sent}: {table}");
    }
}

#[test]
fn af_xdp_forwarders_share_a_umem() {
    let _alone = alone();
    require_root!();
    let words = ["af-xdp-chains", "--quick", "--size", "64", "--trials", "1", "--rate", "5k"];
    let (json, chains) = run(&words);
    assert_schema(&json);
    check_books(&chains);
    let lengths = |endpoint: &str| {
        let rows = chains.results.iter().filter(|row| row.endpoint == endpoint);
        rows.map(|row| row.forwarders).collect::<BTreeSet<_>>()
    };
    assert!(!lengths("afxdp").is_empty());
    for row in &chains.results {
        assert_eq!(lengths(&row.endpoint), lengths("afxdp"), "{}", row.endpoint);
    }
    for row in chains.results.iter().filter(|row| row.endpoint == "afxdp") {
        let measured = row.measured().unwrap();
        assert!(measured.received > 0, "{measured:?}");
        let ports = &measured.setting.agreements[&format!("forwarder-{}", row.forwarders)];
        let umem = |port: &str| port.contains("umem=forwarder");
        assert!(ports.len() == 2 && ports.iter().all(|port| umem(&port.port)), "{ports:?}");
    }
}

#[test]
fn papers_table_shows_published_figures_with_time() {
    let _alone = alone();
    require_root!();
    let text = success(&[&["bench", "ara2019-table1", "--quick"], &DURATION[..]].concat());
    for (endpoint, paper) in
        [("udp", "227"), ("udp-mmsg", "276"), ("raw", "471"), ("raw-mmsg", "594")]
    {
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(endpoint));
        let row = row.unwrap_or_else(|| panic!("no row {endpoint} in {text}"));
        assert_eq!(row.split_whitespace().nth(1), Some(paper), "{row}");
    }
    assert!(text.contains("--quick"), "shortened runs say so: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn one_second_samples_cover_only_measurement_with_time() {
    let _alone = alone();
    require_root!();
    let text = success(
        &"bench --quick --duration 5 --technique veth/raw --size 64 --rate 50k --json -"
            .split(' ')
            .collect::<Vec<_>>(),
    );
    let results: Results = serde_json::from_str(&text).unwrap();
    assert_eq!(results.settings.interval_s, 1.0);
    check_books(&results);
}

#[test]
fn jumbo_frames_pass_where_the_mtu_allows() {
    let _alone = alone();
    require_root!();
    let techniques = "veth/udp,veth/raw-mmsg,veth/afxdp,veth/tap,veth/tcp";
    let (_, results) =
        run(&["--quick", "--mtu", "9000", "--size", "9014", "--technique", techniques]);
    check_books(&results);
}
