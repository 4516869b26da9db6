//! `dray bench`: run an experiment.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use dray_lab::{LabError, LinkKind, Runtime};
use dray_measure::rounds::PlannedRun;
use dray_measure::{Choices, EXPERIMENTS, Endpoint, Plan, experiments};
use dray_report::{Comparison, Judgement, Run};
use dray_results::{Check, Results, Verdict};

use crate::common::{Failure, cancel_on_signals, print, usage};
use crate::laboratory::measuring::{Outputs, in_words, measure};
use crate::laboratory::output::Output;
use crate::laboratory::{papers, selfcheck, values};
use crate::parse;
use crate::parse::CpuList;

/// Measure how fast containers on this host talk to each other, and at what cost.
///
/// Containers, links and traffic are created for the run, in namespaces of their own; the host's
/// network is not touched, and nothing is left behind.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the experiment; without one, every technique that this host can run.
    experiment: Option<String>,
    /// List the experiments with the time that each takes (with --quick: that of a quick run), and
    /// the links and endpoints that techniques consist of.
    #[arg(long)]
    list: bool,
    /// Shorten every trial to about a second, for a first look.
    #[arg(long)]
    quick: bool,
    /// Frame sizes in bytes, from destination MAC to end of payload.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = values::number::<usize>)]
    size: Option<Vec<usize>>,
    /// Frames per second; without it, as many as possible.
    #[arg(long, value_name = "PPS", allow_hyphen_values = true, value_parser = values::rate)]
    rate: Option<f64>,
    /// Search for the highest rate at which at most this share of frames is lost, or one rate per
    /// share in the list; 0 for the non-drop rate.
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true,
        value_parser = values::share)]
    loss: Option<Vec<f64>>,
    /// Frames per burst.
    #[arg(long, value_name = "FRAMES", value_parser = values::number::<usize>)]
    burst: Option<usize>,
    /// Flows per link of the sender; for tcp techniques, streams per sender.
    #[arg(long, value_name = "COUNT", value_parser = values::number::<u16>)]
    flows: Option<u16>,
    /// Numbers of concurrent sender/receiver pairs, over one segment.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::number::<usize>)]
    pairs: Option<Vec<usize>>,
    /// MAC address pairs to rotate through.
    #[arg(long, value_name = "PAIRS", value_parser = values::number::<u16>)]
    stations: Option<u16>,
    /// Techniques: LINK, ENDPOINT or LINK/ENDPOINT.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    technique: Option<Vec<String>>,
    /// How thoroughly receivers check frames: `whole`, or `sampled` (headers, and every 64th frame
    /// whole); by default as much as the technique can bear.
    #[arg(long, value_parser = values::check)]
    check: Option<Check>,
    /// Length of each measurement, after its warm-up.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration)]
    duration: Option<Duration>,
    /// Trials per technique.
    #[arg(long, value_name = "COUNT", value_parser = values::number::<usize>)]
    trials: Option<usize>,
    /// Seed for the order of trials; recorded in results.
    #[arg(long, value_name = "NUMBER", value_parser = values::number::<u32>)]
    seed: Option<u32>,
    /// MTU of the links.
    #[arg(long, value_name = "BYTES", value_parser = values::number::<u32>)]
    mtu: Option<u32>,
    /// SR-IOV network card for the link sriov. Containers get virtual functions of the card during
    /// the measurement and give them back; the card itself is not touched.
    #[arg(long, value_name = "INTERFACE")]
    parent: Option<String>,
    /// Bits per second of the cable between two hosts, for links that have one (`hosts/*` and
    /// tunnels): 10G, 2.5G, 100M; by default as many as the machine passes.
    #[arg(long, value_name = "RATE", value_parser = values::bits)]
    cable: Option<u64>,
    /// CPUs for the roles: sender, receiver, forwarders; a switch gets the first one for itself.
    #[arg(long, value_name = "LIST", value_parser = parse::cpus)]
    cpus: Option<CpuList>,
    /// Runtimes that create the containers: embedded, docker, podman, lxc, crun or runc; a list
    /// runs each in turn.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    runtime: Option<Vec<Runtime>>,
    /// Write the results to this file as JSON, trial by trial; `-` writes to standard output
    /// instead of the table. An existing file is an error, except with --force.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Replace the file of --json if it exists.
    #[arg(long, requires = "json")]
    force: bool,
    /// Resume the interrupted run that wrote this file. Options need not be given again; those that
    /// are must be unchanged.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Compare with these results at the end: exit status 3 if something got slower, 4 if nothing
    /// did but not everything could be judged.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write a report to this file: one HTML page with charts. `dray report` creates it from JSON,
    /// too.
    #[arg(long, value_name = "FILE", value_parser = values::page)]
    report: Option<PathBuf>,
    /// Print a summary instead of the table: the best technique for each purpose, and a row for
    /// each link.
    #[arg(long)]
    summary: bool,
}

