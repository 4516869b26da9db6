//! The agent: runs roles by remote control, one job after the other, as lines of JSON.
//!
//! Requests: `{"start": JOB}`, `{"begin": {...}}` and `"drain"`. Events: `"up"` at the start;
//! `"progress"` now and then if a role takes long to open; `{"ready": [...]}` once the ports are
//! open, their peers are connected and the role is about to run; then either `{"done": REPORT}` or
//! `{"failed": {...}}`. A sender and a receiver at one port report one after the other. Sending
//! roles wait for `begin`. The ports stay open until the next job, so that peers can still take
//! frames. When the requests end, the agent and its role end too, so nothing outlives the caller.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dray_port::{PortUri, Transmit};
use serde::{Deserialize, Serialize};

use crate::duplex::Duplex;
use crate::echo::Echo;
use crate::forwarder::Forwarder;
use crate::links::{Awaited, Links, OpenPort, Watch};
use crate::memory_lock;
use crate::neighbour::Neighbour;
use crate::ping::Ping;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::stream::receiver::StreamReceiver;
use crate::stream::sender::StreamSender;
use crate::upf::UserPlane;
use crate::{Agreement, Job, OnSample, Phase, Report, RoleError, Signal};

/// Request to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Run a role. An agent runs one at a time.
    Start(Box<Job>),
    /// Every role is ready: the receiver announces itself at once, and the sender sends.
    Begin {
        /// Start time of the sender, on the monotonic clock in nanoseconds.
        at_ns: u64,
    },
    /// Let the role take frames that are still queued, then end it.
    Drain,
}

/// Event that an agent reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The agent is running. Reported once.
    Up,
    /// The role is not ready yet, but has come further: a user plane function has created more
    /// sessions.
    Progress,
    /// The ports are open, with the outcome of each negotiation.
    Ready(Vec<Agreement>),
    /// The role has ended.
    Done(Box<Report>),
    /// The role could not start or continue.
    Failed {
        /// Reason, in one line.
        message: String,
    },
}

/// A role with its ports open.
pub enum Role {
    /// See [`Sender`].
    Send(Sender),
    /// See [`Receiver`].
    Receive(Receiver),
    /// See [`Duplex`].
    Duplex(Box<Duplex>),
    /// See [`Forwarder`].
    Forward(Forwarder),
    /// See [`UserPlane`].
    Upf(Box<UserPlane>),
    /// See [`Echo`].
    Echo(Echo),
    /// See [`Ping`].
    Ping(Box<Ping>),
    /// See [`StreamSender`].
    StreamSend(StreamSender),
    /// See [`StreamReceiver`].
    StreamReceive(StreamReceiver),
    /// See [`Neighbour`].
    Neighbour(Neighbour),
}

impl Role {
    /// Opens the ports of `job` by `open`; calls `progress` now and then if that takes long.
    pub fn open(job: Job, open: &OpenPort<'_>, progress: &dyn Fn()) -> Result<Self, RoleError> {
        // The first use calibrates the clock, which takes time that a running role does not have.
        dray_port::clock::ticks_per_second();
        Ok(match job {
            Job::Send(job) => Self::Send(Sender::open(job, open)?),
            Job::Receive(job) => Self::Receive(Receiver::open(&job, open)?),
            Job::Duplex(job) => Self::Duplex(Box::new(Duplex::open(*job, open)?)),
            Job::Forward(job) => Self::Forward(Forwarder::open(job, open)?),
            Job::Upf(job) => Self::Upf(Box::new(UserPlane::open(*job, open, progress)?)),
            Job::Echo(job) => Self::Echo(Echo::open(job, open)?),
            Job::Ping(job) => Self::Ping(Box::new(Ping::open(job, open)?)),
            Job::StreamSend(job) => Self::StreamSend(StreamSender::open(job)),
            Job::StreamReceive(job) => Self::StreamReceive(StreamReceiver::open(job)?),
            Job::Neighbour(job) => Self::Neighbour(Neighbour::open(&job)?),
        })
    }

    /// Waits until the peers of the role's ports are connected.
    pub fn connect(&mut self, signal: &Signal) -> Result<(), RoleError> {
        match self {
            Self::StreamSend(role) => role.connect(signal),
            _ => self.links().map_or(Ok(()), |links| links.wait_until_running(signal)),
        }
    }

