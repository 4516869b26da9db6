//! The page of all claims, as Markdown.

use std::fmt::Write;

use dray_report::escape::markdown;
use dray_report::host::{facts, host_differences};
use dray_report::number::plain;
use dray_report::{Run, distinct};
use dray_results::{Distance, DropRate, HostFacts, Results};

use crate::figure::{Figure, word};
use crate::paper::{Claim, Content, Exhibit, Paper};
use crate::rule::{Judged, Verdict};

const HEAD: &str = "\
# The five papers, claim by claim

Made by `make papers` from the result files that are listed [at the end](#results); do not edit. Every table and
figure of the papers is here, in their order, with what it claims and whether that holds today, on the machine
of these results.

*here*: the figures, with half their 95 % interval (a search that ran once: the distance of its bounds), and the
rule that decides. Received rates have intervals; rates sent, loss, deviations, medians of times, and times of
CPUs have none. With several trials an interval is of their means; that of a single trial is of its samples, and shows
how steady the rate was, not how well it repeats. A claim *holds*, or *does not hold*, only if it does so for every value within the intervals; if
they reach across, it is *undecided*. The highest rate of a series counts by its mean. Nothing is decided by
figures of different machines, with the CPUs near for one and far for the other, that were disturbed by other work,
or whose counters disagree (`!`). A figure during which the CPUs moved is not compared with others; alone, it counts
with the range of its samples. `~`: disturbed, or the CPUs moved or were not as in most rows of its run; `*`: sent
less than offered ([what the figures mean](measurement.md)).

*conditions*: the machine, how far from each other its CPUs were (near or far, with the time of a cache line
there and back), and how long trials were: *quick* runs are a first look.

Machines differ, so a rate counts as the paper's from half to twice as much, and a ratio from three quarters to
five quarters of the paper's, or from three quarters on where the claim is a gain. Figures that a paper calls alike
are within 10 % here. A limit that a paper gives is the limit here. A one-way time of which the sender's lateness is three
quarters or more decides nothing. Where a paper names no MTU, number of pairs, load or percentile, the choice is dray's. Why a claim does not hold is stated only where the results show it.
";

/// Renders the page of `papers`, whose claims are compared with `runs`.
pub(super) fn render(papers: &[Paper], runs: &[Run]) -> String {
    let mut hosts: Vec<&HostFacts> = Vec::new();
    for run in runs {
        if !hosts.iter().any(|known| host_differences(known, &run.results.host).is_empty()) {
            hosts.push(&run.results.host);
        }
    }
    let mut parts = String::new();
    let mut totals = String::from(
        "\n| paper | tables and figures | claims | hold | do not hold | undecided | not measured |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for paper in papers {
        let count = render_paper(&mut parts, paper, runs, &hosts);
        let [holds, fails, undecided, unmeasured] = count;
        writeln!(
            totals,
            "| [{0}](#{0}) | {1} | {2} | {holds} | {fails} | {undecided} | {unmeasured} |",
            paper.name,
            paper.exhibits.len(),
            count.iter().sum::<usize>(),
        )
        .ok();
    }
    let mut text = HEAD.to_owned() + &totals;
    machines(&mut text, &hosts);
    text + &parts + &results(runs, &hosts)
}

/// Writes the facts of each machine.
fn machines(text: &mut String, hosts: &[&HostFacts]) {
    text.push_str("\n## Machines\n\n");
    if hosts.is_empty() {
        text.push_str("None: no results were given.\n");
    }
    for (number, host) in hosts.iter().enumerate() {
        let facts: Vec<String> =
            facts(host).into_iter().map(|(name, fact)| format!("{name}: {fact}")).collect();
        writeln!(text, "* **{}**: {}", letter(number), markdown(&facts.join("; "))).ok();
    }
}

/// Name of a machine on the page.
fn letter(number: usize) -> String {
    match u8::try_from(number) {
        Ok(number @ 0..26) => char::from(b'A' + number).to_string(),
        _ => number.to_string(),
    }
}

/// Writes a paper. Returns the numbers of its claims that hold, do not hold, are undecided, and are
/// not measured.
fn render_paper(
    text: &mut String,
    paper: &Paper,
    runs: &[Run],
    hosts: &[&HostFacts],
) -> [usize; 4] {
    writeln!(text, "\n## {}\n\n{}.\n\n{}.", paper.name, paper.title, paper.conditions).ok();
    let mut count = [0; 4];
    for Exhibit { name, shows, content } in paper.exhibits {
        writeln!(text, "\n### {}: {name}\n\nShows {shows}.\n", paper.name).ok();
        let claims = match content {
            Content::Drawing(here) => {
                writeln!(text, "Claims nothing to measure. Here: {here}.").ok();
                continue;
            }
            Content::Claims(claims) => claims,
        };
        text.push_str("| claim | paper | here | conditions | today |\n|---|---|---|---|---|\n");
        for claim in *claims {
            let judged = claim.rule.judge(runs);
            let at = match judged.verdict {
                Verdict::Holds => 0,
                Verdict::Fails => 1,
                Verdict::Undecided(_) => 2,
                Verdict::Unmeasured(_) => 3,
            };
            count[at] += 1;
            render_claim(text, claim, &judged, runs, hosts);
        }
    }
    writeln!(text, "\n### {}: open questions and future work\n", paper.name).ok();
    text.push_str("| open there | here |\n|---|---|\n");
    for open in paper.open {
        writeln!(text, "| {} | {} |", open.question, open.here).ok();
    }
    count
}

fn render_claim(
    text: &mut String,
    claim: &Claim,
    judged: &Judged,
    runs: &[Run],
    hosts: &[&HostFacts],
) {
    let mut says = claim.says.to_owned();
    if !claim.instead.is_empty() {
        write!(says, " (here: {})", claim.instead).ok();
    }
    let mut here = judged.here.clone();
    if !here.is_empty() {
        here.push(format!("rule: {}", claim.rule.in_words()));
    }
    let here = if here.is_empty() { "-".to_owned() } else { here.join("; ") };
    let today = match &judged.verdict {
        Verdict::Holds => "**holds**".to_owned(),
        Verdict::Fails => format!("**does not hold**: {}", reasons(claim, runs)),
        Verdict::Undecided(why) => format!("**undecided**: {why}"),
        Verdict::Unmeasured(why) => format!("**not measured here**: {why}"),
    };
    let conditions = conditions(&judged.figures, hosts);
    writeln!(text, "| {says} | {} | {here} | {conditions} | {today} |", claim.paper).ok();
}

/// Returns those reasons that the results show.
fn reasons(claim: &Claim, runs: &[Run]) -> String {
    let shown = claim.because.iter().filter_map(|(rule, reason)| {
        let judged = rule.judge(runs);
        (judged.verdict == Verdict::Holds).then(|| format!("{reason} ({})", judged.here.join("; ")))
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "these results do not show why".to_owned() } else { shown.join("; ") }
}

/// Describes the machines, the distances and the trials of figures.
fn conditions(figures: &[Figure], hosts: &[&HostFacts]) -> String {
    if figures.is_empty() {
        return "-".to_owned();
    }
    let machine = |figure: &Figure| {
        hosts.iter().position(|host| host_differences(host, figure.host()).is_empty()).map(letter)
    };
    let mut parts =
        vec![distinct(figures, machine).into_iter().flatten().collect::<Vec<_>>().join(", ")];
    for distance in [Distance::Near, Distance::Far, Distance::Changed] {
        let lines = figures.iter().filter_map(Figure::lines);
        let times: Vec<f64> = lines
            .filter(|lines| lines.distance == distance)
            .map(|lines| lines.round_trip_ns)
            .collect();
        if times.is_empty() {
            continue;
        }
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = times.iter().copied().fold(0.0, f64::max);
        let range = match format!("{least:.0}") {
            one if one == format!("{most:.0}") => one,
            least => format!("{least} to {most:.0}"),
        };
        parts.push(format!("{} ({range} ns)", word(distance)));
    }
    parts.extend(distinct(figures, |figure| {
        let word = if figure.run.results.settings.quick { "quick" } else { "full" };
        let noun = match (figure.is_search(), figure.trials) {
            (true, 1) => "search with trials",
            (true, _) => "searches with trials",
            (false, 1) => "trial",
            (false, _) => "trials",
        };
        format!("{word}: {} {noun} of {} s", figure.trials, plain(figure.measure_s))
    }));
    if figures.iter().any(|figure| figure.setting.shared_cores) {
        parts.push("roles shared cores".to_owned());
    }
    parts.join("; ")
}

/// Lists the result files.
fn results(runs: &[Run], hosts: &[&HostFacts]) -> String {
    let mut text = String::from(
        "\n## Results\n\n| file | experiment | begun | machine | measured | trials | command |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for run in runs {
        let results = &run.results;
        let settings = &results.settings;
        let state = match &results.incomplete {
            Some(it) => format!("{} of {}", it.trials_done, it.trials),
            None => "all".to_owned(),
        };
        let word = if settings.quick { "quick" } else { "full" };
        let machine = hosts
            .iter()
            .position(|host| host_differences(host, &results.host).is_empty())
            .map(letter);
        writeln!(
            text,
            "| {} | {} | {} | {} | {word}: {} | {state} | {} |",
            markdown(&run.name()),
            markdown(&results.experiment),
            markdown(&results.time),
            machine.unwrap_or_default(),
            lengths(results),
            markdown(&results.command),
        )
        .ok();
    }
    text
}

/// Describes the length of the trials, and separately of trials in searches.
fn lengths(results: &Results) -> String {
    let measured = results.results.iter().filter_map(|row| row.measured());
    let searched: Vec<&DropRate> = measured.filter_map(|it| it.drop_rates.first()).collect();
    let trials = (searched.len() < results.results.len() + results.streams.len()).then(|| {
        let settings = &results.settings;
        format!("{} s after {} s", plain(settings.measure_s), plain(settings.warm_up_s))
    });
    let searches = distinct(&searched, |rate| plain(rate.trial_s));
    let searches =
        searches.into_iter().map(|seconds| format!("searches with trials of {seconds} s"));
    trials.into_iter().chain(searches).collect::<Vec<_>>().join("; ")
}
