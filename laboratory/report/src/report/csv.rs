//! Results as CSV (RFC 4180): figures in base units, for programs and spreadsheets.

use dray_results::{Outcome, Percentiles, StreamOutcome};

use crate::escape;
use crate::input::Run;

const COLUMNS: [&str; 54] = [
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
    "ports",
    "offered_pps",
    "paper_pps",
    "skipped",
    "trials",
    "sent_pps",
    "received_pps",
    "interval95_pps",
    "loss_ratio",
    "counters_agree",
    "disturbed",
    "shared_cores",
    "cores",
    "cycles_per_frame",
    "limit_share",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "p9999_ns",
    "one_way_p50_ns",
    "one_way_p90_ns",
    "one_way_p99_ns",
    "one_way_p999_ns",
    "one_way_p9999_ns",
    "one_way_max_ns",
    "load_share",
    "mbps_per_core",
    "switch_work_ns",
    "lowest_share",
    "streams",
    "goodput_bps",
    "interval95_bps",
    "isolation",
];

pub(super) fn render(runs: &[Run]) -> String {
    let mut text = COLUMNS.join(",") + "\r\n";
    for run in runs {
        let results = &run.results;
        for row in &results.results {
            let number =
                |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
            let mut fields = of_run(run);
            fields.extend([
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
                row.ports.map_or(String::new(), |load| load.to_string()),
                number(row.offered_pps),
                number(row.paper_pps),
            ]);
            match &row.outcome {
                Outcome::Isolated { isolation } => {
                    fields.resize(COLUMNS.len() - 1, String::new());
                    let verdict = serde_json::to_value(isolation.verdict).unwrap_or_default();
                    fields.push(verdict.as_str().unwrap_or_default().to_owned());
                }
                Outcome::Skipped { skipped } => fields.push(skipped.clone()),
                Outcome::Measured(measured) => {
                    fields.extend([
                        String::new(),
                        measured.trials.to_string(),
                        number(Some(measured.sent_pps)),
                        number(Some(measured.received_pps)),
                        number(measured.interval().map(|interval| interval.half)),
                        number(Some(measured.loss_ratio)),
                        measured.counters_agree.map_or(String::new(), |agree| agree.to_string()),
                        measured.disturbed().unwrap_or_default(),
                        measured.setting.shared_cores.to_string(),
                        number(crate::charts::rows::cores(measured)),
                        number(measured.cycles_per_frame),
                        number(measured.limit_share),
                    ]);
                    let ns = |ns: Option<u64>| ns.map_or(String::new(), |ns| ns.to_string());
                    let all = |of: Option<Percentiles>| {
                        let at = |get: fn(&Percentiles) -> u64| ns(of.as_ref().map(get));
                        let [p50, p90] = [at(|it| it.p50), at(|it| it.p90)];
                        let [p99, p999] = [at(|it| it.p99), at(|it| it.p999)];
                        [p50, p90, p99, p999, ns(of.and_then(|it| it.p9999)), at(|it| it.max)]
                    };
                    let [p50, p90, p99, p999, p9999, max] = all(measured.latency_ns);
                    fields.extend([p50, p90, p99, p999, max, p9999]);
                    fields.extend(all(measured.one_way_ns));
                    fields.push(number(row.load_share));
                    fields.extend([
                        number(measured.mbps_per_core),
                        number(measured.switch_work_ns()),
                        number(measured.lowest_share),
                    ]);
                }
            }
            push(&mut text, fields);
        }
        for row in &results.streams {
            let mut values = vec![
                ("technique", row.technique.clone()),
                ("link", row.link.clone()),
                ("endpoint", row.endpoint.clone()),
                ("pairs", row.pairs.to_string()),
                ("mtu", row.mtu.to_string()),
                ("runtime", row.runtime.clone()),
                ("streams", row.streams.to_string()),
            ];
            match &row.outcome {
                StreamOutcome::Skipped { skipped } => values.push(("skipped", skipped.clone())),
                StreamOutcome::Measured(measured) => {
                    let half = measured.interval().map(|interval| interval.half.to_string());
                    values.extend([
                        ("trials", measured.trials.to_string()),
                        ("goodput_bps", measured.goodput_bps.to_string()),
                        ("interval95_bps", half.unwrap_or_default()),
                        (
                            "counters_agree",
                            measured
                                .counters_agree
                                .map_or(String::new(), |agree| agree.to_string()),
                        ),
                        ("disturbed", measured.disturbed().unwrap_or_default()),
                        ("shared_cores", measured.setting.shared_cores.to_string()),
                        ("cores", measured.cpu.cores().to_string()),
                    ]);
                }
            }
            let mut fields = of_run(run);
            fields.extend(COLUMNS[fields.len()..].iter().map(|column| {
                let value = values.iter().find(|(name, _)| name == column);
                value.map_or(String::new(), |(_, value)| value.clone())
            }));
            push(&mut text, fields);
        }
    }
    text
}

/// Returns the first fields of each line.
fn of_run(run: &Run) -> Vec<String> {
    let results = &run.results;
    vec![
        run.name(),
        results.experiment.clone(),
        results.time.clone(),
        results.host.cpu_model.clone().unwrap_or_default(),
        results.host.kernel.clone(),
        results.settings.quick.to_string(),
    ]
}

/// Adds a line.
fn push(text: &mut String, mut fields: Vec<String>) {
    fields.resize(COLUMNS.len(), String::new());
    let fields: Vec<String> = fields.iter().map(|field| escape::csv(field)).collect();
    text.push_str(&fields.join(","));
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn csv_row_has_a_field_per_column() {
        let skipped = sample::row("bridge/udp", 64).with("skipped", "\"no, \\\"not\\\" here\"");
        // Without figures, only the reason for skipping is left.
        let skipped = skipped.with("sent", "null");
        let run = sample::run(&sample::results(&[sample::row("=veth/udp", 64), skipped]));
        let text = render(&[run]);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].contains(",'=veth/udp,") && lines[1].contains(",1000000,"), "{text}");
        assert!(lines[2].contains(",\"no, \"\"not\"\" here\","), "{text}");
        assert_eq!(lines[1].split(',').count(), COLUMNS.len());
    }

    #[test]
    fn csv_includes_streams_and_isolation() {
        let isolation = "{\"verdict\":\"isolated by design\",\"offered\":1,\"left\":1,\"dropped\":0,\"arrived\":0}";
        let isolated = sample::row("macvlan/vepa/raw", 64).with("sent", "null");
        let isolated = sample::run(&sample::results(&[isolated.with("isolation", isolation)]));
        let streams = sample::run(&sample::streams(&[("veth/tcp", &[9e9, 9e9])]));
        let text = render(&[isolated, streams]);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert!(lines[1].ends_with(",isolated by design"), "{text}");
        assert!(lines[2].contains(",9000000000,0,"), "{text}");
        assert!(lines.iter().all(|line| line.split(',').count() == COLUMNS.len()), "{text}");
    }
}
