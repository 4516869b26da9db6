//! A session as seen by one direction of the data path: two cache lines. For a common session, an
//! uplink packet needs only the first line and a downlink packet both. Larger parts lie behind
//! pointers; what packets use up lies elsewhere ([`Account`]).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use dray_datapath::Sharing;
use dray_port::prefetch;
use dray_wire::gtpu::Direction;
use dray_wire::ip;
use smallvec::SmallVec;

use crate::account::{Account, Accounts, Spare};
use crate::config::Action;
use crate::counters::DropReason;
use crate::event::Event;
use crate::matcher::{Condition, Matcher, Probe, Subject};
use crate::meter::Patience;
use crate::usage::{Counted, Counters, Due, Limits};
/// Maximum number of QERs with a rate, and of URRs, of one rule.
pub(crate) const LISTED: usize = 4;
/// Maximum number of cache lines of matchers, and of rules, that are prefetched.
const LINES_AHEAD: usize = 4;
/// End of a list of accounts.
pub(crate) const END: u8 = u8::MAX;
/// Number of no account.
pub(crate) const NONE: u32 = u32::MAX;

/// A packet detection rule with the actions and limits that it refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Uplink: a bit for each QFI that the rule matches; all bits: it also matches packets without
    /// a QFI.
    pub(crate) qfis: u64,
    /// Uplink: TEID of its tunnel at our end.
    pub(crate) teid: u32,
    /// Uplink: address of the only gNB that packets may come from; 0 if it has to be looked up.
    pub(crate) gnb: u32,
    pub(crate) pdr: u16,
    pub(crate) action: Action,
    /// Index of its tunnel.
    pub(crate) tunnel: u8,
    /// Accounts with its rates: 0 is the session's own, others are spare ones.
    pub(crate) meters: [u8; LISTED],
    /// Accounts that count its packets.
    pub(crate) usages: [u8; LISTED],
    /// Downlink: QFI that packets are marked with.
    pub(crate) qfi: Option<u8>,
    pub(crate) open: bool,
    /// True if it matches all packets of its tunnel and QFIs.
    pub(crate) plain: bool,
}

/// The far end of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    pub(crate) teid: u32,
    /// Number of the next hop on N3.
    pub(crate) hop: u16,
    /// Type of service of the outer header, without the congestion notification bits.
    pub(crate) tos: u8,
}

/// One direction of a session. The default is no session: no packet matches.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Session {
    /// Uplink: first half of the IPv6 addresses that packets may come from.
    pub(crate) ue_v6: u64,
    /// Uplink: IPv4 address that packets may come from.
    pub(crate) ue_v4: Ipv4Addr,
    /// Downlink: number of the first buffered packet's place in the store (its index plus one); 0:
    /// none. Uplink: time of the last reply to a router solicitation, in seconds of the clock plus
    /// one. Kept when the session changes.
    pub(crate) waiting: u32,
    /// Rules in order of precedence.
    pub(crate) rules: SmallVec<[Rule; 1]>,
    pub(crate) seid: u64,
    // The second line.
    /// Downlink: where packets go. Uplink: the same tunnels, whose gNBs packets may come from.
    pub(crate) tunnels: SmallVec<[Peer; 1]>,
    /// Matchers that find the rule, unless the first rule matches all packets.
    pub(crate) matchers: Box<[Matcher]>,
    /// Number of the first account besides the session's own, or [`NONE`].
    pub(crate) spare: u32,
    pub(crate) more: Option<Box<More>>,
}

const _: () = assert!(size_of::<Session>() == 128 && std::mem::offset_of!(Session, tunnels) == 64);

/// Parts that few sessions have.
#[derive(Clone, Debug, Default)]
pub(crate) struct More {
    pub(crate) conditions: Vec<Condition>,
    /// Accounts besides the session's own.
    pub(crate) spares: Vec<Arc<Spare>>,
    /// Usage rules with limits, by account.
    pub(crate) limits: Vec<Limited>,
}

/// A usage reporting rule with thresholds or quotas.
#[derive(Clone, Debug)]
pub(crate) struct Limited {
    pub(crate) account: u8,
    pub(crate) urr: u32,
    pub(crate) limits: Arc<Limits>,
}

/// The addresses of a user.
#[derive(Clone, Copy)]
pub(crate) struct User {
    v4: Ipv4Addr,
    /// First half of the IPv6 addresses.
    v6: u64,
}

