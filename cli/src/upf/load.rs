//! `dray upf-load`: gNBs and data network in one, which check what a user plane function does.

use std::io::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dray_datapath::Cancel;
use dray_text::{count, wrapped};
use dray_traffic::{Latency, Percentiles};
use dray_upf::load::{LEN_MAX, LEN_MIN, Load, LoadReport, Outcome, Settings, Watch};
use dray_wire::gtpu::Direction;
use serde::Serialize;

use super::ports::Ports;
use crate::common::{Failure, cancel_on_signals, print, print_json, usage};
use crate::parse::{self, Rate};
use crate::role::describe::{arrived, percentiles};

/// Send users' packets through a user plane function, and check every one that comes back.
///
/// It acts as gNBs and data network in one, for the sessions that the section `generate` of the
/// user plane function's own configuration creates. It announces
/// both, and answers ARP and neighbour discovery for them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray upf-load --n3 raw:eth0 --n6 raw:eth1 --config upf.toml --rate 100k --duration 10
  dray upf-load --n3 raw:eth0 --n6 raw:eth1 --config upf.toml --only uplink --size 1400 --json

Exit status:
  0  every packet came back as it should; or some were lost, with --allow-loss
  1  packets were lost, came back wrong or out of order, or none came back
  2  wrong command line or configuration")]
