//! Conditions of rules in the form that packets are matched against: half a cache line for a common
//! filter, with all matchers of a session in a row. What does not fit is a [`Condition`].

use std::ops::RangeInclusive;
use std::sync::Arc;

use dray_wire::ip;
use smallvec::SmallVec;

use crate::config::{Detector, Ends, Filter, Pdr, Prefix};

/// The properties of a packet that rules match.
pub(crate) struct Probe {
    /// Uplink: TEID of the tunnel that the packet came through.
    pub(crate) teid: u32,
    /// Uplink: bit of the packet's QFI, as returned by [`qfis`].
    pub(crate) qfis: u64,
    pub(crate) tos: u8,
    pub(crate) ends: Ends,
}

/// Returns the bit for a packet's QFI. A packet without a QFI belongs to no QoS flow and matches
/// only rules for any packet: all bits are set.
#[inline(always)]
pub(crate) fn qfis(qfi: Option<u8>) -> u64 {
    qfi.map_or(u64::MAX, |qfi| 1 << (qfi & 63))
}

/// A filter with at most one range of ports at each end, for IPv4 addresses or for any address.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Matcher {
    /// Uplink: TEID of the tunnel at our end.
    teid: u32,
    remote: u32,
    remote_mask: u32,
    /// With [`ELSEWHERE`]: number of the condition.
    local: u32,
    local_mask: u32,
    /// First port, and how many more follow.
    remote_ports: [u16; 2],
    local_ports: [u16; 2],
    protocol: u8,
    needs: u8,
    /// Number of the rule.
    pub(crate) rule: u16,
}

const _: () = assert!(size_of::<Matcher>() == 32);

/// The packet must be IPv4.
const V4: u8 = 1;
/// The packet must have ports.
const PORTS: u8 = 2;
/// The packet must be of the protocol.
const PROTOCOL: u8 = 4;
/// The packet must meet a condition, which contains all requirements.
const ELSEWHERE: u8 = 8;

/// Any port, or none.
const ANY_PORT: [u16; 2] = [0, u16::MAX];

/// Maximum number of matchers for one rule; a rule that needs more, for port ranges of its filters,
/// becomes a condition.
const EXPANDED_MAX: usize = 4;

/// A packet in the form that matchers compare with.
pub(crate) struct Subject {
    teid: u32,
    remote: u32,
    local: u32,
    remote_port: u16,
    local_port: u16,
    protocol: u8,
    /// Requirement bits that the packet does not meet.
    lacks: u8,
}

impl From<&Probe> for Subject {
    #[inline(always)]
    fn from(probe: &Probe) -> Self {
        let Ends { protocol, remote, local } = probe.ends;
        let lacks_v4 = if ip::as_ipv4(remote.0).is_some() { 0 } else { V4 };
        let lacks_ports = if remote.1.is_some() { 0 } else { PORTS };
        Self {
            teid: probe.teid,
            remote: remote.0 as u32,
            local: local.0 as u32,
            remote_port: remote.1.unwrap_or_default(),
            local_port: local.1.unwrap_or_default(),
            protocol,
            lacks: lacks_v4 | lacks_ports,
        }
    }
}

impl Matcher {
    /// Returns a matcher for any packet.
    fn any() -> Self {
        Self { remote_ports: ANY_PORT, local_ports: ANY_PORT, ..Self::default() }
    }

    /// Returns the matcher with the number of its rule and a tunnel.
    pub(crate) fn of_rule(self, rule: u16, teid: u32) -> Self {
        Self { rule, teid, ..self }
    }

    /// Returns true if it matches all packets of its tunnel.
    pub(crate) fn is_any(&self) -> bool {
        let all_ports = self.remote_ports == ANY_PORT && self.local_ports == ANY_PORT;
        self.needs == 0 && self.remote_mask == 0 && self.local_mask == 0 && all_ports
    }

    /// Returns true if the packet matches; if there is a [`condition`](Self::condition), that must
    /// match too.
    #[inline(always)]
    pub(crate) fn matches(&self, subject: &Subject) -> bool {
        let within = |port: u16, [first, more]: [u16; 2]| port.wrapping_sub(first) <= more;
        let differs = (subject.teid ^ self.teid)
            | (subject.remote ^ self.remote) & self.remote_mask
            | (subject.local ^ self.local) & self.local_mask
            | u32::from(subject.lacks & self.needs);
        differs == 0
            && within(subject.remote_port, self.remote_ports)
            && within(subject.local_port, self.local_ports)
            && (self.needs & PROTOCOL == 0 || subject.protocol == self.protocol)
    }

    /// Returns the number of the condition that must match too.
    #[inline(always)]
    pub(crate) fn condition(&self) -> Option<usize> {
        (self.needs & ELSEWHERE != 0).then_some(self.local as usize)
    }

    /// Returns the matchers that together are `filter`, if they are at most [`EXPANDED_MAX`].
    fn of(filter: &Filter) -> Option<SmallVec<[Self; 1]>> {
        let (remote, remote_v4) = compact(&filter.remote.addresses)?;
        let (local, local_v4) = compact(&filter.local.addresses)?;
        let mut needs = if remote_v4 || local_v4 { V4 } else { 0 };
        if filter.protocol.is_some() {
            needs |= PROTOCOL;
        }
        let ranges = |ports: &[RangeInclusive<u16>]| -> SmallVec<[[u16; 2]; 1]> {
            let range = |range: &RangeInclusive<u16>| [*range.start(), range.end() - range.start()];
            ports.iter().map(range).collect()
        };
        let (mut remote_ranges, mut local_ranges) =
            (ranges(&filter.remote.ports), ranges(&filter.local.ports));
        for ranges in [&mut remote_ranges, &mut local_ranges] {
            match ranges.is_empty() {
                true => ranges.push(ANY_PORT),
                false => needs |= PORTS,
            }
        }
        let all = remote_ranges.iter().flat_map(|remote_ports| {
            local_ranges.iter().map(|local_ports| Self {
                teid: 0,
                remote: remote.0,
                remote_mask: remote.1,
                local: local.0,
                local_mask: local.1,
                remote_ports: *remote_ports,
                local_ports: *local_ports,
                protocol: filter.protocol.unwrap_or_default(),
                needs,
                rule: 0,
            })
        });
        (remote_ranges.len() * local_ranges.len() <= EXPANDED_MAX).then(|| all.collect())
    }
}

