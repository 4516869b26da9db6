//! The sender of streams: sends as many bytes as TCP takes.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dray_port::clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::outgoing::Outgoing;
use super::pattern::Pattern;
use super::{END_MAX, StreamSendReport, ZeroCopy, sleep};
use crate::links::Awaited;
use crate::sample::Sampler;
use crate::{OnSample, Phase, RoleError, Signal, StreamSendJob};

/// A sender of streams.
pub struct StreamSender {
    job: StreamSendJob,
    pattern: Pattern,
    /// Empty until the role is connected.
    streams: Vec<Outgoing>,
    pub(crate) awaited: Awaited,
}

impl StreamSender {
    /// Prepares the bytes to send. The receiver need not listen yet.
    pub fn open(job: StreamSendJob) -> Self {
        let pattern = Pattern::new(job.to.buffer);
        Self { job, pattern, streams: Vec::new(), awaited: Awaited::default() }
    }

    /// Connects every stream; waits for the receiver to listen.
    pub(crate) fn connect(&mut self, signal: &Signal) -> Result<(), RoleError> {
        let to = &self.job.to;
        for number in self.streams.len() as u16..self.job.streams {
            let connected = Outgoing::connect(to, number, signal, &self.awaited);
            self.streams.push(connected.map_err(RoleError::stream(to))?);
        }
        self.awaited.set(None);
        Ok(())
    }

    /// Sends until the job is done or `signal` ends it, then waits until the receiver has
    /// everything.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<StreamSendReport, RoleError> {
        self.connect(signal)?;
        signal.wait_for_start();
        let to = self.job.to.clone();
        let failed = RoleError::stream(&to);
        let start = clock::ticks();
        let deadline = start + clock::to_ticks(self.job.duration);
        let mut sampler = Sampler::new(self.job.interval, on_sample);
        let mut sent = 0;
        loop {
            let now = clock::ticks();
            sampler.poll(now, 0, sent);
            if now >= deadline || signal.phase() != Phase::Run {
                break;
            }
            let mut taken = 0;
            for stream in &mut self.streams {
                taken += stream.write(&self.pattern).map_err(&failed)? as u64;
            }
            sent += taken;
            if taken == 0 {
                let until_end = clock::to_duration(deadline.saturating_sub(clock::ticks()));
                self.wait(PollFlags::OUT, sampler.until_due().min(until_end)).map_err(&failed)?;
            }
        }
        let elapsed = clock::ticks() - start;
        self.end(signal, &mut sampler, sent).map_err(&failed)?;
        Ok(self.report(elapsed, sampler.finish(0, sent)))
    }

    /// Sleeps for at most `time` until one of the streams is ready for `what`.
    fn wait(&mut self, what: PollFlags, time: Duration) -> std::io::Result<()> {
        let mut fds: Vec<_> =
            self.streams.iter().map(|stream| PollFd::new(&stream.socket, what)).collect();
        match poll(&mut fds, Some(&sleep(time))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // An unread error queue would wake the role at once, again and again.
        self.streams.iter_mut().try_for_each(Outgoing::collect)
    }

    /// Ends every stream and waits until the receiver has ended it too: then it has everything.
    fn end(&mut self, signal: &Signal, sampler: &mut Sampler, sent: u64) -> std::io::Result<()> {
        for stream in &self.streams {
            match shutdown(&stream.socket, Shutdown::Write) {
                // The receiver ended first.
                Ok(()) | Err(Errno::NOTCONN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let deadline = Instant::now() + END_MAX;
        let is_open = |stream: &Outgoing| {
            let mut byte = [0];
            let read = recv(stream.socket.as_fd(), &mut byte, RecvFlags::DONTWAIT);
            matches!(read, Err(Errno::AGAIN | Errno::INTR)) || !stream.is_collected()
        };
        while self.streams.iter().any(is_open)
            && Instant::now() < deadline
            && signal.phase() != Phase::Stop
        {
            sampler.poll(clock::ticks(), 0, sent);
            self.wait(PollFlags::IN, sampler.until_due())?;
        }
        Ok(())
    }

    fn report(&self, elapsed: u64, samples: Vec<crate::Sample>) -> StreamSendReport {
        let streams: Vec<u64> = self.streams.iter().map(|stream| stream.sent).collect();
        let infos = self.streams.iter().map(Outgoing::info);
        let add = |sum: ZeroCopy, of: ZeroCopy| ZeroCopy {
            completed: sum.completed + of.completed,
            copied: sum.copied + of.copied,
        };
        StreamSendReport {
            bytes: streams.iter().sum(),
            streams,
            elapsed_ns: clock::to_duration(elapsed).as_nanos() as u64,
            retransmits: infos.clone().map(|info| u64::from(info.retransmits)).sum(),
            segment_max: infos.map(|info| info.segment_max).max().unwrap_or(0),
            congestion: self.streams.first().map(Outgoing::congestion).unwrap_or_default(),
            zerocopy: self.streams.iter().filter_map(Outgoing::zerocopy).reduce(add),
            samples,
        }
    }
}
