//! Claims that hold, fail, and cannot be decided; and that nothing of the papers is left out.

use super::figure::Quantity;
use super::paper::{Claim, Content, Exhibit, Paper};
use super::pick::Condition::{Burst, Forwarders, Pairs, Size};
use super::pick::Pick;
use super::rule::{Rule, Verdict};
use super::{PAPERS, page};
use crate::sample::{self, Row, row};
use dray_report::Run;

const FAST: Pick = Pick::new("all", "bridge/raw");
const SLOW: Pick = Pick::new("all", "bridge/udp");
const NEAR: &str = r#"{"distance":"near","of_run":"near","round_trip_ns":60.0,"left_out":0}"#;
const FAR: &str = r#"{"distance":"far","of_run":"far","round_trip_ns":300.0,"left_out":0}"#;
const FAR_OF_NEAR: &str =
    r#"{"distance":"far","of_run":"near","round_trip_ns":300.0,"left_out":0}"#;
const MOVED: &str = r#"{"distance":"changed","of_run":"near","round_trip_ns":180.0,"left_out":0}"#;

fn runs(rows: &[Row]) -> Vec<Run> {
    vec![sample::run(&sample::results(rows))]
}

fn fast(samples: &[f64]) -> Row {
    row("bridge/raw", 64).samples(samples)
}

fn slow(samples: &[f64]) -> Row {
    row("bridge/udp", 64).samples(samples)
}

fn verdict(rule: Rule, rows: &[Row]) -> Verdict {
    rule.judge(&runs(rows)).verdict
}

fn why(verdict: Verdict) -> String {
    match verdict {
        Verdict::Undecided(why) | Verdict::Unmeasured(why) => why,
        decided => panic!("{decided:?}"),
    }
}

#[test]
fn order_is_decided_by_intervals() {
    let rule = Rule::Order(&[FAST, SLOW]);
    let clear = slow(&[1e5, 1.01e5, 0.99e5]);
    assert_eq!(verdict(rule, &[fast(&[2e5, 2.01e5, 1.99e5]), clear.clone()]), Verdict::Holds);
    assert_eq!(verdict(rule, &[fast(&[5e4, 5.1e4, 4.9e4]), clear.clone()]), Verdict::Fails);
    let wide = verdict(rule, &[fast(&[1e5, 3e5, 2e5]), clear]);
    assert_eq!(why(wide), "intervals overlap");
}

#[test]
fn ratio_is_decided_by_intervals() {
    let rule = Rule::Ratio { of: FAST, by: SLOW, low: 1.5, high: 2.5 };
    let one = slow(&[1e5, 1.001e5, 0.999e5]);
    let judge = |samples: &[f64]| verdict(rule, &[fast(samples), one.clone()]);
    assert_eq!(judge(&[2e5, 2.001e5, 1.999e5]), Verdict::Holds);
    assert_eq!(judge(&[3e5, 3.001e5, 2.999e5]), Verdict::Fails);
    assert_eq!(judge(&[1e5, 1.001e5, 0.999e5]), Verdict::Fails);
    assert_eq!(why(judge(&[2e5, 3e5, 2.4e5])), "the interval reaches beyond the limit");
    let zero = slow(&[0.0, 0.0]);
    let undecided = verdict(rule, &[fast(&[0.0, 0.0]), zero]);
    assert_eq!(why(undecided), "both figures are zero");
}

#[test]
fn single_figure_and_equality_are_decided() {
    let limit = Rule::Within { of: FAST, low: 1e5, high: f64::INFINITY };
    assert_eq!(verdict(limit, &[fast(&[2e5, 2e5])]), Verdict::Holds);
    assert_eq!(verdict(limit, &[fast(&[5e4, 5e4])]), Verdict::Fails);
    let same = Rule::Same { figures: &[FAST, SLOW], tolerance: 0.05 };
    let one = slow(&[1e5, 1e5]);
    assert_eq!(verdict(same, &[fast(&[1.02e5, 1.02e5]), one.clone()]), Verdict::Holds);
    assert_eq!(verdict(same, &[fast(&[1.2e5, 1.2e5]), one.clone()]), Verdict::Fails);
    why(verdict(same, &[fast(&[1e5, 1.1e5]), one]));
}

