//! Text about a running user plane function.

use std::path::Path;
use std::time::Duration;

use dray_daemon::MetricsAddress;
use dray_text::{count, table, wrapped};
use dray_upf::api::{CONTROL, Stats, Status};
use dray_upf::{Counters, DropReason, EventsLost, UpfConfig};

use super::ports::Ports;
use crate::service;

mod sessions;

pub(super) use sessions::{session, sessions};

/// Returns the text at the start of the user plane function.
pub(super) fn started(
    ports: &Ports,
    config: &UpfConfig,
    sessions: usize,
    cpus: &[usize],
    control: &Path,
    metrics: Option<MetricsAddress>,
) -> String {
    let interface =
        |name: &str, uri: &dray_port::PortUri, of: &dray_upf::config::InterfaceConfig| {
            let addresses: Vec<_> = of.addresses.iter().map(ToString::to_string).collect();
            vec![name.to_owned(), addresses.join(", "), uri.kind().to_owned(), uri.to_string()]
        };
    let rows = [interface("N3", &ports.n3, &config.n3), interface("N6", &ports.n6, &config.n6)];
    let (sessions, workers) = (count(sessions, "session"), count(cpus.len(), "worker"));
    let next = |option: &str| format!("dray upf sessions ls{option}");
    format!(
        "dray upf: {sessions}, {workers} on {}\n{}{}",
        service::listed(cpus),
        table(&["port", "addresses", "what", "where"], rows, 4),
        service::addresses(control, CONTROL, metrics, next),
    )
}

/// Returns the text at the end of the user plane function, after `uptime`.
pub(super) fn ended(counted: &Stats, uptime: Duration) -> String {
    let uptime = humantime::format_duration(Duration::from_secs(uptime.as_secs()));
    format!("dray upf: ended after {uptime}\n{}", stats(counted))
}

/// Returns uptime and number of sessions.
pub(super) fn status(status: &Status) -> String {
    let Status { version, uptime_s, sessions, sessions_max, .. } = status;
    let sessions = count(*sessions, "session");
    format!("dray {version}, up {uptime_s:.0} s; {sessions}, at most {sessions_max}\n")
}

/// Returns the counters of both directions.
pub(super) fn stats(stats: &Stats) -> String {
    let Stats { uplink, downlink, uplink_workers, downlink_workers, events_lost } = stats;
    let EventsLost { usage, downlink_data, tunnel_gone, wrong_gnb } = events_lost;
    let lost = match events_lost.total() {
        0 => String::new(),
        lost => format!(
            "{lost} reports were lost because their queue was full: usage {usage}, downlink data \
             {downlink_data}, tunnels gone {tunnel_gone}, wrong gNBs {wrong_gnb}\n"
        ),
    };
    let hint = match uplink.drops.total() + downlink.drops.total() {
        0 => "",
        _ => "What to check for each drop reason: docs/upf.md, \"Drop reasons\".\n",
    };
    direction("uplink", uplink, uplink_workers)
        + &direction("downlink", downlink, downlink_workers)
        + hint
        + &lost
}

/// Returns what a drop reason means, as a part of a sentence.
fn meaning(reason: DropReason) -> &'static str {
    reason.meaning().trim_end_matches('.')
}

fn direction(name: &str, counters: &Counters, workers: &[u64]) -> String {
    let Counters { rx_packets, tx_packets, buffered, consumed, drops, .. } = counters;
    let Counters { generated, generated_dropped, .. } = counters;
    let workers = match workers {
        [_] => String::new(),
        each => format!(" ({})", each.iter().map(u64::to_string).collect::<Vec<_>>().join(" + ")),
    };
    let mut text = format!(
        "{name}: received {rx_packets}{workers}, forwarded {tx_packets}, buffered {buffered}, \
         consumed {consumed}, dropped {}; generated {generated}{}\n",
        drops.total(),
        match generated_dropped {
            0 => String::new(),
            lost => format!(" ({lost} more could not be sent)"),
        },
    );
    for (reason, packets) in drops.iter() {
        text += &wrapped(&format!("  {}: {packets} ({})", reason.name(), meaning(reason)));
    }
    text
}
