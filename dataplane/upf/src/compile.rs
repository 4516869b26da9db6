//! Compiles the configuration of a session into the form that the data path uses, and checks it.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use dray_wire::gtpu::Direction::{self, Downlink, Uplink};
use dray_wire::ip;
use smallvec::SmallVec;

use crate::account::{Accounts, Spare};
use crate::config::{Action, ConfigError, Detector, Gate, Pdr, Qer, SessionConfig, Urr};
use crate::interface::Interface;
use crate::matcher::{self, Matcher};
use crate::neighbours::HOPS_MAX;
use crate::rule_accounts::{Location, RuleAccounts};
use crate::session::{END, LISTED, Limited, More, Peer, Rule, Session};
use crate::status::SessionState;

/// Maximum number of rules in each of a session's lists of FARs, QERs and URRs.
const RULES_MAX: usize = 120;

/// Applications and interface that sessions may refer to, and the accounts for their rules.
pub(crate) struct Context<'c> {
    pub(crate) applications: &'c HashMap<String, Arc<Detector>>,
    pub(crate) n3: &'c Interface,
    pub(crate) accounts: &'c Arc<Accounts>,
}

/// A session, checked and compiled.
pub(crate) struct Compiled {
    /// Keys in the uplink's table (tunnels) and in the downlink's (addresses).
    pub(crate) keys: [SmallVec<[u64; 2]>; 2],
    pub(crate) uplink: Box<Session>,
    pub(crate) downlink: Box<Session>,
    pub(crate) rule_accounts: RuleAccounts,
    pub(crate) state: SessionState,
    /// The configuration as JSON.
    pub(crate) config: Box<str>,
    /// Accounts of the session's rules.
    pub(crate) qers: Vec<Qer>,
    pub(crate) urrs: Vec<Urr>,
}

/// Returns the table key of a user's address ([`ip::number`]): all of an IPv4 address, or the first
/// half of an IPv6 address. IPv4 keys lie where IPv6 has multicast groups, which no user has.
#[inline(always)]
pub(crate) fn address_key(version: ip::Version, address: u128) -> u64 {
    match version {
        ip::Version::V4 => 0xff00_0000 << 32 | u64::from(address as u32),
        ip::Version::V6 => (address >> 64) as u64,
    }
}

/// Checks and compiles `config`. Rules that existed `before` keep counting. Nothing that packets
/// see changes until [`RuleAccounts::settle`].
pub(crate) fn compile(
    config: &SessionConfig,
    context: &Context<'_>,
    before: &RuleAccounts,
) -> Result<Compiled, ConfigError> {
    let seid = config.seid;
    Compiler { config, context }.compile(before).map_err(|error| error.in_session(seid))
}

struct Compiler<'c> {
    config: &'c SessionConfig,
    context: &'c Context<'c>,
}

fn wrong(field: impl Into<String>, what: impl Into<String>) -> ConfigError {
    ConfigError::new(what).in_field(field)
}

/// Checks that no two of `ids` are equal; `list` is the name of their list.
fn check_ids<T: Copy + Eq + std::hash::Hash + std::fmt::Display>(
    list: &str,
    ids: impl Iterator<Item = T>,
) -> Result<(), ConfigError> {
    let mut known = HashSet::new();
    for (number, id) in ids.enumerate() {
        if !known.insert(id) {
            return Err(wrong(format!("{list}[{number}].id"), format!("{id} is given twice")));
        }
    }
    // Account numbers are bytes, and each rule needs at most one account.
    match known.len() {
        0..=RULES_MAX => Ok(()),
        many => Err(wrong(list, format!("{many} rules; at most {RULES_MAX} are allowed"))),
    }
}

