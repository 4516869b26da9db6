//! Selection of figures from results: which row, and which of its figures.

use dray_results::{
    Distance, HostFacts, Interval, Lines, Measured, MeasuredStreams, Neighbour, Outcome, ResultRow,
    SettingOfRun, StreamOutcome, StreamRow, UpfLoad, stats,
};
use dray_wire::gtpu::Direction;

use crate::charts::rows::bits;
use crate::escape::markdown;
use crate::host::host_differences;
use crate::input::Run;
use crate::number::{GIGABITS, digits, percent, plus_minus, rate, time};

/// Selects rows of results by experiment, technique and conditions, and one of their figures. A
/// condition that is not given matches every row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    experiment: &'static str,
    technique: &'static str,
    of: Quantity,
    size: Option<usize>,
    burst: Option<usize>,
    mtu: Option<u32>,
    pairs: Option<usize>,
    topology: Option<&'static str>,
    forwarders: Option<usize>,
    load: Load,
    neighbour: Option<Neighbour>,
    way: Option<Direction>,
}

/// A figure of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Frames received per second.
    Received,
    /// Highest rate without loss, as a search found it.
    LossFree,
    /// Frames sent per second.
    Sent,
    /// Bits per second: of frames received, or of a stream's payload.
    Bits,
    /// Bits per second of frames received, for each core on which the user plane function was busy.
    BitsPerUpfCore,
    /// Share of frames lost.
    Loss,
    /// Standard deviation of the samples of a trial, pooled over the trials, as a share of their mean.
    Deviation,
    /// Cores busy with soft interrupts.
    Softirq,
    /// Cycles of all roles for each frame, or each byte of a stream.
    Cycles,
    /// Median of the one-way time.
    OneWay,
    /// Number of capabilities that a program at an end of the link needs.
    Capabilities,
    /// Huge pages of the set-up, in MiB.
    HugePages,
}

/// Offered rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    Any,
    /// This many frames per second.
    Offered(f64),
    /// This share of the loss-free rate.
    Share(f64),
}

impl Pick {
    /// Selects the received rate of `technique` in the results of `experiment`.
    pub(crate) const fn new(experiment: &'static str, technique: &'static str) -> Self {
        Self {
            experiment,
            technique,
            of: Quantity::Received,
            size: None,
            burst: None,
            mtu: None,
            pairs: None,
            topology: None,
            forwarders: None,
            load: Load::Any,
            neighbour: None,
            way: None,
        }
    }