#[test]
fn doubtful_figures_decide_nothing() {
    let rule = Rule::Order(&[FAST, SLOW]);
    let near = fast(&[2e5, 2e5]).with("lines", NEAR);
    let same = slow(&[1e5, 1e5]).with("lines", NEAR);
    assert_eq!(verdict(rule, &[near.clone(), same]), Verdict::Holds);
    let far = slow(&[1e5, 1e5]).with("lines", FAR);
    let other = why(verdict(rule, &[near, far]));
    assert_eq!(other, "the CPUs were near for `bridge/raw`, far for `bridge/udp`");
    let wrong = slow(&[1e5, 1e5]).with("counters_agree", "false");
    let reason = why(verdict(rule, &[fast(&[2e5, 2e5]), wrong]));
    assert_eq!(reason, "counters disagree for `bridge/udp`");
    let noise = r#"{"steal_ratio":0.5,"other_cores":0.0,"slower_ratio":0.0,"disturbed_trials":1}"#;
    let disturbed = [fast(&[2e5, 2e5]), slow(&[1e5, 1e5]).with("noise", noise)];
    let reason = why(verdict(rule, &disturbed));
    assert_eq!(reason, "`bridge/udp` was disturbed: the hypervisor took 50.0 % of the CPUs");
    let lossless = Rule::Within { of: SLOW.of(Quantity::Loss), low: 0.0, high: 0.0 };
    let short = slow(&[1e5, 1e5]).with("sent_less_than_offered", "true");
    let reason = why(verdict(lossless, &[short]));
    assert_eq!(reason, "less was sent than offered for `bridge/udp`");
    // What a technique needs does not depend on other work.
    let needs = r#"{"set_ups":[],"capabilities":[],"on_host":"none","hugepages_mib":8,"memory_bytes":{},
        "file_descriptors":{}}"#;
    let pages = Rule::Within { of: SLOW.of(Quantity::HugePages), low: 1.0, high: 10.0 };
    let row = slow(&[1e5, 1e5]).with("noise", noise).with("needs", needs);
    assert_eq!(verdict(pages, &[row]), Verdict::Holds);
}

#[test]
fn figures_at_one_distance_decide_whatever_the_run_had() {
    let rule = Rule::Order(&[FAST, SLOW]);
    let figures = [fast(&[2e5, 2e5]), slow(&[1e5, 1e5])].map(|row| row.with("lines", FAR_OF_NEAR));
    assert_eq!(verdict(rule, &figures), Verdict::Holds);
}

#[test]
fn figure_that_saw_the_cpus_move_counts_alone_with_all_samples() {
    let moved = |samples: &[f64]| fast(samples).with("lines", MOVED);
    let limit = Rule::Within { of: FAST, low: 0.0, high: 3e5 };
    assert_eq!(verdict(limit, &[moved(&[1e5, 2e5, 1e5, 2e5])]), Verdict::Holds);
    // The mean is below the limit, with its interval, but not every sample.
    let samples = [vec![2e5; 20], vec![4e5]].concat();
    assert_eq!(verdict(limit, &[fast(&samples)]), Verdict::Holds);
    assert_eq!(why(verdict(limit, &[moved(&samples)])), "the interval reaches beyond the limit");
    let order = Rule::Order(&[FAST, SLOW]);
    let near = slow(&[1e5, 1e5]).with("lines", NEAR);
    let reason = why(verdict(order, &[moved(&[2e5, 2e5]), near]));
    assert_eq!(reason, "the CPUs moved for `bridge/raw`");
    // A figure without samples.
    let sent = Rule::Within { of: FAST.of(Quantity::Sent), low: 0.0, high: 1e9 };
    assert!(why(verdict(sent, &[moved(&[1e5, 1e5])])).contains("the CPUs moved"));
}

#[test]
fn figures_of_other_machines_decide_nothing() {
    let text = sample::results(&[slow(&[1e5, 1e5])]).replace("\"6.1\"", "\"5.4\"");
    let runs = [runs(&[fast(&[2e5, 2e5])]), vec![sample::run(&text)]].concat();
    let verdict = Rule::Order(&[FAST, SLOW]).judge(&runs).verdict;
    assert_eq!(why(verdict), "measured on different machines");
}

