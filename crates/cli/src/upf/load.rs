//! `dray upf-load`: gNBs and data network in one, which check what a user plane function does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dray_datapath::Cancel;
use dray_upf::load::{LEN_MAX, LEN_MIN, Load, LoadReport, Outcome, Settings};

use super::Ports;
use crate::common::{Failure, cancel_on_signals, print};
use crate::parse;

/// Send users' packets through a user plane function, and check every one that comes back.
///
/// It acts as gNBs and data network in one, for the sessions that the section `generate` of the
/// user plane function's own configuration creates. It answers ARP and neighbour discovery for
/// both.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray upf-load --n3 raw:eth0 --n6 raw:eth1 --config upf.toml --rate 100k --duration 10
  dray upf-load --n3 raw:eth0 --n6 raw:eth1 --config upf.toml --only uplink --size 1400 --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    ports: Ports,
    /// Frame size on N6 in bytes, from destination MAC to end of payload; on N3 the headers of the
    /// tunnel are added.
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    size: usize,
    /// Packets per second each way; without it, as many as possible.
    #[arg(long, value_name = "PPS", allow_hyphen_values = true, value_parser = parse::rate)]
    rate: Option<f64>,
    /// Send only in this direction; without it, in both.
    #[arg(long, value_parser = ["uplink", "downlink"])]
    only: Option<String>,
    /// Time to send.
    #[arg(long, value_name = "TIME", default_value = "10", allow_hyphen_values = true, value_parser = parse::duration)]
    duration: Duration,
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { ports, size, rate, only, duration, json } = arguments;
    if !(LEN_MIN..=LEN_MAX).contains(&size) {
        let what = anyhow::anyhow!("--size {size}: give {LEN_MIN} to {LEN_MAX} bytes");
        return Err(Failure::usage(what));
    }
    let config = ports.load()?;
    let settings = Settings {
        rate,
        len: size,
        duration,
        uplink: only.as_deref() != Some("downlink"),
        downlink: only.as_deref() != Some("uplink"),
    };
    let cancel = cancel_on_signals()?;
    let load = Load::new(&config, settings, ports.n3.open()?, ports.n6.open()?)
        .map_err(|error| ports.wrong(error))?;
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let load = thread::Builder::new()
            .name("role".to_owned())
            .spawn_scoped(scope, || load.run(&stop))?;
        while !load.is_finished() {
            stop.store(cancel.check().is_err(), Ordering::Relaxed);
            thread::sleep(Cancel::INTERVAL);
        }
        load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    match json {
        true => print(&(serde_json::to_string_pretty(&report)? + "\n")),
        false => print(&describe(&report)),
    }
}

fn describe(report: &LoadReport) -> String {
    [("uplink", &report.uplink), ("downlink", &report.downlink)]
        .map(|(name, outcome)| {
            let Outcome {
                sent,
                received,
                lost,
                reordered,
                wrong_address,
                wrong_teid,
                wrong_qfi,
                wrong_packet,
                foreign,
            } = outcome;
            format!(
                "{name}: sent {sent}, received {received}, lost {lost}, reordered {reordered}; wrong: \
                 address {wrong_address}, TEID {wrong_teid}, QFI {wrong_qfi}, packet {wrong_packet}; \
                 foreign {foreign}\n"
            )
        })
        .concat()
}