    /// Returns the experiment.
    #[cfg(test)]
    pub(crate) fn experiment(&self) -> &'static str {
        self.experiment
    }

    pub(crate) const fn of(self, of: Quantity) -> Self {
        Self { of, ..self }
    }

    pub(crate) const fn size(self, bytes: usize) -> Self {
        Self { size: Some(bytes), ..self }
    }

    pub(crate) const fn burst(self, frames: usize) -> Self {
        Self { burst: Some(frames), ..self }
    }

    pub(crate) const fn mtu(self, bytes: u32) -> Self {
        Self { mtu: Some(bytes), ..self }
    }

    pub(crate) const fn pairs(self, count: usize) -> Self {
        Self { pairs: Some(count), ..self }
    }

    /// Selects this many forwarders in a `chain` or a `fan`.
    pub(crate) const fn forwarders(self, topology: &'static str, count: usize) -> Self {
        Self { forwarders: Some(count), topology: Some(topology), ..self }
    }

    pub(crate) const fn topology(self, topology: &'static str) -> Self {
        Self { topology: Some(topology), ..self }
    }

    pub(crate) const fn offered(self, pps: f64) -> Self {
        Self { load: Load::Offered(pps), ..self }
    }

    pub(crate) const fn share(self, of_loss_free: f64) -> Self {
        Self { load: Load::Share(of_loss_free), ..self }
    }

    pub(crate) const fn beside(self, neighbour: Neighbour) -> Self {
        Self { neighbour: Some(neighbour), ..self }
    }

    pub(crate) const fn way(self, way: Direction) -> Self {
        Self { way: Some(way), ..self }
    }

    /// Describes the rows.
    pub(crate) fn label(&self) -> String {
        let mut label = format!("`{}`", self.technique);
        let mut add = |text: String| label.push_str(&format!(", {text}"));
        if let Some(count) = self.pairs {
            add(if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") });
        }
        if let Some(count) = self.forwarders {
            let side_by_side = if self.topology == Some("fan") { " side by side" } else { "" };
            let noun = if count == 1 { "forwarder" } else { "forwarders" };
            add(format!("{count} {noun}{side_by_side}"));
        }
        if let Some(size) = self.size {
            add(format!("{size} B"));
        }
        if let Some(burst) = self.burst {
            add(format!("burst {burst}"));
        }
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu != 1500) {
            add(format!("MTU {mtu}"));
        }
        match self.load {
            Load::Offered(pps) => add(format!("{} offered", rate(pps))),
            Load::Share(share) => add(format!("at {:.0} % of its loss-free rate", 100.0 * share)),
            Load::Any => {}
        }
        if let Some(neighbour) = self.neighbour {
            add(format!("{neighbour} neighbour"));
        }
        label
    }

    /// Returns true if a frames' row fits.
    fn fits(&self, row: &ResultRow) -> bool {
        let load = match self.load {
            Load::Any => true,
            Load::Offered(pps) => row.offered_pps == Some(pps),
            Load::Share(share) => row.load_share == Some(share),
        };
        let is = |wanted: Option<usize>, has: usize| wanted.is_none_or(|wanted| wanted == has);
        load && row.technique == self.technique
            && is(self.size, row.frame_size)
            && is(self.burst, row.burst)
            && is(self.pairs, row.pairs)
            && is(self.forwarders, row.forwarders)
            && self.mtu.is_none_or(|mtu| mtu == row.mtu)
            && self.topology.is_none_or(|topology| topology == row.topology)
            && (self.neighbour.is_none() || self.neighbour == row.neighbour)
            && self
                .way
                .is_none_or(|way| row.upf.is_some_and(|UpfLoad { direction, .. }| direction == way))
    }

    /// Returns true if a row of streams fits.
    fn fits_stream(&self, row: &StreamRow) -> bool {
        row.technique == self.technique
            && self.pairs.is_none_or(|pairs| pairs == row.pairs)
            && self.mtu.is_none_or(|mtu| mtu == row.mtu)
    }

    /// Returns all figures that fit, with the value of `along` for each.
    pub(crate) fn find_all(
        &self,
        runs: &[Run],
        along: impl Fn(AnyRow) -> f64,
    ) -> Vec<(f64, Found)> {
        let mut found: Vec<(f64, Found)> = Vec::new();
        for run in runs.iter().filter(|run| run.results.experiment == self.experiment) {
            let rows = run.results.results.iter().filter(|row| self.fits(row));
            for (row, measured) in rows.filter_map(|row| Some((row, row.measured()?))) {
                let Some(figure) = self.frames(run, row, measured) else { continue };
                found.push((along(AnyRow::Frames(row, measured)), figure));
            }
            let rows = run.results.streams.iter().filter(|row| self.fits_stream(row));
            for (row, measured) in rows.filter_map(|row| Some((row, row.measured()?))) {
                let Some(figure) = self.streams(run, measured) else { continue };
                found.push((along(AnyRow::Streams(row)), figure));
            }
        }
        found
    }

    /// Returns the figure that fits, the one measured for the longest time if there are several, or
    /// why there is none.
    pub(crate) fn find(&self, runs: &[Run]) -> Result<Found, String> {
        let all = self.find_all(runs, |_| 0.0).into_iter().map(|(_, found)| found);
        let longest =
            all.reduce(|best, next| if next.length_s() > best.length_s() { next } else { best });
        longest.ok_or_else(|| self.missing(runs))
    }

    /// Explains why no figure fits.
    pub(crate) fn missing(&self, runs: &[Run]) -> String {
        let mut mine =
            runs.iter().filter(|run| run.results.experiment == self.experiment).peekable();
        if mine.peek().is_none() {
            return format!("no results of `{}`", self.experiment);
        }
        let mut cut = None;
        for run in mine {
            let rows = run.results.results.iter().filter(|row| self.fits(row));
            let skipped = rows.filter_map(|row| match &row.outcome {
                Outcome::Skipped { skipped } => Some(skipped),
                _ => None,
            });
            let rows = run.results.streams.iter().filter(|row| self.fits_stream(row));
            let mut skipped = skipped.chain(rows.filter_map(|row| match &row.outcome {
                StreamOutcome::Skipped { skipped } => Some(skipped),
                StreamOutcome::Measured(_) => None,
            }));
            if let Some(skipped) = skipped.next() {
                return format!("{}: {}", self.label(), markdown(skipped));
            }
            if let Some(incomplete) = &run.results.incomplete {
                let (done, all) = (incomplete.trials_done, incomplete.trials);
                cut = Some(format!(
                    "the run of `{}` was cut after {done} of {all} trials, before {}",
                    self.experiment,
                    self.label()
                ));
            }
        }
        cut.unwrap_or_else(|| {
            format!("the run of `{}` did not include {}", self.experiment, self.label())
        })
    }

    fn frames(&self, run: &Run, row: &ResultRow, measured: &Measured) -> Option<Found> {
        let received = |factor: f64| {
            let interval = measured.interval().map(|interval| interval.scaled(factor));
            (measured.received_pps * factor, interval)
        };
        let alone = |value: f64| (value, None);
        // By which samples become this figure.
        let mut factor = None;
        let mut received = |by: f64| {
            factor = Some(by);
            received(by)
        };
        let (value, interval) = match self.of {
            Quantity::Received => received(1.0),
            Quantity::LossFree => {
                let found = measured.drop_rates.first()?;
                // One search has no interval, but bounds.
                let bounds = Interval { mean: found.pps, half: found.pps * found.width };
                (found.pps, found.interval().or(Some(bounds)))
            }
            Quantity::Sent => alone(measured.sent_pps),
            Quantity::Bits => received(bits(row, 1.0)),
            Quantity::BitsPerUpfCore => received(bits(row, 1.0) / measured.upf_cores()?),
            Quantity::Loss => alone(measured.loss_ratio),
            Quantity::Deviation => alone(deviation(measured)? / measured.received_pps),
            Quantity::Softirq => alone(measured.cpu.total.softirq_s / measured.cpu.elapsed_s),
            Quantity::Cycles => alone(measured.cycles_per_frame?),
            Quantity::OneWay => alone(measured.one_way_ns?.p50 as f64),
            Quantity::Capabilities => {
                alone(measured.setting.needs.as_ref()?.capabilities.len() as f64)
            }
            Quantity::HugePages => alone(measured.setting.needs.as_ref()?.hugepages_mib.into()),
        };
        let samples = factor.map(|by| measured.samples_pps.iter().map(move |pps| pps * by));
        let found = self.found(run, &measured.setting, measured.trials, value, interval);
        let found = Found {
            mark: measured.mark(),
            disturbed: match self.load {
                // The rate of which this is a share was found at the distance of the run, if at any.
                Load::Share(_) => measured.disturbed(),
                Load::Any | Load::Offered(_) => measured.noise.and_then(|noise| noise.in_words()),
            },
            samples: samples.and_then(Span::of),
            ..found
        };
        // A search has trials of its own length.
        Some(match (self.of, measured.drop_rates.first()) {
            (Quantity::LossFree, Some(search)) => Found {
                trials: search.searches.len(),
                measure_s: search.trial_s,
                is_search: true,
                ..found
            },
            _ => found,
        })
    }

    fn streams(&self, run: &Run, measured: &MeasuredStreams) -> Option<Found> {
        let (value, interval) = match self.of {
            Quantity::Bits => (measured.goodput_bps, measured.interval()),
            Quantity::Cycles => (measured.cycles_per_byte?, None),
            Quantity::Softirq => (measured.cpu.total.softirq_s / measured.cpu.elapsed_s, None),
            _ => return None,
        };
        let samples = (self.of == Quantity::Bits).then(|| measured.samples_bps.iter().copied());
        let found = self.found(run, &measured.setting, measured.trials, value, interval);
        Some(Found {
            mark: measured.mark(),
            disturbed: measured.noise.and_then(|noise| noise.in_words()),
            samples: samples.and_then(Span::of),
            ..found
        })
    }

    fn found(
        &self,
        run: &Run,
        setting: &SettingOfRun,
        trials: usize,
        value: f64,
        interval: Option<Interval>,
    ) -> Found {
        let settings = &run.results.settings;
        Found {
            label: self.label(),
            of: self.of,
            value,
            interval,
            mark: "",
            disturbed: None,
            samples: None,
            host: run.results.host.clone(),
            trials,
            lines: setting.lines,
            shared_cores: setting.shared_cores,
            measure_s: settings.measure_s,
            quick: settings.quick,
            is_search: false,
        }
    }

    /// Formats `value` in a unit that fits this kind of figure.
    pub(crate) fn unit(&self, value: f64) -> String {
        self.of.unit(value)
    }
}

