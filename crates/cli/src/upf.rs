//! `dray upf`: the user plane function on any two ports.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use dray_lab::{Cancel, Placement};
use dray_port::PortUri;
use dray_switch::config::Idle;
use dray_upf::{Counters, Running, Upf, UpfConfig};

use crate::parse::CpuList;
use crate::{Failure, cancel_on_signals, parse, print};

/// Run the user plane function of a 5G core: GTP-U tunnels on N3, plain IP on N6.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Port to the gNBs.
    #[arg(long, value_name = "URI")]
    n3: PortUri,
    /// Port to the data network.
    #[arg(long, value_name = "URI")]
    n6: PortUri,
    /// Read addresses, neighbours and sessions from this file.
    #[arg(long, value_name = "FILE.toml")]
    config: PathBuf,
    /// CPUs: one for both directions, or one for uplink and one for downlink [default: two].
    #[arg(long, value_name = "LIST", value_parser = parse::cpus)]
    cpus: Option<CpuList>,
    /// Time without packets after which a direction sleeps, or `never`.
    #[arg(long, value_name = "TIME", default_value_t = Idle::default())]
    idle: Idle,
    /// End after this time; without it, on Ctrl-C.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration)]
    duration: Option<Duration>,
    /// Write what was counted as JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  dray upf --n3 raw:eth0 --n6 raw:eth1 --config upf.toml
  dray upf --n3 virtio:/run/dray/n3.sock --n6 virtio:/run/dray/n6.sock --config upf.toml --cpus 2,3

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

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { n3, n6, config, cpus, idle, duration, json } = arguments;
    let cpus = match cpus {
        None => Placement::of_this_process().assign(2).iter().map(|cpu| cpu.id).collect(),
        Some(CpuList(cpus)) => {
            Placement::of(&cpus).map_err(Failure::usage)?;
            if cpus.len() > 2 {
                let what = anyhow::anyhow!("--cpus: {} given, one or two are used", cpus.len());
                return Err(Failure::usage(what));
            }
            cpus
        }
    };
    let idle = match idle {
        Idle::After(time) => Some(time),
        Idle::Never => None,
    };
    let path = config;
    let config = UpfConfig::load(&path).map_err(Failure::usage)?;
    let cancel = cancel_on_signals()?;
    let (upf, directions) = Upf::new(&config, n3.open()?, n6.open()?)
        .map_err(|error| Failure::usage(error.in_file(&path)))?;
    eprintln!("{} sessions", upf.session_count());
    let mut running = Running::start(upf, directions, &cpus, idle)?;
    let deadline = duration.map(|duration| Instant::now() + duration);
    let end = loop {
        for event in running.upf().events() {
            eprintln!("{}", serde_json::to_string(&event)?);
        }
        if let Some(failure) = running.failure() {
            break Err(anyhow::anyhow!("a port failed: {failure}").into());
        }
        if cancel.check().is_err() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break Ok(());
        }
        thread::sleep(Cancel::INTERVAL);
    };
    running.stop();
    let (uplink, downlink) = (running.upf().uplink(), running.upf().downlink());
    match json {
        true => {
            let report = serde_json::json!({ "uplink": uplink, "downlink": downlink });
            print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
        }
        false => print(&(describe("uplink", &uplink) + &describe("downlink", &downlink)))?,
    }
    end
}

fn describe(name: &str, counters: &Counters) -> String {
    let Counters { rx_packets, tx_packets, buffered, control, .. } = counters;
    let mut text = format!(
        "{name}: received {rx_packets}, forwarded {tx_packets}, kept {buffered}, control {control}, \
         dropped {}\n",
        counters.dropped_in_all(),
    );
    for (reason, packets) in counters.drops() {
        text += &format!("  {}: {packets}\n", reason.name());
    }
    text
}
