//! `impair:PLAN:PORT`: another port, whose received frames are dropped, duplicated, swapped,
//! delayed and limited to a rate by a plan. The plan determines the fate of each frame, so it is
//! known beforehand what a receiver must report.

mod receive;

use std::fmt;
use std::io;
use std::time::Duration;

use dray_netdev::privilege::Capability;
use dray_socket::SocketName;

use crate::uri::query::{Query, UriError};
use crate::uri::scheme::{Claim, Failed, Listening, Scheme, Socket};
use crate::{Port, PortUri, Wait};
use receive::Impaired;

/// Name of an impaired port.
#[derive(Clone, Debug, PartialEq)]
pub struct ImpairUri {
    /// Impairments of received frames.
    pub plan: Plan,
    /// The underlying port.
    pub port: Box<PortUri>,
}

// `rate` is always finite, so equality is reflexive.
impl Eq for ImpairUri {}

/// Impairments of received frames. Frames are counted from 1. If several impairments apply to one
/// frame, the first in this order is used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Plan {
    /// Maximum rate, in frames per second. Test frames count by the time at which they were due, so
    /// that the outcome does not depend on scheduling; other frames count by their arrival.
    pub rate: Option<f64>,
    /// Number of frames, in all, that may be ahead of the rate before frames are dropped.
    pub queue: Option<u32>,
    /// Drops every n-th frame.
    pub drop: Option<u32>,
    /// Duplicates every n-th frame.
    pub duplicate: Option<u32>,
    /// Delivers every n-th frame after the one that follows it.
    pub swap: Option<u32>,
    /// Delay after which a frame is delivered, in order: counted from when a test frame was sent,
    /// or from when another frame arrived.
    pub delay: Duration,
    /// Delays every n-th frame by [`late_by`](Self::late_by) instead.
    pub late: Option<u32>,
    /// See [`late`](Self::late).
    pub late_by: Duration,
    /// Number of the frame at which the receiving thread panics, to show how a program handles
    /// that.
    pub panic: Option<u32>,
}

impl Plan {
    /// Maximum delay: a receiver that has seen nothing for longer considers the queues empty.
    pub const DELAY_MAX: Duration = Duration::from_millis(50);
    /// Default of `queue`: one burst.
    pub const QUEUE: u32 = 64;

    fn parse(query: &mut Query<'_>) -> Result<Self, UriError> {
        let each = "a number N from 1, for every Nth frame";
        let mut number = |key| query.take(key, each, |text| text.parse().ok().filter(|n| *n > 0));
        let [drop, duplicate, swap] = [number("drop")?, number("duplicate")?, number("swap")?];
        let late = number("late")?;
        let panic = query.take("panic", "the number of a frame, from 1", |text| {
            text.parse().ok().filter(|frame| *frame > 0)
        })?;
        let queue = query.take("queue", "a number of frames, from 1", |text| {
            text.parse().ok().filter(|frames| *frames > 0)
        })?;
        let rate = query.take("rate", "frames per second, from 1", |text| {
            text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 1.0)
        })?;
        let mut micros = |key| {
            let range = "0 to 50000 microseconds";
            let most = Self::DELAY_MAX.as_micros() as u32;
            query.take(key, range, |text| text.parse().ok().filter(|us: &u32| *us <= most))
        };
        let (delay, late_by) = (micros("delay")?, micros("late_by")?);
        let duration = |us: Option<u32>| Duration::from_micros(us.unwrap_or(0).into());
        let (delay, late_by) = (duration(delay), duration(late_by));
        if late.is_some() == late_by.is_zero() {
            return Err(query.error("late and late_by must be given together".to_owned()));
        }
        if queue.is_some() && rate.is_none() {
            return Err(query.error("queue needs rate".to_owned()));
        }
        Ok(Self { rate, queue, drop, duplicate, swap, delay, late, late_by, panic })
    }
}

impl Scheme for ImpairUri {
    /// Parses the underlying port's URI; the keys are those of the plan.
    fn parse(port: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let plan = Plan::parse(query)?;
        if port.starts_with("impair:") {
            return Err(query.error("impair: cannot be nested".to_owned()));
        }
        Ok(Self { plan, port: Box::new(port.parse()?) })
    }

    fn parse_uri(uri: &str, scheme: &str, rest: &str) -> Result<Self, UriError> {
        let Some((plan, port)) = rest.split_once(':') else {
            let what = "give a plan and a port, for example impair:drop=100,delay=500:raw:eth0";
            return Err(Query::parse(uri, "")?.error(what.to_owned()));
        };
        let pairs = plan.replace(',', "&");
        let mut query = Query::parse(uri, &pairs)?;
        let parsed = Self::parse(port, &mut query)?;
        query.finish(scheme)?;
        Ok(parsed)
    }

    fn open(&self, socket: Option<Socket>) -> Result<Port, Failed> {
        let Port { rx, tx, link } = self.port.scheme().open(socket)?;
        let wait = self.port.wait();
        let rx = rx.into_iter().map(|rx| Box::new(Impaired::new(rx, wait, self.plan)) as Box<_>);
        Ok(Port { rx: rx.collect(), tx, link })
    }

    /// The port may have delayed frames to deliver when none arrive.
    fn wait(&self) -> Wait {
        Wait::Poll { pause_us: 0 }
    }

    fn capabilities(&self, what: &str) -> &'static [Capability] {
        self.port.scheme().capabilities(what)
    }

    fn peer(&self) -> Option<String> {
        self.port.peer()
    }

    fn is_local(&self) -> bool {
        self.port.is_local()
    }

    fn bind(&self) -> io::Result<Option<Socket>> {
        self.port.scheme().bind()
    }

    fn socket(&self) -> Option<Listening<'_>> {
        self.port.scheme().socket()
    }

    fn peer_socket(&self) -> Option<&SocketName> {
        self.port.peer_socket()
    }

    fn only_receives(&self) -> bool {
        self.port.only_receives()
    }

    fn is_one_flow(&self) -> bool {
        self.port.is_one_flow()
    }

    fn loses_tags(&self) -> bool {
        self.port.loses_tags()
    }

    fn claim(&self) -> Option<Claim<'_>> {
        self.port.scheme().claim()
    }
}

impl fmt::Display for ImpairUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rate, queue, drop, duplicate, swap, delay, late, late_by, panic } = self.plan;
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let micros = |time: Duration| (!time.is_zero()).then(|| time.as_micros().to_string());
        let pairs = [
            ("rate", rate.map(|rate| rate.to_string())),
            ("queue", number(queue)),
            ("drop", number(drop)),
            ("duplicate", number(duplicate)),
            ("swap", number(swap)),
            ("delay", micros(delay)),
            ("late", number(late)),
            ("late_by", micros(late_by)),
            ("panic", number(panic)),
        ];
        let pairs = pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        write!(f, "impair:{}:{}", pairs.collect::<Vec<_>>().join(","), self.port)
    }
}