impl Compiler<'_> {
    fn compile(&self, before: &RuleAccounts) -> Result<Compiled, ConfigError> {
        let SessionConfig { seid: _, ue: _, pdrs, fars, qers, urrs } = self.config;
        check_ids("fars", fars.iter().map(|far| far.id))?;
        check_ids("qers", qers.iter().map(|qer| qer.id))?;
        check_ids("urrs", urrs.iter().map(|urr| urr.id))?;
        let mut ids = HashSet::new();
        for (number, pdr) in pdrs.iter().enumerate() {
            if !ids.insert(pdr.id) {
                let what = format!("{} is given twice", pdr.id);
                return Err(wrong(format!("pdrs[{number}].id"), what));
            }
        }
        if pdrs.is_empty() || pdrs.len() > 4096 {
            return Err(wrong("pdrs", format!("{} rules: give 1 to 4096", pdrs.len())));
        }
        for (number, qer) in qers.iter().enumerate() {
            let at = |field: &str| format!("qers[{number}].{field}");
            if let Some(qfi) = qer.qfi.filter(|qfi| *qfi > 63) {
                return Err(wrong(at("qfi"), format!("{qfi}: give 0 to 63")));
            }
            for (field, rate) in [
                ("mbr_uplink_kbps", qer.mbr_uplink_kbps),
                ("mbr_downlink_kbps", qer.mbr_downlink_kbps),
            ] {
                if let Some(rate) = rate.filter(|rate| !(1..=1_000_000_000).contains(rate)) {
                    let what = format!("{rate}: give 1 to 1000000000; to drop all, close the gate");
                    return Err(wrong(at(field), what));
                }
            }
        }
        let rule_accounts = before.next(self.context.accounts, qers, urrs);
        let full = || wrong("", "no room left for the rates and usage rules of all sessions");
        let mut compiled = Compiled {
            keys: Default::default(),
            uplink: Box::default(),
            downlink: Box::default(),
            rule_accounts: rule_accounts.ok_or_else(full)?,
            state: SessionState::Forwarding,
            config: serde_json::to_string(self.config).expect("sessions serialise to JSON").into(),
            qers: qers.clone(),
            urrs: urrs.clone(),
        };
        self.addresses(&mut compiled)?;
        let Compiled { keys, uplink, downlink, rule_accounts, .. } = &mut compiled;
        let spares = rule_accounts.spares();
        let accounts = Numbers { rule_accounts, spares: &spares };
        keys[0] = self.direction(Uplink, uplink, &accounts)?;
        self.direction(Downlink, downlink, &accounts)?;
        bind_to_gnbs(uplink, downlink);
        compiled.state = state(&compiled.uplink, &compiled.downlink);
        Ok(compiled)
    }

    fn addresses(&self, compiled: &mut Compiled) -> Result<(), ConfigError> {
        for (number, prefix) in self.config.ue.iter().enumerate() {
            let first = prefix.first();
            let (v4, v6) = (&mut compiled.uplink.ue_v4, &mut compiled.uplink.ue_v6);
            let right = match first {
                IpAddr::V4(address) => {
                    prefix.bits() == 128 && ip::is_host(first) && {
                        let free = v4.is_unspecified();
                        *v4 = address;
                        free
                    }
                }
                IpAddr::V6(address) => {
                    prefix.bits() == 64 && ip::is_host(first) && {
                        let free = *v6 == 0;
                        *v6 = (u128::from(address) >> 64) as u64;
                        free
                    }
                }
            };
            if !right {
                let what = format!(
                    "{prefix}: give one IPv4 address, one IPv6 prefix of 64 bits, or one of each"
                );
                return Err(wrong(format!("ue[{number}]"), what));
            }
            let version = if first.is_ipv4() { ip::Version::V4 } else { ip::Version::V6 };
            compiled.keys[1].push(address_key(version, ip::number(first)));
        }
        match self.config.ue.is_empty() {
            true => Err(wrong("ue", "give at least one address of the user")),
            false => Ok(()),
        }
    }

    /// Compiles the rules and tunnels of one direction.
    fn direction(
        &self,
        direction: Direction,
        session: &mut Session,
        accounts: &Numbers<'_>,
    ) -> Result<SmallVec<[u64; 2]>, ConfigError> {
        let pdrs = self.config.pdrs.iter().enumerate();
        let mut pdrs: Vec<(usize, &Pdr)> =
            pdrs.filter(|(_, pdr)| pdr.direction == direction).collect();
        pdrs.sort_by_key(|(_, pdr)| (pdr.precedence, pdr.id));
        session.seid = self.config.seid;
        let mut more = More::default();
        let mut matchers: Vec<Matcher> = Vec::new();
        let mut tunnels = Vec::new();
        let mut teids = SmallVec::<[u64; 2]>::new();
        for (number, pdr) in pdrs {
            let at = |field: &str| format!("pdrs[{number}].{field}");
            let teid = match (direction, pdr.teid) {
                (Uplink, Some(teid)) if teid != 0 => teid,
                (Uplink, _) => {
                    return Err(wrong(
                        at("teid"),
                        "packets from access need a tunnel: give its TEID, 1 or more",
                    ));
                }
                (Downlink, None) => 0,
                (Downlink, Some(_)) => {
                    return Err(wrong(
                        at("teid"),
                        "packets from core have no tunnel: leave teid out",
                    ));
                }
            };
            if direction == Uplink && !teids.contains(&u64::from(teid)) {
                teids.push(teid.into());
            }
            let (action, tunnel) = self.action(direction, pdr, &at, &mut tunnels)?;
            let (open, qfi, listed) = self.limits(direction, pdr, &at, accounts)?;
            let application = self.application(pdr, &at)?;
            let number = session.rules.len() as u16;
            let of_rule = matcher::matchers(pdr, application, &mut more.conditions);
            matchers.extend(of_rule.iter().map(|matcher| matcher.of_rule(number, teid)));
            session.rules.push(Rule {
                qfis: self.qfis(direction, pdr, &at)?,
                teid,
                gnb: 0,
                pdr: pdr.id,
                action,
                tunnel,
                meters: listed,
                usages: self.usages(pdr, &at, accounts)?,
                qfi,
                open,
                plain: of_rule.iter().any(Matcher::is_any),
            });
        }
        // A single rule that applies to all packets needs no matcher.
        if session.rules.len() > 1 || !session.rules.iter().all(|rule| rule.plain) {
            session.matchers = matchers.into();
        }
        if let Some(first) = accounts.spares.first() {
            session.spare = first.number;
            more.spares = accounts.spares.to_vec();
        }
        more.limits = accounts.limits();
        if !(more.conditions.is_empty() && more.spares.is_empty() && more.limits.is_empty()) {
            session.more = Some(Box::new(more));
        }
        // Collected: `SmallVec::from` would keep the vector's allocation, behind a pointer.
        session.tunnels = tunnels.into_iter().collect();
        Ok(teids)
    }

    fn qfis(
        &self,
        direction: Direction,
        pdr: &Pdr,
        at: &impl Fn(&str) -> String,
    ) -> Result<u64, ConfigError> {
        if pdr.qfis.iter().any(|qfi| *qfi > 63) {
            return Err(wrong(at("qfis"), format!("{:?}: give 0 to 63", pdr.qfis)));
        }
        match (direction, pdr.qfis.is_empty()) {
            (_, true) => Ok(u64::MAX),
            (Uplink, false) => Ok(pdr.qfis.iter().fold(0, |bits, qfi| bits | 1 << qfi)),
            (Downlink, false) => {
                Err(wrong(at("qfis"), "packets from core have no QFI yet: leave qfis out"))
            }
        }
    }

    /// Returns the action of a rule, and the index of the tunnel that its packets go into.
    fn action(
        &self,
        direction: Direction,
        pdr: &Pdr,
        at: &impl Fn(&str) -> String,
        tunnels: &mut Vec<Peer>,
    ) -> Result<(Action, u8), ConfigError> {
        let far = self.config.fars.iter().position(|far| far.id == pdr.far);
        let missing = || wrong(at("far"), format!("FAR {}: not defined in the session", pdr.far));
        let number = far.ok_or_else(missing)?;
        let far = &self.config.fars[number];
        let in_far = |what: String| wrong(format!("fars[{number}].tunnel"), what);
        match (direction, far.action, far.tunnel) {
            (Uplink, Action::Buffer, _) => {
                let what = "\"buffer\" is allowed only for packets from core";
                Err(wrong(format!("fars[{number}].action"), what))
            }
            (Uplink, Action::Forward, Some(_)) => Err(in_far(
                "packets from access go to core without a tunnel: leave it out".to_owned(),
            )),
            (Downlink, Action::Forward, None) => {
                Err(in_far("packets from core need a tunnel: give gnb and teid".to_owned()))
            }
            (Downlink, Action::Forward, Some(tunnel)) => {
                let n3 = self.context.n3;
                let gnb = tunnel.gnb;
                if tunnel.teid == 0 || !n3.is_other_host(gnb) {
                    let what = "give a gNB's address and a teid of 1 or more";
                    return Err(in_far(format!("gnb {gnb}, teid {:#x}: {what}", tunnel.teid)));
                }
                if n3.address_for(gnb).is_none() {
                    return Err(in_far(format!("{gnb}: N3 has no address of this IP version")));
                }
                let full =
                    || in_far(format!("{gnb}: N3 already has {HOPS_MAX} neighbours, the maximum"));
                let hop = n3.hop_to(gnb).ok_or_else(full)?;
                if tunnel.dscp > 63 {
                    return Err(in_far(format!("dscp {}: give 0 to 63", tunnel.dscp)));
                }
                let (teid, tos) = (tunnel.teid, tunnel.dscp << 2);
                let same = |peer: &Peer| (peer.address, peer.teid, peer.tos) == (gnb, teid, tos);
                let index = tunnels.iter().position(same).unwrap_or_else(|| {
                    tunnels.push(Peer { address: gnb, teid, hop, tos });
                    tunnels.len() - 1
                });
                // There are no more tunnels than rules that name them.
                Ok((far.action, index as u8))
            }
            (_, action, _) => Ok((action, 0)),
        }
    }

    /// Returns true if the gates are open, the QFI to mark packets with, and the accounts with
    /// rates.
    fn limits(
        &self,
        direction: Direction,
        pdr: &Pdr,
        at: &impl Fn(&str) -> String,
        accounts: &Numbers<'_>,
    ) -> Result<(bool, Option<u8>, [u8; LISTED]), ConfigError> {
        let (mut open, mut qfi) = (true, None);
        let mut listed = List::default();
        for id in &pdr.qers {
            let qer = self.config.qers.iter().find(|qer| qer.id == *id);
            let missing = || wrong(at("qers"), format!("QER {id}: not defined in the session"));
            let qer = qer.ok_or_else(missing)?;
            let (gate, rate) = match direction {
                Uplink => (qer.gate_uplink, qer.mbr_uplink_kbps),
                Downlink => (qer.gate_downlink, qer.mbr_downlink_kbps),
            };
            open &= gate == Gate::Open;
            qfi = qfi.or(qer.qfi);
            if rate.is_some() {
                let number = accounts.number(accounts.rule_accounts.rate(*id));
                let many =
                    || wrong(at("qers"), format!("at most {LISTED} QERs with a rate are allowed"));
                number.and_then(|number| listed.push(number)).ok_or_else(many)?;
            }
        }
        Ok((open, qfi, listed.0))
    }

    fn usages(
        &self,
        pdr: &Pdr,
        at: &impl Fn(&str) -> String,
        accounts: &Numbers<'_>,
    ) -> Result<[u8; LISTED], ConfigError> {
        let mut listed = List::default();
        for id in &pdr.urrs {
            let missing = || wrong(at("urrs"), format!("URR {id}: not defined in the session"));
            let number = accounts.number(accounts.rule_accounts.usage(*id)).ok_or_else(missing)?;
            listed
                .push(number)
                .ok_or_else(|| wrong(at("urrs"), format!("at most {LISTED} are allowed")))?;
        }
        Ok(listed.0)
    }

    fn application(
        &self,
        pdr: &Pdr,
        at: &impl Fn(&str) -> String,
    ) -> Result<Option<Arc<Detector>>, ConfigError> {
        let known = |name: &String| {
            let known = self.context.applications.get(name).cloned();
            known.ok_or_else(|| wrong(at("application"), format!("no such application: {name:?}")))
        };
        pdr.application.as_ref().map(known).transpose()
    }
}

