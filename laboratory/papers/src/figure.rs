//! Figures of results, and how they were measured.

use dray_report::Run;
use dray_report::host::host_differences;
use dray_report::number::{GIGABITS, digits, percent, plus_minus, rate, time};
use dray_results::{
    Distance, HostFacts, Interval, Lines, Measured, MeasuredStreams, ResultRow, SettingOfRun,
    StreamRow, stats,
};

/// A figure of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Frames received per second.
    Received,
    /// Highest rate without loss, as a search found it.
    LossFree,
    /// Frames sent per second.
    Sent,
    /// Bits per second of frames received.
    Bits,
    /// Bits of payload received per second: in UDP packets, or of a stream.
    Payload,
    /// Bits per second of frames received, for each core on which the user plane function was busy.
    BitsPerUpfCore,
    /// Share of frames lost.
    Loss,
    /// Standard deviation of the samples of a trial, pooled over the trials, as a share of their
    /// mean.
    Deviation,
    /// Cores busy with soft interrupts.
    Softirq,
    /// Cycles of all roles for each frame, or each byte of a stream.
    Cycles,
    /// Median of the one-way time.
    OneWay,
    /// 99th percentile of the one-way time.
    OneWay99,
    /// Number of capabilities that a program at an end of the link needs.
    Capabilities,
    /// Huge pages of the set-up, in MiB.
    HugePages,
}

/// Bytes of the headers of Ethernet, IPv4 and UDP.
const HEADERS: f64 = 14.0 + 20.0 + 8.0;

/// A value in base units.
#[derive(Clone, Copy, Debug)]
struct Value {
    mean: f64,
    interval: Option<Interval>,
    /// Least and largest sample, if there are samples.
    range: Option<(f64, f64)>,
}

impl Value {
    /// Creates a value without an interval.
    const fn alone(mean: f64) -> Self {
        Self { mean, interval: None, range: None }
    }

    /// Creates the mean of `samples`, multiplied by `factor`.
    fn sampled(mean: f64, interval: Option<Interval>, samples: &[f64], factor: f64) -> Self {
        let least = samples.iter().copied().reduce(f64::min);
        let most = samples.iter().copied().reduce(f64::max);
        Self {
            mean: mean * factor,
            interval: interval.map(|interval| interval.scaled(factor)),
            range: least.zip(most).map(|(least, most)| (least * factor, most * factor)),
        }
    }
}

impl Quantity {
    fn of_frames(self, row: &ResultRow, measured: &Measured) -> Option<Value> {
        let received = |factor| {
            let (mean, samples) = (measured.received_pps, &measured.samples_pps);
            Value::sampled(mean, measured.interval(), samples, factor)
        };
        let bits = 8.0 * row.frame_size as f64;
        let needs = || measured.setting.needs.as_ref();
        Some(match self {
            Self::Received => received(1.0),
            Self::Bits => received(bits),
            Self::Payload => received(bits - 8.0 * HEADERS),
            Self::BitsPerUpfCore => received(bits / measured.upf_cores()?),
            Self::LossFree => {
                let found = measured.drop_rates.first()?;
                // One search has no interval, but bounds.
                let bounds = Interval { mean: found.pps, half: found.pps * found.width };
                let interval = found.interval().or(Some(bounds));
                Value { interval, ..Value::alone(found.pps) }
            }
            Self::Sent => Value::alone(measured.sent_pps),
            Self::Loss => Value::alone(measured.loss_ratio),
            Self::Deviation => Value::alone(deviation(measured)? / measured.received_pps),
            Self::Softirq => Value::alone(measured.cpu.total.softirq_s / measured.cpu.elapsed_s),
            Self::Cycles => Value::alone(measured.cycles_per_frame?),
            Self::OneWay => Value::alone(measured.one_way_ns?.p50 as f64),
            Self::OneWay99 => Value::alone(measured.one_way_ns?.p99 as f64),
            Self::Capabilities => Value::alone(needs()?.capabilities.len() as f64),
            Self::HugePages => Value::alone(needs()?.hugepages_mib.into()),
        })
    }

    /// Returns how late the sender was, if that is three quarters of a one-way time or more.
    fn sender_late(self, measured: &Measured) -> Option<f64> {
        let (whole, late) = (measured.one_way_ns?, measured.sender_late_ns?);
        let (whole, late) = match self {
            Self::OneWay => (whole.p50, late.p50),
            Self::OneWay99 => (whole.p99, late.p99),
            _ => return None,
        };
        Some(late as f64).filter(|late| *late >= 0.75 * whole as f64)
    }

