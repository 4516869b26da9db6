//! Runs a [`Plan`], in rounds of one trial of each case.

mod case_trials;
mod search;
mod testbed;

pub(crate) use case_trials::CaseTrials;

use std::path::Path;
use std::time::{Duration, SystemTime};

use dray_lab::{Cancel, HostFacts, LabError};
use dray_port::limit;

use crate::clock::ClockFacts;
use crate::plan::{Case, Plan, Settings};
use crate::results::{LimitRow, ResultRow, Results, SCHEMA, SettingsRecord};
use crate::streams::StreamRow;
use testbed::Testbed;

/// The machine's limit is measured for so long at most.
const LIMIT_MAX: Duration = Duration::from_secs(1);

/// Runs every case. `program` is the `dray` that runs in the containers; `progress` is told which
/// trial comes next.
///
/// There is one trial of each case, then the next of each, so that what changes on the machine
/// meanwhile changes for all of them.
pub fn run(
    plan: &Plan,
    program: &Path,
    cancel: &Cancel,
    mut progress: impl FnMut(usize, &str),
) -> Result<Results, LabError> {
    let settings = &plan.settings;
    for runtime in &settings.runtimes {
        runtime.version()?;
    }
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let clock = settings.timed.then(|| ClockFacts::measure(&settings.placement));
    let mut limits: Vec<Vec<f64>> = vec![Vec::new(); plan.limit_sizes.len()];
    let mut cases: Vec<(&Case, CaseTrials)> =
        plan.cases.iter().map(|case| (case, CaseTrials::of(case))).collect();
    for round in 0..settings.trials {
        let first = round * plan.cases.len();
        for (size, rates) in plan.limit_sizes.iter().zip(&mut limits) {
            progress(first, &format!("limit {size} B"));
            cancel.check()?;
            rates.push(machine_limit(*size, settings)?);
        }
        // Cases of one technique and shape follow each other and share a testbed.
        let mut testbed: Option<Testbed> = None;
        for (number, (case, trials)) in (first..).zip(&mut cases) {
            progress(number, &case.to_string());
            // One that does not serve goes before the next is built.
            let kept = testbed.take().filter(|testbed| testbed.serves(case));
            let ready = kept.map_or_else(|| Testbed::build(case, settings, program, cancel), Ok);
            let result = ready.and_then(|mut ready| {
                let mut say = |rate: &str| {
                    progress(number, &format!("{} {} B {rate}", case.technique, case.size));
                };
                match settings.goals_of(case) {
                    _ if case.technique.endpoint.is_stream() => {
                        trials.add_streams(ready.measure_streams(case, settings)?, &ready);
                    }
                    goals if case.share.is_some() => {
                        search::at_share(case, settings, goals, &mut ready, trials, &mut say)?;
                    }
                    [] => trials.add(ready.measure(case, settings, &settings.timing)?, &ready),
                    goals => search::run(case, settings, goals, &mut ready, trials, &mut say)?,
                }
                Ok(ready)
            });
            match result {
                Ok(ready) => testbed = Some(ready),
                // Neither the user's wish nor a missing privilege says anything of the technique.
                Err(error @ (LabError::Cancelled | LabError::NotPermitted)) => return Err(error),
                // The next round may go better.
                Err(error) => trials.fail(&error),
            }
        }
    }
    let limits: Vec<LimitRow> = plan
        .limit_sizes
        .iter()
        .zip(limits)
        .map(|(&frame_size, samples_pps)| LimitRow::new(frame_size, samples_pps))
        .collect();
    let (mut results, mut streams) = (Vec::new(), Vec::new());
    for (case, trials) in cases {
        if case.technique.endpoint.is_stream() {
            streams.push(StreamRow::new(case, settings, trials.stream_outcome(settings)));
        } else {
            let limit = limits.iter().find(|limit| limit.frame_size == case.size);
            let limit = limit.filter(|_| case.technique.link.shares_memory());
            results.push(ResultRow::new(case, settings, trials.outcome(settings, limit)));
        }
    }
    Ok(Results {
        schema: SCHEMA,
        dray: env!("CARGO_PKG_VERSION").to_owned(),
        time,
        host: HostFacts::gather(),
        experiment: plan.experiment.name.to_owned(),
        settings: SettingsRecord::from(settings),
        results,
        streams,
        clock,
        limits,
    })
}

/// The limit of the machine, in frames per second, on the CPUs that a switch and its endpoints have.
fn machine_limit(size: usize, settings: &Settings) -> Result<f64, LabError> {
    let (middle, ends) = settings.placement.assign_around_switch(2);
    let duration = settings.timing.measure.min(LIMIT_MAX);
    limit::measure(size, duration, middle.id, (ends[0].id, ends[1].id))
        .map(|limit| limit.pps())
        .map_err(|error| LabError::System { what: "limit of the machine".to_owned(), error })
}
