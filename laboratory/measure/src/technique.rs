//! Techniques: a link and the I/O method of the programs at its ends.

use std::fmt;

use dray_lab::link::{Carries, EndKind};
use dray_lab::peer::SwitchKind;
use dray_lab::{LabError, LinkKind};
use dray_traffic::Check;

use crate::endpoint::{Dpdk, Endpoint, Port, Programs, Rings};

/// A link and an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Technique {
    /// Link between the containers.
    pub link: LinkKind,
    /// I/O method of the programs in them.
    pub endpoint: Endpoint,
}

/// Links that simulations of ns-3 are measured on.
const NS3_LINKS: [LinkKind; 7] = [
    LinkKind::VETH,
    LinkKind::BRIDGE,
    LinkKind::DIRECT,
    LinkKind::PATCH,
    LinkKind::VPP_MEMIF,
    LinkKind::VALE,
    LinkKind::NETMAP_PIPE,
];

/// Error: a word names no technique.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the error messages describe the variants")]
pub enum UnknownTechnique {
    #[error("unknown technique {given:?}: did you mean {nearest}?")]
    Near { given: String, nearest: String },
    #[error(
        "unknown technique {given:?}: give LINK, ENDPOINT or LINK/ENDPOINT, for example veth/udp; \
         dray bench --list shows all links and endpoints"
    )]
    Unknown { given: String },
    #[error(
        "technique {link}/{endpoint}: these do not go together; {link} goes with {endpoints}; \
         {endpoint} goes with {links}"
    )]
    NotTogether { link: String, endpoint: String, endpoints: String, links: String },
}

impl Technique {
    /// All techniques of ours and of the kernel.
    pub fn all() -> Vec<Self> {
        let streams = [Endpoint::TCP, Endpoint::TCP_SOCKMAP];
        let kernel = [&Endpoint::SOCKETS[..], &Endpoint::AF_XDP, &streams, &Endpoint::UNIX];
        let kernel = [&kernel.concat()[..], &[Endpoint::TAP]].concat();
        let kernel = Self::by_link(&LinkKind::ALL, &kernel);
        let memory = Self::by_link(&LinkKind::ALL, &[Endpoint::VIRTIO]);
        let sockets = [&Endpoint::SOCKETS[..], &Endpoint::AF_XDP, &streams].concat();
        let engines = Self::by_link(&LinkKind::OF_ENGINES, &sockets);
        let netmap = Self::by_link(&LinkKind::NETMAP, &Endpoint::OF_NETMAP);
        [kernel, memory, netmap, engines].concat()
    }

    /// All techniques that have a name.
    pub fn every() -> Vec<Self> {
        Self::by_link(&LinkKind::every(), &Endpoint::all())
    }

    /// Combines each link with each endpoint that fits it, link by link.
    pub fn by_link(links: &[LinkKind], endpoints: &[Endpoint]) -> Vec<Self> {
        let of = |&link| endpoints.iter().map(move |&endpoint| Self { link, endpoint });
        links.iter().flat_map(of).filter(Self::can_be).collect()
    }

    /// Combines each endpoint with each link that fits it, endpoint by endpoint.
    pub fn by_endpoint(links: &[LinkKind], endpoints: &[Endpoint]) -> Vec<Self> {
        let of = |&endpoint| links.iter().map(move |&link| Self { link, endpoint });
        endpoints.iter().flat_map(of).filter(Self::can_be).collect()
    }

    /// Returns an error if the technique's switch is known not to serve its endpoint.
    pub fn check(&self) -> Result<(), LabError> {
        if self.link.switch() != Some(SwitchKind::Snabb) {
            return Ok(());
        }
        let what = match self.endpoint.programs {
            Programs::Frames(Port::Memory(Rings::Packed))
            | Programs::Dpdk(Dpdk::Memory(Rings::Packed)) => "supports only split rings",
            Programs::Dpdk(_) => {
                "predates virtio 1.0, and DPDK's virtio-user does not send the accepted features \
                 to such a back end"
            }
            _ => return Ok(()),
        };
        Err(LabError::Peer { peer: SwitchKind::Snabb.name().to_owned(), what: what.to_owned() })
    }

    fn can_be(&self) -> bool {
        let Self { link, endpoint } = *self;
        // Two drivers cannot share memory with each other, and DPDK's device side is not an
        // endpoint.
        let no_device = link == LinkKind::DIRECT && endpoint.is_both_ends();
        // An endpoint with XDP in the network driver is not measured on links without it.
        let has_place = |mode| link.xdp.contains(&mode);
        let fits_ns3 = !endpoint.is_ns3() || NS3_LINKS.contains(&link);
        // Replies do not pass links that keep containers apart.
        let is_answered = !(link.isolates && endpoint.needs_replies());
        // DPDK's programs at interfaces send to addresses of their own, by which nothing is routed,
        // and vhost-net has TAP interfaces, not macvtap's.
        let fits_dpdk = match endpoint.programs {
            Programs::Dpdk(Dpdk::Afxdp) => link.carries != Carries::OwnIp,
            Programs::Dpdk(Dpdk::VhostNet) => link.end() != EndKind::Machine,
            _ => true,
        };
        link.takes(endpoint.facts().opens)
            && fits_dpdk
            && is_answered
            && fits_ns3
            && !no_device
            && endpoint.facts().xdp.is_none_or(has_place)
    }