#[test]
fn missing_figure_has_a_reason() {
    let rule = Rule::Order(&[FAST, SLOW]);
    let skipped =
        row("bridge/udp", 64).with("skipped", "\"no bridge | <here>\"").with("sent", "null");
    let reason = why(verdict(rule, &[fast(&[2e5, 2e5]), skipped]));
    assert_eq!(reason, "`bridge/udp`: no bridge \\| &lt;here&gt;");
    let reason = why(verdict(rule, &[fast(&[2e5, 2e5])]));
    assert_eq!(reason, "the run of `all` did not include `bridge/udp`");
    assert_eq!(why(rule.judge(&[]).verdict), "no results of `all`");
    let cut = r#""incomplete":{"trials_done":3,"trials":9,"choices":{},"cpus":[0],"journal":{}},"results""#;
    let text = sample::results(&[fast(&[2e5, 2e5])]).replace("\"results\"", cut);
    let reason = why(rule.judge(&[sample::run(&text)]).verdict);
    assert_eq!(reason, "the run of `all` was cut after 3 of 9 trials, before `bridge/udp`");
    let reason = why(Rule::Unmeasured("no card").judge(&[]).verdict);
    assert_eq!(reason, "no card");
}

#[test]
fn time_that_is_mostly_the_senders_decides_nothing() {
    let times = |p50: u64, p99: u64| {
        format!("{{\"p50\":{p50},\"p90\":{p50},\"p99\":{p99},\"p999\":{p99},\"max\":{p99}}}")
    };
    let row = fast(&[2e5, 2e5])
        .with("one_way_ns", &times(1000, 3_500_000))
        .with("sender_late_ns", &times(700, 3_400_000));
    let judge = |of| {
        let rule = Rule::Within { of: FAST.of(of), low: 100.0, high: f64::INFINITY };
        verdict(rule, std::slice::from_ref(&row))
    };
    assert_eq!(judge(Quantity::OneWay), Verdict::Holds);
    let late = "the sender of `bridge/raw` was late by 3.40 ms: it lacked a CPU";
    assert_eq!(why(judge(Quantity::OneWay99)), late);
}

#[test]
fn claim_picks_rows_by_its_conditions() {
    let rows = [fast(&[2e5, 2e5]), fast(&[9e5, 9e5]).with("burst", "16")];
    let judge = |pick: Pick| Rule::Within { of: pick, low: 8e5, high: 1e6 };
    assert_eq!(verdict(judge(FAST.with(Size(64)).with(Burst(16))), &rows), Verdict::Holds);
    assert_eq!(verdict(judge(FAST.with(Burst(64))), &rows), Verdict::Fails);
    assert_eq!(
        why(verdict(judge(FAST.with(Forwarders("fan", 2)).with(Size(1500))), &rows)),
        "the run of `all` did not include `bridge/raw`, 2 forwarders side by side, 1500 B"
    );
    let streams = vec![sample::run(&sample::streams(&[("veth/tcp", &[9e9, 9e9])]))];
    let bits = Pick::new("all", "veth/tcp").of(Quantity::Payload).with(Pairs(1));
    let rule = Rule::Within { of: bits, low: 8e9, high: 1e10 };
    assert_eq!(rule.judge(&streams).verdict, Verdict::Holds);
    assert_eq!(rule.judge(&streams).here, ["`veth/tcp`, 1 pair: 9.00 Gb/s ±0.0 %"]);
}

/// Row of a series: what was sent and received.
fn point(sent: f64, received: f64) -> Row {
    let row = fast(&[received, received]).with("sent_pps", &format!("{sent:?}"));
    row.with("offered_pps", &format!("{sent:?}"))
}

