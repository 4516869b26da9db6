//! A session as one direction of the data path sees it: all that a packet needs, on one to three cache
//! lines where the session is of the usual kind. What does not fit lies behind a pointer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use dray_wire::ip;
use smallvec::SmallVec;

use crate::config::{Action, Ends, Filter};
use crate::counters::DropReason;
use crate::meter::Meter;
use crate::usage::{Due, Usage, Way};

/// QERs with a rate, and URRs, that one rule may have.
pub(crate) const LISTED: usize = 4;
/// In a list of indexes: nothing more.
pub(crate) const END: u8 = u8::MAX;

/// A packet detection rule with what it leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Uplink: a bit for each QFI that it is for.
    pub(crate) qfis: u64,
    /// Uplink: its tunnel at our end.
    pub(crate) teid: u32,
    /// Index of its condition plus one; 0: it is for all packets.
    pub(crate) condition: u16,
    pub(crate) pdr: u16,
    pub(crate) action: Action,
    /// Index of the tunnel.
    pub(crate) tunnel: u8,
    /// Indexes of meters.
    pub(crate) meters: [u8; LISTED],
    /// Indexes of usages.
    pub(crate) usages: [u8; LISTED],
    /// Downlink: QFI to mark packets with.
    pub(crate) qfi: Option<u8>,
    pub(crate) open: bool,
}

/// What packets of a rule have in common.
#[derive(Debug)]
pub(crate) struct Condition {
    /// One of them matches; none: any packet. Most rules have one, which lies here, so that the rules
    /// of a session are read in one go.
    pub(crate) filters: SmallVec<[Filter; 1]>,
    /// Value and mask.
    pub(crate) tos: Option<[u8; 2]>,
    pub(crate) application: Option<Arc<crate::config::Detector>>,
}

impl Condition {
    fn matches(&self, probe: &Probe) -> bool {
        let ends = &probe.ends;
        self.tos.is_none_or(|[value, mask]| probe.tos & mask == value & mask)
            && (self.filters.is_empty() || self.filters.iter().any(|filter| filter.matches(ends)))
            && self.application.as_ref().is_none_or(|application| application.matches(ends))
    }
}

/// The other end of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    pub(crate) teid: u32,
    /// Number of the next hop on N3.
    pub(crate) hop: u16,
}

/// What rules ask of a packet.
pub(crate) struct Probe {
    /// Uplink: tunnel and QFI that it came with.
    pub(crate) teid: u32,
    pub(crate) qfi: u8,
    pub(crate) tos: u8,
    pub(crate) ends: Ends,
}

/// One direction of a session. The default is none at all: no packet matches.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Session {
    /// Uplink: the first half of an address that packets may come from.
    pub(crate) ue_v6: u64,
    /// Uplink: whom packets may come from.
    pub(crate) ue_v4: Ipv4Addr,
    /// Downlink: the packets that wait, by their number in the store plus one.
    pub(crate) waiting: u32,
    /// In order of precedence.
    pub(crate) rules: SmallVec<[Rule; 1]>,
    /// What most sessions have no more than one of, and those that have more.
    pub(crate) usage: Option<Arc<Usage>>,
    // The second line.
    pub(crate) tunnels: SmallVec<[Peer; 1]>,
    pub(crate) meters: SmallVec<[Meter; 1]>,
    // The third line.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) more_usages: SmallVec<[Arc<Usage>; 1]>,
    pub(crate) seid: u64,
}

const _: () = assert!(
    size_of::<Session>() == 192
        && std::mem::offset_of!(Session, tunnels) == 64
        && std::mem::offset_of!(Session, conditions) == 128
);

impl Default for Session {
    fn default() -> Self {
        Self {
            seid: 0,
            ue_v4: Ipv4Addr::UNSPECIFIED,
            waiting: 0,
            ue_v6: 0,
            rules: SmallVec::new(),
            meters: SmallVec::new(),
            conditions: Vec::new(),
            usage: None,
            more_usages: SmallVec::new(),
            tunnels: SmallVec::new(),
        }
    }
}

impl Session {
    /// Asks for what lies behind its pointers.
    #[inline(always)]
    pub(crate) fn prefetch_usages(&self, way: Way) {
        self.usage.iter().chain(&self.more_usages).for_each(|usage| usage.prefetch(way));
    }

    /// The usage of an index in a rule.
    #[inline(always)]
    fn usage(&self, index: u8) -> Option<&Arc<Usage>> {
        match index {
            0 => self.usage.as_ref(),
            _ => self.more_usages.get(usize::from(index) - 1),
        }
    }

    /// Counts with `usages`, whose indexes rules name.
    pub(crate) fn count_with(&mut self, usages: &[Arc<Usage>]) {
        if let Some((first, more)) = usages.split_first() {
            self.usage = Some(first.clone());
            self.more_usages = more.iter().cloned().collect();
        }
    }

    /// Whether anything of it lies on its last line.
    pub(crate) fn has_more(&self) -> bool {
        !self.conditions.is_empty() || !self.more_usages.is_empty()
    }

