//! Port URIs: `scheme:body?key=value&key=value`. One parser and one style of error for all ports.

pub(crate) mod bytes;
pub(crate) mod failed;
pub(crate) mod interface;
pub(crate) mod netns;
pub mod query;
pub(crate) mod scheme;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;

use dray_netdev::Interface;
use dray_socket::{SocketName, folder_of};

use crate::afxdp::AfxdpUri;
use crate::impair::ImpairUri;
use crate::memif::MemifUri;
use crate::netmap::NetmapUri;
use crate::null::NullUri;
use crate::raw::RawUri;
use crate::session::snapshot::{PortSnapshot, Resumption};
use crate::tap::TapUri;
use crate::udp::UdpUri;
use crate::unix_datagram::UnixUri;
use crate::uri::failed::Failed;
use crate::uri::query::{Query, UriError};
use crate::uri::scheme::{Claim, Scheme, Socket};
use crate::vhost::VhostUri;
use crate::virtio::VirtioUri;
use crate::vxlan::VxlanUri;
use crate::{OpenError, Port, Wait};

/// Defines [`PortUri`] with a variant for each scheme, whose type implements [`Scheme`].
macro_rules! schemes {
    ($(
        $(#[$doc:meta])*
        $name:literal $variant:ident($uri:ty), $kind:literal, for example $example:literal;
    )*) => {
        /// A port's name, validated as far as possible without asking the kernel.
        ///
        /// ```
        /// use dray_port::PortUri;
        ///
        /// # fn main() -> Result<(), dray_port::UriError> {
        /// let uri: PortUri = "raw:eth0?batch=64".parse()?;
        /// assert_eq!(uri.kind(), "packet socket");
        /// assert_eq!(uri.to_string(), "raw:eth0?batch=64");
        /// let error = "raw:eth0?batch=0".parse::<PortUri>().unwrap_err();
        /// assert!(error.to_string().contains("batch"));
        /// # Ok(())
        /// # }
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum PortUri {
            $($(#[$doc])* $variant($uri),)*
        }

        impl PortUri {
            #[inline]
            pub(crate) fn scheme(&self) -> &(dyn Scheme + 'static) {
                match self {
                    $(Self::$variant(uri) => uri,)*
                }
            }

            /// Returns the kind of port in a few words.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                }
            }
        }

        /// Name and example of each scheme.
        #[cfg(test)]
        const EXAMPLES: &[(&str, &str)] = &[$(($name, $example)),*];

        impl FromStr for PortUri {
            type Err = UriError;

            fn from_str(text: &str) -> Result<Self, UriError> {
                let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
                match scheme {
                    $($name => <$uri>::parse_uri(text, scheme, rest).map(Self::$variant),)*
                    _ if !text.contains(':') => {
                        let what = match dray_text::nearest(text, [$($name),*]) {
                            Some(name) => format!("no scheme: did you mean {name}:?"),
                            None if text.contains('/') => format!(
                                "no scheme: for a socket give vhost:{text}, virtio:{text}, \
                                 memif:{text} or unix:{text}"
                            ),
                            None => format!("no scheme: for an interface give raw:{text}"),
                        };
                        Err(Query::parse(text, "")?.error(what))
                    }
                    _ => {
                        let examples = [$($example),*].join(", ");
                        let hint = dray_text::hint(scheme, [$($name),*]);
                        let what =
                            format!("unknown scheme {scheme:?}{hint} ports look like {examples}");
                        Err(Query::parse(text, "")?.error(what))
                    }
                }
            }
        }
    };
}

schemes! {
    /// `udp:LOCAL-REMOTE`: a connected UDP socket.
    "udp" Udp(UdpUri), "UDP socket", for example "udp:10.0.0.1:9000-10.0.0.2:9000?batch=64";
    /// `raw:INTERFACE`: a packet socket.
    "raw" Raw(RawUri), "packet socket", for example "raw:eth0?batch=64";
    /// `afxdp:INTERFACE`: AF_XDP sockets.
    "afxdp" Afxdp(AfxdpUri), "AF_XDP sockets", for example "afxdp:eth0";
    /// `netmap:PORT`: rings of netmap's kernel module.
    "netmap" Netmap(NetmapUri), "netmap port", for example "netmap:vale0:a";
    /// `tap:INTERFACE`: a TAP or macvtap interface.
    "tap" Tap(TapUri), "TAP device", for example "tap:tap0";
    /// `vhost:PATH`: the back end of vhost-user.
    "vhost" Vhost(VhostUri), "vhost-user back end", for example "vhost:/run/dray/a.sock";
    /// `virtio:PATH`: the front end (driver) of vhost-user.
    "virtio" Virtio(VirtioUri), "vhost-user front end", for example "virtio:/run/dray/a.sock";
    /// `memif:SOCKET`: memif, as a client or a server.
    "memif" Memif(MemifUri), "memif interface", for example "memif:/run/dray/a.sock";
    /// `vxlan:LOCAL`: a VXLAN network over UDP.
    "vxlan" Vxlan(VxlanUri), "VXLAN network", for example "vxlan:10.0.0.1?vni=7&remote=10.0.0.2";
    /// `unix:PATH`: datagrams between Unix sockets.
    "unix" Unix(UnixUri), "Unix datagram socket", for example "unix:/run/dray/a.sock?peer=/run/dray/b.sock";
    /// `null:`: takes every frame and never delivers one.
    "null" Null(NullUri), "discards frames", for example "null:";
    /// `impair:PLAN:PORT`: another port, with losses and delays on its receiving side.
    "impair" Impair(ImpairUri<PortUri>), "impaired port", for example "impair:drop=100:raw:eth0";
}

impl AsRef<dyn Scheme> for PortUri {
    fn as_ref(&self) -> &(dyn Scheme + 'static) {
        self.scheme()
    }
}

impl PortUri {
    /// Opens the port in the network namespace of the calling thread.
    pub fn open(&self) -> Result<Port, OpenError> {
        self.bind()?.open()
    }

    /// Like [`open`](Self::open), for a caller that handles frames with
    /// [offloads](crate::Frame::offload): the port may lend them, and frames of up to
    /// [`OFFLOADED_LIMIT`](crate::OFFLOADED_LIMIT) bytes.
    pub fn open_offloading(&self) -> Result<Port, OpenError> {
        self.bind()?.open_offloading()
    }

    /// Like [`open_offloading`](Self::open_offloading), with descriptors that another program has
    /// opened: the devices of a `tap:` interface, one for each queue; for `vhost:` and `memif:`, a
    /// socket that listens or is connected to a peer; for `vhost:` with `client=1`, the directory
    /// of the peer's socket.
    pub fn open_with(&self, descriptors: Vec<OwnedFd>) -> Result<Port, OpenError> {
        self.scheme()
            .open_with(descriptors)
            .map_err(|(what, error)| OpenError::new(self, what, error))
    }

    /// Continues a port of another process from its `snapshot`, instead of [opening](Self::open)
    /// it. If it has a peer, the queues start at [`Resumption::start`].
    pub fn resume(&self, snapshot: PortSnapshot) -> Result<(Port, Option<Resumption>), OpenError> {
        self.resume_by(snapshot, false)
    }

    /// Like [`resume`](Self::resume), for a caller that handles frames with offloads
    /// ([`open_offloading`](Self::open_offloading)).
    pub fn resume_offloading(
        &self,
        snapshot: PortSnapshot,
    ) -> Result<(Port, Option<Resumption>), OpenError> {
        self.resume_by(snapshot, true)
    }

    fn resume_by(
        &self,
        snapshot: PortSnapshot,
        offloads: bool,
    ) -> Result<(Port, Option<Resumption>), OpenError> {
        let resumed = self.scheme().resume(snapshot, offloads);
        resumed.map_err(|(what, error)| OpenError::new(self, what, error))
    }

    /// Opens the descriptors that another program needs to open the port
    /// ([`open_with`](Self::open_with)), in the network namespace of the calling thread or in the
    /// one that the URI names.
    pub fn prepare(&self) -> Result<Vec<OwnedFd>, OpenError> {
        let scheme = self.scheme();
        scheme.prepare().map_err(|(what, error)| {
            OpenError::new(self, what, error).needing(scheme.capabilities(what))
        })
    }

    /// Creates the socket at which the port listens, if any. A program can do this before it drops
    /// privileges, and open the port afterwards.
    pub fn bind(&self) -> Result<Bound<'_>, OpenError> {
        let socket = self.scheme().bind();
        let socket = socket.map_err(|error| OpenError::new(self, "socket", error))?;
        Ok(Bound { uri: self, socket })
    }

    /// Describes the port's peer, for example `a switch at /run/dray/a.sock`; `None` for a port
    /// that does not wait for one.
    pub fn peer(&self) -> Option<String> {
        self.scheme().peer()
    }

    /// Returns true if the port only receives: a socket without a remote address.
    pub fn only_receives(&self) -> bool {
        self.scheme().only_receives()
    }

    /// Returns true if the port reaches its peer over a Unix socket, or has no peer: it needs no
    /// capability and no other kind of socket, and can be opened in a sandbox.
    pub fn is_local(&self) -> bool {
        self.scheme().is_local()
    }

    /// Returns the directory of the socket that the port creates, if it creates one with a file.
    pub fn socket_directory(&self) -> Option<&Path> {
        self.scheme().socket()?.name.path().map(folder_of)
    }

    /// Returns the peer's socket that the port connects to, if any.
    pub fn peer_socket(&self) -> Option<&SocketName> {
        self.scheme().peer_socket()
    }

    /// Returns true if the port impairs frames or panics as planned, for tests.
    pub fn is_impaired(&self) -> bool {
        matches!(self, Self::Impair(_))
    }

    /// Returns the interface or socket that both ports would use, if any: one port would receive
    /// the other's frames, or none.
    pub fn common_with(&self, other: &Self) -> Option<String> {
        self.scheme().claim()?.common(&other.scheme().claim()?)
    }

    /// Returns the NUMA node of the network card that the port uses, if it uses one.
    pub fn numa_node(&self) -> Option<u32> {
        match self.scheme().claim()? {
            Claim::Interface(name) | Claim::Queues(name, _) => {
                Interface::find(name).ok()?.numa_node()
            }
            _ => None,
        }
    }

    /// Returns the file of the socket that the port binds or connects to, if it has one.
    pub fn socket_path(&self) -> Option<&Path> {
        match self.scheme().claim() {
            Some(Claim::Socket(own, _)) => own.path(),
            _ => None,
        }
    }

    /// Returns true if the kernel writes the headers of transmitted frames, so that all are one
    /// flow.
    pub fn is_one_flow(&self) -> bool {
        self.scheme().is_one_flow()
    }

    /// Returns true if received frames have lost their VLAN tags, so that VLANs cannot be told
    /// apart.
    pub fn loses_tags(&self) -> bool {
        self.scheme().loses_tags()
    }

    /// Returns how the port waits for frames.
    pub fn wait(&self) -> Wait {
        self.scheme().wait()
    }
}

/// A port whose socket exists. Dropping it removes the socket.
pub struct Bound<'u> {
    uri: &'u PortUri,
    socket: Option<Socket>,
}