#[test]
fn saturation_needs_all_below_and_the_highest_above() {
    let rule = Rule::Saturates { of: FAST, free: None };
    let below = [point(1e5, 1e5), point(2e5, 2e5)];
    let judge = |more: &[Row]| verdict(rule, &[&below[..], more].concat());
    assert_eq!(judge(&[point(4e5, 3e5), point(8e5, 2.9e5)]), Verdict::Holds);
    let twice = |sent, received| point(sent, received).with("trials", "2");
    assert_eq!(judge(&[point(4e5, 3e5), twice(8e5, 1e5)]), Verdict::Fails, "collapses");
    assert_eq!(judge(&[twice(2.5e5, 2e5), point(4e5, 3e5)]), Verdict::Fails, "loses early");
    let once = "only one trial, at one rate, contradicts";
    assert_eq!(why(judge(&[point(4e5, 3e5), point(8e5, 1e5)])), once);
    assert_eq!(why(judge(&[point(2.5e5, 2e5), point(4e5, 3e5)])), once);
    let at_two_rates = [point(4e5, 3e5), point(7e5, 1e5), point(8e5, 1e5)];
    assert_eq!(judge(&at_two_rates), Verdict::Fails, "collapses at two rates");
    let beyond = "the interval reaches beyond the limit";
    let unsure =
        |sent: f64, received: [f64; 2]| fast(&received).with("sent_pps", &format!("{sent:?}"));
    let (early, late) = (unsure(2.5e5, [1.8e5, 3e5]), unsure(8e5, [2e5, 3.8e5]));
    assert_eq!(why(judge(&[early, point(4e5, 3e5), point(8e5, 2.9e5)])), beyond);
    assert_eq!(why(judge(&[point(4e5, 3e5), late])), beyond);
    assert_eq!(why(judge(&[point(3e5, 3e5)])), "no rate 5 % above the highest was offered");
    // The highest rate itself, of which frames are lost already.
    assert_eq!(why(judge(&[point(4e5, 3e5)])), "no rate 5 % above the highest was offered");
    // Points at another distance are left out.
    let far = |point: Row| point.with("lines", FAR);
    let rates = [point(1e5, 1e5), point(2e5, 2e5), point(4e5, 3e5), point(8e5, 2.9e5)].map(far);
    let moved = rates.clone().map(|point| point.with("lines", MOVED));
    assert_eq!(why(verdict(rule, &moved)), "the CPUs moved for `bridge/raw`");
    let near = point(6e5, 6e5).with("lines", NEAR);
    let runs = runs(&[&rates[..], &[near]].concat());
    let judged = rule.judge(&runs);
    assert_eq!(judged.verdict, Verdict::Holds, "{judged:?}");
    assert!(judged.here[0].contains("without 1 of 5 rates"), "{judged:?}");
    assert_eq!(why(verdict(rule, &below[..1])), "only one point was measured");
    assert!(why(verdict(rule, &[])).contains("did not include"));
}

#[test]
fn rate_limited_by_full_ring_counts_up_to_sender_maximum() {
    let rule = Rule::Saturates { of: FAST, free: Some(SLOW) };
    let offered = |row: Row, rate: f64| row.with("offered_pps", &format!("{rate:?}"));
    let held = |rate: f64, arrives: f64| {
        let row = point(arrives, arrives).with("sent_less_than_offered", "true");
        offered(row, rate)
    };
    let free =
        |rate: f64| offered(slow(&[rate, rate]).with("sent_pps", &format!("{rate:?}")), rate);
    let rates = [point(1e5, 1e5), point(2e5, 2e5), held(4e5, 3e5), held(8e5, 2.9e5)];
    let runs = |more: &[Row]| runs(&[&rates[..], more].concat());
    let with_free = runs(&[free(8e5)]);
    let holds = rule.judge(&with_free);
    assert_eq!(holds.verdict, Verdict::Holds, "{holds:?}");
    assert!(holds.here.iter().any(|line| line.contains("800 kpps sent")), "{holds:?}");
    // The sender sends no more elsewhere.
    let undecided = |more: &[Row]| why(rule.judge(&runs(more)).verdict);
    assert_eq!(undecided(&[free(3e5)]), "no rate 5 % above the highest was offered");
    assert_eq!(undecided(&[]), "no rate 5 % above the highest was offered");
    // It does, but with the CPUs at another distance, or in a trial that proves nothing.
    let near = free(8e5).with("lines", NEAR);
    assert_eq!(undecided(&[near]), "no rate 5 % above the highest was offered");
    let wrong = free(8e5).with("counters_agree", "false");
    assert_eq!(undecided(&[wrong]), "no rate 5 % above the highest was offered");
    // Losses are found with the rate offered too.
    let collapses = [&rates[..3], &[held(8e5, 1e5).with("trials", "2"), free(8e5)]].concat();
    assert_eq!(verdict(rule, &collapses), Verdict::Fails);
}

#[test]
fn deviation_is_that_within_trials() {
    let rule = |high| Rule::Within { of: FAST.of(Quantity::Deviation), low: 0.0, high };
    // Two trials far from each other, each with samples 2 % apart.
    let apart = fast(&[1e5, 1.02e5, 2e5, 2.04e5]).with("trials", "2");
    assert_eq!(verdict(rule(0.025), std::slice::from_ref(&apart)), Verdict::Holds);
    assert_eq!(verdict(rule(0.01), &[apart]), Verdict::Fails);
    let single = fast(&[1e5, 2e5]).with("trials", "2");
    assert!(why(verdict(rule(0.025), &[single])).contains("did not include"));
}

