//! A client's capture.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dray_daemon::{Client, ClientError, Connection};
use dray_port::clock;
use dray_ring::records::{self, RecordReader, RecordsError, SOURCES};
use dray_shm::{Mapping, MemoryFile};

use crate::captures::{CaptureRequest, PATH, Reply};
use crate::record::Record;

/// Time within which data threads publish their records: records older than this are complete, and
/// can be merged in the order of time.
const SETTLED: Duration = Duration::from_millis(2);

/// The capture cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The request was refused, or the connection failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The rings are not usable.
    #[error("capture: {0}")]
    Memory(String),
}

impl From<RecordsError> for SessionError {
    fn from(error: RecordsError) -> Self {
        Self::Memory(error.to_string())
    }
}

/// Frames of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames received by the client.
    pub captured: u64,
    /// Frames for which a ring had no room.
    pub missed: u64,
}

/// Returns the names of the ports of the program that `client` talks to, by their number in
/// captures; empty if no port has that number.
pub fn ask_ports(client: &Client) -> Result<Vec<String>, ClientError> {
    let reply: Reply = client.json("GET", &format!("/{PATH}"), b"")?;
    Ok(reply.ports)
}

/// A running capture. It ends when this is dropped.
pub struct Session {
    /// `None` after [`stop`](Self::stop).
    connection: Option<Connection>,
    reply: Reply,
    rings: Vec<Ring>,
    /// Frames received, by port.
    captured: Vec<u64>,
    clocks: Clocks,
}

/// A tick, and the time since 1970 at that moment.
struct Clocks {
    tick: u64,
    time: Duration,
}

impl Clocks {
    /// Reads both clocks eight times, and returns the reading with the least time in between.
    fn now() -> Self {
        let read = || {
            let before = clock::ticks();
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let width = clock::ticks().saturating_sub(before);
            (width, Self { tick: before + width / 2, time })
        };
        let readings = (0..8).map(|_| read());
        let best = readings.min_by_key(|(width, _)| *width);
        best.map(|(_, clocks)| clocks).expect("eight readings")
    }

    /// Returns the time since 1970 at a tick.
    #[inline]
    fn time(&self, tick: u64) -> Duration {
        let apart = Duration::from_nanos(clock::nanoseconds(tick.abs_diff(self.tick)));
        match tick >= self.tick {
            true => self.time.saturating_add(apart),
            false => self.time.saturating_sub(apart),
        }
    }
}

struct Ring {
    reader: RecordReader,
    /// The next record, if `is_full`.
    next: Vec<u8>,
    is_full: bool,
}

impl Ring {
    /// Returns the next record without removing it.
    fn peek(&mut self) -> Result<Option<Record<'_>>, SessionError> {
        if !self.is_full {
            self.is_full = self.reader.next(&mut self.next)?;
        }
        if !self.is_full {
            return Ok(None);
        }
        let invalid = || SessionError::Memory("invalid record in a ring".to_owned());
        Record::read(&self.next).map(Some).ok_or_else(invalid)
    }
}

impl Session {
    /// Starts a capture of the program that `client` talks to.
    pub fn start(client: &Client, want: &CaptureRequest) -> Result<Self, SessionError> {
        let body = serde_json::to_vec(want).expect("a request serialises to JSON");
        let (reply, descriptors, connection): (Reply, _, _) =
            client.keep("POST", &format!("/{PATH}"), &body)?;
        let memory = |error: &dyn ToString| SessionError::Memory(error.to_string());
        let file = descriptors
            .into_iter()
            .next()
            .ok_or_else(|| memory(&"no file descriptor in the reply"))?;
        let file = MemoryFile::from_peer(file).map_err(|error| memory(&error))?;
        let mapping = Mapping::new(&file, 0, file.len()).map_err(|error| memory(&error))?;
        let mapping = Arc::new(mapping);
        let len = records::len(reply.ring_size);
        let ring = |number: usize| {
            let offset = number.saturating_mul(len);
            let reader = RecordReader::new(&mapping, offset, reply.ring_size)?;
            Ok(Ring { reader, next: Vec::new(), is_full: false })
        };
        let rings = (0..reply.rings).map(ring).collect::<Result<_, SessionError>>()?;
        Ok(Self {
            connection: Some(connection),
            reply,
            rings,
            captured: vec![0; SOURCES],
            clocks: Clocks::now(),
        })
    }

    /// Returns the names of the ports, by their number.
    pub fn ports(&self) -> &[String] {
        &self.reply.ports
    }

    /// Returns the names of the reasons for drops, by their number.
    pub fn reasons(&self) -> &[String] {
        &self.reply.reasons
    }

    /// Ends the capture. What was captured before can still be received.
    pub fn stop(&mut self) {
        self.connection = None;
    }

    /// Passes all frames that have arrived to `take`, in the order of time, until it returns false.
    /// Frames of the last two milliseconds stay if a frame of another data thread may still
    /// precede them, unless it is the `last` call. Returns the number of frames.
    pub fn receive(
        &mut self,
        last: bool,
        mut take: impl FnMut(&Record<'_>, Duration) -> bool,
    ) -> Result<u64, SessionError> {
        // The clocks drift apart.
        if clock::ticks().saturating_sub(self.clocks.tick) > clock::ticks_per_second() {
            self.clocks = Clocks::now();
        }
        let until = match last || self.rings.len() == 1 {
            true => u64::MAX,
            false => clock::ticks().saturating_sub(clock::to_ticks(SETTLED)),
        };
        let Self { rings, captured, clocks, .. } = self;
        let (mut taken, mut goes_on) = (0, true);
        // Bounded, so that the caller can handle signals, and the writers get room.
        while goes_on && taken < 4096 {
            let mut earliest = None;
            for (number, ring) in rings.iter_mut().enumerate() {
                if let Some(Record { tick, .. }) = ring.peek()?
                    && tick <= until
                    && earliest.is_none_or(|(before, _)| tick < before)
                {
                    earliest = Some((tick, number));
                }
            }
            let Some((_, number)) = earliest else { break };
            let ring = &mut rings[number];
            if let Some(record) = ring.peek()? {
                captured[usize::from(record.port).min(SOURCES - 1)] += 1;
                goes_on = take(&record, clocks.time(record.tick));
            }
            ring.is_full = false;
            taken += 1;
        }
        self.rings.iter_mut().for_each(|ring| ring.reader.release());
        Ok(taken)
    }

    /// Returns true if the program has ended before [`stop`](Self::stop).
    pub fn is_over(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_closed)
    }

    /// Returns what was counted of a port.
    pub fn counts(&self, port: u16) -> Counts {
        let port = usize::from(port).min(SOURCES - 1);
        let missed = self.rings.iter().map(|ring| ring.reader.missed(port)).sum();
        Counts { captured: self.captured[port], missed }
    }

    /// Returns what was counted of all ports.
    pub fn total(&self) -> Counts {
        (0..SOURCES as u16).map(|port| self.counts(port)).fold(Counts::default(), |sum, of| {
            Counts { captured: sum.captured + of.captured, missed: sum.missed + of.missed }
        })
    }
}
