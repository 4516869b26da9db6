//! `impair:PLAN:PORT`: another port, whose received frames are dropped, duplicated, swapped,
//! delayed and limited to a rate by a plan. The plan determines the fate of each frame, and so the
//! report of a receiver.

mod plan;
mod receive;

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use dray_netdev::privilege::Capability;
use dray_socket::SocketName;

use crate::uri::failed::Failed;
use crate::uri::query::{Query, UriError};
use crate::uri::scheme::{Claim, Listening, Scheme, Socket};
use crate::{Port, Wait};
use receive::Impaired;

pub use plan::Plan;

/// Name of an impaired port. `P` is [`PortUri`](crate::PortUri).
#[derive(Clone, Debug, PartialEq)]
pub struct ImpairUri<P> {
    /// Impairments of received frames.
    pub plan: Plan,
    /// The underlying port.
    pub port: Box<P>,
}

// `rate` is always finite, so equality is reflexive.
impl<P: Eq> Eq for ImpairUri<P> {}

/// Returns the underlying port.
fn underlying<P: AsRef<dyn Scheme>>(uri: &ImpairUri<P>) -> &dyn Scheme {
    (*uri.port).as_ref()
}

impl<P> Scheme for ImpairUri<P>
where
    P: AsRef<dyn Scheme> + FromStr<Err = UriError> + fmt::Display,
{
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
        let Port { rx, tx, link } = underlying(self).open(socket)?;
        let wait = underlying(self).wait();
        let rx = rx.into_iter().map(|rx| Box::new(Impaired::new(rx, wait, self.plan)) as Box<_>);
        Ok(Port { rx: rx.collect(), tx, link })
    }

    /// The port may have delayed frames to deliver when none arrive.
    fn wait(&self) -> Wait {
        Wait::Poll { pause_us: 0 }
    }

    fn capabilities(&self, what: &str) -> &'static [Capability] {
        underlying(self).capabilities(what)
    }

    fn peer(&self) -> Option<String> {
        underlying(self).peer()
    }

    fn is_local(&self) -> bool {
        underlying(self).is_local()
    }

    fn bind(&self) -> io::Result<Option<Socket>> {
        underlying(self).bind()
    }

    fn socket(&self) -> Option<Listening<'_>> {
        underlying(self).socket()
    }

    fn peer_socket(&self) -> Option<&SocketName> {
        underlying(self).peer_socket()
    }

    fn only_receives(&self) -> bool {
        underlying(self).only_receives()
    }

    fn is_one_flow(&self) -> bool {
        underlying(self).is_one_flow()
    }

    fn loses_tags(&self) -> bool {
        underlying(self).loses_tags()
    }

    fn claim(&self) -> Option<Claim<'_>> {
        underlying(self).claim()
    }
}

impl<P: fmt::Display> fmt::Display for ImpairUri<P> {
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
