//! Metrics and health of a user plane function, for monitoring systems.

use dray_daemon::Metrics;
use dray_port::{LinkState, LinkStatus, PortUri};
use dray_service::{LoggedPort, Service, total};

use super::stats::Stats;
use crate::{Counters, DropReason, EventsLost, Upf};

/// Name and description of a counter, and its number.
type Counter = (&'static str, &'static str, fn(&Counters) -> u64);

impl Service for Upf {
    fn check_alive(&self) -> Result<(), String> {
        Self::check_alive(self)
    }

    /// Always succeeds: both ports were opened before requests are answered, and the failure of one
    /// ends the program.
    fn check_ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn metrics(&self) -> Metrics {
        metrics(self)
    }

    fn logged_ports(&self) -> Vec<LoggedPort> {
        let uris = self.leaving.get().into_iter().flat_map(|leaving| &leaving.ports);
        let logged = |((name, uri), link): ((&str, &PortUri), LinkStatus)| LoggedPort {
            name: name.to_owned(),
            uri: uri.to_string(),
            is_running: link.state == LinkState::Running,
            failure: None,
            unreachable: link.unreachable,
            disconnects: total(&link.ends),
            last_disconnect: link.last_end,
        };
        ["n3", "n6"].into_iter().zip(uris).zip(self.links()).map(logged).collect()
    }
}

fn metrics(upf: &Upf) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.gauge("dray_upf_sessions", "Sessions.", [([], upf.session_count())]);
    let help = "Maximum number of sessions: `sessions_max`.";
    metrics.gauge("dray_upf_sessions_max", help, [([], upf.sessions_max())]);
    let help = "Packets that wait for their session, or for their next hop's Ethernet address.";
    metrics.gauge("dray_upf_buffered_packets", help, [([], upf.buffered())]);
    let links = || ["n3", "n6"].map(|name| [("port", name)]).into_iter().zip(upf.links());
    let up = links().map(|(labels, link)| (labels, link.state == LinkState::Running));
    metrics.gauge("dray_upf_port_up", "1 if frames can pass.", up);
    of_threads(&mut metrics, upf);
    of_directions(&mut metrics, &Stats::from(upf));
    metrics.add_process(env!("CARGO_PKG_VERSION"));
    metrics
}

fn of_threads(metrics: &mut Metrics, upf: &Upf) {
    let cpus: Vec<_> = upf.threads().map(|(cpu, _)| cpu.to_string()).collect();
    let threads = || {
        let labels = cpus.iter().map(|cpu| [("cpu", cpu.as_str())]);
        labels.zip(upf.threads().map(|(_, activity)| activity))
    };
    let help = "Time in which the thread had packets to move.";
    let busy = threads().map(|(labels, of)| (labels, of.work()));
    metrics.counter("dray_upf_worker_busy_seconds", help, busy);
    let help = "Times that the thread went to sleep for lack of packets.";
    let sleeps = threads().map(|(labels, of)| (labels, of.sleeps()));
    metrics.counter("dray_upf_worker_sleeps", help, sleeps);
    let help = "Batches of packets that the thread received.";
    let batches = threads().map(|(labels, of)| (labels, of.moved().batches));
    metrics.counter("dray_upf_worker_batches", help, batches);
    let help = "Packets in the batches that the thread received.";
    let packets = threads().map(|(labels, of)| (labels, of.moved().frames));
    metrics.counter("dray_upf_worker_packets", help, packets);
}

fn of_directions(metrics: &mut Metrics, stats: &Stats) {
    let directions = || [("uplink", &stats.uplink), ("downlink", &stats.downlink)].into_iter();
    let counters: [Counter; 17] = [
        ("dray_upf_receive_packets", "Frames that arrived, including those dropped.", |c| {
            c.rx_packets
        }),
        ("dray_upf_receive_bytes", "Bytes of those that were received.", |c| c.rx_bytes),
        ("dray_upf_transmit_packets", "Users' packets forwarded.", |c| c.tx_packets),
        ("dray_upf_transmit_bytes", "Bytes of their frames.", |c| c.tx_bytes),
        (
            "dray_upf_consumed_packets",
            "Frames that end here: control messages, and fragments that others complete.",
            |c| c.consumed,
        ),
        ("dray_upf_control_messages", "Control messages received and processed.", |c| c.control),
        (
            "dray_upf_buffering_packets",
            "Packets that had to wait for their session or next hop; each is forwarded or dropped later.",
            |c| c.buffering,
        ),
        ("dray_upf_delayed_packets", "Packets that waited for a maximum bit rate.", |c| c.delayed),
        ("dray_upf_generated_packets", "Packets made by the UPF itself and transmitted.", |c| {
            c.generated
        }),
        (
            "dray_upf_generated_dropped_packets",
            "Packets made by the UPF itself that could not be transmitted.",
            |c| c.generated_dropped,
        ),
        ("dray_upf_reassembled_packets", "Outer packets reassembled from fragments.", |c| {
            c.reassembled
        }),
        ("dray_upf_fragmented_packets", "Users' packets fragmented for the next link.", |c| {
            c.fragmented
        }),
        ("dray_upf_router_advertisements", "Router advertisements sent to users.", |c| {
            c.router_advertisements
        }),
        ("dray_upf_end_markers", "End markers received.", |c| c.end_markers),
        ("dray_upf_error_indications", "Error indications received.", |c| c.error_indications),
        (
            "dray_upf_errors_sent",
            "Errors sent to the senders of packets that could not be forwarded.",
            |c| c.errors_sent,
        ),
        ("dray_upf_complaints", "Deprecated: dray_upf_errors_sent.", |c| c.errors_sent),
    ];
    let waiting = directions().map(|(name, of)| ([("direction", name)], of.buffered));
    let help = "Packets that wait: for their session, next hop, egress port, or other fragments.";
    metrics.gauge("dray_upf_waiting_packets", help, waiting);
    for (name, help, number) in counters {
        let samples = directions().map(|(name, of)| ([("direction", name)], number(of)));
        metrics.counter(name, help, samples);
    }
    let drops = directions().flat_map(|(name, of)| {
        let labels = move |reason: DropReason| [("direction", name), ("reason", reason.name())];
        DropReason::ALL.iter().map(move |reason| (labels(*reason), of.drops.get(*reason)))
    });
    let help = "Dropped packets, each counted once.";
    metrics.counter("dray_upf_dropped_packets", help, drops);
    let EventsLost { usage, downlink_data, tunnel_gone, wrong_gnb } = stats.events_lost;
    let lost = [
        ("usage", usage),
        ("downlink_data", downlink_data),
        ("tunnel_gone", tunnel_gone),
        ("wrong_gnb", wrong_gnb),
    ];
    let help = "Events lost because they were not read in time.";
    metrics.counter("dray_upf_events_lost", help, lost.map(|(event, n)| ([("event", event)], n)));
}
