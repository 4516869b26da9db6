//! Connections of a server, each of which has a thread, and the rule which of them makes room.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

use crate::address::Source;
use crate::http::BODY_MAX;

/// Limits of connections. One that is closed to make room counts until its thread has ended; of
/// these there are at most as many again as of open ones. A further connection is refused.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections that have not sent their request: silent clients do not keep
    /// others out.
    pub waiting: usize,
    /// Maximum number of connections in all, each of which has a thread. Beyond it, and beyond
    /// `waiting`, the oldest connection of the client that has most of them is closed, if it waits
    /// for its client.
    pub connections: usize,
    /// Time for a request to arrive, and for its response to be read.
    pub time: Duration,
    /// Maximum length of a request's body, in bytes.
    pub body: usize,
    /// Further bounds for clients on a network; `None`: no bounds but those above.
    pub network: Option<NetworkLimits>,
}

/// Bounds for clients on a network, so that none takes time or connections from others. An address
/// in IPv6 is a prefix of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct NetworkLimits {
    /// Maximum number of connections of one address. Beyond it its own oldest is closed.
    pub connections: usize,
    /// Maximum number of connections of one address per second; those of a second may come at
    /// once. Further ones are refused, and take nothing from `total_rate`.
    pub rate: u32,
    /// Maximum number of connections of all addresses per second; further ones wait.
    pub total_rate: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let time = Duration::from_secs(5);
        Self { waiting: 16, connections: 64, time, body: BODY_MAX, network: None }
    }
}

impl Limits {
    /// Limits for unknown clients on a network, which may send few requests and no body.
    pub fn for_network() -> Self {
        let network = NetworkLimits { connections: 6, rate: 200, total_rate: 2000 };
        Self { connections: 32, body: 0, network: Some(network), ..Self::default() }
    }
}

/// All connections, the oldest first.
#[derive(Default)]
pub(crate) struct Connections {
    list: Vec<Connection>,
    next: u64,
}

/// Names a connection; no other one ever gets the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u64);

struct Connection {
    number: Number,
    socket: Arc<OwnedFd>,
    source: Source,
    stage: Stage,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The request has not arrived.
    Waiting,
    /// The answer is being made.
    Answering,
    /// The client has not read the response.
    Reading,
    /// The connection stays open until its client closes it.
    Kept,
    /// The connection was closed to make room; its thread ends.
    Closed,
}

impl Connections {
    /// Adds a connection, and closes another one if there would be too many. Returns `None` for one
    /// too many, if no other one can be closed, or if too many threads of closed ones are still
    /// ending.
    pub(crate) fn admit(
        &mut self,
        socket: &Arc<OwnedFd>,
        source: Source,
        limits: &Limits,
    ) -> Option<Number> {
        let is_own = |connection: &Connection| connection.source == source;
        if let Some(bounds) = limits.network {
            let [open, all] = self.count(is_own);
            if all >= 2 * bounds.connections {
                return None;
            }
            if open >= bounds.connections {
                // A silent one first: the reply of another may be on its way.
                let is_closed = self.close_oldest(Stage::Waiting, is_own)
                    || self.close_oldest(Stage::Reading, is_own);
                if !is_closed {
                    return None;
                }
            }
        }
        let [open, all] = self.count(|_| true);
        if all >= 2 * limits.connections {
            return None;
        }
        if open >= limits.connections {
            let is_closed = self.close_of_greatest(Stage::Reading, source)
                || self.close_of_greatest(Stage::Waiting, source);
            if !is_closed {
                return None;
            }
        }
        if self.count(|connection| connection.stage == Stage::Waiting)[0] >= limits.waiting {
            self.close_of_greatest(Stage::Waiting, source);
        }
        let number = Number(self.next);
        self.next += 1;
        let socket = socket.clone();
        self.list.push(Connection { number, socket, source, stage: Stage::Waiting });
        Some(number)
    }

    /// Notes how far a connection has come, unless it was closed.
    pub(crate) fn enter(&mut self, number: Number, stage: Stage) {
        let connection = self.list.iter_mut().find(|connection| connection.number == number);
        if let Some(connection) = connection.filter(|it| it.stage != Stage::Closed) {
            connection.stage = stage;
        }
    }

    /// Removes a connection, whose thread ends.
    pub(crate) fn remove(&mut self, number: Number) {
        self.list.retain(|connection| connection.number != number);
    }

    /// Closes the connections that stay open until their clients close them.
    pub(crate) fn close_kept(&mut self) {
        while self.close_oldest(Stage::Kept, |_| true) {}
    }

