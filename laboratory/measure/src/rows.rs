//! Rows of results, from the trials of a case.

use dray_results::{
    Cpu, Distance, DropRate, Interval, Isolation, LimitRow, LostAt, Measured, Outcome, ResultRow,
    SearchRecord, SettingOfRun, StreamOutcome, StreamRow, stats,
};
use dray_search::Goal;
use dray_traffic::Latency;

use crate::accounting::both;
use crate::plan::case::Case;
use crate::plan::settings::Settings;
use crate::rounds::case_trials::{CaseTrials, Comparable};
use crate::shape::Shape;
use crate::streams;
use crate::trial::Trial;

/// Creates the row of `case` from its `trials`. `limit` is the machine's, if the technique is
/// compared with it; `of_run` is the distance of the CPUs in most trials of the run.
pub(crate) fn of(
    case: &Case,
    settings: &Settings,
    trials: &CaseTrials,
    limit: Option<&LimitRow>,
    of_run: Option<Distance>,
) -> ResultRow {
    let mut outcome = outcome(trials, settings, limit, of_run);
    if let Outcome::Measured(measured) = &mut outcome {
        let mbps = measured.received_pps * case.size as f64 * 8.0 / 1e6;
        let per_core = mbps / measured.cpu.cores();
        measured.mbps_per_core = per_core.is_finite().then_some(per_core);
    }
    let share_pps = match &outcome {
        Outcome::Measured(measured) => {
            case.share.zip(measured.loss_free_pps).map(|(share, pps)| share * pps)
        }
        _ => None,
    };
    let (topology, forwarders) = match case.shape {
        Shape::Chain(count) => ("chain", count),
        Shape::Fan(count) => ("fan", count),
        Shape::Echo => ("echo", 0),
        Shape::Pairs(_) => ("pairs", 0),
        Shape::Upf(_) => ("upf", 0),
        Shape::Ports(_) => ("ports", 0),
    };
    ResultRow {
        technique: case.technique.to_string(),
        link: case.technique.link.to_string(),
        endpoint: case.technique.endpoint.to_string(),
        neighbour: case.neighbour,
        runtime: case.runtime.to_string(),
        topology: topology.to_owned(),
        pairs: case.shape.pairs(),
        forwarders,
        upf: match case.shape {
            Shape::Upf(load) => Some(load),
            _ => None,
        },
        ports: match case.shape {
            Shape::Ports(load) => Some(load),
            _ => None,
        },
        mtu: case.mtu,
        frame_size: case.size,
        burst: settings.burst,
        flows: settings.flows,
        stations: match case.shape {
            Shape::Ports(load) => load.all_stations(),
            _ => case.stations,
        },
        offered_pps: case.rate.or(share_pps),
        load_share: case.share,
        paper_pps: case.paper_pps,
        outcome,
    }
}

/// Like [`of`], for byte streams.
pub(crate) fn of_streams(
    case: &Case,
    settings: &Settings,
    trials: &CaseTrials,
    of_run: Option<Distance>,
) -> StreamRow {
    let outcome = match trials.lacking() {
        Some(skipped) => StreamOutcome::Skipped { skipped },
        None => {
            let Comparable { trials, lines, noise } = trials.comparable(of_run, settings.trials);
            let (setting, check) = trials.conditions();
            let conditions = (SettingOfRun { lines, ..setting.clone() }, check);
            let measure = settings.timing.measure;
            let sum = streams::sum(&trials.stream_trials, conditions, noise, measure);
            StreamOutcome::Measured(Box::new(sum))
        }
    };
    StreamRow {
        technique: case.technique.to_string(),
        link: case.technique.link.to_string(),
        endpoint: case.technique.endpoint.to_string(),
        runtime: case.runtime.to_string(),
        pairs: case.shape.pairs(),
        streams: settings.flows,
        mtu: case.mtu,
        outcome,
    }
}

/// Returns the figures if there was a trial, else why there was none.
fn outcome(
    trials: &CaseTrials,
    settings: &Settings,
    limit: Option<&LimitRow>,
    of_run: Option<Distance>,
) -> Outcome {
    let isolation = Isolation::sum(trials.trials.iter().filter_map(|trial| trial.isolation));
    match (trials.lacking(), isolation) {
        (Some(skipped), _) => Outcome::Skipped { skipped },
        (None, Some(isolation)) => Outcome::Isolated { isolation },
        (None, None) => {
            let comparable = trials.comparable(of_run, settings.trials);
            Outcome::Measured(Box::new(measured(&comparable, settings, limit)))
        }
    }
}