/// Returns first address and mask, and true if only IPv4 matches; `None` for an IPv6 prefix.
fn compact(prefix: &Prefix) -> Option<((u32, u32), bool)> {
    match *prefix == Prefix::ANY {
        true => Some(((0, 0), false)),
        false => prefix.as_ipv4().map(|both| (both, true)),
    }
}

/// The requirements of a rule that does not fit matchers.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    /// Filters, one of which must match; empty: any packet.
    filters: Vec<Filter>,
    /// Type of service: value and mask.
    tos: Option<[u8; 2]>,
    application: Option<Arc<Detector>>,
}

impl Condition {
    pub(crate) fn matches(&self, probe: &Probe) -> bool {
        let ends = &probe.ends;
        self.tos.is_none_or(|[value, mask]| probe.tos & mask == value & mask)
            && (self.filters.is_empty() || self.filters.iter().any(|filter| filter.matches(ends)))
            && self.application.as_ref().is_none_or(|application| application.matches(ends))
    }
}

/// Returns the matchers of a rule, without tunnel and number; adds what does not fit to
/// `conditions`.
pub(crate) fn matchers(
    pdr: &Pdr,
    application: Option<Arc<Detector>>,
    conditions: &mut Vec<Condition>,
) -> SmallVec<[Matcher; 1]> {
    if pdr.tos.is_none() && application.is_none() {
        if pdr.filters.is_empty() {
            return SmallVec::from_elem(Matcher::any(), 1);
        }
        let compact: Option<Vec<_>> = pdr.filters.iter().map(Matcher::of).collect();
        let compact: Option<SmallVec<_>> = compact.map(|all| all.into_iter().flatten().collect());
        if let Some(compact) = compact.filter(|all| all.len() <= EXPANDED_MAX) {
            return compact;
        }
    }
    conditions.push(Condition { filters: pdr.filters.clone(), tos: pdr.tos, application });
    let number = conditions.len() as u32 - 1;
    SmallVec::from_elem(Matcher { needs: ELSEWHERE, local: number, ..Matcher::any() }, 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = String> {
        prop_oneof![
            (0u8..3, 0u8..3).prop_map(|(a, b)| format!("10.{a}.0.{b}")),
            (0u8..3).prop_map(|a| format!("2001:db8::{a}")),
        ]
    }

    fn end() -> impl Strategy<Value = String> {
        let prefix = prop_oneof![
            Just("any".to_owned()),
            address(),
            (0u8..3, 0u8..=32).prop_map(|(a, bits)| format!("10.{a}.0.1/{bits}")),
            (0u8..3, 0u8..=128).prop_map(|(a, bits)| format!("2001:db8::{a}/{bits}")),
        ];
        let ports = prop::collection::vec((0u16..6, 0u16..3), 0..4);
        (prefix, ports).prop_map(|(prefix, ports)| {
            let range = |(first, more): &(u16, u16)| match more {
                0 => first.to_string(),
                more => format!("{first}-{}", first + more),
            };
            let ports: Vec<_> = ports.iter().map(range).collect();
            format!("{prefix} {}", ports.join(","))
        })
    }

    proptest! {
        /// Matchers agree with the filters that they were made of, for every packet.
        #[test]
        fn matchers_agree_with_filters(
            filters in prop::collection::vec((prop::option::of(0u8..3), end(), end()), 0..4),
            packets in prop::collection::vec(
                (0u8..3, any::<bool>(), any::<(u8, u8)>(), prop::option::of((0u16..8, 0u16..8))), 1..50),
        ) {
            let text = |(protocol, remote, local): &(Option<u8>, String, String)| {
                let protocol = protocol.map_or("ip".to_owned(), |number| number.to_string());
                format!("permit out {protocol} from {remote} to {local}")
            };
            let filters: Vec<Filter> = filters.iter().map(|filter| text(filter).parse().unwrap()).collect();
            let text = r#"{"id": 1, "precedence": 1, "from": "core", "far": 1}"#;
            let mut pdr: Pdr = serde_json::from_str(text).unwrap();
            pdr.filters = filters.clone();
            let mut conditions = Vec::new();
            let matchers = matchers(&pdr, None, &mut conditions);
            for (protocol, v6, (a, b), ports) in packets {
                let address = |a: u8| match v6 {
                    true => format!("2001:db8::{}", a % 3),
                    false => format!("10.{}.0.{}", a % 3, a / 3 % 3),
                };
                let number = |a: u8| ip::number(address(a).parse().unwrap());
                let (remote, local) = ((number(a), ports.map(|it| it.0)), (number(b), ports.map(|it| it.1)));
                let probe = Probe { teid: 0, qfis: qfis(None), tos: 0, ends: Ends { protocol, remote, local } };
                let expected = filters.is_empty() || filters.iter().any(|filter| filter.matches(&probe.ends));
                let subject = Subject::from(&probe);
                let found = matchers.iter().any(|matcher| {
                    matcher.matches(&subject)
                        && matcher.condition().is_none_or(|number| conditions[number].matches(&probe))
                });
                prop_assert_eq!(found, expected, "{:?} {:?}", filters, probe.ends);
            }
        }
    }
}
