//! Text about a role: one line for each interval, and one at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::with_prefix;
use crate::parse::Interval;
use dray_text::count;
use dray_traffic::{Arrivals, Latency, OnSample, Percentiles, Report, Sample};

/// Returns a function that stores the number of bytes so far in `bytes`, and writes the rates of
/// each interval to standard error, from the first frame on.
pub(super) fn rates(interval: Interval, bytes: Arc<AtomicU64>) -> OnSample {
    let mut lines: Option<Lines> = None;
    Box::new(move |last: &Sample, now: &Sample, arrivals: &Arrivals| {
        bytes.store(now.bytes, Ordering::Relaxed);
        let Some(interval) = interval.0 else { return };
        let lines = lines.get_or_insert_with(|| Lines::new(interval, last));
        if let Some(line) = lines.next(now, arrivals) {
            eprintln!("{line}");
        }
    })
}

/// The lines of a role, one for each interval.
struct Lines {
    interval: Duration,
    start_ns: u64,
    /// Sample at the end of the previous interval.
    last: Sample,
    /// True after the first line.
    began: bool,
}

impl Lines {
    fn new(interval: Duration, start: &Sample) -> Self {
        Self { interval, start_ns: start.at_ns, last: *start, began: false }
    }

    /// Returns the line for the interval that ends with the sample `now`, if one does.
    ///
    /// Frames fill only a part of the first interval, and a few frames in a short part would give a
    /// wrong rate: the first line has the rate from the first batch to the last one, and covers the
    /// next interval too if that time is short.
    fn next(&mut self, now: &Sample, arrivals: &Arrivals) -> Option<String> {
        let number = |at_ns: u64| u128::from(at_ns) / self.interval.as_nanos();
        if number(now.at_ns) == number(self.last.at_ns) {
            return None;
        }
        let last = std::mem::replace(&mut self.last, *now);
        let measured = if self.began || (last.bytes > 0 && now.bytes == last.bytes) {
            Arrivals {
                frames: now.frames - last.frames,
                bytes: now.bytes - last.bytes,
                ns: now.at_ns - last.at_ns,
            }
        } else {
            Some(*arrivals).filter(|it| u128::from(it.ns) > self.interval.as_nanos() / 10)?
        };
        self.began = true;
        Some(rates_line(Duration::from_nanos(now.at_ns - self.start_ns), &measured))
    }
}

fn rates_line(at: Duration, &Arrivals { frames, bytes, ns }: &Arrivals) -> String {
    let seconds = Duration::from_nanos(ns).as_secs_f64();
    let bits = scaled(bytes as f64 * 8.0 / seconds, "b/s");
    // Streams have no frames.
    let frames = match (frames, bytes) {
        (0, 1..) => String::new(),
        _ => format!("{:>12}", scaled(frames as f64 / seconds, "pps")),
    };
    format!("{:8.1} s{frames}{bits:>14}", at.as_secs_f64())
}

/// Formats a number with a unit, to four digits: `20.02 kpps`.
fn scaled(number: f64, unit: &str) -> String {
    let (number, prefix) = with_prefix(number, 4);
    format!("{number} {prefix}{unit}")
}

/// Formats the rates of what a role received: `, 20.02 kpps, 10.25 Mb/s`. Empty if it received one
/// batch only.
pub(crate) fn arrived(arrivals: &Arrivals) -> String {
    let part = |rate: Option<f64>, unit| match rate {
        Some(rate) => format!(", {}", scaled(rate, unit)),
        None => String::new(),
    };
    part(arrivals.frames_per_second(), "pps") + &part(arrivals.bits_per_second(), "b/s")
}

/// Formats the rates of what a role sent.
fn sent(frames: u64, bytes: u64, elapsed_ns: u64) -> String {
    arrived(&Arrivals { frames, bytes, ns: elapsed_ns })
}

/// Formats percentiles in microseconds, if there are any.
pub(crate) fn percentiles(latency: &Latency) -> String {
    let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
    let Some(times) = latency.percentiles() else { return String::new() };
    let Percentiles { p50, p90, p99, p999, p9999, max } = times;
    let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(us);
    let p9999 = p9999.map_or(String::new(), |ns| format!(", p99.99 {}", us(ns)));
    format!("; us: p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}{p9999}, max {max}")
}