impl User {
    /// Returns true if `address` is one of the user's.
    #[inline(always)]
    pub(crate) fn has(self, version: ip::Version, address: u128) -> bool {
        match version {
            // 0.0.0.0 and :: are not valid sources, so an address that is not set matches nothing.
            ip::Version::V4 => address as u32 == u32::from(self.v4) && address as u32 != 0,
            ip::Version::V6 => (address >> 64) as u64 == self.v6 && self.v6 != 0,
        }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self {
            seid: 0,
            ue_v4: Ipv4Addr::UNSPECIFIED,
            waiting: 0,
            ue_v6: 0,
            rules: SmallVec::new(),
            tunnels: SmallVec::new(),
            matchers: Box::default(),
            spare: NONE,
            more: None,
        }
    }
}

/// A packet as the limits of its session see it. Inlined functions pass it to cold ones by value: a
/// reference would have each packet's written to memory.
#[derive(Clone, Copy)]
pub(crate) struct Counting<'a> {
    pub(crate) accounts: &'a Accounts,
    /// Number of the packet's session.
    pub(crate) slot: u32,
    pub(crate) direction: Direction,
    /// Length in bytes.
    pub(crate) len: usize,
    /// Current tick.
    pub(crate) now: u64,
    pub(crate) sharing: Sharing,
}

/// A usage report.
pub(crate) struct Report {
    pub(crate) urr: u32,
    pub(crate) due: Due,
    pub(crate) counted: Counted,
}

impl Report {
    /// Returns the report of a rule, if one is due.
    pub(crate) fn new(urr: u32, due: Due, counters: Counters<'_>) -> Option<Self> {
        (due != Due::Nothing).then(|| Self { urr, due, counted: counters.into() })
    }

    /// Returns it as an event of a session.
    pub(crate) fn of(&self, seid: u64) -> Event {
        let Self { urr, due, counted } = *self;
        Event::Usage { seid, urr, quota: due == Due::Quota, counted }
    }
}

/// Returns the numbers in a rule's list.
#[inline(always)]
fn listed(list: [u8; LISTED]) -> impl Iterator<Item = u8> {
    list.into_iter().take_while(|number| *number != END)
}

impl Session {
    /// Prefetches what its pointers point to.
    #[inline(always)]
    pub(crate) fn prefetch_more(&self, direction: Direction, accounts: &Accounts) {
        // Two matchers, or rules, fit a line; the processor prefetches the lines that follow by
        // itself.
        self.matchers.iter().step_by(2).take(LINES_AHEAD).for_each(prefetch);
        if self.rules.spilled() {
            self.rules.iter().step_by(2).take(LINES_AHEAD).for_each(prefetch);
        }
        if self.spare != NONE {
            accounts.prefetch(direction, self.spare);
        }
    }