#[test]
fn series_falls_with_forwarders() {
    let rule = Rule::Falls(FAST);
    let at = |count: usize, rate: f64| fast(&[rate, rate]).with("forwarders", &count.to_string());
    let judge =
        |rates: [f64; 3]| verdict(rule, &[at(8, rates[2]), at(2, rates[0]), at(4, rates[1])]);
    assert_eq!(judge([3e5, 2e5, 1e5]), Verdict::Holds);
    assert_eq!(judge([3e5, 4e5, 1e5]), Verdict::Fails, "rises in between");
    why(judge([3e5, 3e5, 3e5]));
    let moves = [at(2, 3e5).with("lines", NEAR), at(4, 2e5).with("lines", FAR)];
    assert!(why(verdict(rule, &moves)).contains("near"));
    why(verdict(rule, &[at(2, 1e3)]));
}

#[test]
fn longest_measurement_counts() {
    let short = fast(&[2e5, 2e5]);
    let long = fast(&[9e5, 9e5, 9e5, 9e5]).with("trials", "4");
    let rule = Rule::Within { of: FAST, low: 8e5, high: 1e6 };
    assert_eq!(verdict(rule, &[short.clone(), long.clone()]), Verdict::Holds);
    assert_eq!(verdict(rule, &[long, short]), Verdict::Holds);
}

const TEST: Paper = Paper {
    name: "test2026",
    title: "A test",
    conditions: "None",
    exhibits: &[
        Exhibit { name: "Figure 1", shows: "a drawing", content: Content::Drawing("nothing") },
        Exhibit {
            name: "Table 1",
            shows: "figures",
            content: Content::Claims(&[
                Claim::new("raw is faster", "2 x", Rule::Order(&[FAST, SLOW])).because(&[
                    (Rule::Within { of: SLOW, low: 0.0, high: 1.0 }, "UDP is dead"),
                    (Rule::Within { of: SLOW, low: 3e5, high: 5e5 }, "UDP is fast"),
                ]),
                Claim::new("UDP is fast", "-", Rule::Within { of: SLOW, low: 1e6, high: 2e6 }),
            ]),
        },
    ],
    open: &[],
};

#[test]
fn page_gives_only_reasons_that_results_show() {
    let rows = [fast(&[2e5, 2e5]).with("lines", NEAR), slow(&[4e5, 4e5]).with("lines", NEAR)];
    let text = page::render(&[TEST], &runs(&rows));
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    let first = line("| raw is faster");
    let end = "| A; near (60 ns); full: 1 trial of 10 s | **does not hold**: UDP is fast \
               (`bridge/udp`: 400 kpps ±0.0 %) |";
    assert!(first.ends_with(end), "{first}");
    assert!(!text.contains("UDP is dead"), "{text}");
    let second = line("| UDP is fast");
    assert!(second.ends_with("**does not hold**: these results do not show why |"), "{second}");
    assert!(second.contains("rule: 1.00 Mpps to 2.00 Mpps"), "{second}");
    assert!(line("| [test2026]").ends_with("| 2 | 2 | 0 | 2 | 0 | 0 |"), "{text}");
    assert!(text.contains("Claims nothing to measure. Here: nothing."), "{text}");
}

#[test]
fn page_escapes_text_of_results() {
    let text = sample::results(&[fast(&[2e5, 2e5])]).replace("\"CPU\"", "\"<b>C|PU\"");
    let text = page::render(&PAPERS, &[sample::run(&text)]);
    assert!(text.contains("&lt;b&gt;C\\|PU") && !text.contains("<b>"), "{text}");
}