/// Returns the role's last line.
pub(super) fn describe(report: &Report) -> String {
    match report {
        Report::Send(send) => {
            let note = match send.offered {
                Some(offered) if send.sent_less_than_offered() => {
                    format!("; sent less than offered: {offered}")
                }
                _ => String::new(),
            };
            let rates = sent(send.sent, send.bytes, send.elapsed_ns);
            format!("sent {}{rates}{note}\n", count(send.sent, "frame"))
        }
        Report::Receive(receive) => format!(
            "received {}{}; lost {}, duplicated {}, reordered {}, corrupt {}, foreign {}, \
             dropped at the port {}{}\n",
            count(receive.received, "frame"),
            arrived(&receive.arrivals),
            receive.lost,
            receive.duplicated,
            receive.reordered,
            receive.corrupt,
            receive.foreign,
            receive.dropped,
            receive.latency.as_ref().map_or(String::new(), percentiles),
        ),
        Report::Forward(forward) => format!(
            "received {}{}; transmitted {}, refused {}, dropped at the port {}\n",
            count(forward.received, "frame"),
            arrived(&forward.arrivals),
            forward.transmitted,
            forward.refused,
            forward.dropped,
        ),
        Report::Ping(ping) => {
            let times = percentiles(&ping.latency);
            let (sent, back) = (ping.send.sent, ping.receive.received);
            let rate = ping.receive.arrivals.frames_per_second();
            let rate = rate.map_or(String::new(), |rate| match rate {
                1e3.. => format!(", {:.1} k round trips/s", rate / 1e3),
                _ => format!(", {rate:.1} round trips/s"),
            });
            let sent = count(sent, "frame");
            format!("sent {sent}, {back} came back{rate}{times}\n")
        }
        Report::Both(reports) => reports.iter().map(describe).collect(),
        Report::Neighbour(neighbour) => {
            format!("written {}\n", count(neighbour.written_bytes, "byte"))
        }
        Report::StreamSend(send) => {
            let copied = send.zerocopy.map_or(String::new(), |zerocopy| {
                let (copied, completed) = (zerocopy.copied, zerocopy.completed);
                format!("; the kernel copied in {copied} of {completed} calls")
            });
            let rate = sent(0, send.bytes, send.elapsed_ns);
            let (bytes, streams) = (count(send.bytes, "byte"), count(send.streams.len(), "stream"));
            let again = count(send.retransmits, "segment");
            format!("sent {bytes} in {streams}{rate}; {again} sent again{copied}\n")
        }
        Report::StreamReceive(receive) => {
            let streams = count(receive.streams.len(), "stream");
            let bytes = count(receive.bytes, "byte");
            let ended = receive.streams.iter().filter(|stream| stream.ended).count();
            let corrupt = count(receive.corrupt, "corrupt read");
            let foreign = count(receive.foreign, "foreign connection");
            let rate = arrived(&receive.arrivals);
            format!("received {bytes} in {streams}{rate}; {ended} ended, {corrupt}, {foreign}\n")
        }
    }
}

/// Returns why a role did nothing useful, if so: nothing came through, or the peers did not take
/// the `left` last frames, which were all.
pub(super) fn nothing_came(report: &Report, left: usize) -> Option<String> {
    let (count, what) = match report {
        Report::Send(report) => (report.sent, "no frame was sent"),
        Report::Receive(report) => (report.received, "no test frame was received"),
        Report::Forward(report) => (report.transmitted, "no frame was forwarded"),
        Report::Ping(report) => (report.receive.received, "no reply came"),
        Report::StreamSend(report) => (report.bytes, "nothing was sent"),
        Report::StreamReceive(report) => (report.bytes, "nothing was received"),
        Report::Both(reports) => return reports.iter().find_map(|of| nothing_came(of, left)),
        Report::Neighbour(report) => (report.written_bytes, "nothing was written"),
    };
    match (count, report) {
        (0, Report::Receive(report)) if report.foreign > 0 => {
            Some(format!("{what}; foreign frames: {}", report.foreign))
        }
        (0, _) => Some(what.to_owned()),
        (count, _) if count <= left as u64 => Some("no frame was taken by a peer".to_owned()),
        _ => None,
    }
}