impl Bound<'_> {
    /// Opens the port in the network namespace of the calling thread.
    pub fn open(self) -> Result<Port, OpenError> {
        self.open_by(|scheme, socket| scheme.open(socket))
    }

    /// Like [`open`](Self::open), for a caller that handles frames with offloads
    /// ([`PortUri::open_offloading`]).
    pub fn open_offloading(self) -> Result<Port, OpenError> {
        self.open_by(|scheme, socket| scheme.open_offloading(socket))
    }

    fn open_by(
        self,
        open: impl FnOnce(&dyn Scheme, Option<Socket>) -> Result<Port, Failed>,
    ) -> Result<Port, OpenError> {
        let Self { uri, socket } = self;
        let scheme = uri.scheme();
        let port = open(scheme, socket).map_err(|(what, error)| {
            OpenError::new(uri, what, error).needing(scheme.capabilities(what))
        })?;
        let is_whole = !port.rx.is_empty() && !port.tx.is_empty();
        assert!(is_whole, "{uri}: Port needs a receiving and a transmitting half");
        Ok(port)
    }
}

impl fmt::Display for PortUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scheme().fmt(f)
    }
}

dray_text::serde_as_text!(PortUri);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(text: &str) -> String {
        text.parse::<PortUri>().unwrap_err().to_string()
    }

    #[test]
    fn every_scheme_is_documented_and_parses_its_example() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ports.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (name, example) in EXAMPLES {
            let has_section = page.contains(&format!("\n## `{name}:"));
            assert!(has_section, "docs/ports.md lacks a section \"## `{name}:...`\"");
            assert_eq!(example.parse::<PortUri>().unwrap().to_string(), *example);
        }
    }

    #[test]
    fn canonical_text_round_trips() {
        for text in [
            "udp:10.0.0.1:9000-10.0.0.2:9000",
            "udp:10.0.0.1:9000-10.0.0.2:9000?batch=64&wait=poll&zerocopy=1",
            "udp:0.0.0.0:9000",
            "raw:eth0",
            "raw:eth0?batch=64&wait=poll&pause=0&ethertype=0x0800&promisc=1&queues=2&ring=1",
            "afxdp:eth0",
            "afxdp:eth0?queue=2&queues=3&mode=copy&xdp=native&chunk=4096&umem=a&udp=2152+9000&wakeup=0&busy_poll=20&defer=50&wait=poll",
            "netmap:eth0^",
            "netmap:vale0:a?memory=1&offset=64&netns=/proc/1/ns/net&wait=poll",
            "netmap:x{1",
            "netmap:x}1",
            "tap:tap0",
            "tap:tap0?wait=poll",
            "tap:tap0?queues=2&offload=0&mtu=1400&netns=/proc/1/ns/net&wait=poll",
            "memif:/run/a.sock",
            "memif:/run/a.sock?id=7&secret=a-b_C&queues=2&size=256&wait=poll",
            "memif:/run/a.sock?role=server&id=7&secret=a&queues=2&memory=1G&regions=2&mode=0660&wait=poll",
            "memif:@/run/memif.sock?role=server",
            "vhost:@a?client=1",
            "virtio:@a?server=1&wait=poll",
            "unix:@a?peer=@b&batch=64",
            "vhost:/run/a.sock",
            "vhost:/run/a.sock?queues=2&client=1&memory=64G&regions=8&offload=0&wait=poll",
            "unix:/run/a.sock",
            "unix:/run/a.sock?peer=/run/b.sock&batch=64",
            "unix:/run/a.sock?mode=0660&batch=64",
            "vhost:/run/a.sock?queues=2&mode=0660&owner=1000&group=kvm&wait=poll",
            "virtio:/run/a.sock?server=1&mode=0600",
            "virtio:/run/a.sock?queues=2&size=256&packed=1&hugepages=0&offload=0&wait=poll",
            "vxlan:10.0.0.1?vni=7&remote=10.0.0.2",
            "vxlan:10.0.0.1:4790?vni=0&learn=any&wait=poll",
            "vxlan:fd00::1?vni=16777215&remote=fd00::2+[fd00::3]:4790&learn=any&age=60&mtu=1400&flows=1&gso=0&netns=/proc/1/ns/net",
            "null:",
            "impair:drop=100:raw:eth0?batch=64",
            "impair:rate=700000,queue=8,drop=5,duplicate=7,swap=9,delay=500,late=10,late_by=2000,panic=9:unix:/a?peer=/b",
            "impair::null:",
        ] {
            assert_eq!(text.parse::<PortUri>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn only_listening_sockets_need_their_directory() {
        for (text, is_local, directory) in [
            ("raw:eth0", false, None),
            ("netmap:eth0", false, None),
            ("udp:0.0.0.0:9000", false, None),
            ("vxlan:10.0.0.1?vni=7&remote=10.0.0.2", false, None),
            ("tap:tap0", false, None),
            ("afxdp:eth0", false, None),
            ("null:", true, None),
            ("vhost:/run/a/x.sock", true, Some("/run/a")),
            ("vhost:/run/a/x.sock?client=1", true, None),
            ("virtio:/run/a/x.sock", true, None),
            ("virtio:/run/a/x.sock?server=1", true, Some("/run/a")),
            ("memif:/run/a/x.sock", true, None),
            ("memif:/run/a/x.sock?role=server", true, Some("/run/a")),
            ("memif:@/run/a/x.sock?role=server", true, None),
            ("vhost:@x", true, None),
            ("unix:/run/a/x.sock?peer=/run/b/y.sock", true, Some("/run/a")),
            ("unix:x.sock", true, Some(".")),
            ("impair:drop=2:vhost:/run/a/x.sock", true, Some("/run/a")),
            ("impair:drop=2:raw:eth0", false, None),
        ] {
            let uri: PortUri = text.parse().unwrap();
            assert_eq!(uri.is_local(), is_local, "{text}");
            assert_eq!(uri.socket_directory(), directory.map(Path::new), "{text}");
        }
    }

    #[test]
    fn ports_on_same_interface_or_socket_are_found() {
        for (one, other, common) in [
            ("raw:eth0", "raw:eth0?batch=64", Some("interface eth0")),
            ("raw:eth0", "raw:eth1", None),
            ("raw:eth0", "afxdp:eth0", Some("interface eth0")),
            ("impair:drop=2:raw:eth0", "tap:eth0", Some("interface eth0")),
            ("tap:eth0", "tap:eth0?netns=/a", None),
            ("tap:eth0?netns=/b", "tap:eth0?netns=/a", None),
            ("tap:eth0?netns=/a", "tap:eth0?netns=/a&wait=poll", Some("interface eth0")),
            ("netmap:eth0", "raw:eth0", Some("interface eth0")),
            ("netmap:eth0", "netmap:eth0^", None),
            ("netmap:x{1", "netmap:x}1", None),
            ("afxdp:eth0?queues=2", "afxdp:eth0?queue=1", Some("interface eth0")),
            ("afxdp:eth0?queues=2", "afxdp:eth0?queue=2", None),
            ("vhost:/a", "virtio:/a", Some("socket /a")),
            ("vhost:/a", "vhost:/b", None),
            ("memif:/a", "memif:/a", Some("socket /a")),
            ("memif:/a?id=1", "memif:/a?id=2", None),
            ("memif:/a?role=server&id=1", "memif:/a?role=server&id=2", None),
            ("memif:@a?role=server", "memif:@a", Some("socket @a")),
            ("vhost:@a", "vhost:./@a", None),
            ("vhost:@a", "virtio:@a", Some("socket @a")),
            ("unix:/a?peer=/b", "unix:/a?peer=/c", Some("socket /a")),
            (
                "vxlan:10.0.0.1?vni=7&remote=10.0.0.2",
                "vxlan:10.0.0.1:4789?vni=8&learn=any",
                Some("UDP address 10.0.0.1:4789"),
            ),
            ("vxlan:10.0.0.1?vni=7&learn=any", "vxlan:10.0.0.1:4790?vni=7&learn=any", None),
            ("vxlan:10.0.0.1?vni=7&learn=any", "vxlan:10.0.0.1?vni=7&learn=any&netns=/a", None),
            ("null:", "null:", None),
        ] {
            let [one, other]: [PortUri; 2] = [one, other].map(|uri| uri.parse().unwrap());
            assert_eq!(one.common_with(&other).as_deref(), common, "{one} {other}");
            assert_eq!(other.common_with(&one).as_deref(), common, "{other} {one}");
        }
    }

    #[test]
    fn errors_name_value_and_allowed_values() {
        for (text, parts) in [
            ("foo:eth0", ["unknown scheme \"foo\"", "raw:eth0"]),
            ("eth0", ["no scheme", "give raw:eth0"]),
            ("vhots", ["no scheme", "did you mean vhost:?"]),
            ("/run/a.sock", ["no scheme", "vhost:/run/a.sock, virtio:/run/a.sock"]),
            ("", ["no scheme", "raw:"]),
            (
                "raw:eth0?bach=3",
                ["unknown key \"bach\": did you mean batch? raw:", "batch, wait, pause"],
            ),
            ("netmap:vale0", ["\"vale0\" is not a netmap port", "netmap:vale0:a"]),
            ("netmap:eth0?memory=0", ["memory=0", "from 1"]),
            ("netmap:eth0?netns=net", ["netns=net", "/proc/1/ns/net"]),
            ("netmap:eth0?offset=7", ["offset=7", "multiple of 8"]),
            ("vhots:/a", ["unknown scheme \"vhots\": did you mean vhost?", "raw:eth0"]),
            ("raw:eth0?batch=0", ["batch=0", "1 to 256"]),
            ("raw:eth0?batch=257", ["batch=257", "1 to 256"]),
            ("raw:eth0?batch", ["\"batch\"", "key=value"]),
            ("raw:eth0?batch=1&batch=2", ["\"batch\"", "twice"]),
            ("raw:eth0?wait=spin", ["wait=spin", "block or poll"]),
            ("raw:eth0?ethertype=800", ["ethertype=800", "0x0800"]),
            ("raw:", ["\"\"", "interface"]),
            ("raw:a-name-too-long-for-it", ["a-name-too-long-for-it", "15"]),
            ("udp:10.0.0.1", ["10.0.0.1", "ADDRESS:PORT"]),
            ("udp:10.0.0.1:9000-10.0.0.2", ["10.0.0.2", "ADDRESS:PORT"]),
            ("afxdp:", ["\"\"", "afxdp:eth0"]),
            ("afxdp:eth0?mode=fast", ["mode=fast", "auto, copy or zerocopy"]),
            ("afxdp:eth0?xdp=both", ["xdp=both", "auto, native or generic"]),
            ("afxdp:eth0?queue=256", ["queue=256", "0 to 255"]),
            ("afxdp:eth0?chunk=1024", ["chunk=1024", "2048 or 4096"]),
            ("afxdp:eth0?udp=1+2+3+4+5+6+7+8+9", ["udp=1+2", "up to 8"]),
            ("afxdp:eth0?umem=", ["umem=", "letters"]),
            ("afxdp:eth0?queue=250&queues=9", ["250", "255"]),
            ("afxdp:eth0?mode=zerocopy&xdp=generic", ["mode=zerocopy", "xdp=generic"]),
            ("tap:", ["\"\"", "tap:eth0"]),
            ("tap:tap0?batch=1", ["unknown key \"batch\"", "takes offload, queues, mtu, netns"]),
            ("tap:tap0?offload=on", ["offload=on", "0 or 1"]),
            ("vhost:/a?memory=0", ["memory=0", "1 to 64T"]),
            ("vhost:/a?memory=65T", ["memory=65T", "1 to 64T"]),
            ("vhost:/a?memory=1k", ["memory=1k", "K, M, G or T"]),
            ("vhost:/a?regions=33", ["regions=33", "1 to 32"]),
            ("vhost:/a?mode=8", ["mode=8", "octal digits"]),
            ("vhost:/a?mode=4755", ["mode=4755", "octal digits"]),
            ("vhost:/a?group=a b", ["group=a b", "name or number of a group"]),
            ("vhost:/a?client=1&mode=0660", ["mode", "creates its socket"]),
            ("virtio:/a?owner=root", ["owner", "creates its socket"]),
            ("memif:/a?mode=0660", ["mode", "creates its socket"]),
            ("memif:/a?role=master", ["role=master", "client or server"]),
            ("memif:/a?role=server&size=64", ["size", "only for a client"]),
            ("memif:/a?regions=2", ["regions", "only with role=server"]),
            ("memif:/a?role=server&memory=0", ["memory=0", "1 to 64T"]),
            ("memif:@a?role=server&mode=0660", ["mode: @a is an abstract socket", "can connect"]),
            ("vhost:@a?owner=0", ["owner: @a is an abstract socket", "can connect"]),
            ("unix:@a?group=0", ["group: @a is an abstract socket", "can connect"]),
            ("vhost:@", ["missing path", "@ and the name of an abstract one"]),
            ("unix:@a?peer=@", ["peer=@", "abstract"]),
            ("memif:", ["missing path", "memif:/run/dray/a.sock"]),
            ("memif:/a?size=32768", ["size=32768", "2 to 16384"]),
            ("memif:/a?secret=a b", ["secret=a b", "1 to 24 letters"]),
            ("memif:/a?secret=1234567890123456789012345", ["secret=", "1 to 24"]),
            ("memif:/a?id=-1", ["id=-1", "0 to 4294967295"]),
            ("vxlan:", ["\"\" is not ADDRESS", "vxlan:10.0.0.1?vni=7"]),
            ("vxlan:eth0?vni=7", ["\"eth0\" is not ADDRESS", "of this host"]),
            ("vxlan:10.0.0.1:0?vni=7", ["\"10.0.0.1:0\" is not", "ADDRESS:PORT"]),
            ("vxlan:[fe80::1%2]:4789?vni=7", ["is not ADDRESS", "ADDRESS:PORT"]),
            ("vxlan:0.0.0.0?vni=7&learn=any", ["0.0.0.0", "an address of this host"]),
            ("vxlan:239.1.1.1?vni=7&learn=any", ["239.1.1.1", "not of a group"]),
            ("vxlan:10.0.0.1?remote=10.0.0.2", ["no network", "vni=0 to 16777215"]),
            ("vxlan:10.0.0.1?vni=16777216", ["vni=16777216", "0 to 16777215"]),
            ("vxlan:10.0.0.1?vni=-1", ["vni=-1", "0 to 16777215"]),
            ("vxlan:10.0.0.1?vni=7", ["no remote", "learn=any"]),
            ("vxlan:10.0.0.1?vni=7&remote=", ["remote=", "joined by +"]),
            (
                "vxlan:10.0.0.1?vni=7&remote=10.0.0.2,10.0.0.3",
                ["remote=10.0.0.2,10.0.0.3", "joined by +"],
            ),
            (
                "vxlan:10.0.0.1?vni=7&remote=10.0.0.2+10.0.0.2:5000",
                ["remote=10.0.0.2:5000", "twice"],
            ),
            ("vxlan:10.0.0.1?vni=7&remote=10.0.0.1", ["remote=10.0.0.1", "the local address"]),
            ("vxlan:10.0.0.1?vni=7&remote=fd00::1", ["remote=fd00::1", "allowed is IPv4"]),
            ("vxlan:fd00::1?vni=7&remote=10.0.0.1", ["remote=10.0.0.1", "allowed is IPv6"]),
            ("vxlan:10.0.0.1?vni=7&remote=239.0.0.1", ["remote=239.0.0.1", "not of groups"]),
            ("vxlan:10.0.0.1?vni=7&learn=all", ["learn=all", "listed or any"]),
            ("vxlan:10.0.0.1?vni=7&mtu=9001", ["mtu=9001", "68 to 9000"]),
            ("vxlan:10.0.0.1?vni=7&flows=16", ["flows=16", "1 to 15"]),
            ("vxlan:10.0.0.1?vni=7&age=0", ["age=0", "1 to 1048576"]),
            (
                "vxlan:10.0.0.1?vni=7&learn=any&vnid=3",
                ["unknown key \"vnid\": did you mean vni?", "takes vni, remote"],
            ),
            ("null:x", ["\"x\"", "after null:"]),
            ("null:?batch=1", ["unknown key", "no keys"]),
            ("impair:drop=1", ["impair:drop=1", "a plan and a port"]),
            ("impair:drop=0:null:", ["drop=0", "from 1"]),
            ("impair:delay=50001:null:", ["delay=50001", "0 to 50000"]),
            ("impair:late=3:null:", ["late=3", "late_by"]),
            ("impair:queue=3:null:", ["queue=3", "needs rate"]),
            ("impair:rate=inf:null:", ["rate=inf", "frames per second"]),
            ("impair:los=3:null:", ["unknown key \"los\"", "drop, duplicate"]),
            ("impair:drop=3:raw:", ["raw:", "interface"]),
            ("impair:drop=3:impair:drop=3:null:", ["impair:drop=3:impair", "cannot be nested"]),
        ] {
            let message = message(text);
            for part in parts {
                assert!(message.contains(part), "{text}: {message}");
            }
            assert_eq!(message.lines().count(), 1);
        }
    }

    #[test]
    fn peer_is_named_with_its_path() {
        for (text, peer) in [
            ("vhost:/a", Some("a driver at /a")),
            ("virtio:/a", Some("a switch at /a")),
            ("memif:/a", Some("a memif server at /a")),
            ("memif:@a?role=server", Some("a memif client at @a")),
            ("vhost:@a", Some("a driver at @a")),
            ("unix:/a?peer=/b", Some("a socket at /b")),
            ("impair:drop=2:virtio:/a", Some("a switch at /a")),
            ("afxdp:eth0", Some("interface eth0")),
            ("unix:/a", None),
            ("raw:eth0", None),
        ] {
            assert_eq!(text.parse::<PortUri>().unwrap().peer().as_deref(), peer);
        }
    }

    /// A forwarder's input port can deliver frames that no UDP socket can carry.
    #[test]
    fn udp_port_refuses_other_frames() {
        use crate::Frame;
        use dray_wire::{Flow, test_frame};
        for keys in ["batch=1", "batch=8", "batch=8&zerocopy=1"] {
            let uri = format!("udp:127.0.0.1:0-127.0.0.1:9?{keys}");
            let mut port = uri.parse::<PortUri>().unwrap().open().unwrap();
            let good = test_frame::build(&Flow::default(), 64);
            let mut tcp = good.clone();
            tcp[23] = 6;
            assert!(port.tx[0].accepts(&Frame::from(&good[..])));
            for bad in [&[][..], &[0; 14], &[0xff; 41], &good[..63], &tcp] {
                let bad = Frame::from(bad);
                assert!(!port.tx[0].accepts(&bad), "{bad:?}");
                // Transmitting it without asking first does no harm either.
                port.tx[0].transmit(&[bad]).unwrap();
            }
        }
    }

    /// Payloads that the kernel reads where they are arrive as they were: three times as many as
    /// there are slots, some of them empty, and in a receive queue until all of a round were sent.
    #[test]
    fn udp_payloads_arrive_whole_without_a_copy() {
        use crate::{Frame, scratch};
        use dray_wire::Flow;
        use dray_wire::flow::{self, HEADERS_LEN};
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let address = receiver.local_addr().unwrap();
        let uri = format!("udp:127.0.0.1:0-{address}?batch=16&zerocopy=1");
        let mut port = uri.parse::<PortUri>().unwrap().open().unwrap();
        let payload = |number: usize| match number % 50 {
            7 => Vec::new(),
            _ => (0..200 + number % 1000).map(|at| (at * 31 + number * 7) as u8).collect(),
        };
        let frame = |number: usize| {
            let payload = payload(number);
            let mut frame = vec![0; HEADERS_LEN + payload.len()];
            frame[HEADERS_LEN..].copy_from_slice(&payload);
            let len = frame.len();
            flow::write(&Flow::default(), len, frame.first_chunk_mut().unwrap());
            frame
        };
        let mut buffer = scratch();
        for round in 0..192 {
            let frames: Vec<_> = (round * 16..round * 16 + 16).map(frame).collect();
            let frames: Vec<_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
            let mut sent = 0;
            for _ in 0..1000 {
                sent += port.tx[0].transmit(&frames[sent..]).unwrap();
            }
            assert_eq!(sent, frames.len());
            for number in round * 16..round * 16 + 16 {
                let len = receiver.recv(&mut buffer[..]).unwrap();
                assert!(buffer[..len] == payload(number), "datagram {number}");
            }
        }
        assert_eq!(port.tx[0].dropped(), 0);
        assert!(!port.rx[0].arm(true), "no report is left");
    }

    proptest! {
        #[test]
        fn parsing_any_text_never_panics(
            text in "(impair:(drop=[0-9]{0,2})?,?:)?(udp|raw|afxdp|netmap|tap|vhost|memif|vxlan|null|x)?:?[@0-9a-z.:{}^-]{0,30}(\\?[a-z=&0-9]{0,20})?|\\PC{0,40}",
        ) {
            if let Ok(uri) = text.parse::<PortUri>() {
                prop_assert_eq!(uri.to_string().parse::<PortUri>(), Ok(uri));
            }
        }
    }
}