    /// Returns the account `number` of one of its rules.
    #[inline(always)]
    fn account<'a>(&self, packet: &Counting<'a>, number: u8) -> Option<Account<'a>> {
        let number = match number {
            0 => packet.slot,
            1 => self.spare,
            _ => self.further(number)?,
        };
        Some(packet.accounts.of(packet.direction, number))
    }

    #[cold]
    fn further(&self, number: u8) -> Option<u32> {
        let spare = self.more.as_ref()?.spares.get(usize::from(number) - 1)?;
        Some(spare.number)
    }

    /// Returns the counters of both directions of an account.
    fn counters<'a>(&self, packet: &Counting<'a>, number: u8) -> Option<Counters<'a>> {
        let of = |direction| self.account(&Counting { direction, ..*packet }, number);
        Some([of(Direction::Uplink)?.counter, of(Direction::Downlink)?.counter])
    }

    /// Returns true if packets from users also need the second cache line.
    pub(crate) fn has_more(&self) -> bool {
        !self.matchers.is_empty() || self.spare != NONE
    }

    /// Returns true if any of its rules has a rate or counts usage.
    pub(crate) fn has_accounts(&self) -> bool {
        self.rules.iter().any(|rule| rule.meters[0] != END || rule.usages[0] != END)
    }

    /// Returns true if `address` is one of the user's own.
    #[inline(always)]
    pub(crate) fn is_from_user(&self, version: ip::Version, address: u128) -> bool {
        self.user().has(version, address)
    }

    /// Returns the addresses that packets may come from.
    #[inline(always)]
    pub(crate) fn user(&self) -> User {
        User { v4: self.ue_v4, v6: self.ue_v6 }
    }

    /// Returns true if a gNB at `address` ([`ip::number`]) may send into the session's tunnels. A
    /// session that sends to no gNB accepts any.
    #[cold]
    pub(crate) fn has_gnb(&self, address: u128) -> bool {
        let mut gnbs = self.tunnels.iter().map(|tunnel| ip::number(tunnel.address));
        self.tunnels.is_empty() || gnbs.any(|gnb| gnb == address)
    }

    /// Returns the first rule that matches the packet. Uplink: `tunnel` is the packet's TEID and
    /// [`qfis`](crate::matcher::qfis). `probe` returns all properties that rules may look at; it is
    /// called only if the first rule does not match all packets.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        tunnel: Option<(u32, u64)>,
        probe: impl FnOnce() -> Probe,
    ) -> Option<&Rule> {
        let first = self.rules.first()?;
        let has = |(teid, qfis)| first.teid == teid && first.qfis & qfis == qfis;
        if first.plain && tunnel.is_none_or(has) {
            return Some(first);
        }
        self.search(&probe())
    }

    /// Slow path of [`find`](Self::find): several rules, or rules that do not match all packets.
    #[inline(never)]
    fn search(&self, probe: &Probe) -> Option<&Rule> {
        let fits = |rule: &Rule| rule.qfis & probe.qfis == probe.qfis;
        let subject = Subject::from(probe);
        for matcher in &self.matchers {
            if matcher.matches(&subject) {
                let rule = self.rules.get(usize::from(matcher.rule))?;
                if fits(rule) && matcher.condition().is_none_or(|number| self.meets(number, probe))
                {
                    return Some(rule);
                }
            }
        }
        None
    }

    #[cold]
    fn meets(&self, condition: usize, probe: &Probe) -> bool {
        self.more.as_ref().is_some_and(|more| more.conditions[condition].matches(probe))
    }

    /// Checks a packet against the limits of `rule` and counts it if it passes; calls `report` for
    /// each report that is due. `packet` is called only if there are limits.
    #[inline(always)]
    pub(crate) fn admit<'a>(
        &self,
        rule: &Rule,
        packet: impl FnOnce() -> Counting<'a>,
        report: impl FnMut(Report),
    ) -> Result<(), DropReason> {
        if !rule.open {
            return Err(DropReason::GateClosed);
        }
        if rule.usages[0] == END && rule.meters[0] == END {
            return Ok(());
        }
        self.count(rule, &packet(), report)
    }

    #[inline(always)]
    fn count(
        &self,
        rule: &Rule,
        packet: &Counting<'_>,
        report: impl FnMut(Report),
    ) -> Result<(), DropReason> {
        let Counting { len, now, sharing, .. } = *packet;
        self.check_quotas(rule, packet)?;
        // The packet must pass all limits; otherwise none of them counts it.
        for (before, number) in listed(rule.meters).enumerate() {
            let account = self.account(packet, number);
            if !account.is_none_or(|account| account.meter.pass(now, len, sharing)) {
                self.give_back(&rule.meters[..before], *packet);
                return Err(DropReason::Policed);
            }
        }
        self.count_usage(rule, packet, report);
        Ok(())
    }

    /// Does the same as [`admit`](Self::admit) for a packet that exceeds a rate of `rule`, and may
    /// wait for it. Returns the tick from which the packet may leave.
    #[cold]
    pub(crate) fn admit_shaped(
        &self,
        rule: &Rule,
        packet: &Counting<'_>,
        patience: Patience,
        report: impl FnMut(Report),
    ) -> Result<u64, DropReason> {
        self.check_quotas(rule, packet)?;
        let from = self.reserve(rule.meters, packet, patience).ok_or(DropReason::Policed)?;
        self.count_usage(rule, packet, report);
        Ok(from)
    }

    /// Counts a packet in all of `meters`, or in none; returns the tick from which it may leave.
    /// `None` if it would have to wait for too long.
    #[cold]
    pub(crate) fn reserve(
        &self,
        meters: [u8; LISTED],
        packet: &Counting<'_>,
        patience: Patience,
    ) -> Option<u64> {
        let Counting { len, now, sharing, .. } = *packet;
        let mut from = now;
        for (before, number) in listed(meters).enumerate() {
            let Some(account) = self.account(packet, number) else { continue };
            match account.meter.reserve(now, len, sharing, patience) {
                Some(tick) => from = tick.max(from),
                None => {
                    self.give_back(&meters[..before], *packet);
                    return None;
                }
            }
        }
        Some(from)
    }

    #[inline(always)]
    fn check_quotas(&self, rule: &Rule, packet: &Counting<'_>) -> Result<(), DropReason> {
        for number in listed(rule.usages) {
            let account = self.account(packet, number);
            let is_free = account.is_none_or(|account| account.counter.is_free());
            if !is_free && !self.allow(number, *packet) {
                return Err(DropReason::Quota);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn count_usage(&self, rule: &Rule, packet: &Counting<'_>, mut report: impl FnMut(Report)) {
        for number in listed(rule.usages) {
            let account = self.account(packet, number);
            let count = |account: Account<'_>| account.counter.count(packet.len, packet.sharing);
            if !account.is_none_or(count)
                && let Some(due) = self.due(number, *packet)
            {
                report(due);
            }
        }
    }

    /// Undoes the counting of a packet, which exceeds another rate, by `meters`.
    #[cold]
    fn give_back(&self, meters: &[u8], packet: Counting<'_>) {
        let passed = meters.iter().filter_map(|number| self.account(&packet, *number));
        passed.for_each(|account| account.meter.give_back(packet.len));
    }

    fn limited(&self, account: u8) -> Option<&Limited> {
        self.more.as_ref()?.limits.iter().find(|limited| limited.account == account)
    }

    #[cold]
    fn allow(&self, account: u8, packet: Counting<'_>) -> bool {
        let counters = self.counters(&packet, account);
        let limited = self.limited(account).zip(counters);
        limited.is_none_or(|(limited, counters)| limited.limits.allow(packet.direction, counters))
    }

    #[cold]
    fn due(&self, account: u8, packet: Counting<'_>) -> Option<Report> {
        let counters = self.counters(&packet, account)?;
        let Limited { urr, limits, .. } = self.limited(account)?;
        Report::new(*urr, limits.due(packet.direction, counters), counters)
    }

    /// Returns true if any rule buffers packets.
    pub(crate) fn buffers(&self) -> bool {
        self.rules.iter().any(|rule| rule.action == Action::Buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use dray_port::clock;
    use proptest::prelude::*;

    use super::*;

    const RULE: Rule = Rule {
        qfis: u64::MAX,
        teid: 0,
        gnb: 0,
        pdr: 1,
        action: Action::Forward,
        tunnel: 0,
        meters: [0, END, END, END],
        usages: [END; LISTED],
        qfi: None,
        open: true,
        plain: true,
    };

    /// Returns accounts of sessions with one rate limit each.
    fn limited_to(kbps: &[u64]) -> Arc<Accounts> {
        let accounts = Accounts::new(kbps.len()).unwrap();
        for (slot, kbps) in kbps.iter().enumerate() {
            accounts.of(Direction::Uplink, slot as u32).meter.set(*kbps);
        }
        accounts
    }

    fn passes(accounts: &Accounts, slot: u32, now: u64, len: usize, sharing: Sharing) -> bool {
        let packet = Counting { accounts, slot, direction: Direction::Uplink, len, now, sharing };
        Session::default().admit(&RULE, || packet, |_| {}).is_ok()
    }

    /// Two threads share one limit: as many packets pass as with one thread.
    #[test]
    fn threads_share_one_rate_limit() {
        let accounts = limited_to(&[10_000]);
        let now = clock::ticks();
        let thread =
            || (0..200).filter(|_| passes(&accounts, 0, now, 1000, Sharing::Shared)).count();
        let passed: usize = thread::scope(|scope| {
            let threads = [scope.spawn(thread), scope.spawn(thread)];
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // 10 ms of 10 Mb/s are 12,500 bytes.
        assert_eq!(passed, 12);
    }

    proptest! {
        /// The packets of one session do not affect the limits of another.
        #[test]
        fn sessions_have_independent_rate_limits(
            offers in prop::collection::vec((any::<bool>(), 40usize..1500, 0u64..200), 1..300),
            rates in (100u64..20_000, 100u64..20_000),
        ) {
            let tenth_ms = clock::ticks_per_second() / 10_000;
            let both = limited_to(&[rates.0, rates.1]);
            let alone = limited_to(&[rates.0, rates.1]);
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
                .map(|((first, len, _), now)| passes(&both, (*first).into(), *now, *len, Sharing::Alone))
                .collect();
            for session in [0, 1] {
                let expected: Vec<bool> = offers
                    .iter()
                    .zip(&times)
                    .filter(among(session))
                    .map(|((_, len, _), now)| passes(&alone, session as u32, *now, *len, Sharing::Alone))
                    .collect();
                let seen = offers.iter().zip(&together);
                let seen = seen.filter(|((first, _, _), _)| usize::from(*first) == session);
                prop_assert!(seen.map(|(_, passed)| *passed).eq(expected));
            }
        }
    }
}
