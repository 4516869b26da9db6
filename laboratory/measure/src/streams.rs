//! Trials of byte streams and their sums. Figures here count bytes, never frames.

use std::time::Duration;

use dray_lab::LabError;
use dray_port::clock;
use dray_results::{Check, Cpu, CpuCost, Interval, MeasuredStreams, Noise, SettingOfRun, stats};
use dray_traffic::stream::ZeroCopy;
use dray_traffic::{Report, StreamReceiveReport, StreamSendReport};
use serde::{Deserialize, Serialize};

use crate::accounting::both;
use crate::cost;
use crate::distance::LineTimes;
use crate::endpoint::Programs;
use crate::run::{Run, ended_early, unexpected};
use crate::span::Span;
use crate::state::State;
use crate::timing::Timing;
use crate::topology::Topology;

/// Result of a trial of streams, over all pairs. Rates and CPU time cover the measurement, counts
/// the whole trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamTrial {
    /// Time until all streams were connected.
    pub(crate) ready_after: Duration,
    totals: Totals,
    /// True if all counts of every stream agree; `None` if they do, but the kernel does not count.
    agrees: Option<bool>,
    /// Bits received per second in each interval.
    rates_bps: Vec<f64>,
    goodput_bps: f64,
    /// Goodput of each pair, in bits per second.
    pairs_bps: Vec<f64>,
    cpu: Vec<(String, CpuCost)>,
    cycles_per_byte: Option<f64>,
    segment_max: u32,
    congestion: String,
    pub(crate) noise: Noise,
    /// Times between the CPUs, if there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lines: Option<LineTimes>,
}

/// Sums over all pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Totals {
    sent: u64,
    received: u64,
    by_tcp: u64,
    retransmits: u64,
    corrupt: u64,
    zerocopy: Option<ZeroCopy>,
}

/// Maximum share of bytes that TCP itself may carry if something else should: TCP carries the bytes
/// that set it up.
const BY_TCP_MAX: f64 = 0.1;

impl StreamTrial {
    /// Returns the state of the machine. A trial that shows an error is never left out as
    /// disturbed.
    pub(crate) fn state(&self) -> State {
        let is_wrong = self.agrees == Some(false) || self.totals.corrupt > 0;
        State::of(self.lines, if is_wrong { Noise::default() } else { self.noise })
    }

    /// Returns true if bytes were received, they are exactly those sent, and the kernel counted the
    /// same.
    pub fn is_right(&self) -> bool {
        self.agrees != Some(false) && self.totals.received > 0 && self.totals.corrupt == 0
    }

    /// Computes the result of a run.
    pub(crate) fn of(
        topologies: &[Topology],
        timing: &Timing,
        run: &Run,
    ) -> Result<Self, LabError> {
        let span = Span::new(run.measure_from_ns, timing);
        let is_ours = !topologies[0].technique.endpoint.is_third_party();
        let (mut totals, mut agrees) = (Totals::default(), true);
        let mut rates_bps =
            vec![0.0; (timing.measure.as_nanos() / timing.interval.as_nanos()) as usize];
        let mut pairs_bps = Vec::new();
        let (mut segment_max, mut congestion) = (0, String::new());
        for (topology, reports) in topologies.iter().zip(&run.reports) {
            let [Report::StreamSend(sender), Report::StreamReceive(receiver)] = &reports[..] else {
                return Err(unexpected(&topology.sender, &reports[0]));
            };
            totals.add(sender, receiver);
            agrees &= if is_ours {
                balances(sender, receiver)
            } else {
                // What is still on its way at the end is counted by one side only.
                receiver.bytes <= sender.bytes
            };
            let rates = span.rates(&receiver.samples, |sample| sample.bytes);
            let (each, all) = rates.ok_or_else(|| ended_early(&topology.receiver))?;
            rates_bps.iter_mut().zip(each).for_each(|(sum, rate)| *sum += rate * 8.0);
            pairs_bps.push(all * 8.0);
            segment_max = segment_max.max(sender.segment_max);
            congestion.clone_from(&sender.congestion);
        }
        let bypassed = match topologies[0].technique.endpoint.programs {
            Programs::Streams(stream) => stream.bypasses_tcp(),
            _ => false,
        };
        if bypassed {
            let share = totals.by_tcp as f64 / totals.received.max(1) as f64;
            if share > BY_TCP_MAX {
                let what = format!("TCP carried {:.0} % of the bytes", 100.0 * share);
                let error = std::io::Error::other(what);
                return Err(LabError::System { what: "short cut for TCP".to_owned(), error });
            }
        } else {
            // Compare with the kernel's own count of received bytes.
            agrees &= totals.by_tcp == totals.received;
        }
        let cpu = cost::costs(topologies, timing, run)?;
        let seconds: f64 = cpu.iter().map(|(_, cost)| cost.total_s()).sum();
        let goodput_bps: f64 = pairs_bps.iter().sum();
        let bytes = goodput_bps / 8.0 * timing.measure.as_secs_f64();
        // On other architectures, the counter has its own rate, far below the CPU's.
        let has_cycles = bytes > 0.0 && cfg!(target_arch = "x86_64");
        let cycles = seconds * clock::ticks_per_second() as f64;
        Ok(Self {
            ready_after: run.ready_after,
            totals,
            agrees: if agrees { (is_ours && !bypassed).then_some(true) } else { Some(false) },
            rates_bps,
            goodput_bps,
            pairs_bps,
            noise: run.noise(topologies, &cpu),
            lines: None,
            cpu,
            cycles_per_byte: has_cycles.then(|| cycles / bytes),
            segment_max,
            congestion,
        })
    }
}

