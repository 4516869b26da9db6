//! `dray upf`, the user plane function itself and the commands that talk to a running one, and
//! `dray upf-load`, which sends packets through it.

mod daemon;
mod load;
mod ports;
mod requests;
mod show;

use clap::Subcommand;

use self::ports::Given;
use crate::common::{Failure, print};
use crate::control::{Control, Health, Query, refused};

pub(crate) use load::{Arguments as LoadArguments, run as load};

/// Run the user plane function of a 5G core (GTP-U tunnels on N3, plain IP on N6), or talk to a
/// running one.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    daemon: daemon::DaemonArguments,
}

const EXAMPLES: &str = "\
Examples:
  dray upf --n3 raw:eth0 --n6 raw:eth1 --config upf.toml
  dray upf --n3 virtio:/run/dray/n3.sock --n6 virtio:/run/dray/n6.sock --config upf.toml --cpus 2,3
  dray upf --n3 'raw:eth0?queues=2' --n6 'raw:eth1?queues=2' --config upf.toml --workers 2
  dray upf --take-over                a new version instead of the running one
  dray upf sessions add more.toml
  dray upf sessions show 1
  dray upf stats

A file with a gNB, a router to the data network, and 8000 sessions:
  [n3]
  mac = \"02:00:00:00:03:01\"
  addresses = [\"10.0.3.1\"]
  [n6]
  mac = \"02:00:00:00:06:01\"
  addresses = [\"10.0.6.1\"]
  routes = [{ to = \"0.0.0.0/0\", via = \"10.0.6.2\" }]
  [generate]
  count = 8000
  gnbs = [\"10.0.3.2\"]
  ue = \"10.45.0.1\"
  qfi = 9";

#[derive(Subcommand)]
enum Command {
    /// List sessions and their usage, or change them.
    #[command(subcommand)]
    Sessions(requests::Sessions),
    /// Show the counters of both directions.
    #[command(after_help = "Examples:\n  dray upf stats\n  dray upf stats --json")]
    Stats(Query),
    /// Show uptime and number of sessions.
    #[command(after_help = "Examples:\n  dray upf status\n  dray upf status --json")]
    Status(Query),
    /// Print `ok` if the data threads run; otherwise fail with the reason.
    #[command(after_help = "\
Examples:
  dray upf health            for liveness probes
  dray upf health --ready    for readiness probes")]
    Health(Health),
    /// Show the metrics that monitoring systems read, as text.
    #[command(after_help = "Example:\n  dray upf metrics | grep dropped")]
    Metrics(Control),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Some(Command::Sessions(sessions)) => requests::sessions(sessions),
        Some(Command::Stats(query)) => {
            query.show(&query.control.upf()?.stats().map_err(refused)?, show::stats)
        }
        Some(Command::Status(query)) => {
            query.show(&query.control.upf()?.status().map_err(refused)?, show::status)
        }
        Some(Command::Health(Health { control, ready })) => {
            control.upf()?.health(ready).map_err(refused)?;
            print("ok\n")
        }
        Some(Command::Metrics(control)) => print(&control.upf()?.metrics().map_err(refused)?),
        None => daemon::run(arguments.given, arguments.daemon),
    }
}