    /// Whether a packet from `address` is the user's own.
    #[inline(always)]
    pub(crate) fn is_from_user(&self, version: ip::Version, address: u128) -> bool {
        match version {
            // Nobody sends from 0.0.0.0 or ::, so what is not set matches nothing.
            ip::Version::V4 => address as u32 == u32::from(self.ue_v4) && address as u32 != 0,
            ip::Version::V6 => (address >> 64) as u64 == self.ue_v6 && self.ue_v6 != 0,
        }
    }

    /// The first rule that is for the packet.
    #[inline(always)]
    pub(crate) fn find(&self, probe: &Probe) -> Option<Rule> {
        for rule in &self.rules {
            if rule.teid == probe.teid
                && rule.qfis >> probe.qfi & 1 != 0
                && (rule.condition == 0 || self.meets(rule.condition, probe))
            {
                return Some(*rule);
            }
        }
        None
    }

    fn meets(&self, condition: u16, probe: &Probe) -> bool {
        self.conditions[usize::from(condition) - 1].matches(probe)
    }

    /// Whether the limits of `rule` let a packet of `len` bytes pass at the tick `now`: if they do, it
    /// is counted, and `due` is told of reports.
    #[inline(always)]
    pub(crate) fn admit(
        &mut self,
        rule: &Rule,
        way: Way,
        len: usize,
        now: u64,
        mut due: impl FnMut(&Self, &Usage, Due),
    ) -> Result<(), DropReason> {
        if !rule.open {
            return Err(DropReason::GateClosed);
        }
        if rule.usages[0] == END && rule.meters[0] == END {
            return Ok(());
        }
        let listed = |list: [u8; LISTED]| list.into_iter().take_while(|index| *index != END);
        for usage in listed(rule.usages).filter_map(|index| self.usage(index)) {
            if !usage.allows(way) {
                return Err(DropReason::Quota);
            }
        }
        // All limits must let it pass before any of them counts it.
        for index in listed(rule.meters) {
            if !self.meters[usize::from(index)].conforms(now) {
                return Err(DropReason::Policed);
            }
        }
        for index in listed(rule.meters) {
            self.meters[usize::from(index)].take(now, len);
        }
        for usage in listed(rule.usages).filter_map(|index| self.usage(index)) {
            match usage.count(way, len) {
                Due::Nothing => {}
                other => due(self, usage, other),
            }
        }
        Ok(())
    }

    /// Whether any rule keeps packets.
    pub(crate) fn buffers(&self) -> bool {
        self.rules.iter().any(|rule| rule.action == Action::Buffer)
    }

    /// Goes on where `before` was: rates are used up as they were.
    pub(crate) fn go_on(&mut self, before: &Self) {
        for (meter, before) in self.meters.iter_mut().zip(&before.meters) {
            meter.go_on(before);
        }
        self.waiting = before.waiting;
    }
}

#[cfg(test)]
mod tests {
    use dray_port::clock;
    use proptest::prelude::*;

    use super::*;

    const RULE: Rule = Rule {
        qfis: u64::MAX,
        teid: 0,
        condition: 0,
        pdr: 1,
        action: Action::Forward,
        tunnel: 0,
        meters: [0, END, END, END],
        usages: [END; LISTED],
        qfi: None,
        open: true,
    };

    fn limited_to(kbps: u64) -> Session {
        let meters = [Meter::new(kbps)].into_iter().collect();
        Session { meters, ..Session::default() }
    }

    fn passes(session: &mut Session, now: u64, len: usize) -> bool {
        session.admit(&RULE, Way::Uplink, len, now, |_, _, _| {}).is_ok()
    }

    proptest! {
        /// What one session is offered changes nothing for another one.
        #[test]
        fn sessions_do_not_influence_each_other(
            offers in prop::collection::vec((any::<bool>(), 40usize..1500, 0u64..200), 1..300),
            rates in (100u64..20_000, 100u64..20_000),
        ) {
            let tenth_ms = clock::ticks_per_second() / 10_000;
            let mut both = [limited_to(rates.0), limited_to(rates.1)];
            let mut alone = [limited_to(rates.0), limited_to(rates.1)];
            let times: Vec<u64> = offers
                .iter()
                .scan(clock::ticks(), |now, (_, _, later)| {
                    *now += later * tenth_ms;
                    Some(*now)
                })
                .collect();
            let among = |session: usize| move |((first, _, _), _): &(&(bool, usize, u64), &u64)| {
                usize::from(*first) == session
            };
            let together: Vec<bool> = offers
                .iter()
                .zip(&times)
                .map(|((first, len, _), now)| passes(&mut both[usize::from(*first)], *now, *len))
                .collect();
            for session in [0, 1] {
                let expected: Vec<bool> = offers
                    .iter()
                    .zip(&times)
                    .filter(among(session))
                    .map(|((_, len, _), now)| passes(&mut alone[session], *now, *len))
                    .collect();
                let seen = offers.iter().zip(&together);
                let seen = seen.filter(|((first, _, _), _)| usize::from(*first) == session);
                prop_assert!(seen.map(|(_, passed)| *passed).eq(expected));
            }
        }
    }
}
