//! Captures of a running program.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dray_daemon::{Refusal, Request, Response};
use dray_datapath::lock;
use dray_port::OFFLOADED_LIMIT;
use dray_ring::records::{self, RecordWriter, SOURCES};
use dray_shm::{Mapping, MemoryFile, PageSize};
use serde::{Deserialize, Serialize};

use crate::filter::{Filter, Program};
use crate::tap::{Selection, Side, Subscriber, Tap};

/// Resource of the control socket: `POST` starts a capture, which ends with the connection; `GET`
/// returns a [`Reply`] without starting a capture.
pub const PATH: &str = "capture";

/// Maximum number of captures at a time.
pub const CAPTURES_MAX: usize = 4;

/// Size of the data of a ring, in bytes: at two million frames of 64 bytes per second, a client
/// may be late by 80 ms.
const RING: usize = 16 << 20;

/// Maximum size of all rings of a capture: if there are many data threads, rings are smaller.
const RINGS: usize = 256 << 20;

/// A request for a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureRequest {
    /// Names of ports; empty: all, also those that are added later.
    pub ports: Vec<String>,
    /// Direction of the frames: received by the port (`in`) or transmitted (`out`); `None`: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// True: only dropped frames, with their reasons; false: only frames that were not dropped.
    pub drops: bool,
    /// Maximum number of bytes of a frame; 0: all.
    pub snaplen: u32,
    /// Only frames that this program keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Program>,
}

/// Direction of frames at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the port's peer.
    In,
    /// To the port's peer.
    Out,
}

/// Reply to a request for a capture. It comes with a file descriptor of the memory with the rings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Number of rings, one for each data thread.
    pub rings: usize,
    /// Size of the data of each ring, in bytes.
    pub ring_size: usize,
    /// Names of the ports, by their number; empty if no port has that number.
    pub ports: Vec<String>,
    /// Names of the reasons for drops, by their number.
    pub reasons: Vec<String>,
}

/// The captures of a program, and the ports that can be captured.
pub struct Captures {
    /// By data thread.
    taps: Vec<Arc<Tap>>,
    reasons: Vec<String>,
    ports: Mutex<Vec<Port>>,
    running: AtomicU64,
    /// Number of captures started.
    started: AtomicU64,
    /// Called when a capture begins, with true, and when it has ended, with false.
    watch: Box<dyn Fn(bool) + Send + Sync>,
}

/// A number and its port.
struct Port {
    name: String,
    exists: bool,
}

/// A capture that ends when this is dropped.
struct Running {
    captures: Arc<Captures>,
    number: u64,
}

