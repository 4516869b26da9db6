//! Name of an AF_XDP port.

use std::fmt;

use dray_bpf::{Mode, PORTS_MAX};

use dray_netdev::privilege::{BPF, Capability, NET_ADMIN, NET_RAW};

use crate::session::snapshot::{PortSnapshot, Resumption};
use crate::uri::failed::Failed;
use crate::uri::interface;
use crate::uri::query::{Query, UriError, write_query};
use crate::uri::scheme::{Claim, Scheme, Socket};
use crate::{Port, Wait};

/// How frames pass between the driver's memory and the socket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// Without a copy if the driver supports that.
    Auto,
    /// With a copy.
    Copy,
    /// Without a copy; a driver that does not support that is an error.
    ZeroCopy,
}

/// Name of an AF_XDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfxdpUri {
    /// The network interface.
    pub interface: String,
    /// First of the interface's queues that the port uses.
    pub queue: u32,
    /// Number of queues.
    pub queues: u32,
    /// How frames pass between the driver and the socket.
    pub mode: CopyMode,
    /// Mode of the XDP program; `None` for any mode.
    pub xdp: Option<Mode>,
    /// Length of a chunk in bytes, 2048 or 4096.
    pub chunk: u32,
    /// Name of the UMEM. Ports that name the same UMEM share it: a frame that one port received is
    /// transmitted by another without a copy. It has chunks for four queues, or for twice the
    /// queues of the first port that names it if that is more; the chunks of a closed port go to
    /// the next one.
    pub umem: Option<String>,
    /// UDP ports whose datagrams the port takes, leaving everything else to the kernel.
    pub udp: Vec<u16>,
    /// True to call the kernel only when it requests a call (`XDP_USE_NEED_WAKEUP`).
    pub wakeup: bool,
    /// Maximum time for which a call does the driver's work, in microseconds
    /// (`SO_PREFER_BUSY_POLL`).
    pub busy_poll: Option<u16>,
    /// Time by which the interface's interrupts are deferred, in microseconds: frames are processed
    /// together, and later.
    pub defer: Option<u16>,
    /// How to wait for frames.
    pub wait: Wait,
}

const QUEUE_MAX: u32 = 255;

impl AfxdpUri {
    /// Returns a port on queue 0 of `interface`, with defaults for everything else.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            queue: 0,
            queues: 1,
            mode: CopyMode::Auto,
            xdp: None,
            chunk: 2048,
            umem: None,
            udp: Vec::new(),
            wakeup: true,
            busy_poll: None,
            defer: None,
            wait: Wait::Block,
        }
    }
}

impl Scheme for AfxdpUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let mut uri = Self::new(&interface::parse(body, query, "afxdp")?);
        let within = |text: &str, from: u32, to: u32| {
            text.parse().ok().filter(|number| (from..=to).contains(number))
        };
        let queue = query.take("queue", "0 to 255", |text| within(text, 0, QUEUE_MAX))?;
        uri.queue = queue.unwrap_or(uri.queue);
        uri.queues = query.queues()?.into();
        let mode = query.take("mode", "auto, copy or zerocopy", |text| match text {
            "auto" => Some(CopyMode::Auto),
            "copy" => Some(CopyMode::Copy),
            "zerocopy" => Some(CopyMode::ZeroCopy),
            _ => None,
        })?;
        uri.mode = mode.unwrap_or(uri.mode);
        let xdp = query.take("xdp", "auto, native or generic", |text| match text {
            "auto" => Some(None),
            "native" => Some(Some(Mode::Native)),
            "generic" => Some(Some(Mode::Generic)),
            _ => None,
        })?;
        uri.xdp = xdp.flatten();
        let chunk = query.take("chunk", "2048 or 4096", |text| {
            within(text, 2048, 4096).filter(|len| len.is_power_of_two())
        })?;
        uri.chunk = chunk.unwrap_or(uri.chunk);
        uri.umem = query.take("umem", "a name of letters, digits and -", |text| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            (!text.is_empty() && text.bytes().all(plain)).then(|| text.to_owned())
        })?;
        let udp = query.take("udp", "up to 8 UDP ports, such as 2152+9000", |text| {
            let ports = text.split('+').map(|port| port.parse().ok().filter(|port| *port > 0));
            ports.collect::<Option<Vec<u16>>>().filter(|ports| ports.len() <= PORTS_MAX)
        })?;
        uri.udp = udp.unwrap_or_default();
        uri.wakeup = query.flag("wakeup", true)?;
        let time = |text: &str| within(text, 1, 10_000).map(|time| time as u16);
        uri.busy_poll = query.take("busy_poll", "1 to 10000 microseconds", time)?;
        uri.defer = query.take("defer", "1 to 10000 microseconds", time)?;
        uri.wait = Wait::parse(query)?;
        if uri.mode == CopyMode::ZeroCopy && uri.xdp == Some(Mode::Generic) {
            let what = "mode=zerocopy and xdp=generic: generic XDP always copies";
            return Err(query.error(what.to_owned()));
        }
        let last = uri.queue + uri.queues - 1;
        if last > QUEUE_MAX {
            let (queue, queues) = (uri.queue, uri.queues);
            return Err(query.error(format!(
                "queue={queue} and queues={queues}: the last queue would be {last}, allowed is up to \
                 {QUEUE_MAX}"
            )));
        }
        Ok(uri)
    }

    fn open(&self, _: Option<Socket>) -> Result<Port, Failed> {
        self.open_queues()
    }

    fn resume(
        &self,
        snapshot: PortSnapshot,
        _: bool,
    ) -> Result<(Port, Option<Resumption>), Failed> {
        Ok((self.resume_queues(snapshot)?, None))
    }

    fn capabilities(&self, what: &str) -> &'static [Capability] {
        match what {
            "XDP program" => &[BPF, NET_ADMIN],
            _ => &[NET_RAW],
        }
    }

    fn peer(&self) -> Option<String> {
        Some(format!("interface {}", self.interface))
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Queues(&self.interface, self.queue..self.queue + self.queues))
    }
}

impl fmt::Display for AfxdpUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "afxdp:{}", self.interface)?;
        let usual = Self::new("");
        let mode = match self.mode {
            CopyMode::Auto => "auto",
            CopyMode::Copy => "copy",
            CopyMode::ZeroCopy => "zerocopy",
        };
        let udp: Vec<String> = self.udp.iter().map(u16::to_string).collect();
        let pairs = [
            (self.queue != usual.queue).then(|| ("queue", self.queue.to_string())),
            (self.queues != usual.queues).then(|| ("queues", self.queues.to_string())),
            (self.mode != usual.mode).then(|| ("mode", mode.to_owned())),
            self.xdp.map(|mode| ("xdp", mode.to_string())),
            (self.chunk != usual.chunk).then(|| ("chunk", self.chunk.to_string())),
            self.umem.clone().map(|name| ("umem", name)),
            (!udp.is_empty()).then(|| ("udp", udp.join("+"))),
            (!self.wakeup).then(|| ("wakeup", "0".to_owned())),
            self.busy_poll.map(|time| ("busy_poll", time.to_string())),
            self.defer.map(|time| ("defer", time.to_string())),
            self.wait.pair(),
        ];
        write_query(f, pairs.into_iter().flatten())
    }
}
