//! Metrics of a running program, and the process itself among them, in the formats that Prometheus
//! reads.
//!
//! A client that accepts OpenMetrics (`application/openmetrics-text`), as Prometheus does, gets it.
//! Any other gets Prometheus' older text format, which `promtool check metrics` and many agents
//! need: there, the `_total` of a counter belongs to the name of its family as well.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustix::time::{ClockId, clock_gettime};

use crate::http::{Request, Response};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics of one moment.
#[derive(Debug, Default)]
pub struct Metrics(Vec<Family>);

/// Metrics of one name.
#[derive(Debug)]
struct Family {
    /// Without the `_total` of a counter.
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Vec<(Labels, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

type Labels = Vec<(&'static str, String)>;

/// Value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A number of things.
    Whole(u64),
    /// A measure, in the base unit that its name ends in.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<Duration> for Value {
    fn from(value: Duration) -> Self {
        Self::Real(value.as_secs_f64())
    }
}

impl Metrics {
    /// Adds a counter, whose `name` lacks the `_total` that its samples get, with samples for all
    /// values of its labels.
    pub fn counter<'l, const N: usize, V: Into<Value>>(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = ([(&'static str, &'l str); N], V)>,
    ) {
        self.add(name, help, Kind::Counter, samples);
    }

    /// Adds a gauge, with samples for all values of its labels.
    pub fn gauge<'l, const N: usize, V: Into<Value>>(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = ([(&'static str, &'l str); N], V)>,
    ) {
        self.add(name, help, Kind::Gauge, samples);
    }

    fn add<'l, const N: usize, V: Into<Value>>(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        samples: impl IntoIterator<Item = ([(&'static str, &'l str); N], V)>,
    ) {
        let own = |(key, value): (&'static str, &str)| (key, value.to_owned());
        let samples = samples
            .into_iter()
            .map(|(labels, value)| (labels.map(own).into(), value.into()))
            .collect();
        self.0.push(Family { name, help, kind, samples });
    }

    /// Adds the version of the program and what is known of its process.
    pub fn add_process(&mut self, version: &str) {
        let process = PROCESS.get_or_init(Process::new);
        self.gauge(
            "dray_build_info",
            "Always 1; the version of dray.",
            [([("version", version)], 1u64)],
        );
        let started = process.started.as_secs_f64();
        let help = "Start of the process, in seconds since 1970.";
        self.gauge("process_start_time_seconds", help, [([], started)]);
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let time = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        self.counter("process_cpu_seconds", "CPU time of all threads.", [([], time)]);
        if let Some([size, resident]) = process.memory() {
            let help = "Address space, most of which may be unused.";
            self.gauge("process_virtual_memory_bytes", help, [([], size)]);
            let help = "Memory in use, with what peers share.";
            self.gauge("process_resident_memory_bytes", help, [([], resident)]);
        }
    }

    /// Returns the reply to a request for the metrics, in the format that the client accepts.
    pub fn response(self, request: &Request) -> Response {
        // A client that accepts anything understands the older format.
        let open = request.accepts_open_metrics();
        let content_type = if open { OPEN_METRICS } else { PLAIN };
        Response::text(200, content_type, self.into_text(open))
    }

    /// Returns the metrics as OpenMetrics text or, unless `open`, in the older format.
    fn into_text(self, open: bool) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Formatted { families: self.0, open }));
        let mut text = String::new();
        let result = match open {
            true => encode(&mut text, &registry),
            false => encode_registry(&mut text, &registry),
        };
        result.expect("text is written to memory");
        text
    }
}

/// Families in one of the formats.
#[derive(Debug)]
struct Formatted {
    families: Vec<Family>,
    open: bool,
}