const EXAMPLES: &str = "\
Examples:
  dray bench --quick
  dray bench --quick --summary --json demo.json --report demo.html
  dray bench --technique veth/udp-mmsg,bridge --size 64,512,1500 --json results.json
  dray bench switches --quick --report switches.html
  dray bench --technique switch,direct --check whole
  dray bench --technique switch --size 64 --stations 1000
  dray bench ara2019-table1 --duration 20
  dray bench --runtime docker --technique veth,switch --quick
  dray bench --technique raw-mmsg --rate 100k
  dray bench --technique tcp --flows 4 --mtu 9000
  dray bench --technique bridge/tcp --pairs 1,16,128
  dray bench claassen2016-local-tcp --quick --pairs 1,2,4
  dray bench loss-free --quick --technique veth/raw-mmsg,switch
  dray bench --technique bridge --loss 0,0.1%
  dray bench switches --trials 5 --json monday.json
  dray bench --resume monday.json                     after Ctrl-C
  dray bench switches --trials 5 --baseline monday.json
  dray bench selfcheck                                check dray's own figures
  dray bench paper-all --quick --report papers.html   all papers, compared with this machine

Exit status: 0 done; 1 failed, interrupted, or nothing could be measured; 2 invalid usage; with
--baseline also 3 slower, 4 not slower, but not everything could be judged.

Words: docs/measurement.md explains each word in tables and JSON (\"Words\").";

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.list {
        return print(&list(arguments.quick)?);
    }
    let outputs = outputs(&arguments);
    let baseline = arguments.baseline.as_deref().map(Run::read).transpose()?;
    let given = arguments.experiment;
    let choices = Choices {
        sizes: arguments.size,
        burst: arguments.burst,
        flows: arguments.flows,
        pairs: arguments.pairs,
        stations: arguments.stations,
        rate: arguments.rate,
        losses: arguments.loss,
        techniques: arguments.technique,
        check: arguments.check,
        duration: arguments.duration,
        trials: arguments.trials,
        mtu: arguments.mtu,
        parent: arguments.parent,
        cable: arguments.cable,
        cpus: arguments.cpus.map(|list| list.0),
        seed: arguments.seed,
        quick: arguments.quick,
        runtimes: arguments.runtime,
    };
    if given.as_deref() == Some(selfcheck::NAME) {
        let others = [&arguments.resume, &arguments.report, &arguments.baseline];
        if choices != Choices::default()
            || others.into_iter().any(Option::is_some)
            || arguments.summary
        {
            return Err(usage!("selfcheck: the only option allowed is --json"));
        }
        let json = arguments.json.map(|path| Output::create("--json", &path, arguments.force));
        return selfcheck::run(json.transpose()?);
    }
    if given.as_deref() == Some(papers::NAME) {
        if arguments.baseline.is_some() {
            let why = "a baseline belongs to one experiment; give --baseline with that one";
            return Err(usage!("--baseline with {}: {why}", papers::NAME));
        }
        if arguments.summary {
            let why = "a summary is of one experiment; `dray report --format text` takes several";
            return Err(usage!("--summary with {}: {why}", papers::NAME));
        }
        if arguments.force {
            let why = "its folder is new, or of the run that --resume continues";
            return Err(usage!("--force with {}: {why}", papers::NAME));
        }
        let (folder, resume, report) = (arguments.json, arguments.resume, arguments.report);
        return papers::run(&choices, &papers::Where { folder, resume, report });
    }
    let mut run = match &arguments.resume {
        Some(file) => {
            let results = Run::read(file)?.results;
            let resumed = PlannedRun::resume(results, given.as_deref(), &choices);
            resumed.map_err(|error| usage!("--resume {}: {error}", file.display()))?
        }
        None => {
            let name = given.as_deref().unwrap_or(experiments::DEFAULT);
            let experiment = experiments::find(name).map_err(Failure::usage)?;
            let command = dray_lab::command_line(std::env::args_os());
            PlannedRun::new(experiment, choices, command).map_err(Failure::usage)?
        }
    };
    let cancel = cancel_on_signals()?;
    let outputs = outputs.open()?;
    let (results, ended) = measure(&mut run, &outputs, &cancel);
    if let Some(error) = ended {
        return Err(show_partial_results(error, &results, outputs));
    }
    outputs.write(&results)?;
    check_results(&results)?;
    baseline.map_or(Ok(()), |baseline| compare_with_baseline(&baseline, results))
}

