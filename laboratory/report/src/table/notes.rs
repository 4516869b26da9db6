//! Notes below a table.

use std::collections::BTreeMap;

use dray_results::{AnyMeasured, AnySkipped, Check, DropRate, Lines, Measured, ResultRow, Results};

use super::latency;
use crate::distinct::{distinct, grouped};

/// Returns the notes that go below `table`.
pub(super) fn notes(results: &Results, table: &str) -> Vec<String> {
    let measured = || results.results.iter().filter_map(ResultRow::measured);
    let streams = || results.streams.iter().filter_map(|row| row.measured());
    let settings = &results.settings;
    let trials = measured().map(|m| m.trials).chain(streams().map(|m| m.trials)).max().unwrap_or(0);
    let frame_samples = measured().map(|m| m.samples_pps.len());
    let samples = frame_samples.chain(streams().map(|m| m.samples_bps.len())).max().unwrap_or(0);
    if results.results.is_empty() && results.streams.is_empty() {
        let note = "No program that copies each frame once can be faster: see docs/measurement.md.";
        return vec![note.to_owned()];
    }
    let mut notes = Vec::new();
    if let Some(incomplete) = &results.incomplete {
        notes.push(format!(
            "INCOMPLETE: {} of {} trials; the run was interrupted.",
            incomplete.trials_done, incomplete.trials
        ));
    }
    if trials > 0 {
        notes.push(format!(
            "Each figure: mean of {samples} samples of {} s after {} s of warm-up; loss over the \
             whole trial.",
            settings.interval_s, settings.warm_up_s
        ));
        if table.contains('±') {
            let over = if trials > 1 { "over the trials" } else { "over the samples of one trial" };
            notes.push(format!("±: half the 95 % interval, {over}."));
        }
    }
    notes.extend(searches_apart(measured()));
    if let Some(bps) = settings.cable_bps {
        notes.push(format!("Cables between hosts: {} Gb/s.", bps as f64 / 1e9));
    }
    let engines =
        results.measured().filter_map(|it| Some((it.runtime, it.setting.engine.as_ref()?)));
    let engines: Vec<_> =
        engines.map(|(name, engine)| format!("{name} {}", engine.version)).collect();
    let engines = distinct(&engines, Clone::clone);
    if !engines.is_empty() {
        notes.push(format!("Containers by {}.", engines.join(", ")));
    }
    if settings.quick && trials > 0 {
        notes.push(format!(
            "--quick: a first look; trials of each: {trials}. Without it, samples are longer and \
             more numerous."
        ));
    }
    if results.measured().any(|it| it.setting.shared_cores) {
        notes.push("Roles shared cores; the JSON says which ran where (role_cores).".to_owned());
    }
    let needs = results.measured().filter_map(|it| it.setting.needs.as_ref());
    let unlocked: Vec<_> = needs.flat_map(|needs| &needs.unlocked).collect();
    if let Some((role, why)) = unlocked.first() {
        notes.push(format!("Some roles' memory was not locked ({role}: {why})."));
    }
    if measured().any(|m| m.sent_less_than_offered) {
        notes.push("* sent less than offered: the sender could not keep up.".to_owned());
    }
    if measured().any(Measured::counters_disagree) {
        notes
            .push("! our counters and the kernel's disagree: do not trust this figure.".to_owned());
    }
    notes.extend(marked(results));
    notes.extend(disturbed(results));
    notes.extend(distance(results));
    if measured().any(|m| m.check == Check::Sampled) {
        notes.push(format!(
            "With shared memory, receivers check headers, and one frame in {} completely.",
            Check::SAMPLE
        ));
    }
    notes.extend(results.clock.as_ref().map(latency::clock));
    notes.extend(bypassed(results));
    notes.extend(af_xdp(&results.results));
    notes.extend(skipped(results));
    notes
}

/// Notes the number of frames that went past the switch, by technique.
fn bypassed(results: &Results) -> Vec<String> {
    let of = |row: AnyMeasured<'_>| {
        let percent = 100.0 * row.setting.switch.as_ref()?.bypassed_ratio?;
        let name = row.technique;
        Some(format!("{name}: {percent:.1} % of the frames bypassed the switch, in the kernel."))
    };
    results.measured().filter_map(of).collect()
}

