//! `dray switch`: the switch itself, and the commands that talk to a running one.

mod daemon;
mod show;
mod watch;

use clap::Subcommand;
use dray_port::PortUri;
use dray_switch::client::{Client, ClientError};
use dray_switch::config::{self, Burst, CONTROL, FrameRate, Name, Rate, VlanId};
use dray_switch::{PortConfig, PortStatus};
use dray_wire::MacAddr;
use serde::Serialize;

use crate::common::{Failure, print};
use crate::control::Control;

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
  dray switch add-port d vhost:/run/dray/d.sock --rate-in 10Gbit+1Mpps --burst 5ms")]
    AddPort(Box<AddPort>),
    /// Remove a port.
    #[command(after_help = "Example:\n  dray switch del-port a")]
    DelPort(DelPort),
    /// List the ports: how each is reached, and its state.
    #[command(after_help = "Examples:\n  dray switch ports\n  dray switch ports --json")]
    Ports(Ask),
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
    Status(Ask),
}

#[derive(clap::Args)]
struct Ask {
    #[command(flatten)]
    control: Control,
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct AddPort {
    /// Name of the port in the switch.
    name: Name,
    /// URI of the port.
    uri: PortUri,
    /// Access port of this VLAN: frames carry no tag.
    #[arg(long, value_name = "VLAN")]
    vlan: Option<VlanId>,
    /// Trunk port of these VLANs, such as 10+20: frames carry their tag.
    #[arg(long, value_name = "VLANS", value_parser = trunk)]
    trunk: Option<List<VlanId>>,
    /// VLAN of the trunk whose frames carry no tag.
    #[arg(long, value_name = "VLAN")]
    native: Option<VlanId>,
    /// Isolation group: ports of one group do not exchange frames with each other.
    #[arg(long, value_name = "NAME")]
    group: Option<Name>,
    /// Port to exchange frames with, in patch mode; without it, the next free one.
    #[arg(long, value_name = "NAME")]
    pair: Option<Name>,
    /// Addresses, as MAC or MAC+MAC, that are pinned to the port: frames from other ports that claim them are dropped.
    #[arg(long, value_name = "MACS", value_parser = macs)]
    mac: Option<List<MacAddr>>,
    /// With --mac: drop frames from any other source address, or not [default: true].
    #[arg(long, value_name = "BOOL")]
    spoof_check: Option<bool>,
    /// Maximum rate at which the peer may send, such as 1Mpps, 10Gbit, or both as 10Gbit+1Mpps.
    #[arg(long, value_name = "RATE")]
    rate_in: Option<Rate>,
    /// Maximum rate at which frames are sent to the peer.
    #[arg(long, value_name = "RATE")]
    rate_out: Option<Rate>,
    /// Maximum rate at which the peer's frames are flooded and its addresses learned, such as
    /// 1kpps.
    #[arg(long, value_name = "RATE")]
    storm: Option<FrameRate>,
    /// Time by which the port may be ahead of these rates [default: 10ms].
    #[arg(long, value_name = "TIME")]
    burst: Option<Burst>,
    #[command(flatten)]
    control: Control,
}

/// A list that clap treats as one value.
#[derive(Clone)]
struct List<T>(Vec<T>);

fn trunk(text: &str) -> Result<List<VlanId>, config::VlanError> {
    config::parse_trunk(text).map(List)
}

fn macs(text: &str) -> Result<List<MacAddr>, dray_wire::ParseMacError> {
    config::parse_macs(text).map(List)
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
    ask: Ask,
}

/// Returns a client of the switch that the options select.
fn client(control: &Control) -> Result<Client, Failure> {
    Ok(Client::new(&control.socket(CONTROL, "dray switch")?))
}

impl Ask {
    fn client(&self) -> Result<Client, Failure> {
        client(&self.control)
    }

    /// Prints the reply: as JSON, or as the text that `text` returns.
    fn show<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            print(&(serde_json::to_string_pretty(value)? + "\n"))
        } else {
            print(&text(value))
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        None => daemon::run(arguments.daemon),
        Some(command) => talk(command),
    }
}

fn talk(command: Command) -> Result<(), Failure> {
    match command {
        Command::AddPort(arguments) => add_port(*arguments),
        Command::DelPort(DelPort { name, control }) => {
            client(&control)?.remove_port(&name).map_err(refused)
        }
        Command::Ports(ask) => {
            let ports: Vec<PortStatus> = ask.client()?.ports().map_err(refused)?;
            ask.show(&ports, |ports| show::ports(ports))
        }
        Command::Stats(stats) => stats.run(),
        Command::Fdb(Fdb { flush: true, ask, .. }) => ask.client()?.flush_table().map_err(refused),
        Command::Fdb(Fdb { port, ask, .. }) => {
            let stations = ask.client()?.table(port.as_ref()).map_err(refused)?;
            ask.show(&stations, |stations| show::stations(stations))
        }
        Command::Status(ask) => ask.show(&ask.client()?.status().map_err(refused)?, show::status),
    }
}

fn add_port(arguments: AddPort) -> Result<(), Failure> {
    let AddPort { name, uri, vlan, trunk, native, group, pair, control, .. } = arguments;
    let AddPort { mac, spoof_check, rate_in, rate_out, storm, burst, .. } = arguments;
    let (trunk, mac) = (trunk.map(|list| list.0), mac.map(|list| list.0));
    let keys = config::Keys {
        name,
        uri,
        vlan,
        trunk,
        native,
        group,
        pair,
        mac,
        spoof_check,
        rate_in,
        rate_out,
        storm,
        burst,
    };
    let port = PortConfig::try_from(keys).map_err(Failure::usage)?;
    client(&control)?.add_port(&port).map(drop).map_err(refused)
}

/// A request that the switch rejects as invalid is wrong usage of the command.
fn refused(error: ClientError) -> Failure {
    match error {
        ClientError::Refused { status: 400, .. } => Failure::usage(error),
        other => other.into(),
    }
}
