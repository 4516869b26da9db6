//! Results as CSV (RFC 4180): figures in base units, for programs and spreadsheets.

use dray_measure::results::Outcome;

use crate::escape;
use crate::input::Run;
use crate::interval::Interval;

const COLUMNS: [&str; 37] = [
    "file",
    "experiment",
    "time",
    "cpu_model",
    "kernel",
    "quick",
    "technique",
    "link",
    "endpoint",
    "topology",
    "forwarders",
    "frame_size",
    "burst",
    "flows",
    "stations",
    "pairs",
    "mtu",
    "runtime",
    "upf",
    "offered_pps",
    "paper_pps",
    "skipped",
    "trials",
    "sent_pps",
    "received_pps",
    "interval95_pps",
    "loss_ratio",
    "counters_agree",
    "shared_cores",
    "cores",
    "cycles_per_frame",
    "limit_share",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
];

pub(super) fn render(runs: &[Run]) -> String {
    let mut text = COLUMNS.join(",") + "\r\n";
    for run in runs {
        let results = &run.results;
        for row in &results.results {
            let number =
                |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
            let mut fields = vec![
                run.name(),
                results.experiment.clone(),
                results.time.clone(),
                results.host.cpu_model.clone().unwrap_or_default(),
                results.host.kernel.clone(),
                results.settings.quick.to_string(),
                row.technique.clone(),
                row.link.clone(),
                row.endpoint.clone(),
                row.topology.clone(),
                row.forwarders.to_string(),
                row.frame_size.to_string(),
                row.burst.to_string(),
                row.flows.to_string(),
                row.stations.to_string(),
                row.pairs.to_string(),
                row.mtu.to_string(),
                row.runtime.clone(),
                row.upf.map_or(String::new(), |load| load.to_string()),
                number(row.offered_pps),
                number(row.paper_pps),
            ];
            match &row.outcome {
                Outcome::Isolated { .. } => {}
                Outcome::Skipped { skipped } => fields.push(skipped.clone()),
                Outcome::Measured(measured) => {
                    let latency = measured.latency_ns;
                    fields.extend([
                        String::new(),
                        measured.trials.to_string(),
                        number(Some(measured.sent_pps)),
                        number(Some(measured.received_pps)),
                        number(Interval::of_rate(measured).map(|interval| interval.half)),
                        number(Some(measured.loss_ratio)),
                        measured.counters_agree.to_string(),
                        measured.setting.shared_cores.to_string(),
                        number(crate::charts::cores(measured)),
                        number(measured.cycles_per_frame),
                        number(measured.limit_share),
                    ]);
                    let percentiles = latency.map(|it| [it.p50, it.p90, it.p99, it.p999, it.max]);
                    fields.extend(percentiles.into_iter().flatten().map(|ns| ns.to_string()));
                }
            }
            fields.resize(COLUMNS.len(), String::new());
            let fields: Vec<String> = fields.iter().map(|field| escape::csv(field)).collect();
            text.push_str(&fields.join(","));
            text.push_str("\r\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn every_result_is_a_line_with_a_field_for_each_column() {
        let skipped = sample::row("bridge/udp", 64).with("skipped", "\"no, \\\"not\\\" here\"");
        // Without figures only a reason is left.
        let skipped = skipped.with("sent", "null");
        let run = sample::run(&sample::results(&[sample::row("=veth/udp", 64), skipped]));
        let text = render(&[run]);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].contains(",'=veth/udp,") && lines[1].contains(",1000000,"), "{text}");
        assert!(lines[2].contains(",\"no, \"\"not\"\" here\","), "{text}");
        assert_eq!(lines[1].split(',').count(), COLUMNS.len());
    }
}
