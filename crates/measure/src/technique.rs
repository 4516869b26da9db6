//! Techniques: a link and the I/O method of the programs at its ends.

use std::fmt;

use dray_lab::peer::SwitchKind;
use dray_lab::{LabError, LinkKind};
use dray_traffic::Check;

use crate::endpoint::{Endpoint, Io, Rings};

/// A link and an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Technique {
    /// Link between the containers.
    pub link: LinkKind,
    /// I/O method of the programs in them.
    pub endpoint: Endpoint,
}

/// Error: a word names no technique.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown technique {given:?}: give LINK, ENDPOINT or LINK/ENDPOINT with links {} {}, \
     endpoints {}",
    LinkKind::ALL.map(|link| link.name).join(" "),
    LinkKind::OF_ENGINES.map(|link| link.name).join(" "),
    Endpoint::all().iter().map(|endpoint| endpoint.name).collect::<Vec<_>>().join(" ")
)]
pub struct UnknownTechnique {
    given: String,
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
        [kernel, memory, engines].concat()
    }

    /// All techniques that have a name.
    pub fn every() -> Vec<Self> {
        let links = [&LinkKind::ALL[..], &LinkKind::PEERS, &LinkKind::OF_ENGINES].concat();
        Self::by_link(&links, &Endpoint::all())
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
        let what = match (self.link.switch(), self.endpoint.io) {
            (
                Some(SwitchKind::Snabb),
                Io::Memory(Rings::Packed) | Io::DpdkMemory(Rings::Packed),
            ) => "supports only split rings",
            (Some(SwitchKind::Snabb), Io::DpdkMemory(Rings::Split)) => {
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
        let memory_fits = link.protocol() == endpoint.protocol();
        let machines_fit = match endpoint.is_machine() {
            true => link.takes_machines(),
            false => !link.takes_only_machines(),
        };
        let fits = memory_fits && machines_fit && link.is_unix() == endpoint.is_unix();
        // Streams need replies, which do not pass links that keep containers apart.
        let is_answered = !(link.isolates && endpoint.is_stream());
        fits && is_answered && !no_device && endpoint.xdp().is_none_or(has_place)
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
            let is_wide = is_wide || link.takes_only_machines();
            is_wide || is_one_of(&[Endpoint::UDP_MMSG, Endpoint::RAW_MMSG, Endpoint::TCP])
        }
    }

    /// Returns true if `word` names the technique: a link or the first word of one, an endpoint, or
    /// both as `LINK/ENDPOINT`.
    pub fn is_called(&self, word: &str) -> bool {
        let (link, endpoint) = (self.link.name, self.endpoint.name);
        let of_link = link == word || link.split('/').next() == Some(word);
        // The name of a shared-memory link selects its usual endpoints only.
        let is_usual = Endpoint::USUAL_MEMORY.contains(&self.endpoint);
        let of_link = of_link && (!self.link.shares_memory() || is_usual);
        let both = word.strip_prefix(link).and_then(|rest| rest.strip_prefix('/'));
        // The name of an endpoint alone starts no engine: its link must be named.
        let of_endpoint = word == endpoint && self.link.runtime().is_none();
        of_link || of_endpoint || both == Some(endpoint)
    }

    /// How closely the receiver checks frames by default.
    pub fn usual_check(&self) -> Check {
        let sampled = self.link.shares_memory() || self.endpoint.is_stream();
        if sampled { Check::Sampled } else { Check::Whole }
    }

    /// Returns an error if `word` names no technique.
    pub fn check_name(word: &str) -> Result<(), UnknownTechnique> {
        if Self::every().iter().any(|technique| technique.is_called(word)) {
            Ok(())
        } else {
            Err(UnknownTechnique { given: word.to_owned() })
        }
    }
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
        let of_veth = [Endpoint::SOCKETS.len(), Endpoint::AF_XDP.len(), Endpoint::STREAMS.len(), 3];
        assert_eq!(select("veth").len(), of_veth.iter().sum::<usize>());
        let datagrams = Technique::by_link(&[LinkKind::UNIX], &Endpoint::UNIX);
        assert_eq!(select("unix"), datagrams);
        let has_sockets = |link: &&LinkKind| {
            !(link.shares_memory() || link.is_unix() || link.takes_only_machines())
        };
        let kernel = LinkKind::ALL.iter().filter(has_sockets);
        assert_eq!(select("raw").len(), kernel.count());
        let named = |technique: &Technique| technique.to_string();
        let private: Vec<_> = select("ipvlan/l3-private").iter().map(named).collect();
        let sockets = ["udp", "udp-mmsg", "raw", "raw-mmsg"];
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
            Endpoint::MEMORY.into_iter().filter(|e| e.protocol() == LinkKind::PATCH.protocol());
        assert_eq!(served(LinkKind::PATCH), virtqueues.collect::<Vec<_>>());
        assert_eq!(served(LinkKind::VPP_MEMIF), [Endpoint::MEMIF, Endpoint::DPDK_MEMIF]);
    }

    #[test]
    fn unknown_technique_error_lists_allowed() {
        for text in ["", "tokenring", "veth/", "/udp", "udp/veth", "veth/udp/x", "veth/virtio"] {
            let message = Technique::check_name(text).unwrap_err().to_string();
            assert!(
                message.contains(&format!("{text:?}")) && message.contains("udp-mmsg"),
                "{message}"
            );
        }
    }
}