/// Returns the paths of the outputs.
fn outputs(arguments: &Arguments) -> Outputs<PathBuf> {
    let (json, resume) = (arguments.json.clone(), arguments.resume.clone());
    // A resumed run replaces its own file.
    let force = arguments.force || json.is_none() || json == resume;
    let json = json.or(resume);
    Outputs { json, page: arguments.report.clone(), summary: arguments.summary, force }
}

/// Shows what a run found that ended early, and where it is saved.
fn show_partial_results(error: LabError, results: &Results, outputs: Outputs) -> Failure {
    // If only the limit of the machine was measured, there is nothing to show.
    let Some(incomplete) = results.incomplete.as_ref().filter(|it| it.trials_done > 0) else {
        return Failure::Failed(error.into());
    };
    let trials = format!("{} of {} trials", incomplete.trials_done, incomplete.trials);
    let kept = match outputs.json.as_ref().and_then(Output::file) {
        Some(path) => {
            format!("{trials} are saved in {0}; continue with --resume {0}", path.display())
        }
        _ => format!("{trials} were run and not saved; give --json FILE to be able to resume"),
    };
    match outputs.write(results) {
        Ok(()) => Failure::Failed(anyhow!("{error}; {kept}")),
        Err(failure) => failure,
    }
}

/// Fails if no technique was measured, or if something went wrong that must not be overlooked.
fn check_results(results: &Results) -> Result<(), Failure> {
    let rows = || results.results.iter();
    let isolations = || rows().filter_map(|row| Some((row, row.isolation()?)));
    let skipped = results.skipped().count();
    // An experiment without rows measures the limit of the machine.
    if skipped > 0 && skipped == results.results.len() + results.streams.len() {
        let reasons = results.reasons_for_skipping().join("; ");
        return Err(anyhow!("nothing could be measured: {reasons}").into());
    }
    match isolations().find(|(_, found)| found.verdict != Verdict::Isolated) {
        Some((row, _)) => {
            Err(anyhow!("{}: containers were not isolated from each other", row.technique).into())
        }
        None => Ok(()),
    }
}

/// Prints what changed since the baseline; fails if something got slower or could not be judged.
fn compare_with_baseline(baseline: &Run, results: Results) -> Result<(), Failure> {
    let now = Run { file: "this run".to_owned(), results };
    let comparison = Comparison::new(baseline, &now)?;
    // Standard output may hold the JSON.
    eprint!("\n{}", comparison.render());
    let count = |verdict| comparison.count(verdict);
    let (slower, unjudged) = (count(Judgement::Slower), count(Judgement::NotJudged));
    if slower > 0 {
        return Err(Failure::Slower(anyhow!(
            "--baseline {}: slower rows: {slower}",
            baseline.file
        )));
    }
    let missing = comparison.only_a.len();
    if unjudged + missing > 0 {
        return Err(Failure::NotJudged(anyhow!(
            "--baseline {}: no row is slower, but {unjudged} could not be judged and \
             {missing} of the baseline were not measured",
            baseline.file
        )));
    }
    Ok(())
}

/// Returns true if `dray bench` has an experiment of this name.
pub(crate) fn is_experiment(name: &str) -> bool {
    let others = [papers::NAME, selfcheck::NAME];
    others.contains(&name) || EXPERIMENTS.iter().any(|experiment| experiment.name == name)
}