/// Sums up the trials of one case, which has at least one.
fn measured(comparable: &Comparable, settings: &Settings, limit: Option<&LimitRow>) -> Measured {
    let Comparable { trials: case, lines, noise } = comparable;
    let trials = &case.trials[..];
    let (setting, check) = case.conditions();
    let sum = |field: fn(&Trial) -> u64| trials.iter().map(field).sum::<u64>();
    let mean =
        |field: fn(&Trial) -> f64| stats::mean(&trials.iter().map(field).collect::<Vec<_>>());
    let samples_pps: Vec<f64> =
        trials.iter().flat_map(|trial| trial.receive_rates.iter().copied()).collect();
    let mut lost_at = LostAt::default();
    let mut cpu = Cpu::default();
    for trial in trials {
        lost_at += trial.audit.lost_at;
        cpu.add(&trial.cpu, trial.measure);
    }
    let (sent, lost) = (sum(|trial| trial.sent), sum(|trial| trial.audit.lost_at.total()));
    let mean_of = |field: fn(&Trial) -> Option<f64>| {
        let values: Option<Vec<f64>> = trials.iter().map(field).collect();
        values.map(|values| stats::mean(&values))
    };
    let rates: Vec<f64> = trials.iter().map(|trial| trial.received_pps).collect();
    let received_pps = stats::mean(&rates);
    let loss_free: Vec<f64> = case.loss_free.iter().map(|it| it.pps).collect();
    let percentiles = |of: fn(&Trial) -> Option<&Latency>| {
        let mut sum = Latency::default();
        trials.iter().filter_map(of).for_each(|part| sum.add(part));
        sum.percentiles()
    };
    let cycles_per_frame = mean_of(|trial| trial.cycles_per_frame);
    let polling = cpu.total.polling_s.map(|polling_s| polling_s / cpu.total.total_s());
    Measured {
        setting: SettingOfRun { lines: *lines, ..setting.clone() },
        check,
        trials: trials.len(),
        sent,
        received: sum(|trial| trial.received),
        lost,
        lost_at,
        queued: sum(|trial| trial.audit.queued),
        duplicated: sum(|trial| trial.duplicated),
        reordered: sum(|trial| trial.reordered),
        corrupt: sum(|trial| trial.corrupt),
        counters_agree: trials.iter().map(|trial| trial.audit.agrees).fold(None, both),
        loss_ratio: if sent == 0 { 0.0 } else { lost as f64 / sent as f64 },
        sent_less_than_offered: trials.iter().any(Trial::sent_less_than_offered),
        sent_pps: mean(|trial| trial.sent_pps),
        received_pps,
        stddev_pps: stats::standard_deviation(&samples_pps),
        interval95_pps: Interval::of_rate(received_pps, &samples_pps, trials.len())
            .map(|interval| interval.half),
        samples_pps,
        noise: Some(*noise),
        cpu,
        cycles_per_frame,
        work_cycles_per_frame: cycles_per_frame
            .zip(polling)
            .map(|(cycles, polling)| cycles * (1.0 - polling)),
        mbps_per_core: None,
        switch_cycles_per_frame: mean_of(|trial| trial.switch_cycles_per_frame),
        lowest_share: mean_of(|trial| trial.lowest_share),
        drop_rates: (0..)
            .zip(&settings.goals)
            .filter(|_| !case.searches.is_empty())
            .map(|(index, goal)| {
                let searches = case.searches.iter().map(|goals| goals[index].clone());
                drop_rate(goal, searches.collect())
            })
            .collect(),
        loss_free_pps: (!loss_free.is_empty()).then(|| stats::mean(&loss_free)),
        neighbour_bytes_per_s: mean_of(|trial| trial.neighbour_bytes_per_s),
        latency_ns: percentiles(|trial| trial.latency.as_ref()),
        one_way_ns: percentiles(|trial| trial.one_way.as_ref()),
        sender_late_ns: percentiles(|trial| trial.sender_late.as_ref()),
        limit_share: limit
            .filter(|limit| limit.distance == lines.map(|lines| lines.distance))
            .map(|limit| received_pps / limit.pps),
    }
}

/// Sums up the searches for one goal.
fn drop_rate(goal: &Goal, searches: Vec<SearchRecord>) -> DropRate {
    let lower: Vec<f64> =
        searches.iter().map(|search| search.lower_pps.unwrap_or(0) as f64).collect();
    DropRate {
        loss_ratio: goal.loss_ratio,
        trial_s: goal.trial.as_secs_f64(),
        sum_s: goal.sum.as_secs_f64(),
        exceed_ratio: goal.exceed_ratio,
        width: goal.width,
        pps: stats::mean(&lower),
        interval95_pps: Interval::of(&lower).map(|interval| interval.half),
        searches,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::EXPERIMENTS;
    use crate::plan::{Choices, Plan};

    #[test]
    fn row_without_trial_is_skipped_with_the_reason() {
        let plan = Plan::new(&EXPERIMENTS[0], &Choices::default()).unwrap();
        let trials = CaseTrials::default();
        let row = of(&plan.cases[0], &plan.settings, &trials, None, None);
        assert_eq!(row.outcome, Outcome::Skipped { skipped: trials.lacking().unwrap() });
    }
}