/// Tables and figures of each paper, as read in it. Slides without numbers have their titles.
const EXHIBITS: [(&str, &[&str]); 5] = [
    ("ara2019", &["Figure 1", "Table 1", "Figure 2a", "Figure 2b", "Figure 3"]),
    ("shyamkumar2022", &["Figure 1", "Figure 2", "Figure 3", "Figure 4", "Figure 5", "Figure 6"]),
    (
        "claassen2016",
        &[
            "Figure 1", "Figure 2", "Figure 3", "Figure 4", "Figure 5", "Figure 6", "Figure 7",
            "Figure 8", "Figure 9",
        ],
    ),
    (
        "casoni2013",
        &[
            "State of the art",
            "LXC with Virtual Ethernet",
            "VALE",
            "Serial setup",
            "Parallel setup",
            "Incremental loss-free throughput - 1 forwarder (first slide)",
            "Incremental loss-free throughput - 1 forwarder (second slide)",
            "Incremental loss-free throughput - 6 forwarders",
            "Maximum serial loss-free throughput",
            "Maximum parallel loss-free throughput",
            "Maximum sender load",
            "Adding Netmap/VALE support to ns-3",
            "Preliminary results",
        ],
    ),
    (
        "liang2016",
        &[
            "NFV and Container",
            "I/O Virtualization Model for NFVi",
            "Accelerate Container-based VNF",
            "DPDK SR-IOV PMD for Container",
            "Setup Userland SR-IOV with DPDK",
            "Deterministic CPU environment",
            "Deterministic cache environment (table)",
            "Userland SR-IOV in Container",
            "DPDK virtio_user for Container",
            "virtio approach for IPC",
            "virtio_user intro (1)",
            "virtio_user intro (2)",
            "Setup virtio_user with OVS-DPDK",
            "Performance evaluation: latency",
            "Performance evaluation: throughput",
            "Run DPDK in Container Securely",
        ],
    ),
];

#[test]
fn every_table_and_figure_has_a_row() {
    for (paper, (name, exhibits)) in PAPERS.iter().zip(EXHIBITS) {
        let here: Vec<&str> = paper.exhibits.iter().map(|exhibit| exhibit.name).collect();
        assert_eq!((paper.name, &here[..]), (name, exhibits));
        assert!(!paper.open.is_empty(), "{name} leaves questions open");
        for exhibit in paper.exhibits {
            if let Content::Claims(claims) = exhibit.content {
                assert!(!claims.is_empty(), "{name}, {}", exhibit.name);
            }
        }
    }
    let text = page::render(&PAPERS, &[]);
    for (name, exhibits) in EXHIBITS {
        for exhibit in exhibits {
            assert!(text.contains(&format!("\n### {name}: {exhibit}\n")), "{name}, {exhibit}");
        }
    }
}

/// Experiments of the parts that `make papers` measures.
fn measured_experiments() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/papers.sh");
    let text = std::fs::read_to_string(path).expect("scripts/papers.sh");
    let parts = text.lines().skip_while(|line| !line.starts_with("parts=")).skip(1);
    let parts = parts.take_while(|line| *line != "\"");
    parts.map(|line| line.split_whitespace().nth(1).expect("an experiment").to_owned()).collect()
}

#[test]
fn every_figure_of_a_claim_is_measured_by_make_papers() {
    let measured = measured_experiments();
    assert!(measured.len() > 10, "{measured:?}");
    let of = |exhibit: &Exhibit| match exhibit.content {
        Content::Claims(claims) => claims,
        Content::Drawing(_) => &[],
    };
    for claim in PAPERS.iter().flat_map(|paper| paper.exhibits).flat_map(of) {
        let reasons = claim.because.iter().map(|(rule, _)| *rule);
        let picks = reasons.chain([claim.rule]).flat_map(|rule| rule.picks());
        for pick in picks {
            let name = pick.experiment;
            assert!(measured.iter().any(|part| part == name), "{name}: {}", claim.says);
        }
    }
}

/// Returns the committed results, in the order of their names.
fn committed() -> Vec<Run> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers");
    let files = std::fs::read_dir(folder).expect("docs/papers").map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|it| it == "json")).collect();
    files.sort();
    files.iter().map(|file| Run::read(file).unwrap_or_else(|error| panic!("{error}"))).collect()
}

#[test]
fn committed_page_matches_its_results() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers.md");
    let text = std::fs::read_to_string(path).expect("docs/papers.md");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let remake = "remake it: cargo run -p dray-papers docs/papers/*.json >docs/papers.md";
    let is = lines(&page::render(&PAPERS, &committed()));
    for (line, (is, was)) in is.iter().zip(lines(&text)).enumerate() {
        assert_eq!(*is, was, "docs/papers.md, line {}; {remake}", line + 1);
    }
    assert_eq!(is.len(), text.lines().count(), "{remake}");
}

#[test]
fn committed_results_are_small() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers");
    let sizes =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let sum: u64 = sizes.sum();
    assert!(sum < 2_000_000, "docs/papers: {sum} bytes, allowed are 2,000,000");
}
