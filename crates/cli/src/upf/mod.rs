//! `dray upf`, the user plane function itself and the commands that talk to a running one, and
//! `dray upf-load`, which sends packets through it.

mod daemon;
mod load;
mod show;
mod talk;

use std::path::PathBuf;

use clap::Subcommand;
use dray_port::{Bound, OpenError, Port, PortUri};
use dray_sandbox::SandboxError;
use dray_upf::UpfConfig;

use crate::common::Failure;

pub(crate) use load::{Arguments as LoadArguments, run as load};

/// Run the user plane function of a 5G core (GTP-U tunnels on N3, plain IP on N6), or talk to a
/// running one.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = EXAMPLES
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    ports: Option<Ports>,
    #[command(flatten)]
    daemon: daemon::DaemonArguments,
}

const EXAMPLES: &str = "\
Examples:
  dray upf --n3 raw:eth0 --n6 raw:eth1 --config upf.toml
  dray upf --n3 virtio:/run/dray/n3.sock --n6 virtio:/run/dray/n6.sock --config upf.toml --cpus 2,3
  dray upf --n3 raw:eth0?queues=2 --n6 raw:eth1?queues=2 --config upf.toml --workers 2
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
    Sessions(talk::Sessions),
    /// Show the counters of both directions.
    #[command(after_help = "Examples:\n  dray upf stats\n  dray upf stats --json")]
    Stats(talk::Ask),
    /// Show uptime and number of sessions.
    #[command(after_help = "Examples:\n  dray upf status\n  dray upf status --json")]
    Status(talk::Ask),
}

/// The two ports and the configuration.
#[derive(clap::Args)]
struct Ports {
    /// Port to the gNBs' side.
    #[arg(long, value_name = "URI")]
    n3: PortUri,
    /// Port to the data network's side.
    #[arg(long, value_name = "URI")]
    n6: PortUri,
    /// Addresses, neighbours and sessions of the user plane function.
    #[arg(long, value_name = "FILE.toml")]
    config: PathBuf,
}

impl Ports {
    /// Checks the ports, and reads the configuration.
    fn load(&self) -> Result<UpfConfig, Failure> {
        if let Some(common) = self.n3.common_with(&self.n6) {
            let what = format!("--n3 and --n6 both use {common}: give two ports");
            return Err(Failure::usage(anyhow::anyhow!(what)));
        }
        UpfConfig::load(&self.config).map_err(Failure::usage)
    }

    /// Opens N3 and N6. Interfaces and the rights of sockets, which require privileges, come before
    /// `confine` drops these; ports with their own threads are opened afterwards.
    fn open(
        &self,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<[Port; 2], Failure> {
        let mut bound = [Some(self.n3.bind()?), Some(self.n6.bind()?)];
        let mut ports = [None, None];
        let mut open = |local: bool| -> Result<(), OpenError> {
            for (number, uri) in [&self.n3, &self.n6].into_iter().enumerate() {
                if uri.is_local() == local {
                    ports[number] = bound[number].take().map(Bound::open).transpose()?;
                }
            }
            Ok(())
        };
        open(false)?;
        confine()?;
        open(true)?;
        Ok(ports.map(|port| port.expect("every port is opened in one of the passes")))
    }

    /// Returns the failure for an error in the configuration file.
    fn wrong(&self, error: dray_upf::ConfigError) -> Failure {
        Failure::usage(error.in_file(&self.config))
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match (arguments.command, arguments.ports) {
        (Some(Command::Sessions(sessions)), _) => talk::sessions(sessions),
        (Some(Command::Stats(ask)), _) => talk::stats(&ask),
        (Some(Command::Status(ask)), _) => talk::status(&ask),
        (None, Some(ports)) => daemon::run(&ports, arguments.daemon),
        (None, None) => Err(Failure::usage(anyhow::anyhow!("give --n3, --n6 and --config"))),
    }
}
