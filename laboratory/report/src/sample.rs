//! Results for tests, built as text so that fields with a default need no change here.

use std::path::Path;

use crate::Run;

/// Fields of a row.
#[derive(Clone)]
pub(crate) struct Row(Vec<(String, String)>);

/// Returns a row of `technique`, whose name is its link and, after the last `/`, its endpoint.
pub(crate) fn row(technique: &str, size: usize) -> Row {
    let (link, endpoint) = technique.rsplit_once('/').unwrap_or((technique, "virtio"));
    let endpoint = if matches!(endpoint, "patch" | "learning") { "virtio" } else { endpoint };
    let text = |value: &str| serde_json::Value::from(value).to_string();
    let fields = [
        ("technique", text(technique)),
        ("link", text(link)),
        ("endpoint", text(endpoint)),
        ("topology", text("chain")),
        ("forwarders", "0".into()),
        ("frame_size", size.to_string()),
        ("burst", "64".into()),
        ("flows", "1".into()),
        ("stations", "1".into()),
        ("role_cores", "{\"sender\":0,\"receiver\":1}".into()),
        ("shared_cores", "false".into()),
        ("control_groups", "true".into()),
        ("check", text("whole")),
        ("trials", "1".into()),
        ("sent", "1000".into()),
        ("received", "1000".into()),
        ("lost", "0".into()),
        ("lost_at", "{\"interface\":0,\"link\":0,\"socket\":0,\"forwarder\":0}".into()),
        ("queued", "0".into()),
        ("duplicated", "0".into()),
        ("reordered", "0".into()),
        ("corrupt", "0".into()),
        ("counters_agree", "true".into()),
        ("loss_ratio", "0.0".into()),
        ("sent_less_than_offered", "false".into()),
        ("sent_pps", "1000000.0".into()),
        ("received_pps", "1000000.0".into()),
        ("stddev_pps", "0.0".into()),
        ("samples_pps", "[990000.0,1000000.0,1010000.0]".into()),
        (
            "cpu",
            "{\"roles\":{},\"total\":{\"user_s\":1.0,\"system_s\":0.5,\"softirq_s\":0.25},\"elapsed_s\":1.0}"
                .into(),
        ),
    ];
    Row(fields.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

impl Row {
    /// Sets `field` to `value`, given as JSON.
    pub(crate) fn with(mut self, field: &str, value: &str) -> Self {
        self.0.retain(|(name, _)| name != field);
        self.0.push((field.to_owned(), value.to_owned()));
        self
    }

    /// Sets the samples, and the receive rate to their mean.
    pub(crate) fn samples(self, samples: &[f64]) -> Self {
        let mean = dray_results::stats::mean(samples);
        self.with("samples_pps", &format!("{samples:?}")).with("received_pps", &format!("{mean:?}"))
    }
}

/// Returns a result file with `rows`.
pub(crate) fn results(rows: &[Row]) -> String {
    let object = |Row(fields): &Row| {
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    };
    let rows: Vec<String> = rows.iter().map(object).collect();
    let host = "{\"kernel\":\"6.1\",\"architecture\":\"x86_64\",\"os\":null,\"cpu_model\":\"CPU\",\
                \"cpus\":\"0-1\",\"cores\":2,\"threads_per_core\":1,\"numa_nodes\":1,\"caches\":[],\
                \"isolated_cpus\":\"\",\"governor\":null,\"constant_tsc\":true,\"memory_bytes\":null,\
                \"hugepages\":[],\"virtualization\":null,\"mitigations\":null}";
    format!(
        "{{\"schema\":1,\"dray\":\"0.1.0\",\"time\":\"2026-11-22T08:00:00Z\",\"host\":{host},\
         \"experiment\":\"all\",\"settings\":{{\"quick\":false,\"warm_up_s\":2.0,\"measure_s\":10.0,\
         \"interval_s\":1.0,\"mtu\":1500}},\"results\":[{}]}}",
        rows.join(",")
    )
}

/// Returns a result file of byte streams: a row for each technique with its trials' goodput.
pub(crate) fn streams(rows: &[(&str, &[f64])]) -> String {
    let row = |&(technique, trials): &(&str, &[f64])| {
        let mean = dray_results::stats::mean(trials);
        format!(
            "{{\"technique\":\"{technique}\",\"link\":\"veth\",\"endpoint\":\"tcp\",\"runtime\":\"embedded\",\
             \"pairs\":1,\"streams\":1,\"mtu\":1500,\"role_cores\":{{}},\"shared_cores\":false,\
             \"control_groups\":true,\"check\":\"whole\",\"trials\":{},\"sent_bytes\":1,\"received_bytes\":1,\
             \"by_tcp_bytes\":1,\"corrupt_reads\":0,\"counters_agree\":true,\"retransmits\":0,\
             \"segment_max\":1,\"congestion\":\"cubic\",\"goodput_bps\":{mean:?},\"stddev_bps\":0.0,\
             \"samples_bps\":{trials:?},\"trials_bps\":{trials:?},\"slowest_pair_bps\":1.0,\
             \"fastest_pair_bps\":1.0,\"cpu\":{{\"roles\":{{}},\"total\":{{\"user_s\":1.0,\"system_s\":0.5,\
             \"softirq_s\":0.25}},\"elapsed_s\":1.0}}}}",
            trials.len()
        )
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    let text = results(&[]);
    format!("{},\"streams\":[{}]}}", text.strip_suffix('}').expect("an object"), rows.join(","))
}

/// Returns a result file with two rows.
pub(crate) fn text() -> String {
    results(&[row("veth/udp", 64), row("switch/patch", 64)])
}

/// Parses such a file.
pub(crate) fn run(text: &str) -> Run {
    Run::parse(Path::new("some.json"), text).expect("results")
}