impl Captures {
    /// Creates the captures of some data threads, whose drops have these reasons.
    pub fn new(taps: Vec<Arc<Tap>>, reasons: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            taps,
            reasons: reasons.into_iter().map(str::to_owned).collect(),
            ports: Mutex::default(),
            running: AtomicU64::new(0),
            started: AtomicU64::new(0),
            watch: Box::new(|_| ()),
        }
    }

    /// Registers `watch`, which is called with true before each capture begins, and with false
    /// after it has ended.
    pub fn watched(self, watch: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { watch: Box::new(watch), ..self }
    }

    /// Returns the number of a new port. A port of the same name that was removed had the same.
    /// Ports beyond the 4095th share the last number.
    pub fn add_port(&self, name: &str) -> u16 {
        let mut ports = lock(&self.ports);
        let known = ports.iter().position(|port| port.name == name);
        // A running capture knows the numbers of removed ports.
        let free = || match self.running.load(Relaxed) {
            0 => ports.iter().position(|port| !port.exists),
            _ => None,
        };
        let number = known.or_else(free).unwrap_or(ports.len()).min(SOURCES - 1);
        let name = if number == SOURCES - 1 { "others".to_owned() } else { name.to_owned() };
        let port = Port { name, exists: true };
        match ports.get_mut(number) {
            Some(place) => *place = port,
            None => ports.push(port),
        }
        number as u16
    }

    /// Removes a port.
    pub fn remove_port(&self, number: u16) {
        if let Some(port) = lock(&self.ports).get_mut(usize::from(number)) {
            port.exists = false;
        }
    }

    /// Answers a request for [`PATH`].
    pub fn answer(self: &Arc<Self>, request: &Request) -> Result<Response, Refusal> {
        match request.method.as_str() {
            "GET" => Ok(Response::json(200, &self.describe())),
            "POST" => {
                let want = serde_json::from_slice(&request.body)
                    .map_err(|error| Refusal::new(400, format!("capture: {error}")))?;
                self.start(&want)
            }
            _ => Err(Refusal::not_allowed(request, "GET, POST")),
        }
    }

    fn ring_size(&self) -> usize {
        let mut size = RING;
        while size > 1 << 17 && size * self.taps.len() > RINGS {
            size /= 2;
        }
        size
    }

    fn describe(&self) -> Reply {
        let name = |port: &Port| if port.exists { port.name.clone() } else { String::new() };
        let ports = lock(&self.ports).iter().map(name).collect();
        Reply {
            rings: self.taps.len(),
            ring_size: self.ring_size(),
            ports,
            reasons: self.reasons.clone(),
        }
    }

    /// Returns the numbers of ports that exist.
    fn numbers(&self, names: &[String]) -> Result<Option<Vec<u16>>, Refusal> {
        let ports = lock(&self.ports);
        let number = |name: &String| {
            let found = ports.iter().position(|port| port.exists && port.name == *name);
            found.map(|number| number as u16).ok_or_else(|| {
                let there = ports.iter().filter(|port| port.exists);
                let there: Vec<_> = there.map(|port| port.name.as_str()).collect();
                let there = match there.as_slice() {
                    [] => "there are no ports".to_owned(),
                    there => format!("there are {}", there.join(", ")),
                };
                Refusal::new(404, format!("no such port: {name:?}; {there}"))
            })
        };
        match names {
            [] => Ok(None),
            names => names.iter().map(number).collect::<Result<_, _>>().map(Some),
        }
    }

    fn start(self: &Arc<Self>, want: &CaptureRequest) -> Result<Response, Refusal> {
        let CaptureRequest { ports, direction, drops, snaplen, filter } = want;
        let filter = filter.as_ref().map(|Program(program)| Filter::new(program)).transpose();
        let snaplen = match *snaplen {
            0 => OFFLOADED_LIMIT,
            some => OFFLOADED_LIMIT.min(some as usize),
        };
        let selection = Selection {
            ports: self.numbers(ports)?,
            side: direction.map(|direction| match direction {
                Direction::In => Side::In,
                Direction::Out => Side::Out,
            }),
            drops: *drops,
            snaplen,
            filter: filter.map_err(|error| Refusal::new(400, error.to_string()))?,
        };
        let most = CAPTURES_MAX as u64;
        let more = |running| (running < most).then_some(running + 1);
        self.running.fetch_update(Relaxed, Relaxed, more).map_err(|running| {
            let what = format!("{running} captures are running, the maximum; end one of them");
            Refusal::new(409, what)
        })?;
        let number = self.started.fetch_add(1, Relaxed);
        // Dropped on an error as well.
        let running = Running { captures: self.clone(), number };
        (self.watch)(true);
        let file = self
            .tap_all(number, &selection)
            .map_err(|what| Refusal::new(500, format!("capture: memory for the frames: {what}")))?;
        let reply = Response::json(200, &self.describe());
        Ok(reply.with_descriptor(file).until_closed(Arc::new(running)))
    }

    /// Adds a ring for each data thread; returns the memory that holds them.
    fn tap_all(&self, number: u64, selection: &Selection) -> Result<std::os::fd::OwnedFd, String> {
        let size = self.ring_size();
        let len = records::len(size);
        let total = (self.taps.len() * len) as u64;
        let file = MemoryFile::create("dray-capture", total, PageSize::Normal);
        let file = file.and_then(|file| file.allocate().map(|()| file));
        let file = file.map_err(|error| error.to_string())?;
        let mapping = Arc::new(Mapping::new(&file, 0, total).map_err(|error| error.to_string())?);
        let rings = (0..self.taps.len()).map(|ring| RecordWriter::new(&mapping, ring * len, size));
        let rings: Vec<_> = rings.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        for (tap, ring) in self.taps.iter().zip(rings) {
            tap.add(Subscriber::new(number, selection.clone(), ring));
        }
        std::os::fd::AsFd::as_fd(&file).try_clone_to_owned().map_err(|error| error.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.captures.taps.iter().for_each(|tap| tap.remove(self.number));
        self.captures.running.fetch_sub(1, Relaxed);
        (self.captures.watch)(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captures() -> Arc<Captures> {
        Arc::new(Captures::new(vec![Arc::default(), Arc::default()], ["too_long"]))
    }

    fn ask(captures: &Arc<Captures>, body: &str) -> Result<Response, Refusal> {
        let request =
            Request { method: "POST".to_owned(), body: body.into(), ..Request::default() };
        captures.answer(&request)
    }

    #[test]
    fn bad_requests_are_refused_with_what_is_right() {
        let captures = captures();
        captures.add_port("a");
        captures.add_port("b");
        for (body, status, part) in [
            ("", 400, "capture: EOF"),
            (r#"{"port": ["a"]}"#, 400, "unknown field `port`"),
            (r#"{"ports": ["c"]}"#, 404, "no such port: \"c\"; there are a, b"),
            (r#"{"direction": "up"}"#, 400, "expected `in` or `out`"),
            (r#"{"filter": []}"#, 400, "filter of 0 instructions"),
            (r#"{"filter": [[0, 0, 0, 0]]}"#, 400, "instruction 0"),
        ] {
            let refusal = ask(&captures, body).map(drop).unwrap_err();
            assert_eq!(refusal.status, status, "{refusal}");
            assert!(refusal.what.contains(part), "{refusal}");
            assert!(captures.taps.iter().all(|tap| !tap.is_on()));
        }
    }

    #[test]
    fn capture_ends_with_its_response() {
        let captures = captures();
        let running: Vec<_> = (0..CAPTURES_MAX).map(|_| ask(&captures, "{}").unwrap()).collect();
        assert!(captures.taps.iter().all(|tap| tap.is_on()));
        let refusal = ask(&captures, "{}").map(drop).unwrap_err();
        assert_eq!((refusal.status, &refusal.what[..21]), (409, "4 captures are runnin"));
        drop(running);
        assert!(captures.taps.iter().all(|tap| !tap.is_on()));
        ask(&captures, "{}").unwrap();
    }

    #[test]
    fn number_of_a_port_is_reused_unless_captured() {
        let captures = captures();
        let numbers = ["a", "b", "c"].map(|name| captures.add_port(name));
        assert_eq!(numbers, [0, 1, 2]);
        captures.remove_port(1);
        let running = ask(&captures, "{}").unwrap();
        assert_eq!(captures.add_port("d"), 3);
        assert_eq!(captures.add_port("b"), 1);
        captures.remove_port(1);
        drop(running);
        assert_eq!(captures.add_port("e"), 1);
        assert_eq!(captures.describe().ports, ["a", "e", "c", "d"]);
        captures.remove_port(2);
        assert_eq!(captures.describe().ports, ["a", "e", "", "d"]);
        let last = (0..5000).fold(0, |_, number| captures.add_port(&format!("p{number}")));
        assert_eq!(last, 4095);
        assert_eq!(captures.describe().ports[4095], "others");
    }
}