impl Collector for Formatted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, kind, samples } in &self.families {
            let (name, kind, is_suffixed) = match (kind, self.open) {
                (Kind::Counter, true) => ((*name).to_owned(), MetricType::Counter, true),
                (Kind::Counter, false) => (format!("{name}_total"), MetricType::Counter, false),
                (Kind::Gauge, _) => ((*name).to_owned(), MetricType::Gauge, false),
            };
            let mut metric = encoder.encode_descriptor(&name, help, None, kind)?;
            match samples.as_slice() {
                // An empty set of labels would be written as `{}`.
                [(labels, value)] if labels.is_empty() => value.encode(metric, is_suffixed)?,
                samples => {
                    for (labels, value) in samples {
                        value.encode(metric.encode_family(labels)?, is_suffixed)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Value {
    /// Writes a sample, with `_total` after its name if it `is_suffixed`.
    fn encode(self, metric: MetricEncoder<'_>, is_suffixed: bool) -> fmt::Result {
        match (self, is_suffixed) {
            (Self::Whole(value), true) => ConstCounter::new(value).encode(metric),
            (Self::Whole(value), false) => ConstGauge::new(value).encode(metric),
            (Self::Real(value), true) => ConstCounter::new(value).encode(metric),
            (Self::Real(value), false) => ConstGauge::new(value).encode(metric),
        }
    }
}

/// This process.
struct Process {
    /// Time since 1970 of its first use.
    started: Duration,
    /// `/proc/self/statm`: sizes in pages.
    statm: Option<File>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// Opens what [`Metrics::add_process`] reads. Call it at the start, before the process gives up the
/// access to files: later, its memory cannot be read.
pub fn observe_process() {
    PROCESS.get_or_init(Process::new);
}

impl Process {
    fn new() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started, statm: File::open("/proc/self/statm").ok() }
    }

    /// Returns the size of the address space and of the memory in use, in bytes.
    fn memory(&self) -> Option<[u64; 2]> {
        let mut bytes = [0; 128];
        let length = self.statm.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let mut pages = str::from_utf8(&bytes[..length]).ok()?.split_ascii_whitespace();
        let page = rustix::param::page_size() as u64;
        let mut next = || Some(pages.next()?.parse::<u64>().ok()? * page);
        Some([next()?, next()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Metrics {
        let mut metrics = Metrics::default();
        let samples =
            [([("port", "a"), ("reason", "x")], 1u64), ([("port", "b"), ("reason", "y")], 2)];
        metrics.counter("dray_drops", "Dropped frames.", samples);
        metrics.gauge("dray_load", "Share.", [([("path", "a\"b\\c\nd")], 0.5)]);
        metrics.gauge("dray_stations", "Known stations.", [([], 7u64)]);
        metrics
    }

    #[test]
    fn both_formats_name_families_and_escape_labels() {
        let open = "\
# HELP dray_drops Dropped frames.
# TYPE dray_drops counter
dray_drops_total{port=\"a\",reason=\"x\"} 1
dray_drops_total{port=\"b\",reason=\"y\"} 2
# HELP dray_load Share.
# TYPE dray_load gauge
dray_load{path=\"a\\\"b\\\\c\\nd\"} 0.5
# HELP dray_stations Known stations.
# TYPE dray_stations gauge
dray_stations 7
# EOF
";
        assert_eq!(some().into_text(true), open);
        let plain = open
            .replace("# EOF\n", "")
            .replace("HELP dray_drops", "HELP dray_drops_total")
            .replace("TYPE dray_drops", "TYPE dray_drops_total");
        assert_eq!(some().into_text(false), plain);
    }

    #[test]
    fn process_metrics_have_plausible_values() {
        let mut metrics = Metrics::default();
        metrics.add_process("1.2.3");
        let text = metrics.into_text(true);
        assert!(text.contains("dray_build_info{version=\"1.2.3\"} 1\n"), "{text}");
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).expect("a sample");
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        let resident = value("process_resident_memory_bytes ");
        assert!(resident > 4096.0 && resident < value("process_virtual_memory_bytes "));
        assert!(value("process_start_time_seconds ") > 1e9);
        assert!(value("process_cpu_seconds_total ") > 0.0);
    }
}