impl Quantity {
    /// Formats `value`, given in base units, in a unit that fits.
    fn unit(self, value: f64) -> String {
        match self {
            Self::Received | Self::LossFree => rate(value),
            Self::Sent => format!("{} sent", rate(value)),
            Self::Bits | Self::BitsPerUpfCore => GIGABITS.with(value),
            Self::Loss | Self::Deviation => format!("{} %", percent(value)),
            Self::Softirq => format!("{} cores", digits(value)),
            Self::Cycles => format!("{} cycles", digits(value)),
            Self::OneWay => time(value),
            Self::Capabilities => format!("{value:.0} capabilities"),
            Self::HugePages => format!("{value:.0} MiB of huge pages"),
        }
    }
}

/// Standard deviation of the samples of a trial in frames per second, pooled over the trials; `None` if
/// there is one sample a trial.
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

/// A row of frames or of byte streams.
#[derive(Clone, Copy)]
pub(crate) enum AnyRow<'a> {
    Frames(&'a ResultRow, &'a Measured),
    Streams(&'a StreamRow),
}

impl AnyRow<'_> {
    pub(crate) fn forwarders(self) -> f64 {
        match self {
            Self::Frames(row, _) => row.forwarders as f64,
            Self::Streams(_) => 0.0,
        }
    }

    /// Frames sent per second.
    pub(crate) fn sent(self) -> f64 {
        match self {
            Self::Frames(_, measured) => measured.sent_pps,
            Self::Streams(_) => 0.0,
        }
    }

    /// Frames offered per second; 0 if the sender sent as many as possible.
    pub(crate) fn offered(self) -> f64 {
        match self {
            Self::Frames(row, _) => row.offered_pps.unwrap_or_default(),
            Self::Streams(_) => 0.0,
        }
    }

    /// Returns the distance of the CPUs, if it was measured.
    pub(crate) fn distance(self) -> Option<Distance> {
        let lines = match self {
            Self::Frames(_, measured) => measured.setting.lines,
            Self::Streams(row) => row.measured().and_then(|measured| measured.setting.lines),
        };
        lines.map(|lines| lines.distance)
    }
}