    /// Returns true if the technique is measured by default: every endpoint on the kernel's usual
    /// links, and on other links one endpoint of each sort, to compare links.
    pub(crate) fn is_usual(&self) -> bool {
        let Self { link, endpoint } = *self;
        let is_wide = [LinkKind::VETH, LinkKind::BRIDGE, LinkKind::UNIX].contains(&link)
            || link.shares_memory();
        let is_one_of = |endpoints: &[Endpoint]| endpoints.contains(&endpoint);
        if link.runtime().is_some() {
            // Users do not expect a run to start container engines.
            false
        } else if link.isolates {
            is_one_of(&[Endpoint::RAW_MMSG])
        } else {
            let is_wide = is_wide || link.end() == EndKind::Machine;
            is_wide || is_one_of(&[Endpoint::UDP_MMSG, Endpoint::RAW_MMSG, Endpoint::TCP])
        }
    }

    /// Returns true if `word` names the technique: a link or the first word of one, an endpoint, or
    /// both as `LINK/ENDPOINT`.
    pub fn is_called(&self, word: &str) -> bool {
        let endpoint = self.endpoint.name;
        let of_link = self.link.is_called(word);
        // The name of a shared-memory link selects its usual endpoints only.
        let is_usual = Endpoint::USUAL_MEMORY.contains(&self.endpoint);
        let of_link = of_link && (!self.link.shares_memory() || is_usual);
        let both = word.strip_suffix(endpoint).and_then(|rest| rest.strip_suffix('/'));
        let of_both = both.is_some_and(|word| self.link.is_called(word));
        // The name of an endpoint alone starts no engine: its link must be named.
        let of_endpoint = word == endpoint && self.link.runtime().is_none();
        of_link || of_endpoint || of_both
    }

    /// Returns true if the roles take more time than the switch between them: each gets a CPU
    /// first, and the switch sleeps while it is idle.
    pub(crate) fn outlasts_switch(&self) -> bool {
        self.link.is_bypassed() || self.endpoint.is_ns3()
    }

    /// Returns true if the interfaces at the ends count every frame at once, and no others: drivers
    /// of cards count late, and some do not count what passes between them and AF_XDP sockets;
    /// iperf3's ends also exchange messages of their own, which a switch counts as well.
    pub(crate) fn is_counted(&self) -> bool {
        let has_messages = matches!(self.endpoint.programs, Programs::Iperf3(_));
        !self.link.needs_card() && !has_messages
    }

    /// How closely the receiver checks frames by default.
    pub fn usual_check(&self) -> Check {
        let sampled = self.link.shares_memory() || self.endpoint.is_stream();
        if sampled { Check::Sampled } else { Check::Whole }
    }

    /// Returns an error if `word` names no technique.
    pub fn check_name(word: &str) -> Result<(), UnknownTechnique> {
        let every = Self::every();
        if every.iter().any(|technique| technique.is_called(word)) {
            return Ok(());
        }
        let split = |endpoint: &Endpoint| {
            let link = word.strip_suffix(endpoint.name)?.strip_suffix('/')?;
            LinkKind::every().iter().any(|kind| kind.is_called(link)).then_some((link, *endpoint))
        };
        if let Some((link, endpoint)) = Endpoint::all().iter().find_map(split) {
            let fits = |of: &dyn Fn(&Self) -> bool, name: fn(&Self) -> &'static str| {
                names(every.iter().filter(|technique| of(technique)).map(name))
            };
            return Err(UnknownTechnique::NotTogether {
                link: link.to_owned(),
                endpoint: endpoint.name.to_owned(),
                endpoints: fits(&|it| it.link.is_called(link), |it| it.endpoint.name),
                links: fits(&|it| it.endpoint.name == endpoint.name, |it| it.link.name),
            });
        }
        let given = word.to_owned();
        let full = every.iter().map(|it| format!("{}/{}", it.link.name, it.endpoint.name));
        let parts = every.iter().flat_map(|it| {
            let family = it.link.name.split('/').next().unwrap_or_default();
            [it.link.name, family, it.endpoint.name].map(str::to_owned)
        });
        let known: Vec<String> = parts.chain(full).collect();
        Err(match dray_text::nearest(word, known.iter().map(String::as_str)) {
            Some(nearest) => UnknownTechnique::Near { given, nearest: nearest.to_owned() },
            None => UnknownTechnique::Unknown { given },
        })
    }
}