/// Adds to the definition of this command the names that its arguments take, for completions. The
/// arguments themselves are parsed by code that knows the nearest match.
#[cfg(feature = "install")]
pub(crate) fn with_names(bench: clap::Command) -> clap::Command {
    use clap::builder::{PossibleValue, PossibleValuesParser};
    let of_papers_and_checks = [(papers::NAME, papers::ABOUT), (selfcheck::NAME, selfcheck::ABOUT)];
    let experiments = EXPERIMENTS.iter().map(|experiment| (experiment.name, experiment.about));
    let experiments = experiments.chain(of_papers_and_checks);
    let links = LinkKind::every().into_iter().map(|link| (link.name, link.about));
    let value = |(name, about)| PossibleValue::new(name).help(about);
    let experiments = PossibleValuesParser::new(experiments.map(value));
    let links = PossibleValuesParser::new(links.map(value));
    let runtimes = PossibleValuesParser::new(Runtime::ALL.map(Runtime::name));
    bench
        .mut_arg("experiment", |argument| argument.value_parser(experiments))
        .mut_arg("technique", |argument| argument.value_parser(links))
        .mut_arg("runtime", |argument| argument.value_parser(runtimes))
}

fn list(quick: bool) -> Result<String, Failure> {
    let section = |title: &str, entries: Vec<(&str, String)>| {
        let line = |(name, about): (&str, String)| format!("  {name:26}{about}\n");
        format!("{title}:\n{}\n", entries.into_iter().map(line).collect::<String>())
    };
    let choices = Choices { quick, ..Choices::default() };
    let duration =
        |experiment| Plan::new(experiment, &choices).map(|plan| plan.on_this_host().duration());
    let mut entries = Vec::new();
    let timed = |name, duration, about| (name, format!("{:>12}  {about}", in_words(duration)));
    for experiment in EXPERIMENTS {
        let duration = duration(experiment).map_err(Failure::usage)?;
        entries.push(timed(experiment.name, duration, experiment.about));
    }
    let papers: Result<Vec<_>, _> = experiments::of_papers().map(duration).collect();
    let papers = papers.map_err(Failure::usage)?.into_iter().sum();
    entries.push(timed(papers::NAME, papers, papers::ABOUT));
    entries.push(timed(selfcheck::NAME, selfcheck::DURATION, selfcheck::ABOUT));
    let links = LinkKind::every().into_iter().map(|link| (link.name, link.about.to_owned()));
    let endpoints = Endpoint::all().into_iter().map(|it| (it.name, it.about.to_owned()));
    let title = match quick {
        true => "Experiments, and the time that each takes on this host with --quick",
        false => {
            "Experiments, and the time that each takes on this host (--list --quick: with --quick)"
        }
    };
    Ok(section(title, entries)
        + &section("Links", links.collect())
        + &section("Endpoints", endpoints.collect())
        + "A technique is LINK/ENDPOINT, or LINK alone where memory is shared with virtio.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Run {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/results/sockets.json");
        Run::read(std::path::Path::new(folder)).unwrap()
    }

    /// Returns the results with each receive rate multiplied.
    fn faster(factor: f64) -> Results {
        let mut value = serde_json::to_value(results().results).unwrap();
        for row in value["results"].as_array_mut().unwrap() {
            let scale =
                |rate: &mut serde_json::Value| *rate = (rate.as_f64().unwrap() * factor).into();
            if row["received_pps"].is_number() {
                scale(&mut row["received_pps"]);
                row["samples_pps"].as_array_mut().unwrap().iter_mut().for_each(scale);
            }
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn baseline_fails_on_slower_and_unjudged_rows() {
        let status = |now| match compare_with_baseline(&results(), now) {
            Ok(()) => 0,
            Err(Failure::Slower(_)) => 3,
            Err(Failure::NotJudged(_)) => 4,
            Err(Failure::Usage(error) | Failure::Failed(error)) => panic!("{error}"),
        };
        assert_eq!((status(faster(1.0)), status(faster(2.0)), status(faster(0.5))), (0, 0, 3));
        let mut missing = faster(2.0);
        missing.results.pop();
        assert_eq!(status(missing), 4);
    }
}