impl StreamTrial {
    /// Bits of payload received per second.
    pub(crate) fn goodput_bps(&self) -> f64 {
        self.goodput_bps
    }
}

impl Totals {
    fn add(&mut self, sender: &StreamSendReport, receiver: &StreamReceiveReport) {
        self.sent += sender.bytes;
        self.received += receiver.bytes;
        self.by_tcp += receiver.by_tcp;
        self.retransmits += sender.retransmits;
        self.corrupt += receiver.corrupt;
        self.add_zerocopy(sender.zerocopy);
    }

    fn add_zerocopy(&mut self, other: Option<ZeroCopy>) {
        if let Some(other) = other {
            let sum = self.zerocopy.get_or_insert_default();
            sum.completed += other.completed;
            sum.copied += other.copied;
        }
    }
}

/// Returns true if every stream was received to its end and intact, and nothing else was received.
fn balances(sender: &StreamSendReport, receiver: &StreamReceiveReport) -> bool {
    let received: Vec<_> =
        receiver.streams.iter().map(|s| (usize::from(s.stream), s.bytes)).collect();
    let sent = sender.streams.iter().copied().enumerate();
    // The receiver does not know a stream that sent nothing.
    let sent: Vec<_> = sent.filter(|(_, bytes)| *bytes > 0).collect();
    received == sent
        && receiver.streams.iter().all(|stream| stream.ended)
        && (receiver.corrupt, receiver.foreign) == (0, 0)
}

/// Sums up the trials of one case, of which there is at least one. Each lasted `measure`.
pub(crate) fn sum(
    trials: &[StreamTrial],
    (setting, check): (SettingOfRun, Check),
    noise: Noise,
    measure: Duration,
) -> MeasuredStreams {
    let last = trials.last().expect("at least one trial");
    let (mut totals, mut cpu) = (Totals::default(), Cpu::default());
    for trial in trials {
        let Totals { sent, received, by_tcp, retransmits, corrupt, zerocopy } = trial.totals;
        totals.sent += sent;
        totals.received += received;
        totals.by_tcp += by_tcp;
        totals.retransmits += retransmits;
        totals.corrupt += corrupt;
        totals.add_zerocopy(zerocopy);
        cpu.add(&trial.cpu, measure);
    }
    let all = |of: fn(&StreamTrial) -> &[f64]| trials.iter().flat_map(of).copied();
    let samples_bps: Vec<f64> = all(|trial| &trial.rates_bps).collect();
    let trials_bps: Vec<f64> = trials.iter().map(|trial| trial.goodput_bps).collect();
    let goodput_bps = stats::mean(&trials_bps);
    let cycles: Option<Vec<f64>> = trials.iter().map(|trial| trial.cycles_per_byte).collect();
    let copied = |ZeroCopy { completed, copied }| copied as f64 / completed.max(1) as f64;
    MeasuredStreams {
        setting,
        check,
        trials: trials.len(),
        sent_bytes: totals.sent,
        received_bytes: totals.received,
        by_tcp_bytes: totals.by_tcp,
        corrupt_reads: totals.corrupt,
        counters_agree: trials.iter().map(|trial| trial.agrees).fold(None, both),
        retransmits: totals.retransmits,
        segment_max: last.segment_max,
        congestion: last.congestion.clone(),
        zerocopy_copied_ratio: totals.zerocopy.map(copied),
        goodput_bps,
        stddev_bps: stats::standard_deviation(&samples_bps),
        interval95_bps: Interval::of_rate(goodput_bps, &samples_bps, trials.len())
            .map(|interval| interval.half),
        noise: Some(noise),
        slowest_pair_bps: all(|trial| &trial.pairs_bps).fold(f64::INFINITY, f64::min),
        fastest_pair_bps: all(|trial| &trial.pairs_bps).fold(0.0, f64::max),
        samples_bps,
        trials_bps,
        cpu,
        cycles_per_byte: cycles.map(|cycles| stats::mean(&cycles)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_traffic::stream::StreamBytes;

    #[test]
    fn stream_balance_requires_all_bytes_and_end() {
        let sender = StreamSendReport { bytes: 30, streams: vec![10, 20], ..Default::default() };
        let stream = |stream, bytes, ended| StreamBytes { stream, bytes, ended };
        let right = StreamReceiveReport {
            bytes: 30,
            streams: vec![stream(0, 10, true), stream(1, 20, true)],
            ..Default::default()
        };
        assert!(balances(&sender, &right));
        let wrongs: [fn(&mut StreamReceiveReport); 5] = [
            |report| report.streams[1].bytes -= 1,
            |report| report.streams[0].ended = false,
            |report| report.streams.truncate(1),
            |report| report.foreign = 1,
            |report| report.corrupt = 1,
        ];
        for (number, wrong) in wrongs.iter().enumerate() {
            let mut report = right.clone();
            wrong(&mut report);
            assert!(!balances(&sender, &report), "{number}");
        }
    }
}