/// Explains the marks of disturbed figures.
fn marked(results: &Results) -> Option<String> {
    let words: Vec<String> = results.measured().filter_map(|it| it.disturbed()).collect();
    let first = words.first()?;
    let others = if words.len() > 1 { "; all: see noise in the JSON" } else { "" };
    Some(format!("~ {} disturbed figures ({first}{others}): measure again.", words.len()))
}

/// Notes the number of disturbed trials that the figures leave out.
fn disturbed(results: &Results) -> Option<String> {
    let left_out: usize = results.measured().filter_map(|it| it.noise).map(|it| it.left_out).sum();
    let trials = if left_out == 1 { "trial was" } else { "trials were" };
    (left_out > 0).then(|| format!("{left_out} disturbed {trials} left out."))
}

/// Notes the distance between the CPUs.
fn distance(results: &Results) -> Option<String> {
    let all: Vec<Lines> = results.measured().filter_map(|it| it.setting.lines).collect();
    let typical = all.iter().find(|lines| lines.distance == lines.of_run)?;
    // The records of all rates of a search are of the same trials.
    let rates = results.results.iter().filter_map(|row| row.measured()?.drop_rates.first());
    let searches = rates.flat_map(|rate| &rate.searches).map(|search| search.left_out);
    let left_out: usize = all.iter().map(|lines| lines.left_out).chain(searches).sum();
    let others = match left_out {
        0 => String::new(),
        1 => "; 1 trial in which they were not was left out".to_owned(),
        _ => format!("; {left_out} trials in which they were not were left out"),
    };
    Some(format!("The CPUs were {}{others}.", typical.describe()))
}

/// Lists the features that the kernel gave AF_XDP ports, which a technique's name does not include.
fn af_xdp(rows: &[ResultRow]) -> Vec<String> {
    let given = rows.iter().flat_map(|row| {
        let agreements = row.measured().map(|measured| &measured.setting.agreements);
        let ports = agreements.into_iter().flat_map(BTreeMap::values).flatten();
        let ports = ports.filter(|port| port.port.starts_with("afxdp:"));
        ports.map(|port| (port.features.join(", "), row.technique.as_str()))
    });
    let line = |(features, techniques): (String, Vec<&str>)| {
        format!("{}: {features}.", distinct(techniques, |name| name).join(", "))
    };
    grouped(given).into_iter().map(line).collect()
}

/// Notes the spread of searches for the same rate, if there were several.
fn searches_apart<'m>(measured: impl Iterator<Item = &'m Measured>) -> Option<String> {
    let apart = |rate: &DropRate| {
        let lowers = || rate.searches.iter().filter_map(|search| search.lower_pps);
        let (least, most) = (lowers().min()? as f64, lowers().max()? as f64);
        (rate.searches.len() > 1).then_some(100.0 * (most - least) / least)
    };
    let most = measured.flat_map(|it| it.drop_rates.iter().filter_map(apart)).reduce(f64::max)?;
    Some(format!("Rates found by repeated searches differ by up to {most:.1} %."))
}

/// Lists the cases that could not run, by reason.
fn skipped(results: &Results) -> Vec<String> {
    let cases = results.skipped().map(|AnySkipped { technique, link, frame_size, why }| {
        let size = frame_size.map_or(String::new(), |size| format!(" {size} B"));
        (why, (link, format!("{technique}{size}")))
    });
    let note = |(why, cases): (&str, Vec<(&str, String)>)| {
        if let [(_, case)] = &cases[..] {
            return format!("{case} skipped: {why}");
        }
        let mut links = distinct(&cases, |(link, _)| *link);
        if links.len() > 1 {
            links = distinct(links, |link| link.split('/').next().unwrap_or(link));
        }
        format!("{} skipped ({} cases): {why}", links.join(", "), cases.len())
    };
    grouped(cases).into_iter().map(note).collect()
}
