//! The switch as a program: its options, its start and its end.

use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dray_cni::{Opened, Records};
use dray_daemon::ControlSocket;
use dray_datapath::{Cancel, Placement, placement};
use dray_port::PortUri;
use dray_service::{PortLog, Sockets};
use dray_switch::api::{self, Observed};
use dray_switch::apply::{Configuration, Kind};
use dray_switch::config::{Name, PortError, read_file};
use dray_switch::{
    Flow, Mode, PortConfig, PortStats, RestoredState, Switch, SwitchConfig, SwitchControl,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;
use tracing::{error, info, warn};

use super::{keys, show};
use crate::common::{Failure, cancel_on_end, cancel_on_signals};
use crate::parse;
use crate::parse::CpuList;
use crate::sandbox::Confined;
use crate::service::{Daemon, Process, ServiceArguments, report_start};

/// Options of a switch, which override those of the file.
#[derive(clap::Args)]
pub(super) struct DaemonArguments {
    /// Read the configuration from this file, and apply it again on SIGHUP.
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// How frames find their port: `learning` (by MAC address, the default) or `patch` (in pairs).
    #[arg(long, value_parser = word::<Mode>)]
    mode: Option<Mode>,
    /// Behaviour when a receiver is full: `drop` (the default), or `backpressure` in patch mode.
    #[arg(long, value_parser = word::<Flow>)]
    flow: Option<Flow>,
    /// CPUs, one worker on each; without it, one worker.
    #[arg(long, value_name = "LIST", value_parser = parse::cpus)]
    cpus: Option<CpuList>,
    #[command(flatten)]
    service: ServiceArguments,
    #[arg(long, value_name = "NAME=URI", help = keys::help())]
    port: Vec<PortConfig>,
    /// Further ports, as for --port.
    #[arg(value_name = "NAME=URI", value_parser = port)]
    ports: Vec<PortConfig>,
}

/// Part of a configuration that comes from the command line, and not from the file.
struct Given {
    /// Keys of the file that it overrides.
    keys: Vec<&'static str>,
    /// Names of its ports.
    ports: Vec<Name>,
}

/// Parses a port without `--port`. A word without `=` was meant to be a command.
fn port(text: &str) -> Result<PortConfig, String> {
    if !text.contains('=') {
        if text.parse::<PortUri>().is_ok() {
            return Err(format!("a port needs a name: a={text}"));
        }
        let what = "neither a port (NAME=URI, for example a=raw:eth0) nor a command (add-port, \
                    del-port, apply, ports, stats, fdb, status, health, metrics)";
        return Err(what.to_owned());
    }
    text.parse().map_err(|error: PortError| error.to_string())
}

/// Parses a word of the configuration file.
fn word<'de, T: Deserialize<'de>>(text: &str) -> Result<T, String> {
    T::deserialize(text.to_owned().into_deserializer())
        .map_err(|error: Error| dray_text::parse_error("", &error.to_string()))
}

pub(super) fn run(mut arguments: DaemonArguments) -> Result<(), Failure> {
    let process = Process::begin(&mut arguments.service)?;
    let (file, given) = (arguments.config.clone(), arguments.given());
    let takes_over = arguments.service.take_over;
    raise_file_limit()?;
    let there: Vec<u32> = placement::reachable().into_iter().map(|cpu| cpu as u32).collect();
    let mut restored = None;
    let mut config = match arguments.config.clone() {
        Some(path) => SwitchConfig::load(&path, |config| arguments.apply(config), &there),
        None => {
            let mut config = SwitchConfig::default();
            if takes_over {
                let control = arguments.service.control.as_ref().unwrap_or(&config.control);
                let running = RestoredState::request(&control.path)?;
                config = SwitchConfig { control: control.clone(), ..running.settings()? };
                restored = Some(running);
            }
            arguments.apply(&mut config);
            config.check(&there).map(|()| config)
        }
    }
    .map_err(Failure::usage)?;
    if takes_over && restored.is_none() {
        restored = Some(RestoredState::request(&config.control.path)?);
    }
    if config.cpus.is_empty() {
        let node = config.ports.iter().find_map(|port| port.uri.numa_node());
        let cpus = Placement::of_this_process().near(node).assign(1);
        config.cpus = cpus.iter().map(|cpu| cpu.id as u32).collect();
    }
    let restored = restored.or_else(|| process.left(RestoredState::of_store, "peers connect anew"));
    serve(process, &config, file, given, restored)
}

impl DaemonArguments {
    /// Returns what these options override in a configuration file.
    fn given(&self) -> Given {
        let keys = [
            ("mode", self.mode.is_some()),
            ("flow", self.flow.is_some()),
            ("cpus", self.cpus.is_some()),
            ("idle", self.service.idle.is_some()),
            ("control", self.service.control.is_some()),
            ("metrics", self.service.metrics.is_some()),
        ];
        let keys = keys.into_iter().filter(|(_, is_given)| *is_given).map(|(key, _)| key);
        let ports = self.port.iter().chain(&self.ports).map(|port| port.name.clone());
        Given { keys: keys.collect(), ports: ports.collect() }
    }

    fn apply(self, config: &mut SwitchConfig) {
        let Self { mode, flow, cpus, port, ports, .. } = self;
        let ServiceArguments { idle, control, metrics, .. } = self.service;
        config.mode = mode.unwrap_or(config.mode);
        config.flow = flow.unwrap_or(config.flow);
        config.idle = idle.unwrap_or(config.idle);
        if let Some(CpuList(cpus)) = cpus {
            config.cpus = cpus.into_iter().map(|cpu| cpu as u32).collect();
        }
        if let Some(control) = control {
            config.control = control;
        }
        config.metrics = metrics.or(config.metrics);
        config.ports.extend(port.into_iter().chain(ports));
    }
}

/// Starts the switch, and serves until it is cancelled or another process takes over.
fn serve(
    mut process: Process,
    config: &SwitchConfig,
    file: Option<PathBuf>,
    given: Given,
    restored: Option<RestoredState>,
) -> Result<(), Failure> {
    let (cancel, file) = match file {
        Some(path) => (cancel_on_end()?, Some(Reload::on_signal(path)?)),
        None => (cancel_on_signals()?, None),
    };
    dray_service::begin()?;
    let path = file.as_ref().map(|file| file.path.as_path());
    let Started { engine, socket, monitors, again, problems, mut log } = match restored {
        Some(restored) => take_over(config, path, &process.confined, restored)?,
        None => start(config, path, &process.confined)?,
    };
    engine.give(given.ports);
    engine.record(config, Sockets::new(&socket, monitors.as_ref())?, process.take_store())?;
    let present = Arc::new(Configuration::new(config.clone(), given.keys));
    let server = api::serve(socket, engine.clone(), present.clone());
    let monitors =
        monitors.map(|listener| api::serve_monitors(listener, engine.clone(), present.clone()));
    let ports: Vec<_> = engine.ports().into_iter().map(|port| port.config).collect();
    let (control, count) = (config.control.path.display(), ports.len());
    report_start(
        || info!(%control, cpus = ?config.cpus, ports = count, "switch started"),
        || show::started(&SwitchConfig { ports, ..config.clone() }),
    );
    if again > 0 {
        info!(ports = again, "containers have their ports again");
    }
    for problem in &problems {
        warn!(problem, "container without port");
    }
    let status = dray_text::count(count, "port");
    let switch = Running { engine: engine.clone(), present: present.clone(), file, cancel };
    let observed = Observed::new(&*engine, &present);
    process.serve(switch, &observed, (server, monitors), &mut log, &status)
}

/// The switch, its configuration, and what ends it.
struct Running {
    engine: Arc<Switch>,
    present: Arc<Configuration>,
    file: Option<Reload>,
    cancel: Cancel,
}

impl Daemon for Running {
    const NAME: &str = "switch";

    fn tend(&mut self) -> bool {
        if let Some(file) = self.file.as_ref().filter(|file| file.is_due()) {
            if file.has_lost_terminal() {
                return false;
            }
            reload(&file.path, &self.present, &self.engine);
        }
        self.cancel.check().is_ok()
    }

    fn leave(&self) {
        info!("switch ended");
        self.engine.leave(|| std::process::exit(0));
    }

    fn ended(&self) -> Result<String, Failure> {
        let stats: Vec<_> = self.engine.ports().into_iter().map(PortStats::from).collect();
        Ok(show::ended(&self.engine.status(), &stats))
    }
}

/// The configuration file, and the signal to read it again.
struct Reload {
    path: PathBuf,
    signal: Arc<AtomicBool>,
    has_terminal: bool,
}

impl Reload {
    fn on_signal(path: PathBuf) -> io::Result<Self> {
        let signal = Arc::default();
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signal))?;
        Ok(Self { path, signal, has_terminal: io::stderr().is_terminal() })
    }

    /// Returns true once for each SIGHUP.
    fn is_due(&self) -> bool {
        self.signal.swap(false, Ordering::Relaxed)
    }

    /// Returns true if the terminal was closed, which also sends SIGHUP.
    fn has_lost_terminal(&self) -> bool {
        self.has_terminal && !io::stderr().is_terminal()
    }
}

