//! The user plane function as a program, on any two ports.

use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use dray_daemon::{
    ControlAddress, ControlSocket, FAREWELL, MetricsAddress, Store, Supervisor, default_control,
};
use dray_datapath::{Cancel, Placement};
use dray_port::{LinkState, LinkStatus, PortUri};
use dray_switch::config::Idle;
use dray_upf::api::{self, CONTROL, Stats};
use dray_upf::{Offer, RunningUpf, Succession, Upf};
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use super::ports::{Given, Ports};
use super::show;
use crate::common::{Failure, cancel_on_signals, print, print_json, usage};
use crate::log::{self, LogArguments, LoggedPort, PortLog};
use crate::parse;
use crate::parse::CpuList;
use crate::sandbox::Confinement;

/// Options of the daemon.
#[derive(clap::Args)]
pub(super) struct DaemonArguments {
    /// Workers per direction [default: 1]; both ports need as many queues (`queues=` in their URIs).
    #[arg(long, value_name = "NUMBER")]
    workers: Option<u16>,
    /// CPUs, assigned to workers in turn, those of the uplink first [default: one for each].
    #[arg(long, value_name = "LIST", value_parser = parse::cpus)]
    cpus: Option<CpuList>,
    /// Time without packets after which a direction sleeps, such as 50us (the default), or `never`.
    #[arg(long, value_name = "TIME")]
    idle: Option<Idle>,
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
    #[command(flatten)]
    confinement: Confinement,
    /// Take over from the user plane function that runs at the control socket: peers stay connected,
    /// and sessions, usage and counters stay. Options that are not given, and without --config the
    /// configuration, are as they are there.
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    log: LogArguments,
    /// Write the counters as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(given: Given, mut arguments: DaemonArguments) -> Result<(), Failure> {
    std::mem::take(&mut arguments.log).start()?;
    let DaemonArguments { duration, take_over, json, .. } = arguments;
    let confined = arguments.confinement.clone().begin()?;
    let control = arguments.control.clone().unwrap_or_else(|| default_control(CONTROL).into());
    let mut past = take_over.then(|| Succession::request(&control.path)).transpose()?;
    let before = past.as_ref().map(|past| serde_json::from_str::<Options>(past.options()));
    let before = before.transpose()?;
    let has_config = given.config.is_some();
    let uri = |number| past.as_ref()?.uri(number).cloned();
    let ports = (
        given.n3.or_else(|| uri(0)),
        given.n6.or_else(|| uri(1)),
        given.config.or_else(|| before.as_ref().map(|before| before.config.clone())),
    );
    let (Some(n3), Some(n6), Some(config)) = ports else {
        return Err(usage!("give --n3, --n6 and --config"));
    };
    let ports = &Ports { n3, n6, config };
    let options = arguments.options(ports, before.as_ref())?;
    let Options { metrics, workers, idle, ref cpus, .. } = options;
    let threads = 2 * usize::from(workers);
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
    let config = match &past {
        Some(past) if !has_config => past.config().clone(),
        _ => ports.load()?,
    };
    let cancel = cancel_on_signals()?;
    dray_port::share_heap();
    dray_port::survive_truncation()?;
    dray_daemon::watch_threads();
    dray_daemon::announce_failures();
    dray_daemon::refuse_own_sockets();
    let mut supervisor = Supervisor::from_environment();
    let store = supervisor.store();
    past = past.or_else(|| left(store.as_ref()?));
    // Bind the socket first: a second daemon must fail before it touches ports.
    let (socket, monitors) = listen(&control, metrics, past.as_mut())?;
    let disconnects = past.as_ref().map(Succession::disconnects).unwrap_or_default();
    let mut log = PortLog::after(["n3", "n6"].map(str::to_owned).into_iter().zip(disconnects));
    let confine = || confined.enter(&control.path, [&ports.n3, &ports.n6], None);
    let [n3, n6] = ports.open(past.as_mut(), confine)?;
    let upf = Upf::resume(&config, past.as_mut(), n3, n6, workers.into());
    let (upf, directions) = upf.map_err(|error| ports.wrong(error))?;
    let sessions = upf.session_count();
    let mut running = RunningUpf::prepare(upf, directions, cpus, idle)?;
    past.map_or(Ok(()), |past| past.go_on(running.upf()))?;
    running.go();
    let offer = Offer {
        config: &config,
        ports: [&ports.n3, &ports.n6],
        options: serde_json::to_string(&options)?,
        control: socket.as_fd(),
        metrics: monitors.as_ref().map(AsFd::as_fd),
    };
    let is_kept = store.is_some();
    running.upf().record(offer, store)?;
    let reports = running.upf().clone();
    let server = api::serve(socket, running.upf().clone(), move || say_last(&reports));
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
    supervisor.ready(&dray_text::count(sessions, "session"));
    let deadline = duration.map(|duration| Instant::now() + duration);
    loop {
        report(running.upf());
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
    if is_kept && dray_daemon::failure().is_none() {
        running.upf().leave(|| {
            say_last(running.upf());
            // The next process goes on in any case.
            let _ = say_end(running.upf(), started, json);
            std::process::exit(0)
        });
    }
    drop((server, monitors));
    running.stop();
    if let Some(why) = dray_daemon::failure() {
        dray_daemon::exit(why);
    }
    say_end(running.upf(), started, json)
}

impl DaemonArguments {
    /// Returns these options, and those of the process `before` where none are given.
    fn options(&self, ports: &Ports, before: Option<&Options>) -> Result<Options, Failure> {
        let workers = self.workers.or(before.map(|before| before.workers)).unwrap_or(1);
        let threads = 2 * usize::from(workers);
        let cpus = match (&self.cpus, before.filter(|before| before.workers == workers)) {
            (None, Some(before)) => before.cpus.clone(),
            (None, None) => {
                Placement::of_this_process().assign(threads).iter().map(|cpu| cpu.id).collect()
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
            metrics: self.metrics.or(before.and_then(|before| before.metrics)),
            workers,
            cpus,
            idle: self.idle.or(before.map(|before| before.idle)).unwrap_or_default(),
        })
    }
}

/// Options that the process after this one gets.
#[derive(Serialize, Deserialize)]
struct Options {
    config: PathBuf,
    metrics: Option<MetricsAddress>,
    workers: u16,
    cpus: Vec<usize>,
    idle: Idle,
}

/// Listens at the control socket, and at the address for metrics, or takes the sockets of `past`.
fn listen(
    control: &ControlAddress,
    metrics: Option<MetricsAddress>,
    past: Option<&mut Succession>,
) -> Result<(ControlSocket, Option<TcpListener>), Failure> {
    let is_running = past.as_ref().is_some_and(|past| past.is_running());
    let [socket, monitors] = past.map(Succession::take_sockets).unwrap_or_default();
    let socket = match socket {
        Some(socket) if is_running => ControlSocket::inherit(&control.path, socket)?,
        left => ControlSocket::inherit_or_bind(control, left)?,
    };
    let monitors = metrics.map(|address| address.listen_with(monitors)).transpose()?;
    Ok((socket, monitors))
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
fn say_last(upf: &Upf) {
    report(upf);
    let packets = upf.buffered();
    if packets > 0 {
        warn!(packets, "buffered packets are lost");
    }
}

/// Says that the user plane function has ended, and what it has counted.
fn say_end(upf: &Upf, started: Instant, json: bool) -> Result<(), Failure> {
    if dray_daemon::log::is_journal() {
        info!("user plane function ended");
        return Ok(());
    }
    let stats = Stats::from(upf);
    match json {
        true => print_json(&stats),
        false => print(&show::ended(&stats, started.elapsed())),
    }
}

/// Returns what an earlier process has left in `store`, if there is anything that can be used.
fn left(store: &Store) -> Option<Succession> {
    match Succession::of_store(store) {
        Ok(past) => {
            let sessions = past.as_ref().map(Succession::session_count);
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
