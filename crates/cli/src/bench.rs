//! `dray bench`: run an experiment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use dray_lab::{LinkKind, Runtime};
use dray_measure::isolation::Verdict;
use dray_measure::{Choices, EXPERIMENTS, Endpoint, Plan, experiments, rounds, table};
use dray_report::Report;
use dray_traffic::Check;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;
use crate::parse::CpuList;
use crate::{Failure, cancel_on_signals, parse, print};

/// Measure how fast containers on this host talk to each other, and what it costs.
///
/// Containers, links and traffic are made for the purpose, in namespaces of their own; the host's
/// network is not touched, and nothing is left behind.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The experiment; without one, every technique that this host can run.
    #[arg(default_value = experiments::DEFAULT)]
    experiment: String,
    /// List the experiments, and the links and endpoints that techniques are made of.
    #[arg(long)]
    list: bool,
    /// Shorten every trial to about a second: a first look.
    #[arg(long)]
    quick: bool,
    /// Frame sizes in bytes, from destination MAC to end of payload.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    size: Option<Vec<usize>>,
    /// Frames per second; without it, as many as possible.
    #[arg(long, value_name = "PPS", allow_hyphen_values = true, value_parser = parse::rate)]
    rate: Option<f64>,
    /// Search for the highest rate at which no more than this share of frames is lost, or for one for
    /// each of a list: 0 for the non-drop rate.
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true,
        value_parser = parse::share)]
    loss: Option<Vec<f64>>,
    /// Frames per burst.
    #[arg(long, value_name = "FRAMES")]
    burst: Option<usize>,
    /// Flows per link of the sender; of tcp techniques, streams of each sender.
    #[arg(long)]
    flows: Option<u16>,
    /// So many pairs of sender and receiver at the same time, over one segment.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pairs: Option<Vec<usize>>,
    /// Pairs of machines, by their MAC addresses, that frames are between in turn.
    #[arg(long, value_name = "PAIRS")]
    stations: Option<u16>,
    /// Techniques: LINK, ENDPOINT or LINK/ENDPOINT.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    technique: Option<Vec<String>>,
    /// How closely receivers look at frames: `whole`, or `sampled`, that is headers, and every 64th
    /// frame whole; by default as much as the technique can bear.
    #[arg(long, value_parser = parse::check)]
    check: Option<Check>,
    /// Length of each measurement, after its warm-up.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration)]
    duration: Option<Duration>,
    /// Trials of each technique.
    #[arg(long, value_name = "COUNT")]
    trials: Option<usize>,
    /// MTU of the links.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// The SR-IOV network card for link sriov. While that is measured, containers get virtual functions of
    /// it; they are given back, and the card itself is not touched.
    #[arg(long, value_name = "INTERFACE")]
    parent: Option<String>,
    /// CPUs for the roles: sender, receiver, forwarders; a switch has the first to itself.
    #[arg(long, value_name = "LIST", value_parser = parse::cpus)]
    cpus: Option<CpuList>,
    /// Who makes the containers: embedded, docker, podman, lxc, crun or runc.
    #[arg(long, value_name = "RUNTIME", default_value = "embedded")]
    runtime: Runtime,
    /// Write the results to this file as JSON; `-` for standard output, instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report to this file: one HTML page with charts. `dray report` makes it of JSON, too.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  dray bench --quick
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
  dray bench --technique bridge --loss 0,0.1%";

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.list {
        return print(&list());
    }
    let experiment = experiments::find(&arguments.experiment).map_err(Failure::usage)?;
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
        cpus: arguments.cpus.map(|list| list.0),
        quick: arguments.quick,
        runtime: arguments.runtime,
    };
    let plan = Plan::new(experiment, &choices).map_err(Failure::usage)?;
    let cancel = cancel_on_signals()?;
    // Better to hear now that the results cannot be written than when they are there.
    let open =
        |option, path: Option<&Path>| path.map(|path| Output::open(option, path)).transpose();
    let json = open("--json", arguments.json.as_deref())?;
    let page = open("--report", arguments.report.as_deref())?;
    let to_stdout =
        [&json, &page].into_iter().flatten().filter(|output| output.is_stdout()).count();
    if to_stdout == 2 {
        return Err(Failure::usage(anyhow!(
            "--json - and --report -: only one of them can go there"
        )));
    }
    let progress = progress(plan.trials());
    let results = rounds::run(&plan, Path::new("/proc/self/exe"), &cancel, |index, what| {
        progress.set_position(index as u64);
        progress.set_message(what.to_owned());
    });
    progress.finish_and_clear();
    let results = results?;

    if to_stdout == 0 {
        print(&table::render(&results, experiment))?;
    }
    if let Some(json) = json {
        json.write(&(serde_json::to_string_pretty(&results)? + "\n"))?;
    }
    if let Some(page) = page {
        page.write(&Report::of(results.clone()).html())?;
    }
    let rows = || results.results.iter();
    let isolations = || rows().filter_map(|row| Some((row, row.isolation()?)));
    let is_empty = rows().all(|row| row.measured().is_none())
        && isolations().next().is_none()
        && results.streams.iter().all(|row| row.measured().is_none());
    if results.limits.is_empty() && is_empty {
        return Err(anyhow::anyhow!("nothing could be measured").into());
    }
    if let Some((row, _)) = isolations().find(|(_, found)| found.verdict != Verdict::Isolated) {
        return Err(anyhow::anyhow!("{} did not keep containers apart", row.technique).into());
    }
    Ok(())
}

fn list() -> String {
    let section = |title: &str, entries: Vec<(&str, &str)>| {
        let line = |(name, about): (&str, &str)| format!("  {name:26}{about}\n");
        format!("{title}:\n{}\n", entries.into_iter().map(line).collect::<String>())
    };
    let links = [&LinkKind::ALL[..], &LinkKind::PEERS].concat();
    section("Experiments", EXPERIMENTS.iter().map(|e| (e.name, e.about)).collect())
        + &section("Links", links.iter().map(|link| (link.name, link.about)).collect())
        + &section("Endpoints", Endpoint::all().iter().map(|e| (e.name, e.about)).collect())
        + "A technique is LINK/ENDPOINT, or LINK alone where memory is shared with virtio.\n"
}

fn progress(cases: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{pos}/{len} {msg:24} {elapsed} [{bar:30}]")
        .expect("the template is right");
    let bar = ProgressBar::new(cases as u64).with_style(style);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}