    fn of_streams(self, measured: &MeasuredStreams) -> Option<Value> {
        Some(match self {
            Self::Payload => {
                let (mean, samples) = (measured.goodput_bps, &measured.samples_bps);
                Value::sampled(mean, measured.interval(), samples, 1.0)
            }
            Self::Cycles => Value::alone(measured.cycles_per_byte?),
            Self::Softirq => Value::alone(measured.cpu.total.softirq_s / measured.cpu.elapsed_s),
            _ => return None,
        })
    }

    /// Formats `value`, given in base units, in a unit that fits.
    pub(crate) fn unit(self, value: f64) -> String {
        match self {
            Self::Received | Self::LossFree => rate(value),
            Self::Sent => format!("{} sent", rate(value)),
            Self::Bits | Self::Payload | Self::BitsPerUpfCore => GIGABITS.with(value),
            Self::Loss | Self::Deviation => format!("{} %", percent(value)),
            Self::Softirq => format!("{} cores", digits(value)),
            Self::Cycles => format!("{} cycles", digits(value)),
            Self::OneWay | Self::OneWay99 => time(value),
            Self::Capabilities => format!("{value:.0} capabilities"),
            Self::HugePages => format!("{value:.0} MiB of huge pages"),
        }
    }
}

/// Standard deviation of the samples of a trial in frames per second, pooled over the trials;
/// `None` if there is one sample a trial.
fn deviation(measured: &Measured) -> Option<f64> {
    let (samples, trials) = (&measured.samples_pps, measured.trials);
    let each = samples.len() / trials.max(1);
    if each < 2 {
        return None;
    }
    let of_trials = samples.chunks_exact(each).map(stats::standard_deviation);
    let variances: Vec<f64> = of_trials.map(|deviation| deviation * deviation).collect();
    Some(stats::mean(&variances).sqrt())
}

/// A figure, and how it was measured.
#[derive(Clone, Debug)]
pub(crate) struct Figure<'r> {
    pub(crate) label: String,
    of: Quantity,
    value: Value,
    /// `~`, `!` or `*`, as in all tables.
    mark: &'static str,
    /// Other activity of the machine during the measurement, in words.
    disturbed: Option<String>,
    /// How late the sender was, if that makes up most of a one-way time: it lacked a CPU.
    sender_late: Option<f64>,
    pub(crate) run: &'r Run,
    pub(crate) setting: &'r SettingOfRun,
    /// Number and length of the trials, or of the searches and their trials.
    pub(crate) trials: usize,
    pub(crate) measure_s: f64,
    pub(crate) forwarders: usize,
    /// Frames sent per second.
    pub(crate) sent_pps: f64,
    /// Frames offered per second; 0 if the sender sent as many as possible.
    pub(crate) offered_pps: f64,
}

impl<'r> Figure<'r> {
    /// Returns the figure of a row of frames, if it has this one. `label` describes the row.
    pub(crate) fn of_frames(
        of: Quantity,
        label: String,
        run: &'r Run,
        row: &'r ResultRow,
    ) -> Option<Self> {
        let measured = row.measured()?;
        // A search has trials of its own length.
        let search = measured.drop_rates.first().filter(|_| of == Quantity::LossFree);
        let trials = search.map_or(measured.trials, |search| search.searches.len());
        Some(Self {
            label,
            of,
            value: of.of_frames(row, measured)?,
            mark: measured.mark(),
            disturbed: match row.load_share {
                // The loss-free rate was found at the distance of the run, if at a single one.
                Some(_) => measured.disturbed(),
                None => measured.noise.and_then(|noise| noise.in_words()),
            },
            sender_late: of.sender_late(measured),
            run,
            setting: &measured.setting,
            trials,
            measure_s: search.map_or(run.results.settings.measure_s, |search| search.trial_s),
            forwarders: row.forwarders,
            sent_pps: measured.sent_pps,
            offered_pps: row.offered_pps.unwrap_or_default(),
        })
    }

    /// Returns the figure of a row of byte streams, if it has this one. `label` describes the row.
    pub(crate) fn of_streams(
        of: Quantity,
        label: String,
        run: &'r Run,
        row: &'r StreamRow,
    ) -> Option<Self> {
        let measured = row.measured()?;
        Some(Self {
            label,
            of,
            value: of.of_streams(measured)?,
            mark: measured.mark(),
            disturbed: measured.noise.and_then(|noise| noise.in_words()),
            sender_late: None,
            run,
            setting: &measured.setting,
            trials: measured.trials,
            measure_s: run.results.settings.measure_s,
            forwarders: 0,
            sent_pps: 0.0,
            offered_pps: 0.0,
        })
    }

