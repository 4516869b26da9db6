//! `null:`: takes every frame and never delivers one. It shows the cost of a role by itself.

use std::fmt;
use std::io;

use dray_wire::FRAME_MAX;

use crate::session::snapshot::{PortSnapshot, Resumption};
use crate::uri::failed::Failed;
use crate::uri::query::{Query, UriError};
use crate::uri::scheme::{Scheme, Socket};
use crate::{Frame, Port, Receive, Take, Transmit, Wait};

/// Name of the null port; it has no parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullUri;

impl Scheme for NullUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        match body {
            "" => Ok(Self),
            _ => Err(query.error(format!("unexpected {body:?} after null:"))),
        }
    }

    fn open(&self, _: Option<Socket>) -> Result<Port, Failed> {
        Ok(Port { rx: vec![Box::new(Null)], tx: vec![Box::new(Null)], link: None })
    }

    fn resume(&self, _: PortSnapshot, _: bool) -> Result<(Port, Option<Resumption>), Failed> {
        Ok((self.open(None)?, None))
    }

    fn wait(&self) -> Wait {
        Wait::Poll { pause_us: 0 }
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl fmt::Display for NullUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null:")
    }
}

struct Null;

impl Receive for Null {
    fn receive(&mut self, _: &mut Take<'_>) -> io::Result<usize> {
        Ok(0)
    }
}

impl Transmit for Null {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        Ok(frames.len())
    }

    fn frame_max(&self) -> usize {
        FRAME_MAX
    }
}