    /// Returns the number of open connections for which `counts` is true, and of those with the
    /// closed ones whose threads are still ending.
    fn count(&self, counts: impl Fn(&Connection) -> bool) -> [usize; 2] {
        let mut counted = [0; 2];
        for connection in self.list.iter().filter(|connection| counts(connection)) {
            counted[0] += usize::from(connection.stage != Stage::Closed);
            counted[1] += 1;
        }
        counted
    }

    /// Closes the oldest connection in a stage for which `fits` is true; returns true if there is
    /// one.
    fn close_oldest(&mut self, stage: Stage, fits: impl Fn(&Connection) -> bool) -> bool {
        let mut connections = self.list.iter_mut();
        let oldest = connections.find(|connection| connection.stage == stage && fits(connection));
        let Some(oldest) = oldest else { return false };
        oldest.stage = Stage::Closed;
        // The client may have closed it already.
        let _ = shutdown(&oldest.socket, Shutdown::Both);
        true
    }

    /// Closes the oldest connection in a stage of the source that has most open ones, one more if
    /// it is `newcomer`; returns true if there is one.
    fn close_of_greatest(&mut self, stage: Stage, newcomer: Source) -> bool {
        let of = |source| {
            let [open, _] = self.count(|connection| connection.source == source);
            open + usize::from(source == newcomer)
        };
        let in_stage = self.list.iter().filter(|connection| connection.stage == stage);
        // The last of several equal ones is taken, so the oldest comes last.
        let greatest = in_stage.rev().max_by_key(|connection| of(connection.source));
        let Some(greatest) = greatest.map(|connection| connection.source) else { return false };
        self.close_oldest(stage, |connection| connection.source == greatest)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn limits() -> Limits {
        let network = NetworkLimits { connections: 6, rate: 200, total_rate: 2000 };
        let limits = Limits { waiting: 16, connections: 32, ..Limits::default() };
        Limits { network: Some(network), ..limits }
    }

    fn client(number: u8) -> Source {
        Source::Address(IpAddr::from([10, 0, 0, number]))
    }

    fn socket() -> Arc<OwnedFd> {
        Arc::new(UnixStream::pair().unwrap().0.into())
    }

    impl Connections {
        fn open_of(&self, number: u8) -> usize {
            self.count(|connection| connection.source == client(number))[0]
        }
    }

    #[test]
    fn client_with_most_connections_makes_room() {
        let (mut connections, socket) = (Connections::default(), socket());
        let quiet = connections.admit(&socket, client(1), &limits()).unwrap();
        for noisy in [2, 3, 4] {
            for _ in 0..6 {
                connections.admit(&socket, client(noisy), &limits()).unwrap();
            }
        }
        // The oldest of all is the one of a client that has no other.
        for _ in 0..50 {
            let number = connections.admit(&socket, client(5), &limits()).unwrap();
            connections.remove(number);
        }
        assert_eq!(connections.open_of(1), 1);
        assert!([2, 3, 4].iter().all(|noisy| connections.open_of(*noisy) <= 5));
        connections.enter(quiet, Stage::Reading);
        assert!(connections.list.iter().any(|it| it.stage == Stage::Reading));
    }

    #[test]
    fn ending_threads_count_for_their_client() {
        let (mut connections, socket) = (Connections::default(), socket());
        let admitted =
            (0..100).filter_map(|_| connections.admit(&socket, client(1), &limits())).count();
        assert_eq!(admitted, 12);
        assert_eq!(connections.count(|_| true), [6, 12]);
        connections.admit(&socket, client(2), &limits()).unwrap();
        // A thread that has ended gives its place back.
        let ended = connections.list[0].number;
        connections.remove(ended);
        assert!(connections.admit(&socket, client(1), &limits()).is_some());
    }

    #[test]
    fn threads_in_all_are_bounded() {
        let (mut connections, socket) = (Connections::default(), socket());
        for number in 0..=255 {
            connections.admit(&socket, client(number), &limits());
        }
        assert!(connections.list.len() <= 64, "{}", connections.list.len());
    }

    #[test]
    fn connection_that_is_answered_is_not_closed() {
        let (mut connections, socket) = (Connections::default(), socket());
        for number in 0..32 {
            let number = connections.admit(&socket, client(number), &limits()).unwrap();
            connections.enter(number, Stage::Answering);
        }
        assert_eq!(connections.admit(&socket, client(99), &limits()), None);
        assert_eq!(connections.count(|_| true), [32, 32]);
    }
}
