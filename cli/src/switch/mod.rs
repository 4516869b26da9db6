//! `dray switch`: the switch itself, and the commands that talk to a running one.

mod daemon;
mod keys;
mod show;
mod watch;

use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use dray_port::PortUri;
use dray_switch::client::{Client, ClientError};
use dray_switch::config::{Name, read_file};
use dray_switch::{PortStatus, SwitchConfig};

use crate::common::{Failure, print, usage};
use crate::control::{Control, Health, Query, refused};

/// Run a switch that containers plug into, or talk to a running one.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    daemon: daemon::DaemonArguments,
}

const EXAMPLES: &str = "\
Examples:
  dray switch --port a=raw:eth0 --port b=raw:eth1     a learning switch with two ports
  dray switch --mode patch --cpus 2 --idle never --port a=null: --port b=null:
  dray switch --port up=afxdp:eth0 --port c1=vhost:/run/dray/c1.sock
  dray switch --config switch.toml                    ports and all else from a file
  dray switch add-port c vhost:/run/dray/c.sock --vlan 10
  dray switch --config switch.toml --metrics 127.0.0.1:9464
                                                      with metrics for Prometheus
  dray switch apply switch.toml --dry-run             what a change of the file would change
  dray switch --take-over                             a new version instead of the running one
  dray switch stats
  curl --unix-socket /run/dray/switch.sock http://localhost/ports";

#[derive(Subcommand)]
enum Command {
    /// Add a port.
    #[command(after_help = "\
Examples:
  dray switch add-port a raw:eth0
  dray switch add-port up 'afxdp:eth0?defer=50'
  dray switch add-port b raw:eth1 --trunk 10+20 --native 1 --group tenants
  dray switch add-port c vhost:/run/dray/c.sock --mac 52:54:00:00:00:01 --storm 1kpps
  dray switch add-port d vhost:/run/dray/d.sock --rate-in 10Gbit+1Mpps --burst 5ms
  dray switch add-port e tap:eth1 --netns /run/netns/blue
  dray switch add-port f vhost:@dray/eth1 --netns /proc/1234/ns/net")]
    AddPort(Box<AddPort>),
    /// Remove a port.
    #[command(after_help = "Example:\n  dray switch del-port a")]
    DelPort(DelPort),
    /// Apply a configuration file to the running switch: all that differs, or on an error nothing.
    #[command(after_help = "\
Examples:
  dray switch apply /etc/dray/switch.toml --dry-run   what would change, a line for each port
  dray switch apply /etc/dray/switch.toml
  dray switch apply switch.toml --json")]
    Apply(Apply),
    /// List the ports: how each is reached, and its state.
    #[command(after_help = "Examples:\n  dray switch ports\n  dray switch ports --json")]
    Ports(Query),
    /// Show frames, bytes and drops by port, or their rates.
    #[command(after_help = "\
Examples:
  dray switch stats                   since the last reset, or since the port was added
  dray switch stats a --watch         rates of port a, each second until Ctrl-C
  dray switch stats --watch 5 | tee rates.txt
  dray switch stats --reset           count from zero again
  dray switch stats --total --json    in spite of resets: never goes back, for monitoring")]
    Stats(watch::Stats),
    /// Show learned and pinned stations, or forget the learned ones.
    #[command(after_help = "\
Examples:
  dray switch fdb --port a
  dray switch fdb --flush")]
    Fdb(Fdb),
    /// Show mode, uptime and workers.
    #[command(after_help = "Examples:\n  dray switch status\n  dray switch status --json")]
    Status(Query),
    /// Print `ok` if the workers run; otherwise fail with the reason.
    #[command(after_help = "\
Examples:
  dray switch health            for liveness probes
  dray switch health --ready    for readiness probes")]
    Health(Health),
    /// Show the metrics that monitoring systems read, as text.
    #[command(after_help = "Example:\n  dray switch metrics | grep dropped")]
    Metrics(Control),
}