/// Maps accounts to the numbers by which rules refer to them.
struct Numbers<'l> {
    rule_accounts: &'l RuleAccounts,
    spares: &'l [Arc<Spare>],
}

impl Numbers<'_> {
    fn number(&self, place: Option<&Location>) -> Option<u8> {
        let number = match place? {
            Location::Own => 0,
            Location::Spare(spare) => {
                self.spares.iter().position(|known| Arc::ptr_eq(known, spare))? + 1
            }
        };
        u8::try_from(number).ok().filter(|number| *number != END)
    }

    fn limits(&self) -> Vec<Limited> {
        let limited = |(urr, place, limits): (u32, &Location, &Arc<_>)| {
            Some(Limited { account: self.number(Some(place))?, urr, limits: Arc::clone(limits) })
        };
        self.rule_accounts.limits().filter_map(limited).collect()
    }
}

/// Account numbers, terminated by [`END`], and how many there are.
struct List([u8; LISTED], usize);

impl Default for List {
    fn default() -> Self {
        Self([END; LISTED], 0)
    }
}

impl List {
    fn push(&mut self, number: u8) -> Option<()> {
        *self.0.get_mut(self.1)? = number;
        self.1 += 1;
        Some(())
    }
}

/// Returns the state of a session with these directions.
fn state(uplink: &Session, downlink: &Session) -> SessionState {
    let mut rules = uplink.rules.iter().chain(&downlink.rules);
    if downlink.buffers() {
        SessionState::Buffering
    } else if rules.any(|rule| rule.action == Action::Forward && rule.open) {
        SessionState::Forwarding
    } else {
        SessionState::Blocked
    }
}

/// Makes the uplink accept packets only from the gNBs that the downlink sends to.
fn bind_to_gnbs(uplink: &mut Session, downlink: &Session) {
    uplink.tunnels.clone_from(&downlink.tunnels);
    let mut gnbs = uplink.tunnels.iter().map(|tunnel| tunnel.address);
    let only = gnbs.next().filter(|first| gnbs.all(|other| other == *first));
    if let Some(IpAddr::V4(gnb)) = only {
        uplink.rules.iter_mut().for_each(|rule| rule.gnb = gnb.into());
    }
}