/// Joins the first names in their order, without duplicates.
pub(crate) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    /// More do not fit in a message.
    const MAX: usize = 8;
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    let rest = if found.len() > MAX { ", ..." } else { "" };
    found.truncate(MAX);
    found.join(", ") + rest
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.endpoint {
            usual if Endpoint::USUAL_MEMORY.contains(&usual) => write!(f, "{}", self.link),
            endpoint => write!(f, "{}/{endpoint}", self.link),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(word: &str) -> Vec<Technique> {
        Technique::every().into_iter().filter(|technique| technique.is_called(word)).collect()
    }

    #[test]
    fn technique_names_are_unique() {
        for technique in Technique::every() {
            assert_eq!(select(&technique.to_string()), [technique]);
        }
        let of_veth = [Endpoint::SOCKETS.len(), Endpoint::AF_XDP.len(), Endpoint::STREAMS.len(), 9];
        assert_eq!(select("veth").len(), of_veth.iter().sum::<usize>());
        let datagrams = Technique::by_link(&[LinkKind::UNIX], &Endpoint::UNIX);
        assert_eq!(select("unix"), datagrams);
        let has_sockets = |link: &&LinkKind| link.end() == EndKind::Interface;
        let kernel = LinkKind::ALL.iter().chain(&LinkKind::SWITCH_SOCKETS).filter(has_sockets);
        assert_eq!(select("raw").len(), kernel.count());
        let named = |technique: &Technique| technique.to_string();
        let private: Vec<_> = select("ipvlan/l3-private").iter().map(named).collect();
        let sockets = ["udp", "udp-mmsg", "raw", "raw-mmsg", "udp-zerocopy", "raw-ring"];
        assert_eq!(private, sockets.map(|socket| format!("ipvlan/l3-private/{socket}")));
        assert_eq!(
            select("switch"),
            Technique::by_link(&[LinkKind::PATCH, LinkKind::LEARNING], &[Endpoint::VIRTIO])
        );
    }

    #[test]
    fn switches_serve_only_supported_endpoints() {
        let served = |link| {
            let techniques = Technique::by_link(&[link], &Endpoint::MEMORY).into_iter();
            let served = techniques.filter(|technique| technique.check().is_ok());
            served.map(|technique| technique.endpoint).collect::<Vec<_>>()
        };
        assert_eq!(served(LinkKind::SNABB), [Endpoint::VIRTIO]);
        let virtqueues =
            Endpoint::MEMORY.into_iter().filter(|e| e.facts().opens == LinkKind::PATCH.end());
        assert_eq!(served(LinkKind::PATCH), virtqueues.collect::<Vec<_>>());
        assert_eq!(served(LinkKind::VPP_MEMIF), [Endpoint::MEMIF, Endpoint::DPDK_MEMIF]);
    }

    #[test]
    fn family_and_endpoint_select_each_link_of_the_family() {
        let families = select("macvlan/raw");
        assert_eq!(families.len(), 5, "{families:?}");
        assert!(families.iter().all(|it| it.link.name.starts_with("macvlan/")), "{families:?}");
        assert_eq!(select("vpp/memif").len(), 1);
    }

    #[test]
    fn unknown_technique_error_advises() {
        let message = |word| Technique::check_name(word).unwrap_err().to_string();
        for (word, nearest) in [
            ("vet/udp", "veth/udp"),
            ("bridge/upd", "bridge/udp"),
            ("swich", "switch"),
            ("testpmd/pair", "testpmd/pairs"),
            ("veth/", "veth"),
            ("/udp", "udp"),
            ("afxpd", "afxdp"),
        ] {
            assert_eq!(
                message(word),
                format!("unknown technique {word:?}: did you mean {nearest}?")
            );
        }
        for word in ["", "tokenring", "udp/veth"] {
            let message = message(word);
            assert!(
                message.contains(&format!("{word:?}: give LINK, ENDPOINT or LINK/ENDPOINT")),
                "{message}"
            );
        }
    }

    #[test]
    fn incompatible_link_and_endpoint_error_lists_compatible_ones() {
        let message = |word| Technique::check_name(word).unwrap_err().to_string();
        let virtio = message("veth/virtio");
        assert!(
            virtio.starts_with(
                "technique veth/virtio: these do not go together; veth goes with udp, udp-mmsg, raw"
            ),
            "{virtio}"
        );
        assert!(virtio.contains("; virtio goes with direct, switch/patch"), "{virtio}");
        let family = message("switch/udp");
        assert!(family.contains("switch goes with virtio, virtio-packed"), "{family}");
        assert!(family.contains("; udp goes with veth, bridge"), "{family}");
    }
}