    /// Waits until the peers have taken what the role transmitted, for at most [`PARTING`] after
    /// they last took something. Returns the number of frames left.
    ///
    /// [`PARTING`]: Self::PARTING
    pub fn part(&mut self) -> usize {
        let mut outputs = self.outputs();
        let mut pending = || outputs.iter_mut().map(|tx| tx.pending()).sum::<usize>();
        let (mut left, mut since) = (pending(), Instant::now());
        while left > 0 && since.elapsed() < Self::PARTING {
            thread::sleep(Duration::from_millis(1));
            let now = pending();
            if now < left {
                since = Instant::now();
            }
            left = now;
        }
        left
    }

    /// Time that peers are given to take something.
    pub const PARTING: Duration = Duration::from_secs(2);

    /// Returns the queues through which the role transmits.
    fn outputs(&mut self) -> Vec<&mut dyn Transmit> {
        match self {
            Self::Send(role) => role.outputs().collect(),
            Self::Duplex(role) => role.sender.outputs().collect(),
            Self::Forward(role) => role.outputs().collect(),
            Self::Echo(role) => role.outputs().collect(),
            Self::Ping(role) => role.outputs().collect(),
            // A user plane function runs as a job only in a container, where ports stay open.
            Self::Receive(_)
            | Self::Upf(_)
            | Self::StreamSend(_)
            | Self::StreamReceive(_)
            | Self::Neighbour(_) => Vec::new(),
        }
    }

    /// Returns the outcome of each negotiation of the role's ports with their peers, or with the
    /// kernel.
    pub fn agreements(&self) -> Vec<Agreement> {
        self.links().map(Links::agreements).unwrap_or_default()
    }

    /// Returns the peers of the role's ports, if it has ports.
    fn links(&self) -> Option<&Links> {
        match self {
            Self::Send(role) => Some(&role.links),
            Self::Receive(role) => Some(&role.links),
            Self::Duplex(role) => Some(&role.sender.links),
            Self::Forward(role) => Some(&role.links),
            Self::Upf(role) => Some(&role.links),
            Self::Echo(role) => Some(&role.links),
            Self::Ping(role) => Some(&role.links),
            Self::StreamSend(_) | Self::StreamReceive(_) | Self::Neighbour(_) => None,
        }
    }

    /// Returns a view of the role's peers, for another thread.
    pub fn watch(&self) -> Watch {
        let awaited = match self {
            Self::StreamSend(role) => role.awaited.clone(),
            Self::StreamReceive(role) => role.awaited.clone(),
            _ => Awaited::default(),
        };
        Watch { links: self.links().cloned().unwrap_or_default(), awaited }
    }

    /// Runs until the job is done or `signal` ends it. Of a sender and a receiver at one port, the
    /// receiver's report is returned.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<Report, RoleError> {
        Ok(match self {
            Self::Send(role) => Report::Send(role.run(signal, on_sample)?),
            Self::Receive(role) => Report::Receive(role.run(signal, on_sample)?),
            Self::Duplex(role) => Report::Receive(role.run(signal, |_| ())?),
            Self::Forward(role) => Report::Forward(role.run(signal, on_sample)?),
            Self::Upf(role) => role.run(signal)?,
            Self::Echo(role) => Report::Forward(role.run(signal, on_sample)?),
            Self::Ping(role) => Report::Ping(role.run(signal, on_sample)?),
            Self::StreamSend(role) => Report::StreamSend(role.run(signal, on_sample)?),
            Self::StreamReceive(role) => Report::StreamReceive(role.run(signal, on_sample)?),
            Self::Neighbour(role) => Report::Neighbour(role.run(signal, on_sample)),
        })
    }
}

/// Serves requests until the stream of requests ends.
pub fn serve(requests: impl BufRead, events: impl Write + Send + 'static) -> io::Result<()> {
    let events = Arc::new(Mutex::new(events));
    send_event(&events, &Event::Up);
    let mut running: Option<(Signal, JoinHandle<()>)> = None;
    for line in requests.lines() {
        match serde_json::from_str(&line?)? {
            Request::Start(job) => {
                memory_lock::lock();
                if let Some((signal, thread)) = running.take() {
                    signal.stop();
                    let _ = thread.join();
                }
                let signal = Signal::held();
                let (theirs, events) = (signal.clone(), events.clone());
                let thread = thread::Builder::new()
                    .name("role".to_owned())
                    .spawn(move || run(*job, &theirs, &events))?;
                running = Some((signal, thread));
            }
            Request::Begin { at_ns } => {
                running.iter().for_each(|(signal, _)| signal.start_at(at_ns));
            }
            Request::Drain => running.iter().for_each(|(signal, _)| signal.drain()),
        }
    }
    Ok(())
}

