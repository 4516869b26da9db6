//! The user plane function as a program, on any two ports.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use dray_daemon::{
    ControlAddress, ControlSocket, FAREWELL, MetricsAddress, Store, Supervisor, default_control,
};
use dray_datapath::{Cancel, Placement};
use dray_port::{LinkState, LinkStatus, PortUri};
use dray_switch::config::Idle;
use dray_upf::api::{self, CONTROL, Stats};
use dray_upf::{Past, RunningUpf, Upf};
use tracing::{error, info, warn};

use super::ports::Ports;
use super::show;
use crate::common::{Failure, cancel_on_signals, print, print_json, usage};
use crate::log::{self, LogArguments, LoggedPort, PortLog};
use crate::parse;
use crate::parse::CpuList;
use crate::sandbox::Sandbox;

/// Options of the daemon.
#[derive(clap::Args)]
pub(super) struct DaemonArguments {
    /// Workers per direction; both ports need as many queues (`queues=` in their URIs).
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    workers: u16,
    /// CPUs, assigned to workers in turn, those of the uplink first [default: one for each].
    #[arg(long, value_name = "LIST", value_parser = parse::cpus)]
    cpus: Option<CpuList>,
    /// Time without packets after which a direction sleeps, or `never`.
    #[arg(long, value_name = "TIME", default_value_t = Idle::default())]
    idle: Idle,
    /// End after this time; without it, on Ctrl-C.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration)]
    duration: Option<Duration>,
    /// Control socket [default: /run/dray/upf.sock; in a lab, the container's own]; may end in
    /// `?mode=0660&group=NAME`.
    #[arg(long, value_name = "PATH")]
    control: Option<ControlAddress>,
    /// Serve metrics for Prometheus, and health, at this TCP address, such as 127.0.0.1:9464: to
    /// whoever reaches it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<MetricsAddress>,
    /// Give up capabilities, files and system calls once interfaces are open (`off`: to debug).
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true)]
    sandbox: Sandbox,
    #[command(flatten)]
    log: LogArguments,
    /// Write the counters as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(ports: &Ports, arguments: DaemonArguments) -> Result<(), Failure> {
    let DaemonArguments { workers, cpus, idle, duration, control, metrics, sandbox, log, json } =
        arguments;
    log.start()?;
    let control = control.unwrap_or_else(|| default_control(CONTROL).into());
    let threads = 2 * usize::from(workers);
    let cpus = match cpus {
        None => Placement::of_this_process().assign(threads).iter().map(|cpu| cpu.id).collect(),
        Some(CpuList(cpus)) => {
            Placement::of(&cpus).map_err(Failure::usage)?;
            if cpus.len() > threads {
                let given = cpus.len();
                return Err(usage!(
                    "--cpus: {given} CPUs given; give at most {threads}, one for each worker"
                ));
            }
            cpus
        }
    };
    let idle = match idle {
        Idle::After(time) => Some(time),
        Idle::Never => None,
    };
    if let Some(uri) =
        [&ports.n3, &ports.n6].into_iter().find(|uri| uri.socket_path() == Some(&control.path))
    {
        let what =
            anyhow::anyhow!("{uri}: this path is that of the control socket; give another one");
        return Err(Failure::usage(what));
    }
    let config = ports.load()?;
    let cancel = cancel_on_signals()?;
    dray_port::share_heap();
    dray_daemon::watch_threads();
    dray_daemon::announce_failures();
    let mut supervisor = Supervisor::from_environment();
    // Bind the socket first: a second daemon must fail before it touches ports.
    let socket = ControlSocket::bind(&control)?;
    let monitors = metrics.map(MetricsAddress::listen).transpose()?;
    let store = supervisor.store();
    let mut past = None;
    let [n3, n6] = ports.open(|| {
        // A state is tried once, so what can fail for other reasons comes first.
        past = store.as_ref().and_then(left);
        sandbox.enter(&control.path, [&ports.n3, &ports.n6], None)
    })?;
    let upf = Upf::resume(&config, past, n3, n6, workers.into());
    let (upf, directions) = upf.map_err(|error| ports.wrong(error))?;
    if let Some(store) = store
        && let Err(error) = upf.record(store, &config)
    {
        warn!(%error, "sessions are not kept for a restart");
    }
    let sessions = upf.session_count();
    let mut running = RunningUpf::start(upf, directions, &cpus, idle)?;
    let server = api::serve(socket, running.upf().clone());
    let monitors = monitors.map(|listener| api::serve_monitors(listener, running.upf().clone()));
    let started = Instant::now();
    let used: Vec<_> = cpus.iter().cycle().take(threads).copied().collect();
    if dray_daemon::log::is_journal() {
        let control = control.path.display();
        info!(%control, cpus = ?used, sessions, "user plane function started");
    } else {
        // A closed standard error must not end the user plane function.
        let text = show::started(ports, &config, sessions, &used, &control.path, metrics);
        let _ = io::stderr().write_all(text.as_bytes());
    }
    let mut log = PortLog::default();
    supervisor.ready(&format!("{sessions} sessions"));
    let deadline = duration.map(|duration| Instant::now() + duration);
    loop {
        for event in running.upf().events() {
            let _ = writeln!(io::stderr(), "{}", serde_json::to_string(&event)?);
        }
        if let Some(failure) = running.failure() {
            dray_daemon::fail(failure);
        }
        if let Some(why) = dray_daemon::failure() {
            thread::sleep(FAREWELL);
            dray_daemon::exit(why);
        }
        if cancel.check().is_err() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        if let Err(why) = supervisor.tend(|| running.upf().check_alive()) {
            error!("{why}");
        }
        log.look(|| logged(ports, running.upf()));
        thread::sleep(Cancel::INTERVAL);
    }
    supervisor.stopping();
    drop((server, monitors));
    running.stop();
    if let Some(why) = dray_daemon::failure() {
        dray_daemon::exit(why);
    }
    if dray_daemon::log::is_journal() {
        info!("user plane function ended");
        return Ok(());
    }
    let stats = Stats::from(&**running.upf());
    match json {
        true => print_json(&stats),
        false => print(&show::ended(&stats, started.elapsed())),
    }
}

/// Returns what an earlier process has left in `store`, if there is anything that can be used.
fn left(store: &Store) -> Option<Past> {
    match Past::of_store(store) {
        Ok(past) => {
            let sessions = past.as_ref().map(Past::session_count);
            sessions.iter().for_each(|sessions| info!(sessions, "continues with what was kept"));
            past
        }
        Err(error) => {
            warn!(%error, "the state before is not used, and sessions are those of the configuration");
            None
        }
    }
}

/// Returns N3 and N6 as the log sees them.
fn logged(ports: &Ports, upf: &Upf) -> Vec<LoggedPort> {
    let named = [("n3", &ports.n3), ("n6", &ports.n6)].into_iter().zip(upf.links());
    let logged = |((name, uri), link): ((&str, &PortUri), LinkStatus)| LoggedPort {
        name: name.to_owned(),
        uri: uri.to_string(),
        is_running: link.state == LinkState::Running,
        failure: None,
        unreachable: link.unreachable,
        disconnects: log::total(&link.ends),
        last_disconnect: link.last_end,
    };
    named.map(logged).collect()
}
