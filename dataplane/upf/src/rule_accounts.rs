//! Assignment of a session's rules to accounts, kept by control threads.

use std::sync::Arc;

use smallvec::SmallVec;

use dray_wire::gtpu::Direction::{self, Downlink, Uplink};

use crate::account::{Accounts, Spare};
use crate::config::{Qer, Urr};
use crate::session::Report;
use crate::usage::{Counted, Counters, Limits, Terms};

/// Location of an account.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// At the session's number.
    Own,
    Spare(Arc<Spare>),
}

/// Numbers of the accounts of a session's rules, by the IDs of rates and of usage rules, and the
/// terms of those that have limits.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Numbers {
    rates: Vec<(u32, u32)>,
    usages: Vec<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    terms: Vec<(u32, Terms)>,
}

impl Numbers {
    /// Returns all numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> {
        self.rates.iter().chain(&self.usages).map(|(_, number)| *number)
    }
}

/// The accounts of a session's rules. A rule that stays keeps its account; a new rule never gets an
/// account of another rule, since data threads may still count in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleAccounts {
    rates: SmallVec<[(u32, Location); 1]>,
    usages: SmallVec<[Entry; 1]>,
    /// True if the session's own account has ever been given to a rate, and to a usage rule.
    own_rate_taken: bool,
    own_usage_taken: bool,
}

/// A usage reporting rule.
#[derive(Clone, Debug)]
struct Entry {
    urr: u32,
    place: Location,
    /// Set once the rule first has any limits.
    limits: Option<Arc<Limits>>,
}

/// New spare accounts, each with room for a rate and a counter.
#[derive(Default)]
struct Fresh {
    spares: Vec<Arc<Spare>>,
    rates: usize,
    usages: usize,
}

impl Fresh {
    fn place(
        accounts: &Arc<Accounts>,
        spares: &mut Vec<Arc<Spare>>,
        taken: &mut usize,
    ) -> Option<Location> {
        if *taken == spares.len() {
            spares.push(accounts.spare()?);
        }
        *taken += 1;
        Some(Location::Spare(spares[*taken - 1].clone()))
    }
}

impl RuleAccounts {
    /// Returns the rule_accounts for the same session with these rules, if there are enough
    /// accounts. Nothing that packets see changes.
    pub(crate) fn next(
        &self,
        accounts: &Arc<Accounts>,
        qers: &[Qer],
        urrs: &[Urr],
    ) -> Option<Self> {
        let mut next = Self {
            rates: SmallVec::new(),
            usages: SmallVec::new(),
            own_rate_taken: self.own_rate_taken,
            own_usage_taken: self.own_usage_taken,
        };
        let Fresh { mut spares, mut rates, mut usages } = Fresh::default();
        let has_rate =
            |qer: &&Qer| qer.mbr_uplink_kbps.is_some() || qer.mbr_downlink_kbps.is_some();
        for qer in qers.iter().filter(has_rate) {
            let known = self.rates.iter().find(|(id, _)| *id == qer.id);
            let place = match known {
                Some((_, place)) => place.clone(),
                None if !std::mem::replace(&mut next.own_rate_taken, true) => Location::Own,
                None => Fresh::place(accounts, &mut spares, &mut rates)?,
            };
            next.rates.push((qer.id, place));
        }
        for urr in urrs {
            let known = self.usages.iter().find(|entry| entry.urr == urr.id);
            let mut entry = match known {
                Some(entry) => entry.clone(),
                None => {
                    let place = match std::mem::replace(&mut next.own_usage_taken, true) {
                        false => Location::Own,
                        true => Fresh::place(accounts, &mut spares, &mut usages)?,
                    };
                    Entry { urr: urr.id, place, limits: None }
                }
            };
            if Limits::are_in(urr) && entry.limits.is_none() {
                entry.limits = Some(Arc::default());
            }
            next.usages.push(entry);
        }
        Some(next)
    }

    /// Applies the rates of the rules, from now on; `slot` is the session's number. Returns true if
    /// one has changed.
    pub(crate) fn set_rates(&self, (accounts, slot): (&Accounts, u32), qers: &[Qer]) -> bool {
        let mut changed = false;
        for (id, place) in &self.rates {
            let Some(qer) = qers.iter().find(|qer| qer.id == *id) else { continue };
            let rates = [(Uplink, qer.mbr_uplink_kbps), (Downlink, qer.mbr_downlink_kbps)];
            for (direction, kbps) in rates {
                let account = accounts.of(direction, place.number(slot));
                changed |= kbps.is_some_and(|kbps| account.meter.set(kbps));
            }
        }
        changed
    }