fn run(job: Job, signal: &Signal, events: &Mutex<impl Write + Send>) {
    let progress = || send_event(events, &Event::Progress);
    let mut role = match Role::open(job, &PortUri::open, &progress) {
        Ok(role) => role,
        Err(error) => return send_event(events, &Event::Failed { message: error.to_string() }),
    };
    let done = |report| send_event(events, &Event::Done(Box::new(report)));
    let report = role.connect(signal).and_then(|()| {
        send_event(events, &Event::Ready(role.agreements()));
        match &mut role {
            Role::Duplex(role) => {
                role.run(signal, |sent| done(Report::Send(sent))).map(Report::Receive)
            }
            role => role.run(signal, None),
        }
    });
    match report {
        Ok(report) => done(report),
        Err(error) => send_event(events, &Event::Failed { message: error.to_string() }),
    }
    // A peer that shares memory with the role's port may still have frames to take out of it.
    while signal.phase() != Phase::Stop {
        thread::sleep(Duration::from_millis(1));
    }
    role.part();
}

/// Reports an event. If the reader is gone, the requests end as well, and with them the agent.
fn send_event(events: &Mutex<impl Write>, event: &Event) {
    let mut line = serde_json::to_vec(event).expect("events are plain data");
    line.push(b'\n');
    let mut events = events.lock().expect("no panic while an event is written");
    let _ = events.write_all(&line).and_then(|()| events.flush());
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use dray_port::{LinkState, clock};
    use dray_results::Way;
    use dray_upf::UpfConfig;
    use dray_wire::Flow;

    use super::*;
    use crate::{Output, SendJob, UpfJob};

    /// A caller waits for a million sessions as long as there are more.
    #[test]
    fn user_plane_function_reports_progress() {
        let config = r#"
            n3 = { mac = "02:00:00:00:03:01", addresses = ["10.0.3.1"] }
            n6 = { mac = "02:00:00:00:06:01", addresses = ["10.0.6.1"] }
            generate = { count = 2500, gnbs = ["10.0.3.2"], ue = "10.45.0.1" }
        "#;
        let job = UpfJob {
            n3: "null:".parse().unwrap(),
            n6: "null:".parse().unwrap(),
            config: UpfConfig::from_toml(config).unwrap(),
            way: Way::Uplink,
            cpus: vec![0],
            yielding: false,
            sleeping: false,
            interval: Duration::from_millis(10),
        };
        let reports = Cell::new(0);
        let report = || reports.set(reports.get() + 1);
        Role::open(Job::Upf(Box::new(job)), &PortUri::open, &report).unwrap();
        assert_eq!(reports.get(), 2);
    }

    #[test]
    fn sender_leaves_once_queue_is_taken() {
        let folder = std::env::temp_dir().join(format!("dray-part-{}", std::process::id()));
        let uri =
            |scheme: &str| -> PortUri { format!("{scheme}:{}", folder.display()).parse().unwrap() };
        let mut back_end = uri("vhost").open().unwrap();
        let job = SendJob {
            outputs: vec![Output { port: uri("virtio"), flow: Flow::default() }],
            flows: 1,
            stations: 1,
            size: 64,
            users: None,
            burst: 8,
            rate: Some(1000.0),
            count: None,
            duration: Duration::from_millis(20),
            turn: None,
            timed: None,
            interval: Duration::from_millis(10),
        };
        clock::ticks_per_second();
        let mut role = Role::open(Job::Send(job), &PortUri::open, &|| ()).unwrap();
        let signal = Signal::default();
        role.connect(&signal).unwrap();
        let link = back_end.link.take().unwrap();
        while link.status().state != LinkState::Running {
            thread::sleep(Duration::from_millis(1));
        }
        let Report::Send(report) = role.run(&signal, None).unwrap() else { panic!("a sender") };
        let pending: usize = role.outputs().into_iter().map(Transmit::pending).sum();
        assert!(report.sent > 0 && pending == report.sent as usize, "{report:?}");
        let parting = thread::spawn(move || role.part());
        let mut taken = 0;
        while taken < pending {
            taken += back_end.rx[0].receive(&mut |frames| frames.len()).unwrap();
        }
        assert_eq!(parting.join().unwrap(), 0);
    }
}
