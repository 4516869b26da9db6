//! The user plane function as a program, on any two ports.

use std::io::{self, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dray_daemon::{ControlAddress, ControlSocket, MetricsAddress, default_control};
use dray_datapath::{Cancel, Idle, Placement};
use dray_service::{PortLog, Sockets};
use dray_upf::api::{self, CONTROL, Stats};
use dray_upf::{RestoredState, RunningUpf, State, Upf, UpfConfig};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::ports::{Given, Ports};
use super::show;
use crate::common::{Failure, cancel_on_signals, json, usage};
use crate::parse;
use crate::parse::CpuList;
use crate::service::{Daemon, Process, ServiceArguments, report_start};

/// Options of the daemon.
#[derive(clap::Args)]
pub(super) struct DaemonArguments {
    /// Workers per direction [default: 1]; both ports need as many queues (`queues=` in their
    /// URIs).
    #[arg(long, value_name = "NUMBER")]
    workers: Option<u16>,
    /// CPUs, assigned to workers in turn, those of the uplink first [default: one for each].
    #[arg(long, value_name = "LIST", value_parser = parse::cpus)]
    cpus: Option<CpuList>,
    /// End after this time; without it, on Ctrl-C.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    service: ServiceArguments,
    /// Write the counters as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(given: Given, mut arguments: DaemonArguments) -> Result<(), Failure> {
    let mut process = Process::begin(&mut arguments.service)?;
    let (plan, restored) = Plan::new(given, &arguments)?;
    let cancel = cancel_on_signals()?;
    dray_service::begin()?;
    let restored = restored.or_else(|| {
        let left =
            process.left(RestoredState::of_store, "sessions are those of the configuration")?;
        info!(sessions = left.session_count(), "continues with what was kept");
        Some(left)
    });
    let Started { running, socket, monitors, mut log } = plan.start(&mut process, restored)?;
    let upf = running.upf().clone();
    let reports = upf.clone();
    let server = api::serve(socket, upf.clone(), move || report_last(&reports));
    let monitors = monitors.map(|listener| api::serve_monitors(listener, upf.clone()));
    let (started, json) = (Instant::now(), arguments.json);
    plan.report_start(upf.session_count());
    let status = dray_text::count(upf.session_count(), "session");
    let deadline = arguments.duration.map(|duration| Instant::now() + duration);
    let daemon = Running { running, cancel, deadline, started, json };
    process.serve(daemon, &*upf, (server, monitors), &mut log, &status)
}

/// The user plane function, and what ends it.
struct Running {
    running: RunningUpf,
    cancel: Cancel,
    deadline: Option<Instant>,
    started: Instant,
    json: bool,
}

impl Daemon for Running {
    const NAME: &str = "user plane function";

    fn tend(&mut self) -> bool {
        report(self.running.upf());
        if let Some(failure) = self.running.failure() {
            dray_daemon::fail(failure);
        }
        let is_due = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.cancel.check().is_ok() && !is_due
    }

    fn leave(&self) {
        let upf = self.running.upf();
        upf.leave(|| {
            report_last(upf);
            // The next process goes on in any case.
            let _ = self.report_end();
            std::process::exit(0)
        });
    }

    fn stop(&mut self) {
        self.running.stop();
    }

    fn ended(&self) -> Result<String, Failure> {
        let stats = Stats::from(&**self.running.upf());
        if self.json {
            return json(&stats);
        }
        Ok(show::ended(&stats, self.started.elapsed()))
    }
}

/// Options of a start, completed by those of a process that hands over.
struct Plan {
    control: ControlAddress,
    ports: Ports,
    config: UpfConfig,
    options: Options,
}

/// A user plane function that runs.
struct Started {
    running: RunningUpf,
    socket: ControlSocket,
    monitors: Option<TcpListener>,
    log: PortLog,
}

impl Plan {
    /// Checks the options. For a take-over, requests it from the process that runs, whose options
    /// replace those that are not given.
    fn new(
        given: Given,
        arguments: &DaemonArguments,
    ) -> Result<(Self, Option<RestoredState>), Failure> {
        let service = &arguments.service;
        let control = service.control.clone().unwrap_or_else(|| default_control(CONTROL).into());
        let restored =
            service.take_over.then(|| RestoredState::request(&control.path)).transpose()?;
        let before =
            restored.as_ref().map(|restored| serde_json::from_str::<Options>(restored.options()));
        let before = before.transpose()?;
        let has_config = given.config.is_some();
        let uri = |number| restored.as_ref()?.uri(number).cloned();
        let ports = (
            given.n3.or_else(|| uri(0)),
            given.n6.or_else(|| uri(1)),
            given.config.or_else(|| before.as_ref().map(|before| before.config.clone())),
        );
        let (Some(n3), Some(n6), Some(config)) = ports else {
            return Err(usage!("give --n3, --n6 and --config"));
        };
        let ports = Ports { n3, n6, config };
        let options = arguments.options(&ports, before.as_ref())?;
        if let Some(uri) =
            [&ports.n3, &ports.n6].into_iter().find(|uri| uri.socket_path() == Some(&control.path))
        {
            return Err(usage!("{uri}: this path is that of the control socket; give another one"));
        }
        let config = match &restored {
            Some(restored) if !has_config => restored.config().clone(),
            _ => ports.load()?,
        };
        Ok((Self { control, ports, config, options }, restored))
    }

    /// Starts the user plane function, or continues `restored`.
    fn start(
        &self,
        process: &mut Process,
        mut restored: Option<RestoredState>,
    ) -> Result<Started, Failure> {
        let Self { control, ports, config, options } = self;
        // Bind the socket first: a second daemon must fail before it touches ports.
        let is_running = restored.as_ref().is_some_and(RestoredState::is_running);
        let sockets = restored.as_mut().and_then(RestoredState::take_sockets);
        let (socket, monitors) = Sockets::listen(control, options.metrics, sockets, is_running)?;
        let disconnects = restored.as_ref().map(RestoredState::disconnects).unwrap_or_default();
        let log = PortLog::after(["n3", "n6"].map(str::to_owned).into_iter().zip(disconnects));
        let confine = || process.confined.enter(&control.path, [&ports.n3, &ports.n6], None);
        let opened = ports.open(restored.as_mut(), confine)?;
        let upf = Upf::create(config, opened, options.workers.into(), restored.as_mut(), &|| ());
        let (upf, directions) = upf.map_err(|error| ports.wrong(error))?;
        let running = RunningUpf::prepare(upf, directions, &options.cpus, options.idle)?;
        restored.map_or(Ok(()), |restored| restored.complete(running.upf()))?;
        running.go();
        let state = State { config: config.clone(), options: serde_json::to_string(options)? };
        let uris = [&ports.n3, &ports.n6].map(Clone::clone);
        let sockets = Sockets::new(&socket, monitors.as_ref())?;
        running.upf().record(state, uris, sockets, process.take_store())?;
        Ok(Started { running, socket, monitors, log })
    }

    fn report_start(&self, sessions: usize) {
        let Self { control, ports, config, options } = self;
        let threads = 2 * usize::from(options.workers);
        let cpus: Vec<_> = options.cpus.iter().cycle().take(threads).copied().collect();
        let path = &control.path;
        report_start(
            || info!(control = %path.display(), ?cpus, sessions, "user plane function started"),
            || show::started(ports, config, sessions, &cpus, path, options.metrics),
        );
    }
}

impl DaemonArguments {
    /// Returns these options, and those of the process `before` where none are given.
    fn options(&self, ports: &Ports, before: Option<&Options>) -> Result<Options, Failure> {
        let workers = self.workers.or(before.map(|before| before.workers)).unwrap_or(1);
        let threads = 2 * usize::from(workers);
        let cpus = match (&self.cpus, before.filter(|before| before.workers == workers)) {
            (None, Some(before)) => before.cpus.clone(),
            (None, None) => {
                let node = ports.n3.numa_node().or_else(|| ports.n6.numa_node());
                let placement = Placement::of_this_process().near(node);
                placement.assign(threads).iter().map(|cpu| cpu.id).collect()
            }
            (Some(CpuList(cpus)), _) => {
                Placement::of(cpus).map_err(Failure::usage)?;
                if cpus.len() > threads {
                    let given = cpus.len();
                    return Err(usage!(
                        "--cpus: {given} CPUs given; give at most {threads}, one for each worker"
                    ));
                }
                cpus.clone()
            }
        };
        Ok(Options {
            config: ports.config.clone(),
            metrics: self.service.metrics.or(before.and_then(|before| before.metrics)),
            workers,
            cpus,
            idle: self.service.idle.or(before.map(|before| before.idle)).unwrap_or_default(),
        })
    }
}

/// Options for the next process.
#[derive(Serialize, Deserialize)]
struct Options {
    config: PathBuf,
    metrics: Option<MetricsAddress>,
    workers: u16,
    cpus: Vec<usize>,
    idle: Idle,
}

/// Writes the events of the data path since the last call.
fn report(upf: &Upf) {
    // Locked first: when the process ends, all that were taken are written.
    let mut stderr = io::stderr().lock();
    for event in upf.events() {
        let text = serde_json::to_string(&event).expect("plain data");
        let _ = writeln!(stderr, "{text}");
    }
}

/// Writes the last events of a process that another one continues, and what is lost.
fn report_last(upf: &Upf) {
    report(upf);
    let packets = upf.buffered();
    if packets > 0 {
        warn!(packets, "buffered packets are lost");
    }
}