pub(crate) struct Arguments {
    #[command(flatten)]
    ports: Ports,
    /// Frame size on N6 in bytes, from destination MAC to end of payload; on N3 the headers of the
    /// tunnel are added.
    #[arg(short, long, value_name = "BYTES", default_value_t = 512)]
    size: usize,
    /// Packets per second each way (20k, 20kpps), or bits per second of the frames on N6 (1Gbit);
    /// without it, as many as possible.
    #[arg(short, long, value_name = "RATE", allow_hyphen_values = true, value_parser = parse::offered)]
    rate: Option<Rate>,
    /// Send only in this direction; without it, in both.
    #[arg(long, value_parser = ["uplink", "downlink"])]
    only: Option<String>,
    /// Time to send.
    #[arg(short = 't', long, value_name = "TIME", default_value = "10", allow_hyphen_values = true, value_parser = parse::duration)]
    duration: Duration,
    /// Exit with status 0 even if packets are lost.
    #[arg(long)]
    allow_loss: bool,
    /// Write the report as JSON.
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { ports, size, rate, only, duration, allow_loss, json } = arguments;
    if !(LEN_MIN..=LEN_MAX).contains(&size) {
        return Err(usage!("--size {size}: give {LEN_MIN} to {LEN_MAX} bytes"));
    }
    let config = ports.load()?;
    let settings = Settings {
        rate: rate.map(|rate| rate.frames_per_second(size)),
        len: size,
        duration,
        uplink: only.as_deref() != Some("downlink"),
        downlink: only.as_deref() != Some("uplink"),
    };
    let cancel = cancel_on_signals()?;
    let load = Load::new(&config, settings, ports.n3.open()?, ports.n6.open()?)
        .map_err(|error| ports.wrong(error))?;
    let stop = AtomicBool::new(false);
    let (report, watcher) = thread::scope(|scope| {
        let load = thread::Builder::new().name("role".to_owned()).spawn_scoped(scope, || {
            let mut watcher = Watcher::default();
            load.run(&stop, &mut watcher).map(|report| (report, watcher))
        })?;
        while !load.is_finished() {
            stop.store(cancel.check().is_err(), Ordering::Relaxed);
            thread::sleep(Cancel::INTERVAL);
        }
        load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let directions = Directions::new(&report, &watcher);
    let wanted = [settings.uplink, settings.downlink];
    match json {
        true => print_json(&directions)?,
        false => print(&directions.describe(&watcher, wanted))?,
    }
    match directions.wrong(wanted, allow_loss) {
        Some(what) => Err(anyhow::anyhow!(what).into()),
        None => Ok(()),
    }
}

/// Collects latency, and tells the user what the load waits for.
#[derive(Default)]
struct Watcher {
    latency: [Latency; 2],
}

impl Watch for Watcher {
    fn latency(&mut self, direction: Direction, ns: u64) {
        self.latency[direction as usize].record_ns(ns, 1);
    }

    fn waiting(&mut self, what: &str) {
        // A closed standard error must not end the load.
        let _ = writeln!(std::io::stderr(), "waiting for {what}");
    }
}

/// Results of both directions.
#[derive(Serialize)]
struct Directions {
    uplink: DirectionReport,
    downlink: DirectionReport,
    /// Addresses of the user plane function that did not reply before the load.
    silent: Vec<IpAddr>,
}

/// Results of one direction.
#[derive(Serialize)]
struct DirectionReport {
    #[serde(flatten)]
    outcome: Outcome,
    /// Rates from the first packet to the last one; bits are those of frames on N6.
    sent_pps: Option<f64>,
    sent_bits_per_second: Option<f64>,
    received_pps: Option<f64>,
    received_bits_per_second: Option<f64>,
    latency_ns: Option<Percentiles>,
}

impl Directions {
    fn new(report: &LoadReport, watcher: &Watcher) -> Self {
        let LoadReport { uplink, downlink, silent } = report;
        let [up, down] = &watcher.latency;
        Self {
            uplink: DirectionReport::new(uplink, up),
            downlink: DirectionReport::new(downlink, down),
            silent: silent.clone(),
        }
    }

    fn each(&self) -> [(&'static str, &DirectionReport); 2] {
        [("uplink", &self.uplink), ("downlink", &self.downlink)]
    }

    /// Returns the text about the `wanted` directions.
    fn describe(&self, watcher: &Watcher, wanted: [bool; 2]) -> String {
        let mut text = String::new();
        let directions = self.each().into_iter().zip(&watcher.latency).zip(wanted);
        for (((name, report), latency), _) in directions.filter(|(_, wanted)| *wanted) {
            text += &report.describe(name, latency);
        }
        let is_lost = self.each().iter().any(|(_, report)| report.outcome.lost > 0);
        if is_lost && !self.silent.is_empty() {
            let addresses: Vec<_> = self.silent.iter().map(ToString::to_string).collect();
            text += &wrapped(&format!(
                "Before the load, no reply came from {}: the user plane function does not run, or \
                 not at the other end of the load's ports.",
                addresses.join(", ")
            ));
        }
        if is_lost {
            text += "What the user plane function dropped, and why: dray upf stats\n";
        }
        text
    }

    /// Returns what went wrong in the directions that were wanted, if anything.
    fn wrong(&self, wanted: [bool; 2], allow_loss: bool) -> Option<String> {
        let directions = self.each().into_iter().zip(wanted).filter(|(_, wanted)| *wanted);
        let wrong = directions.filter_map(|((name, report), _)| {
            let Outcome { sent, received, lost, .. } = report.outcome;
            let what = match report.outcome.wrong() {
                _ if sent == 0 => "no packet was sent".to_owned(),
                0 if received == 0 => "no packet came back".to_owned(),
                0 if lost == 0 || allow_loss => return None,
                0 => format!("{lost} of {sent} packets were lost"),
                wrong => format!("{} came back wrong or out of order", count(wrong, "packet")),
            };
            Some(format!("{name}: {what}"))
        });
        let wrong: Vec<_> = wrong.collect();
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }
}

impl DirectionReport {
    fn new(outcome: &Outcome, latency: &Latency) -> Self {
        let Outcome { sending, receiving, .. } = outcome;
        Self {
            outcome: *outcome,
            sent_pps: sending.frames_per_second(),
            sent_bits_per_second: sending.bits_per_second(),
            received_pps: receiving.frames_per_second(),
            received_bits_per_second: receiving.bits_per_second(),
            latency_ns: latency.percentiles(),
        }
    }

    fn describe(&self, name: &str, latency: &Latency) -> String {
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
            dropped,
            error_indications,
            icmp_errors,
            sending,
            receiving,
        } = self.outcome;
        let mut text = format!(
            "{name}: sent {}{}; received {received}{}; lost {lost}, reordered {reordered}, foreign \
             {foreign}{}\n",
            count(sent, "packet"),
            arrived(&sending),
            arrived(&receiving),
            percentiles(latency),
        );
        let parts = [
            (wrong_address, "with a wrong address"),
            (wrong_teid, "with a wrong TEID"),
            (wrong_qfi, "with a wrong QFI"),
            (wrong_packet, "with a wrong payload, length, time to live or checksum"),
            (dropped, "lost at the load's own port, which was read too late"),
            (error_indications, "error indications came: no session has a packet's TEID"),
            (icmp_errors, "ICMP errors came: a packet could not be forwarded"),
        ];
        for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
            text += &format!("  {count} {what}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_traffic::Arrivals;

    const RATE: Arrivals = Arrivals { frames: 1000, bytes: 500_000, ns: 100_000_000 };
    const CLEAN: Outcome = Outcome {
        sent: 1001,
        received: 1001,
        lost: 0,
        reordered: 0,
        wrong_address: 0,
        wrong_teid: 0,
        wrong_qfi: 0,
        wrong_packet: 0,
        foreign: 2,
        dropped: 0,
        error_indications: 0,
        icmp_errors: 0,
        sending: RATE,
        receiving: RATE,
    };

    fn directions(uplink: Outcome) -> (Directions, Watcher) {
        let mut watcher = Watcher::default();
        (1..=uplink.received).for_each(|us| watcher.latency(Direction::Uplink, us * 1000));
        let silent = vec!["10.0.3.1".parse().unwrap()];
        let report = LoadReport { uplink, downlink: Outcome::default(), silent };
        (Directions::new(&report, &watcher), watcher)
    }

    #[test]
    fn load_text_has_rates_latency_and_reasons_of_loss() {
        let (directions, watcher) = directions(CLEAN);
        let text = directions.describe(&watcher, [true, false]);
        let rates = "10.00 kpps, 40.00 Mb/s";
        let line = format!(
            "uplink: sent 1001 packets, {rates}; received 1001, {rates}; lost 0, reordered 0, \
             foreign 2; us: p50 501.2"
        );
        assert!(text.starts_with(&line), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        let (directions, watcher) = self::directions(Outcome {
            received: 996,
            lost: 5,
            error_indications: 3,
            dropped: 2,
            ..CLEAN
        });
        let text = directions.describe(&watcher, [true, false]);
        for part in [
            "lost 5,",
            "\n  2 lost at the load's own port, which was read too late\n",
            "\n  3 error indications came: no session has a packet's TEID\n",
            "no reply came from 10.0.3.1:",
            "dray upf stats\n",
        ] {
            assert!(text.contains(part), "{part:?}: {text}");
        }
    }

    #[test]
    fn silence_fails_even_if_loss_is_allowed() {
        let wrong = |outcome, allow| directions(outcome).0.wrong([true, false], allow);
        assert_eq!(wrong(CLEAN, false), None);
        let lost = Outcome { received: 996, lost: 5, ..CLEAN };
        let what = "uplink: 5 of 1001 packets were lost";
        assert_eq!((wrong(lost, false).as_deref(), wrong(lost, true)), (Some(what), None));
        let silent = Outcome { received: 0, lost: 1001, ..CLEAN };
        let wrong_teid = Outcome { received: 1000, wrong_teid: 1, ..CLEAN };
        for (outcome, what) in [
            (silent, "uplink: no packet came back"),
            (Outcome { sent: 0, received: 0, ..CLEAN }, "uplink: no packet was sent"),
            (wrong_teid, "uplink: 1 packet came back wrong or out of order"),
        ] {
            assert_eq!(wrong(outcome, true).as_deref(), Some(what));
        }
        let both = directions(CLEAN).0.wrong([true, true], false);
        assert_eq!(both.as_deref(), Some("downlink: no packet was sent"));
    }
}
