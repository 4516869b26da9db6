//! The receiver of streams: reads every byte and checks it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use dray_port::clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, listen, sockopt};

use super::incoming::{Incoming, Read};
use super::outgoing::new_socket;
use super::pattern::Pattern;
use super::{END_MAX, StreamBytes, StreamReceiveReport, sleep};
use crate::links::Awaited;
use crate::sample::Sampler;
use crate::{Arrivals, Check, OnSample, Phase, RoleError, Sample, Signal, StreamReceiveJob};

/// Maximum number of connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 1024;

/// A listening receiver of streams.
pub struct StreamReceiver {
    job: StreamReceiveJob,
    listener: OwnedFd,
    pattern: Pattern,
    buffer: Vec<u8>,
    incoming: Vec<Incoming>,
    counts: Counts,
    pub(crate) awaited: Awaited,
}

/// Counters so far.
#[derive(Default)]
struct Counts {
    bytes: u64,
    corrupt: u64,
    foreign: u64,
    by_tcp: u64,
    /// Streams by number.
    streams: BTreeMap<u16, StreamBytes>,
}

impl Counts {
    fn stream(&mut self, stream: u16) -> &mut StreamBytes {
        self.streams.entry(stream).or_insert(StreamBytes { stream, ..StreamBytes::default() })
    }
}

impl StreamReceiver {
    /// Opens the listening socket.
    pub fn open(job: StreamReceiveJob) -> Result<Self, RoleError> {
        let open = || -> io::Result<OwnedFd> {
            let listener = new_socket(job.at.family)?;
            // Closed connections of the previous trial hold the address for a minute.
            sockopt::set_socket_reuseaddr(&listener, true)?;
            bind(&listener, &job.at.address)?;
            listen(&listener, CONNECTIONS_MAX as i32)?;
            Ok(listener)
        };
        let listener = open().map_err(RoleError::stream(&job.at))?;
        let pattern = Pattern::new(job.at.buffer);
        let buffer = vec![0; job.at.buffer];
        let (counts, incoming, awaited) = (Counts::default(), Vec::new(), Awaited::default());
        awaited.set(Some(format!("a sender at {}: none has connected", job.at)));
        Ok(Self { job, listener, pattern, buffer, incoming, counts, awaited })
    }

    /// Receives until `signal` ends it: a draining receiver goes on until every stream has ended.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<StreamReceiveReport, RoleError> {
        let mut sampler = Sampler::new(self.job.interval, on_sample);
        let mut drain_until = None;
        loop {
            sampler.poll(clock::ticks(), 0, self.counts.bytes);
            let (wait, goes_on) = match signal.phase() {
                Phase::Run => (sampler.until_due(), true),
                Phase::Drain if self.incoming.is_empty() => (Duration::ZERO, false),
                Phase::Drain => {
                    let until = *drain_until.get_or_insert(Instant::now() + END_MAX);
                    let left = until.saturating_duration_since(Instant::now());
                    (sampler.until_due().min(left), !left.is_zero())
                }
                Phase::Stop => break,
            };
            // Even if the loop ends, connections that have just arrived are still handled.
            let found = self.round(wait, &mut sampler).map_err(RoleError::stream(&self.job.at))?;
            if !goes_on && !found {
                break;
            }
        }
        let arrivals = sampler.arrivals();
        Ok(self.report(arrivals, sampler.finish(0, self.counts.bytes)))
    }

    /// Sleeps for at most `wait` until there is something to read, and reads it; returns true if
    /// there was.
    fn round(&mut self, wait: Duration, sampler: &mut Sampler) -> io::Result<bool> {
        let has_room = self.incoming.len() < CONNECTIONS_MAX;
        let listening = if has_room { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.listener, listening)];
        fds.extend(
            self.incoming.iter().map(|incoming| PollFd::new(&incoming.socket, PollFlags::IN)),
        );
        match poll(&mut fds, Some(&sleep(wait))) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        // A sample that came due during the sleep covers the time before these bytes.
        sampler.poll(clock::ticks(), 0, self.counts.bytes);
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let has_come = ready.next() == Some(true);
        let whole = self.job.check == Check::Whole;
        let Self { incoming, counts, buffer, pattern, .. } = self;
        incoming.retain_mut(|incoming| {
            ready.next() != Some(true) || take(incoming, counts, buffer, pattern, whole)
        });
        if has_come {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    self.awaited.set(None);
                    self.incoming.push(Incoming::new(socket));
                }
                // The connection is gone again.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    fn report(&mut self, arrivals: Arrivals, samples: Vec<Sample>) -> StreamReceiveReport {
        for incoming in self.incoming.drain(..) {
            if incoming.number.is_some() {
                self.counts.by_tcp += incoming.by_tcp(false).unwrap_or(0);
            }
        }
        let Counts { bytes, corrupt, foreign, by_tcp, streams } = std::mem::take(&mut self.counts);
        let streams = streams.into_values().collect();
        StreamReceiveReport { bytes, corrupt, foreign, by_tcp, streams, arrivals, samples }
    }
}

/// Reads at most a buffer's worth before it is another stream's turn, and counts it; returns true
/// if the connection goes on.
///
/// It reads until nothing is left: bytes that arrived during the last read are still in the CPU's
/// caches, and would not be after all the other streams' turns.
fn take(
    incoming: &mut Incoming,
    counts: &mut Counts,
    buffer: &mut [u8],
    pattern: &Pattern,
    whole: bool,
) -> bool {
    let mut taken = 0;
    while taken < buffer.len() {
        let read = incoming.read(&mut buffer[taken..], pattern, whole);
        let ended = read == Read::End;
        match read {
            Read::Nothing => return true,
            Read::Intact(len) => {
                taken += len;
                counts.bytes += len as u64;
                if let Some(number) = incoming.number {
                    counts.stream(number).bytes += len as u64;
                }
            }
            Read::Corrupt => {
                counts.corrupt += 1;
                return true;
            }
            Read::Foreign => {
                counts.foreign += 1;
                return false;
            }
            Read::End | Read::Broken => {
                if let Some(number) = incoming.number {
                    counts.by_tcp += incoming.by_tcp(ended).unwrap_or(0);
                    counts.stream(number).ended |= ended;
                }
                return false;
            }
        }
    }
    true
}
