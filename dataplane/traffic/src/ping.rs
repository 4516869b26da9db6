//! The ping: sends test frames to an [`echo`](crate::echo) and measures round-trip times. It sends
//! one frame at a time, or frames at a given rate independent of replies.

use std::time::Duration;

use dray_datapath::ArrivalClock;
use dray_port::{Scratch, Transmit, clock};
use dray_wire::test_frame::{self, Stamp, Verdict};

use crate::counts::Counts;
use crate::latency::Latency;
use crate::links::{Links, OpenPort};
use crate::pacer::Pacer;
use crate::receive_queues::ReceiveQueues;
use crate::sample::Sampler;
use crate::sender::{Late, OpenOutput};
use crate::{OnSample, Phase, PingJob, PingReport, ReceiveReport, RoleError, SendReport, Signal};

/// Time to wait for a reply before the next frame is sent, or after the last one of a given rate. A
/// later reply still counts.
const TIMEOUT: Duration = Duration::from_millis(100);

/// A ping with its port open and its frames built.
pub struct Ping {
    job: PingJob,
    rx_queues: ReceiveQueues,
    output: OpenOutput,
    pub(crate) links: Links,
}

impl Ping {
    /// Opens the port.
    pub fn open(job: PingJob, open: &OpenPort<'_>) -> Result<Self, RoleError> {
        let uri = &job.output.port;
        RoleError::check_transmits(uri)?;
        let mut links = Links::default();
        let port = links.open(uri, open)?;
        let tx = port.tx.into_iter().next().expect("a port has a queue");
        let output = OpenOutput::over(tx, &job.output, job.size, job.burst, (1, 1))?;
        let rx_queues = ReceiveQueues::new(vec![(uri.clone(), port.rx)], job.yielding);
        Ok(Self { job, rx_queues, output, links })
    }

    /// Returns the queue through which the ping transmits.
    pub(crate) fn outputs(&mut self) -> impl Iterator<Item = &mut dyn Transmit> {
        std::iter::once(&mut *self.output.tx as &mut dyn Transmit)
    }

    /// Sends frames and receives replies until the job is done or `signal` ends it.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<PingReport, RoleError> {
        signal.wait_for_start();
        let start = clock::ticks();
        let warm = start + clock::to_ticks(self.job.warm_up);
        let mut sampler = Sampler::new(self.job.interval, on_sample);
        sampler.worked(0);
        let counts = Counts::since(start);
        let mut answers = Answers { counts, warm, ..Answers::default() };
        let mut sent = match self.job.rate {
            Some(rate) => self.run_at(rate, start, signal, &mut sampler, &mut answers)?,
            None => self.run_in_turns(start, signal, &mut sampler, &mut answers)?,
        };
        let size = self.job.size as u64;
        let samples = sampler.finish(answers.counts.received, answers.counts.received * size);
        let elapsed_ns = clock::to_duration(clock::ticks() - start).as_nanos() as u64;
        (sent.bytes, sent.streams) = (sent.sent * size, vec![sent.sent]);
        (sent.elapsed_ns, sent.samples) = (elapsed_ns, samples.clone());
        Ok(PingReport {
            send: sent,
            receive: ReceiveReport {
                arrivals: answers.noted.arrivals(),
                ..answers.counts.into_report(self.rx_queues.dropped()?, samples)
            },
            latency: answers.latency,
        })
    }

    /// Sends the next frame as soon as the last reply arrives.
    fn run_in_turns(
        &mut self,
        start: u64,
        signal: &Signal,
        sampler: &mut Sampler,
        answers: &mut Answers,
    ) -> Result<SendReport, RoleError> {
        let deadline = start + clock::to_ticks(self.job.duration);
        let mut scratch = dray_port::scratch();
        let mut report = SendReport::default();
        loop {
            let now = clock::ticks();
            let received = answers.counts.received;
            sampler.poll(now, received, received * self.job.size as u64);
            let all_sent = self.job.count.is_some_and(|count| report.sent >= count);
            if now >= deadline || all_sent || signal.phase() != Phase::Run {
                break;
            }
            if self.output.send(1, |_| now)? == 0 {
                report.refused += 1;
                std::thread::yield_now();
                continue;
            }
            report.sent += 1;
            self.wait_for(report.sent, TIMEOUT, signal, answers, &mut scratch)?;
        }
        // A switch between the ends may not have run for longer.
        self.wait_for(report.sent, Signal::DRAIN_MAX, signal, answers, &mut scratch)?;
        Ok(report)
    }

    /// Waits until the replies to all `sent` frames have come back, at most for `patience`.
    fn wait_for(
        &mut self,
        sent: u64,
        patience: Duration,
        signal: &Signal,
        answers: &mut Answers,
        scratch: &mut Scratch,
    ) -> Result<(), RoleError> {
        let until = clock::ticks() + clock::to_ticks(patience);
        while answers.next < sent && signal.phase() != Phase::Stop {
            if answers.take(&mut self.rx_queues, scratch, sent)? {
                continue;
            }
            if clock::ticks() >= until {
                break;
            }
            self.rx_queues.idle()?;
        }
        Ok(())
    }

    /// Sends frames when they are due, independent of replies.
    fn run_at(
        &mut self,
        rate: f64,
        start: u64,
        signal: &Signal,
        sampler: &mut Sampler,
        answers: &mut Answers,
    ) -> Result<SendReport, RoleError> {
        let PingJob { duration, burst, .. } = self.job;
        let (pacer, deadline) = (Pacer::new(start, rate), start + clock::to_ticks(duration));
        let mut scratch = dray_port::scratch();
        let mut late = Late::new(answers.warm);
        let offered = self.job.count.unwrap_or((rate * duration.as_secs_f64()) as u64);
        let (mut sent, mut refused) = (0, 0);
        let mut from = clock::ticks();
        loop {
            let now = clock::ticks();
            let received = answers.counts.received;
            sampler.poll(now, received, received * self.job.size as u64);
            let all_sent = self.job.count.is_some_and(|count| sent >= count);
            if now >= deadline || all_sent || signal.phase() != Phase::Run {
                break;
            }
            let due = pacer.count(now).min(offered).saturating_sub(sent);
            let count = due.min(burst as u64) as usize;
            let mut worked = false;
            if count > 0 {
                let taken = self.output.send(count, |index| pacer.due(sent + index))?;
                late.record(now, pacer.due(sent), taken);
                sent += taken as u64;
                refused += (count - taken) as u64;
                worked = taken > 0;
            }
            worked |= answers.take(&mut self.rx_queues, &mut scratch, sent)?;
            if worked {
                sampler.worked(clock::ticks() - from);
            } else {
                self.rx_queues.idle()?;
            }
            from = clock::ticks();
        }
        let ended = clock::ticks();
        self.wait_for(sent, TIMEOUT, signal, answers, &mut scratch)?;
        // A ping that was ended early was offered less.
        let so_far = pacer.count(ended.min(deadline));
        Ok(SendReport {
            offered: Some(offered.min(so_far)),
            sent,
            refused,
            late: Some(late.times),
            ..SendReport::default()
        })
    }
}