/// Least and largest of several values.
#[derive(Clone, Copy, Debug)]
struct Span {
    least: f64,
    most: f64,
}

impl Span {
    /// Returns `None` if there are none.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        values.fold(None, |span, value| {
            let Self { least, most } = span.unwrap_or(Self { least: value, most: value });
            Some(Self { least: least.min(value), most: most.max(value) })
        })
    }
}

/// A figure, and how it was measured.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) label: String,
    of: Quantity,
    /// The figure in base units.
    pub(crate) value: f64,
    interval: Option<Interval>,
    /// `~`, `!` or `*`, as in all tables.
    pub(crate) mark: &'static str,
    /// Other activity of the machine during the measurement, in words.
    disturbed: Option<String>,
    /// Samples of the figure, if it has some.
    samples: Option<Span>,
    pub(crate) host: HostFacts,
    /// Number of trials, or of searches.
    pub(crate) trials: usize,
    pub(crate) lines: Option<Lines>,
    pub(crate) shared_cores: bool,
    pub(crate) measure_s: f64,
    pub(crate) quick: bool,
    pub(crate) is_search: bool,
}

impl Found {
    /// Lower end of the interval, or the figure itself if it has none; of all samples if the CPUs
    /// moved, since some may have been taken near and others far.
    pub(crate) fn low(&self) -> f64 {
        let low = self.interval.map_or(self.value, Interval::low);
        self.samples.filter(|_| self.moved()).map_or(low, |samples| samples.least.min(low))
    }