/// Returns a message if a receiver ended with fewer frames than it was to wait for.
pub(super) fn too_few(report: &Report, expected: Option<u64>) -> Option<String> {
    match (report, expected) {
        (Report::Receive(report), Some(expected)) if report.received < expected => {
            Some(format!("received {} of {expected} frames", report.received))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use dray_traffic::ReceiveReport;

    use super::*;

    #[test]
    fn rates_have_four_digits() {
        for (number, text) in [
            (0.0, "0.000 pps"),
            (5.0, "5.000 pps"),
            (99.997, "100.0 pps"),
            (999_960.0, "1.000 Mpps"),
            (20_020.0, "20.02 kpps"),
            (14_880_952.0, "14.88 Mpps"),
            (123_456_789_000.0, "123.5 Gpps"),
        ] {
            assert_eq!(scaled(number, "pps"), text);
        }
        let line =
            |ns, frames, bytes| rates_line(Duration::from_secs(3), &Arrivals { frames, bytes, ns });
        let (second, half) = (1_000_000_000, 500_000_000);
        assert_eq!(line(half, 10_000, 640_000), "     3.0 s  20.00 kpps    10.24 Mb/s");
        assert_eq!(line(second, 0, 125_000_000), "     3.0 s    1.000 Gb/s");
        assert_eq!(line(second, 0, 0), "     3.0 s   0.000 pps     0.000 b/s");
    }

    /// Returns the rates in the lines of a role that starts at `start` and moves one frame of 125
    /// bytes at each of `moments`, all in milliseconds, with samples at whole seconds until 5 s.
    fn lines(start: u64, moments: &[u64]) -> Vec<String> {
        let sample = |at: u64| {
            let frames = moments.iter().filter(|moment| **moment <= at).count() as u64;
            let none = Sample {
                at_ns: at * 1_000_000,
                frames,
                bytes: frames * 125,
                user_ns: 0,
                system_ns: 0,
                work_ns: None,
            };
            let so_far = &moments[..frames as usize];
            let ns = so_far.last().map_or(0, |last| (last - so_far[0]) * 1_000_000);
            let frames = frames.saturating_sub(1);
            (none, Arrivals { frames, bytes: frames * 125, ns })
        };
        let mut lines = Lines::new(Duration::from_secs(1), &sample(start).0);
        let seconds = (1..=5).map(|second| second * 1000).filter(|at| *at > start);
        let all = seconds.filter_map(|at| {
            let (now, arrivals) = sample(at);
            lines.next(&now, &arrivals)
        });
        all.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn first_line_has_rate_of_frames_in_its_part_of_interval() {
        let each = |from: u64, step: u64, count: u64| -> Vec<u64> {
            (0..count).map(|index| from + index * step).collect()
        };
        // A sender with 10 frames per second, from its start on.
        assert_eq!(
            lines(145, &each(145, 100, 50))[..2],
            ["0.9 s 10.00 pps 10.00 kb/s", "1.9 s 10.00 pps 10.00 kb/s"].map(str::to_owned)
        );
        // Frames arrive late in an interval, too few for a rate: the next line covers both.
        assert_eq!(
            lines(0, &each(1950, 80, 13)),
            [
                "3.0 s 12.50 pps 12.50 kb/s",
                "4.0 s 0.000 pps 0.000 b/s",
                "5.0 s 0.000 pps 0.000 b/s"
            ]
            .map(str::to_owned)
        );
        // One frame has no rate.
        assert_eq!(
            lines(0, &[1500]),
            ["3.0 s 0.000 pps 0.000 b/s", "4.0 s 0.000 pps 0.000 b/s", "5.0 s 0.000 pps 0.000 b/s"]
                .map(str::to_owned)
        );
        assert!(lines(0, &[]).is_empty());
    }

    #[test]
    fn report_without_test_frames_is_a_failure() {
        let mut report = ReceiveReport { foreign: 5, ..ReceiveReport::default() };
        let none = "no test frame was received; foreign frames: 5";
        assert_eq!(nothing_came(&Report::Receive(report.clone()), 0).as_deref(), Some(none));
        let text = describe(&Report::Receive(report.clone()));
        assert!(text.starts_with("received 0 frames; lost 0,"), "{text}");
        report.received = 1;
        assert_eq!(nothing_came(&Report::Receive(report), 0), None);
    }
}