/// Replies.
#[derive(Default)]
struct Answers {
    counts: Counts,
    noted: ArrivalClock,
    latency: Latency,
    /// Round trips that began before this tick are not timed.
    warm: u64,
    /// Highest sequence number that came back, plus one.
    next: u64,
}

impl Answers {
    /// Takes the frames that have arrived; returns true if there were any. `sent` is the number of
    /// frames sent so far.
    fn take(
        &mut self,
        rx_queues: &mut ReceiveQueues,
        scratch: &mut Scratch,
        sent: u64,
    ) -> Result<bool, RoleError> {
        let mut worked = false;
        for index in 0..rx_queues.len() {
            worked |= rx_queues.receive(index, &mut |frames| {
                for frame in frames {
                    self.record(test_frame::read(frame.bytes(scratch)), frame.len(), sent);
                }
                frames.len()
            })? > 0;
        }
        if worked {
            self.noted.note(clock::ticks(), self.counts.received, self.counts.bytes);
        }
        Ok(worked)
    }

    fn record(&mut self, verdict: Verdict, len: usize, sent: u64) {
        self.counts.record(verdict, len);
        let Verdict::Intact(Stamp { sequence, ticks, .. }) = verdict else { return };
        // A foreign sequence number does not end a wait.
        if sequence < sent && ticks >= self.counts.began {
            self.next = self.next.max(sequence + 1);
            if ticks >= self.warm {
                let taken = clock::ticks().saturating_sub(ticks);
                self.latency.record_ns(clock::nanoseconds(taken), 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Role;
    use crate::echo::Echo;
    use crate::{EchoJob, Job, Output, Report};
    use dray_port::PortUri;

    /// Over the loopback interface: replies arrive, and their round-trip times are measured.
    #[test]
    fn round_trips_are_timed() {
        let report = run(None, "127.83.0");
        assert_eq!(report.send.offered, None);
    }

    /// At a rate, frames go out when they are due.
    #[test]
    fn paced_round_trips_overlap() {
        let report = run(Some(5000.0), "127.84.0");
        assert_eq!(report.send.offered, Some(1000), "for 0.2 s");
        assert!(report.send.sent <= 1000, "{report:?}");
        // Frames due after the first 50 of 200 ms count, except the rest of a burst of 4 that began
        // before.
        let late = report.send.late.unwrap().count();
        let least = report.send.sent.saturating_sub(251 + 3);
        assert!((least..=751).contains(&late), "{late} of {}", report.send.sent);
    }

    /// Runs a ping for a fifth of a second and checks what holds for any ping.
    fn run(rate: Option<f64>, net: &str) -> PingReport {
        let port = |text: &str| text.parse::<PortUri>().unwrap();
        let interval = Duration::from_millis(10);
        let echo = EchoJob {
            port: port(&format!("udp:{net}.1:9000-{net}.2:9000")),
            yielding: true,
            interval,
        };
        let mut echo = Echo::open(echo, &PortUri::open).unwrap();
        let ping = PingJob {
            output: Output {
                port: port(&format!("udp:{net}.2:9000-{net}.1:9000")),
                flow: dray_wire::Flow::default(),
            },
            size: 100,
            rate,
            burst: 4,
            count: None,
            warm_up: Duration::from_millis(50),
            duration: Duration::from_millis(200),
            yielding: true,
            interval,
        };
        let signal = Signal::default();
        let report = std::thread::scope(|scope| {
            let echo = scope.spawn(|| echo.run(&signal, None).unwrap());
            let mut role = Role::open(Job::Ping(ping), &PortUri::open, &|| ()).unwrap();
            let report = role.run(&Signal::default(), None).unwrap();
            signal.stop();
            echo.join().unwrap();
            report
        });
        let Report::Ping(report) = report else { panic!("{report:?}") };
        assert_eq!((report.receive.received, report.receive.lost), (report.send.sent, 0));
        let timed = report.latency.count();
        assert!(timed > 0 && timed < report.send.sent, "those while warming up are not timed");
        let percentiles = report.latency.percentiles().unwrap();
        assert!(percentiles.p50 > 1000 && percentiles.p50 <= percentiles.max, "{percentiles:?}");
        report
    }
}