    /// The figure in base units.
    pub(crate) fn mean(&self) -> f64 {
        self.value.mean
    }

    /// Lower end of the interval, or the figure itself if it has none; of all samples if the CPUs
    /// moved, since some may have been taken near and others far.
    pub(crate) fn low(&self) -> f64 {
        let low = self.value.interval.map_or(self.value.mean, Interval::low);
        self.value.range.filter(|_| self.moved()).map_or(low, |(least, _)| least.min(low))
    }

    /// Upper end of the interval, or the figure itself if it has none; of all samples if the CPUs
    /// moved.
    pub(crate) fn high(&self) -> f64 {
        let high = self.value.interval.map_or(self.value.mean, Interval::high);
        self.value.range.filter(|_| self.moved()).map_or(high, |(_, most)| most.max(high))
    }

    pub(crate) fn host(&self) -> &'r HostFacts {
        &self.run.results.host
    }

    pub(crate) fn lines(&self) -> Option<Lines> {
        self.setting.lines
    }

    /// Returns the distance of the CPUs, if it was measured.
    pub(crate) fn distance(&self) -> Option<Distance> {
        self.lines().map(|lines| lines.distance)
    }

    /// Returns true if the CPUs moved during the trials.
    fn moved(&self) -> bool {
        self.distance() == Some(Distance::Changed)
    }

    /// Returns true if searches found the figure.
    pub(crate) fn is_search(&self) -> bool {
        self.of == Quantity::LossFree
    }

    /// Returns the length of all trials together.
    pub(crate) fn length_s(&self) -> f64 {
        self.measure_s * self.trials as f64
    }

    /// Formats `value` in a unit that fits this kind of figure.
    pub(crate) fn unit(&self, value: f64) -> String {
        self.of.unit(value)
    }

    /// Formats the figure with its interval and mark, such as `1.20 Mpps~ ±3.0 %`.
    pub(crate) fn in_words(&self) -> String {
        let Value { mean, interval, .. } = self.value;
        let text = format!("{}{} {}", self.unit(mean), self.mark, plus_minus(interval));
        text.trim_end().to_owned()
    }

    /// Returns the reason if the figure decides nothing: counters contradict each other, the
    /// measurement was disturbed, which changes rates and times, or the sender lacked a CPU.
    pub(crate) fn doubt(&self) -> Option<String> {
        let is_of_time = !matches!(self.of, Quantity::Capabilities | Quantity::HugePages);
        // Without samples it is not known what the move has changed.
        let moved = || self.lines()?.changed().filter(|_| self.value.range.is_none());
        let disturbed = self.disturbed.clone().or_else(moved).filter(|_| is_of_time);
        match (self.mark, disturbed) {
            ("!", _) => Some(format!("counters disagree for {}", self.label)),
            // Losses at a lower rate say nothing about those at the rate offered.
            ("*", _) if self.of == Quantity::Loss => {
                Some(format!("less was sent than offered for {}", self.label))
            }
            (_, Some(what)) => Some(format!("{} was disturbed: {what}", self.label)),
            _ if self.sender_late.is_some() => Some(format!(
                "the sender of {} was late by {}: it lacked a CPU",
                self.label,
                self.unit(self.sender_late.unwrap_or_default())
            )),
            _ => None,
        }
    }

    /// Returns the reason if two figures cannot be compared.
    pub(crate) fn differs(&self, other: &Self) -> Option<String> {
        if !host_differences(self.host(), other.host()).is_empty() {
            return Some("measured on different machines".to_owned());
        }
        if let Some(moved) = [self, other].into_iter().find(|figure| figure.moved()) {
            return Some(format!("the CPUs moved for {}", moved.label));
        }
        let (mine, others) = (self.distance()?, other.distance()?);
        (mine != others).then(|| {
            let (mine, others) = (word(mine), word(others));
            format!("the CPUs were {mine} for {}, {others} for {}", self.label, other.label)
        })
    }
}

/// Describes a distance of CPUs.
pub(crate) fn word(distance: Distance) -> &'static str {
    match distance {
        Distance::Near => "near",
        Distance::Far => "far",
        Distance::Changed => "moving",
    }
}