#[derive(clap::Args)]
struct AddPort {
    /// Name of the port in the switch.
    name: Name,
    /// URI of the port.
    uri: PortUri,
    /// Open the port's TAP interface or abstract socket in the network namespace with this file,
    /// and pass it to the switch, which need not have access to it.
    #[arg(long, value_name = "PATH")]
    netns: Option<PathBuf>,
    /// Pin the addresses of --mac even if they are stations behind another port.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keys: keys::Given,
    #[command(flatten)]
    control: Control,
}

#[derive(clap::Args)]
struct Apply {
    /// Configuration file, as for `dray switch --config`. Without --control, its control
    /// socket is used.
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    query: Query,
}

#[derive(clap::Args)]
struct DelPort {
    /// Name of the port in the switch.
    name: Name,
    #[command(flatten)]
    control: Control,
}

#[derive(clap::Args)]
struct Fdb {
    /// Show only stations behind this port.
    #[arg(long, value_name = "NAME", conflicts_with = "flush")]
    port: Option<Name>,
    /// Forget all learned stations.
    #[arg(long, conflicts_with = "json")]
    flush: bool,
    #[command(flatten)]
    query: Query,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        None => daemon::run(arguments.daemon),
        Some(command) => request(command),
    }
}

fn request(command: Command) -> Result<(), Failure> {
    match command {
        Command::AddPort(arguments) => add_port(*arguments),
        Command::DelPort(DelPort { name, control }) => {
            control.switch()?.remove_port(&name).map_err(refused)
        }
        Command::Apply(apply) => apply.run(),
        Command::Ports(query) => {
            let ports: Vec<PortStatus> = query.control.switch()?.ports().map_err(refused)?;
            query.show(&ports, |ports| show::ports(ports))
        }
        Command::Stats(stats) => stats.run(),
        Command::Fdb(Fdb { flush: true, query, .. }) => {
            query.control.switch()?.flush_table().map_err(refused)
        }
        Command::Fdb(Fdb { port, query, .. }) => {
            let stations = query.control.switch()?.table(port.as_ref()).map_err(refused)?;
            query.show(&stations, |stations| show::stations(stations))
        }
        Command::Status(query) => {
            query.show(&query.control.switch()?.status().map_err(refused)?, show::status)
        }
        Command::Health(Health { control, ready }) => {
            control.switch()?.health(ready).map_err(refused)?;
            print("ok\n")
        }
        Command::Metrics(control) => print(&control.switch()?.metrics().map_err(refused)?),
    }
}

impl Apply {
    fn run(self) -> Result<(), Failure> {
        let Self { file, dry_run, query } = self;
        let name = file.display();
        let named = |error: &dyn std::fmt::Display| usage!("{name}: {error}");
        let text = read_file(&file).map_err(|error| named(&error))?;
        let config = SwitchConfig::from_toml(&text).map_err(|error| named(&error))?;
        let client = match query.control.is_given() {
            true => query.control.switch()?,
            false => Client::new(&config.control.path),
        };
        let changes = client.apply(&text, dry_run).map_err(|error| match error {
            ClientError::Refused { status: 400, .. } => named(&error),
            other => other.into(),
        })?;
        query.show(&changes, ToString::to_string)
    }
}

fn add_port(arguments: AddPort) -> Result<(), Failure> {
    let AddPort { name, uri, netns, force, keys, control } = arguments;
    let mut port = keys.of_port(name, uri).map_err(Failure::usage)?;
    let opened = match netns {
        None => Vec::new(),
        Some(netns) => dray_cni::within(&netns, || port.uri.prepare())
            .with_context(|| format!("--netns {}", netns.display()))??,
    };
    port.fd = opened.len() as u16;
    let descriptors: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
    let client = control.switch()?;
    let added = match force {
        true => client.force_port_with(&port, &descriptors),
        false => client.add_port_with(&port, &descriptors),
    };
    added.map(drop).map_err(refused)
}
