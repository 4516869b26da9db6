//! Process of `dray switch` and `dray upf`: options, order of its life, and texts.

use std::io::Write;
use std::path::Path;

use dray_daemon::{ControlAddress, MetricsAddress, Server, Store, Supervisor, default_control};
use dray_datapath::Idle;
use dray_service::{PortLog, Service, TakeoverError};
use tracing::{info, warn};

use crate::common::{Failure, print};
use crate::log::LogArguments;
use crate::sandbox::{Confined, Confinement};

/// Options of a daemon that forwards frames or packets.
#[derive(clap::Args)]
pub(crate) struct ServiceArguments {
    /// Time without traffic after which a data thread sleeps, such as 50us (the default), or
    /// `never`.
    #[arg(long, value_name = "TIME")]
    pub(crate) idle: Option<Idle>,
    /// Control socket [default: the usual one in /run/dray; in a lab, the container's own]; may
    /// end in `?mode=0660&group=NAME`.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<ControlAddress>,
    /// Serve metrics for Prometheus, and health, at this TCP address, such as 127.0.0.1:9464.
    /// Every host that reaches the address can read them.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<MetricsAddress>,
    #[command(flatten)]
    pub(crate) confinement: Confinement,
    /// Take over from the process that runs at the control socket: peers stay connected, and all
    /// state and counters stay. Options that are not given, and without --config the
    /// configuration, are as they are there; ports that it does not have are added to a
    /// switch.
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    log: LogArguments,
}

/// Process of a daemon, which has a log and acts as its user, and has no data plane yet.
pub(crate) struct Process {
    pub(crate) confined: Confined,
    supervisor: Supervisor,
    store: Option<Store>,
    /// True if the supervisor has a store, from which the next process continues.
    is_kept: bool,
}

/// A running data plane, in the steps that differ between daemons.
pub(crate) trait Daemon {
    /// Name in the log.
    const NAME: &str;

    /// Does what is due, many times a second. Returns false once the process should end.
    fn tend(&mut self) -> bool;

    /// Records the last state for the next process, and ends this process.
    fn leave(&self);

    /// Ends the data threads, if they do not end with the value.
    fn stop(&mut self) {}

    /// Returns the text at the end.
    fn ended(&self) -> Result<String, Failure>;

    /// Reports that the data plane has ended: in the journal in short, otherwise on standard
    /// output.
    fn report_end(&self) -> Result<(), Failure> {
        if dray_daemon::log::is_journal() {
            info!("{} ended", Self::NAME);
            return Ok(());
        }
        print(&self.ended()?)
    }
}

impl Process {
    /// Starts the log, acts as the user of the options, and connects to the supervisor.
    pub(crate) fn begin(arguments: &mut ServiceArguments) -> Result<Self, Failure> {
        std::mem::take(&mut arguments.log).start()?;
        let confined = arguments.confinement.clone().begin()?;
        let supervisor = Supervisor::from_environment();
        let store = Store::of(&supervisor);
        let is_kept = store.is_some();
        Ok(Self { confined, supervisor, store, is_kept })
    }

    /// Returns what an earlier process has left in the store, as `of_store` reads it. If it is not
    /// usable, the log has the reason and the consequence, `instead`.
    pub(crate) fn left<P>(
        &self,
        of_store: impl FnOnce(&Store) -> Result<Option<P>, TakeoverError>,
        instead: &str,
    ) -> Option<P> {
        of_store(self.store.as_ref()?).unwrap_or_else(|error| {
            warn!(%error, "the state before is not used, and {instead}");
            None
        })
    }

    /// Takes the store, where the data plane records its state.
    pub(crate) fn take_store(&mut self) -> Option<Store> {
        self.store.take()
    }

    /// Serves until the daemon ends. `service` is its data plane as monitoring systems see it, and
    /// `status` what the supervisor shows.
    pub(crate) fn serve(
        mut self,
        mut daemon: impl Daemon,
        service: &impl Service,
        servers: (Server, Option<Server>),
        log: &mut PortLog,
        status: &str,
    ) -> Result<(), Failure> {
        self.supervisor.ready(status);
        dray_service::run(service, &mut self.supervisor, log, || daemon.tend());
        if self.is_kept && dray_daemon::failure().is_none() {
            daemon.leave();
        }
        drop(servers);
        daemon.stop();
        match dray_daemon::failure() {
            None => daemon.report_end(),
            Some(why) => dray_daemon::exit(why),
        }
    }
}

/// Reports that a data plane has started: in the journal by `log`, otherwise by a text on standard
/// error.
pub(crate) fn report_start(log: impl FnOnce(), text: impl FnOnce() -> String) {
    if dray_daemon::log::is_journal() {
        return log();
    }
    // A closed standard error must not end the daemon.
    let _ = std::io::stderr().write_all(text().as_bytes());
}

/// Lists CPUs in words, each once.
pub(crate) fn listed<C: ToString>(cpus: &[C]) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in cpus.iter().map(C::to_string) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [cpu] => format!("CPU {cpu}"),
        cpus => format!("CPUs {}", cpus.join(", ")),
    }
}

/// Returns the last lines of a daemon's start: its addresses, and the command that `next` returns
/// for the option that selects its control socket. `usual` is that socket's default path.
pub(crate) fn addresses(
    control: &Path,
    usual: &str,
    metrics: Option<MetricsAddress>,
    next: impl FnOnce(&str) -> String,
) -> String {
    let option = match control == default_control(usual) {
        true => String::new(),
        false => format!(" --control {}", control.display()),
    };
    let metrics =
        metrics.map_or(String::new(), |address| format!("metrics: http://{address}/metrics\n"));
    let (control, next) = (control.display(), next(&option));
    format!("control socket: {control}\n{metrics}next, from another terminal: {next}\n")
}