    /// Upper end, likewise.
    pub(crate) fn high(&self) -> f64 {
        let high = self.interval.map_or(self.value, Interval::high);
        self.samples.filter(|_| self.moved()).map_or(high, |samples| samples.most.max(high))
    }

    /// Returns the distance of the CPUs, if it was measured.
    pub(crate) fn distance(&self) -> Option<Distance> {
        self.lines.map(|lines| lines.distance)
    }

    /// Returns true if the CPUs moved during the trials.
    pub(crate) fn moved(&self) -> bool {
        self.distance() == Some(Distance::Changed)
    }

    fn length_s(&self) -> f64 {
        self.measure_s * self.trials as f64
    }

    /// Formats `value` in a unit that fits this kind of figure.
    pub(crate) fn unit(&self, value: f64) -> String {
        self.of.unit(value)
    }

    /// Formats the figure with its interval and mark, such as `1.20 Mpps~ ±3.0 %`.
    pub(crate) fn in_words(&self) -> String {
        let text = format!("{}{} {}", self.unit(self.value), self.mark, plus_minus(self.interval));
        text.trim_end().to_owned()
    }

    /// Returns the reason if the figure decides nothing: counters contradict each other, or the
    /// measurement was disturbed, which changes rates and times.
    pub(crate) fn doubt(&self) -> Option<String> {
        let is_of_time = !matches!(self.of, Quantity::Capabilities | Quantity::HugePages);
        // Without samples it is not known what the move has changed.
        let moved = || {
            let moved = self.lines.and_then(|lines| lines.changed());
            moved.filter(|_| self.samples.is_none())
        };
        let disturbed = self.disturbed.clone().or_else(moved).filter(|_| is_of_time);
        match (self.mark, disturbed) {
            ("!", _) => Some(format!("counters disagree for {}", self.label)),
            // Losses at a lower rate say nothing about those at the rate offered.
            ("*", _) if self.of == Quantity::Loss => {
                Some(format!("less was sent than offered for {}", self.label))
            }
            (_, Some(what)) => Some(format!("{} was disturbed: {what}", self.label)),
            _ => None,
        }
    }

    /// Returns the reason if two figures cannot be compared.
    pub(crate) fn differs(&self, other: &Self) -> Option<String> {
        if !host_differences(&self.host, &other.host).is_empty() {
            return Some("measured on different machines".to_owned());
        }
        if let Some(moved) = [self, other].into_iter().find(|figure| figure.moved()) {
            return Some(format!("the CPUs moved for {}", moved.label));
        }
        let [Some(mine), Some(others)] = [self.lines, other.lines] else { return None };
        let word = |lines: Lines| match lines.distance {
            Distance::Near => "near",
            Distance::Far => "far",
            Distance::Changed => "moving",
        };
        (mine.distance != others.distance).then(|| {
            format!(
                "the CPUs were {} for {}, {} for {}",
                word(mine),
                self.label,
                word(others),
                other.label
            )
        })
    }
}
