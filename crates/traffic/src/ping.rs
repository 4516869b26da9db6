//! The ping: one test frame at a time, and how long it takes to come back from an [`echo`](crate::echo).

use std::time::Duration;

use dray_port::{Frame, Scratch, Transmit, clock};
use dray_wire::test_frame::{self, Stamp, Verdict};

use crate::intake::Intake;
use crate::latency::Latency;
use crate::links::Links;
use crate::pacer::{Pacer, wait_until};
use crate::receiver::Counts;
use crate::sample::{Sampler, monotonic_ns};
use crate::{OnSample, Phase, PingJob, PingReport, RoleError, SendReport, Signal};

/// How long a frame is waited for before the next one is sent. One that comes later still counts.
const TIMEOUT: Duration = Duration::from_millis(100);

/// A ping with its port open and its frame built.
pub struct Ping {
    job: PingJob,
    intake: Intake,
    tx: Box<dyn Transmit>,
    frame: Vec<u8>,
    pub(crate) links: Links,
}

impl Ping {
    /// Opens the port.
    pub fn open(job: PingJob) -> Result<Self, RoleError> {
        let uri = &job.lane.port;
        RoleError::check_transmits(uri)?;
        let port = uri.open()?;
        let mut links = Links::default();
        links.add(uri, &port);
        let tx = port.tx.into_iter().next().expect("a port has a queue");
        RoleError::check_fits(job.size, &*tx, uri)?;
        let frame = test_frame::build(&job.lane.flow, job.size);
        let intake = Intake::new(vec![(uri.clone(), port.rx)], job.yielding);
        Ok(Self { job, intake, tx, frame, links })
    }

    /// What it transmits through.
    pub(crate) fn lanes(&mut self) -> impl Iterator<Item = &mut dyn Transmit> {
        std::iter::once(&mut *self.tx as &mut dyn Transmit)
    }

    /// Sends and waits for what comes back until the job is done or `signal` ends it.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<PingReport, RoleError> {
        let PingJob { rate, warm_up, duration, yielding, .. } = self.job;
        let size = self.job.size as u64;
        while monotonic_ns() < signal.start_at_ns() && signal.phase() == Phase::Run {
            std::thread::sleep(Duration::from_millis(1));
        }
        let start = clock::ticks();
        let (warm, deadline) =
            (start + clock::to_ticks(warm_up), start + clock::to_ticks(duration));
        let pacer = rate.map(|rate| Pacer::new(start, rate));
        let mut sampler = Sampler::new(self.job.interval, on_sample);
        let mut answers = Answers { warm, ..Answers::default() };
        let (mut sent, mut refused) = (0, 0);
        let (mut scratch, timeout) = (dray_port::scratch(), clock::to_ticks(TIMEOUT));
        loop {
            let mut now = clock::ticks();
            let due = pacer.map_or(now, |pacer| pacer.due(sent));
            if now < due {
                now = wait_until(due.min(deadline), dray_port::PATIENCE, yielding);
            }
            sampler.poll(now, answers.counts.received, answers.counts.received * size);
            if now >= deadline || signal.phase() != Phase::Run {
                break;
            }
            if now < due {
                continue;
            }
            let ticks = clock::ticks();
            test_frame::stamp(&mut self.frame, Stamp { stream: 0, sequence: sent, ticks });
            let frames = [Frame::from(self.frame.as_slice())];
            if self.tx.transmit(&frames).map_err(RoleError::port(&self.job.lane.port))? == 0 {
                refused += 1;
                std::thread::yield_now();
                continue;
            }
            sent += 1;
            let timeout = ticks + timeout;
            answers.wait(&mut self.intake, &mut scratch, sent, timeout, signal)?;
        }
        let samples = sampler.finish(answers.counts.received, answers.counts.received * size);
        let elapsed_ns = clock::to_duration(clock::ticks() - start).as_nanos() as u64;
        Ok(PingReport {
            send: SendReport {
                sent,
                bytes: sent * size,
                refused,
                streams: vec![sent],
                elapsed_ns,
                samples: samples.clone(),
                ..SendReport::default()
            },
            receive: answers.counts.into_report(self.intake.dropped()?, samples),
            latency: answers.latency,
        })
    }
}

/// What came back.
#[derive(Default)]
struct Answers {
    counts: Counts,
    latency: Latency,
    /// Round trips that began before this tick are not timed.
    warm: u64,
    /// One above the highest sequence number that came back.
    next: u64,
}

impl Answers {
    /// Takes what comes until frame number `sent - 1` is among it, or time is up.
    fn wait(
        &mut self,
        intake: &mut Intake,
        scratch: &mut Scratch,
        sent: u64,
        timeout: u64,
        signal: &Signal,
    ) -> Result<(), RoleError> {
        while self.next < sent {
            let mut worked = false;
            for index in 0..intake.len() {
                worked |= intake.receive(index, &mut |frames| {
                    for frame in frames {
                        self.record(test_frame::read(frame.bytes(scratch)), frame.len(), sent);
                    }
                    frames.len()
                })? > 0;
            }
            if worked {
                continue;
            }
            if clock::ticks() >= timeout || signal.phase() == Phase::Stop {
                break;
            }
            intake.idle()?;
        }
        Ok(())
    }

    fn record(&mut self, verdict: Verdict, len: usize, sent: u64) {
        self.counts.record([(verdict, len)].into_iter());
        let Verdict::Intact(Stamp { sequence, ticks, .. }) = verdict else { return };
        // Nobody else's number ends a wait.
        if sequence < sent {
            self.next = self.next.max(sequence + 1);
            if ticks >= self.warm {
                self.latency.record(clock::to_duration(clock::ticks().saturating_sub(ticks)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Role;
    use crate::echo::Echo;
    use crate::{EchoJob, Job, Lane, Report};
    use dray_port::PortUri;

    /// Over the loopback interface: what was sent comes back, and the time it took is known.
    #[test]
    fn round_trips_are_timed() {
        let port = |text: &str| text.parse::<PortUri>().unwrap();
        let interval = Duration::from_millis(10);
        let echo =
            EchoJob { port: port("udp:127.83.0.1:9000-127.83.0.2:9000"), yielding: true, interval };
        let mut echo = Echo::open(echo).unwrap();
        let ping = PingJob {
            lane: Lane {
                port: port("udp:127.83.0.2:9000-127.83.0.1:9000"),
                flow: dray_wire::Flow::default(),
            },
            size: 100,
            rate: None,
            warm_up: Duration::from_millis(50),
            duration: Duration::from_millis(200),
            yielding: true,
            interval,
        };
        let signal = Signal::default();
        let report = std::thread::scope(|scope| {
            let echo = scope.spawn(|| echo.run(&signal, None).unwrap());
            let mut role = Role::open(Job::Ping(ping)).unwrap();
            let report = role.run(&Signal::default(), None).unwrap();
            signal.stop();
            echo.join().unwrap();
            report
        });
        let Report::Ping(report) = report else { panic!("{report:?}") };
        assert!(report.send.sent > 10, "{report:?}");
        assert_eq!((report.receive.received, report.receive.lost), (report.send.sent, 0));
        let timed = report.latency.count();
        assert!(timed > 0 && timed < report.send.sent, "those while warming up are not timed");
        let percentiles = report.latency.percentiles().unwrap();
        assert!(percentiles.p50 > 1000 && percentiles.p50 <= percentiles.max, "{percentiles:?}");
    }
}