/// Applies the configuration file; the log says what was changed, or why nothing was.
fn reload(path: &Path, config: &Configuration, engine: &Switch) {
    // A link may lead out of the directories that the sandbox leaves.
    let is_there = || path.symlink_metadata().is_ok();
    let text = read_file(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
            if dray_sandbox::is_entered() && is_there() =>
        {
            format!(
                "{error}: the sandbox does not let the switch read this file; use dray switch apply"
            )
        }
        _ => error.to_string(),
    });
    let applied =
        text.and_then(|text| config.apply(engine, &text, false).map_err(|error| error.to_string()));
    let file = path.display();
    match applied {
        Ok(changes) => {
            let [added, removed, changed] = [Kind::Added, Kind::Removed, Kind::Changed]
                .map(|kind| changes.ports.iter().filter(|port| port.change == kind).count());
            let unchanged = changes.unchanged;
            info!(%file, added, removed, changed, unchanged, "configuration applied");
        }
        Err(reason) => error!(%file, reason, "configuration not applied"),
    }
}

/// A switch that runs.
struct Started {
    engine: Arc<Switch>,
    socket: ControlSocket,
    monitors: Option<TcpListener>,
    /// Number of containers' ports that were opened again, and what went wrong with others.
    again: usize,
    problems: Vec<String>,
    log: PortLog,
}