    /// Applies the limits of the rules, from now on; `slot` is the session's number. The session
    /// `is_given_again` if it has not changed. Returns the reports that are due.
    pub(crate) fn settle(
        &self,
        (accounts, slot): (&Accounts, u32),
        urrs: &[Urr],
        is_given_again: bool,
    ) -> Vec<Report> {
        let mut reports = Vec::new();
        for Entry { urr, place, limits } in &self.usages {
            let rule = urrs.iter().find(|rule| rule.id == *urr);
            if let Some((limits, rule)) = limits.as_ref().zip(rule) {
                let counters = place.counters(accounts, slot);
                let due = limits.set(rule, is_given_again, counters);
                reports.extend(Report::new(*urr, due, counters));
            }
        }
        reports
    }

    /// Returns the numbers of all accounts; `slot` is the session's number.
    pub(crate) fn numbers(&self, slot: u32) -> Numbers {
        let rates = self.rates.iter().map(|(qer, place)| (*qer, place.number(slot)));
        let usages = self.usages.iter().map(|entry| (entry.urr, entry.place.number(slot)));
        let terms = self.limits().map(|(urr, _, limits)| (urr, limits.terms()));
        Numbers { rates: rates.collect(), usages: usages.collect(), terms: terms.collect() }
    }

    /// Continues the counts of the previous process for the same rules, which are in its accounts
    /// `restored`. Returns the reports that are due.
    pub(crate) fn resume(
        &self,
        (accounts, slot): (&Accounts, u32),
        (restored, numbers): (&Accounts, &Numbers),
    ) -> Vec<Report> {
        let of = |list: &[(u32, u32)], id: u32| {
            let entry = list.iter().find(|(of, _)| *of == id);
            entry.map(|(_, number)| *number).filter(|number| restored.has(*number))
        };
        for (qer, place) in &self.rates {
            let Some(number) = of(&numbers.rates, *qer) else { continue };
            for direction in Direction::ALL {
                let account = accounts.of(direction, place.number(slot));
                account.meter.resume(restored.of(direction, number).meter);
            }
        }
        let mut reports = Vec::new();
        for Entry { urr, place, limits } in &self.usages {
            let Some(number) = of(&numbers.usages, *urr) else { continue };
            let (now, restored) =
                (place.counters(accounts, slot), Location::Own.counters(restored, number));
            now.iter().zip(restored).for_each(|(now, restored)| now.resume(restored));
            let Some(limits) = limits else { continue };
            let terms = numbers.terms.iter().find(|(of, _)| of == urr);
            let due = limits.resume(terms.map_or(&Terms::NONE, |(_, terms)| terms), now, restored);
            reports.extend(Report::new(*urr, due, now));
        }
        reports
    }

    /// Returns all spare accounts.
    pub(crate) fn spares(&self) -> Vec<Arc<Spare>> {
        let places = self.rates.iter().map(|(_, place)| place);
        let places = places.chain(self.usages.iter().map(|entry| &entry.place));
        let mut spares: Vec<Arc<Spare>> = Vec::new();
        for place in places {
            if let Location::Spare(spare) = place
                && !spares.iter().any(|known| Arc::ptr_eq(known, spare))
            {
                spares.push(spare.clone());
            }
        }
        spares
    }

    /// Returns the location of a QER's rate.
    pub(crate) fn rate(&self, qer: u32) -> Option<&Location> {
        self.rates.iter().find(|(id, _)| *id == qer).map(|(_, place)| place)
    }

    /// Returns the location of a usage rule's counters.
    pub(crate) fn usage(&self, urr: u32) -> Option<&Location> {
        self.usages.iter().find(|entry| entry.urr == urr).map(|entry| &entry.place)
    }

    /// Returns the usage rules that have limits, or had some.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (u32, &Location, &Arc<Limits>)> {
        self.usages
            .iter()
            .filter_map(|entry| Some((entry.urr, &entry.place, entry.limits.as_ref()?)))
    }

    /// Returns the counts of the usage rules.
    pub(crate) fn counted(
        &self,
        accounts: &Accounts,
        slot: u32,
    ) -> impl Iterator<Item = (u32, Counted)> {
        self.usages
            .iter()
            .map(move |entry| (entry.urr, entry.place.counters(accounts, slot).into()))
    }
}

impl Location {
    /// Returns the number of the account; `slot` is the session's number.
    fn number(&self, slot: u32) -> u32 {
        match self {
            Self::Own => slot,
            Self::Spare(spare) => spare.number,
        }
    }

    fn counters<'a>(&self, accounts: &'a Accounts, slot: u32) -> Counters<'a> {
        Direction::ALL.map(|direction| accounts.of(direction, self.number(slot)).counter)
    }
}
