//! The name of an AF_XDP port.

use std::fmt;

use dray_xdp::{Mode, PORTS_MAX};

use crate::query::{Query, UriError, write_query};
use crate::{Wait, interface};

/// Whether frames are copied between the driver's memory and the socket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// Not where the driver can do without.
    Auto,
    /// They are.
    Copy,
    /// They are not; a driver that cannot do without is an error.
    ZeroCopy,
}

/// An AF_XDP port's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfxdpUri {
    /// The network interface.
    pub interface: String,
    /// The first of the interface's queues that are the port's.
    pub queue: u32,
    /// How many of them there are.
    pub queues: u32,
    /// Whether frames are copied.
    pub mode: CopyMode,
    /// Where the XDP program runs; anywhere where it says nothing.
    pub xdp: Option<Mode>,
    /// Bytes of a chunk, 2048 or 4096.
    pub chunk: u32,
    /// Ports that name the same UMEM share it: what one received another transmits without a copy. It
    /// has chunks for four queues, or for twice as many as the port has that names it first; those of a
    /// port that is closed are the next one's.
    pub umem: Option<String>,
    /// Take datagrams to these UDP ports only, and leave everything else to the kernel.
    pub udp: Vec<u16>,
    /// The kernel is called only where it says that it waits for that (`XDP_USE_NEED_WAKEUP`).
    pub wakeup: bool,
    /// Calls do the driver's work for up to so many microseconds (`SO_PREFER_BUSY_POLL`).
    pub busy_poll: Option<u16>,
    /// The interface's interrupts are deferred by so many microseconds: frames are looked at together,
    /// and later.
    pub defer: Option<u16>,
    /// How to wait for frames.
    pub wait: Wait,
}

const QUEUE_MAX: u32 = 255;

impl AfxdpUri {
    /// The port on queue 0 of `interface`, everything else as it is by default.
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

    pub(crate) fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
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
            let what = "mode=zerocopy and xdp=generic: behind the driver everything is copied";
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