fn start(
    config: &SwitchConfig,
    file: Option<&Path>,
    confined: &Confined,
) -> Result<Started, Failure> {
    // Bind the socket first: a second switch must fail before it touches ports.
    let (socket, monitors) = Sockets::listen(&config.control, config.metrics, None, false)?;
    // Entering the containers' namespaces needs privileges.
    let reopen = || dray_cni::reopen(&Records::default(), &config.control.path);
    let (containers, mut problems) = confined.as_root(reopen)?;
    let ports = config.ports.iter().map(|port| &port.uri);
    let confine = || confined.enter(&config.control.path, ports, file);
    let engine = Switch::start_confined(config, confine)?;
    let mut again = 0;
    for Opened { port, descriptors, .. } in containers {
        match engine.add_port(&port, descriptors) {
            Ok(()) => again += 1,
            Err(error) => problems.push(error.to_string()),
        }
    }
    let (engine, log) = (Arc::new(engine), PortLog::default());
    Ok(Started { engine, socket, monitors, again, problems, log })
}

/// Takes over the running switch, or continues one that has ended.
fn take_over(
    config: &SwitchConfig,
    file: Option<&Path>,
    confined: &Confined,
    mut restored: RestoredState,
) -> Result<Started, Failure> {
    let mut config = config.clone();
    let uris = restored.merge(&mut config)?;
    let disconnects = restored.disconnects();
    let log = PortLog::after(disconnects.map(|(name, count)| (name.to_string(), count)));
    let confine = || confined.enter(&config.control.path, &uris, file);
    let (engine, socket, monitors) = restored.complete(&config, confine)?;
    let engine = Arc::new(engine);
    Ok(Started { engine, socket, monitors, again: 0, problems: Vec::new(), log })
}

/// Raises the limit of open files to its maximum: a port needs several descriptors, and more for
/// those that its peer passes, so the usual 1024 would only suffice for few ports.
fn raise_file_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}
