//! Description of one kind of port: everything that [`PortUri`](crate::PortUri) asks of it.

use std::fmt;
use std::io;
use std::path::Path;

use crate::query::{Query, UriError};
use crate::{Port, Wait};

/// The part of a port that failed, and why.
pub(crate) type Failed = (&'static str, io::Error);

/// A kind of port, named by the scheme of its URIs. Its `Display` writes the URI.
pub(crate) trait Scheme: fmt::Display {
    /// Parses a URI's body, and takes the keys that this kind of port knows.
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError>
    where
        Self: Sized;

    /// Parses `uri`, in which `rest` follows `scheme` and a colon.
    fn parse_uri(uri: &str, scheme: &str, rest: &str) -> Result<Self, UriError>
    where
        Self: Sized,
    {
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut query = Query::parse(uri, query)?;
        let parsed = Self::parse(body, &mut query)?;
        query.finish(scheme)?;
        Ok(parsed)
    }

    /// Opens the port in the network namespace of the calling thread.
    fn open(&self) -> Result<Port, Failed>;

    /// Returns how the port waits for frames.
    fn wait(&self) -> Wait;

    /// See [`PortUri::is_local`](crate::PortUri::is_local).
    fn is_local(&self) -> bool {
        false
    }

    /// Returns the path of the socket that the port creates, if it creates one.
    fn socket(&self) -> Option<&Path> {
        None
    }

    /// See [`PortUri::only_receives`](crate::PortUri::only_receives).
    fn only_receives(&self) -> bool {
        false
    }

    /// See [`PortUri::is_one_flow`](crate::PortUri::is_one_flow).
    fn is_one_flow(&self) -> bool {
        false
    }

    /// See [`PortUri::loses_tags`](crate::PortUri::loses_tags).
    fn loses_tags(&self) -> bool {
        false
    }
}
