//! Options and texts that `dray switch` and `dray upf` share as daemons.

use std::path::Path;

use dray_daemon::{ControlAddress, MetricsAddress, default_control};
use dray_datapath::Idle;

use crate::log::LogArguments;
use crate::sandbox::Confinement;

/// Options of a daemon that forwards frames or packets.
#[derive(clap::Args)]
pub(crate) struct ServiceArguments {
    /// Time without traffic after which a data thread sleeps, such as 50us (the default), or `never`.
    #[arg(long, value_name = "TIME")]
    pub(crate) idle: Option<Idle>,
    /// Control socket [default: the usual one in /run/dray; in a lab, the container's own]; may end in
    /// `?mode=0660&group=NAME`.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<ControlAddress>,
    /// Serve metrics for Prometheus, and health, at this TCP address, such as 127.0.0.1:9464: to
    /// whoever reaches it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<MetricsAddress>,
    #[command(flatten)]
    pub(crate) confinement: Confinement,
    /// Take over from the process that runs at the control socket: peers stay connected, and all state
    /// and counters stay. Options that are not given, and without --config the configuration, are as they
    /// are there; ports that it does not have are added to a switch.
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) log: LogArguments,
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

/// Returns the last lines of a daemon's start: its addresses, and the command that `next` returns for
/// the option that selects its control socket. `usual` is that socket's default path.
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
