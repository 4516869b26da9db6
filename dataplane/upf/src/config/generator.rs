//! Generator of thousands of identical sessions, for measurements.

use std::net::IpAddr;

use dray_wire::gtpu::Direction;
use dray_wire::ip;
use serde::{Deserialize, Serialize};

use super::session::{Action, Far, Pdr, Qer, SessionConfig, Tunnel, Urr, Volume};
use super::{ConfigError, Prefix, teid};

/// Generates sessions 0 up to `count`. The TEIDs and the user address of a session are those of the
/// first session plus its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Number of sessions.
    pub count: u32,
    /// TEID of the first session at the UPF's end.
    #[serde(default = "one", with = "teid")]
    pub teid: u32,
    /// TEID of the first session at the gNB's end.
    #[serde(default = "one", with = "teid")]
    pub gnb_teid: u32,
    /// Addresses of the gNBs, assigned to sessions in turn.
    pub gnbs: Vec<IpAddr>,
    /// Address of the first user: an IPv4 address, or an IPv6 prefix of 64 bits.
    pub ue: Prefix,
    /// QFI that packets to access are marked with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qfi: Option<u8>,
    /// Packet detection rules of each session, half for each direction. All but the last rule of a
    /// direction match ports that no packet uses.
    #[serde(default = "two")]
    pub pdrs: u16,
    /// Maximum bit rate of a session in each direction, in 1000 bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbr_kbps: Option<u64>,
    /// True if packets are counted per session.
    #[serde(default)]
    pub urr: bool,
}

fn one() -> u32 {
    1
}

fn two() -> u16 {
    2
}

impl Generator {
    /// Checks that every session can be generated.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field: &str, what: &str| {
            Err(ConfigError::new(what).in_field(format!("generate.{field}")))
        };
        let fits = |first: u32| first != 0 && first.checked_add(self.count).is_some();
        if self.count == 0 {
            return wrong("count", "give 1 or more");
        }
        if self.gnbs.is_empty() {
            return wrong("gnbs", "give the address of at least one gNB");
        }
        for (field, first) in [("teid", self.teid), ("gnb_teid", self.gnb_teid)] {
            if !fits(first) {
                let what = format!("{first:#x}: give 0x1 to {:#x}", u32::MAX - self.count);
                return wrong(field, &what);
            }
        }
        let (first, step) = self.ue_numbers();
        let last = first.checked_add(step * u128::from(self.count));
        let same_version = |last: u128| ip::as_ipv4(first).is_some() == ip::as_ipv4(last).is_some();
        if !last.is_some_and(same_version) || !matches!(self.ue.bits(), 64 | 128) {
            return wrong(
                "ue",
                "give an IPv4 address or an IPv6 prefix of 64 bits, with room for all users",
            );
        }
        if self.pdrs < 2 || !self.pdrs.is_multiple_of(2) {
            return wrong("pdrs", "give an even number, 2 or more: half are for each direction");
        }
        Ok(())
    }

    /// Returns the first user's address, and the distance from one user to the next.
    fn ue_numbers(&self) -> (u128, u128) {
        let step = if self.ue.bits() == 64 { 1 << 64 } else { 1 };
        (ip::number(self.ue.first()), step)
    }

    /// Returns a session's TEID at the UPF's end, user address, and tunnel at the gNB's end.
    pub fn ends(&self, number: u32) -> (u32, IpAddr, Tunnel) {
        let (first, step) = self.ue_numbers();
        let gnb = self.gnbs[number as usize % self.gnbs.len()];
        let ue = ip::address(first + step * u128::from(number));
        (self.teid + number, ue, Tunnel { gnb, teid: self.gnb_teid + number, dscp: 0 })
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionConfig> + '_ {
        (0..self.count).map(|number| self.session(number))
    }

    fn session(&self, number: u32) -> SessionConfig {
        let (teid, ue, tunnel) = self.ends(number);
        let has_qer = self.qfi.is_some() || self.mbr_kbps.is_some();
        let half = self.pdrs / 2;
        let pdr = |index: u16, direction: Direction| {
            let is_uplink = direction == Direction::Uplink;
            let last = index + 1 == half;
            // The discard port of a documentation address that no server has (RFC 5737).
            let filter = || format!("permit out 17 from 192.0.2.1 9 to assigned {}", index + 1);
            Pdr {
                id: index + if is_uplink { 1 } else { half + 1 },
                precedence: u32::from(index) + 1,
                direction,
                teid: is_uplink.then_some(teid),
                qfis: Vec::new(),
                filters: (!last).then(|| filter().parse().expect("a filter")).into_iter().collect(),
                tos: None,
                application: None,
                far: if is_uplink { 1 } else { 2 },
                qers: has_qer.then_some(1).into_iter().collect(),
                urrs: self.urr.then_some(1).into_iter().collect(),
            }
        };
        let qer = Qer {
            id: 1,
            qfi: self.qfi,
            gate_uplink: super::Gate::Open,
            gate_downlink: super::Gate::Open,
            mbr_uplink_kbps: self.mbr_kbps,
            mbr_downlink_kbps: self.mbr_kbps,
        };
        let urr = Urr { id: 1, threshold: Volume::default(), quota: Volume::default() };
        let ue = match ue {
            IpAddr::V4(_) => Prefix::from(ue),
            IpAddr::V6(_) => format!("{ue}/64").parse().expect("a prefix"),
        };
        SessionConfig {
            seid: u64::from(number) + 1,
            ue: vec![ue],
            pdrs: Direction::ALL
                .into_iter()
                .flat_map(|direction| (0..half).map(move |index| (index, direction)))
                .map(|(index, direction)| pdr(index, direction))
                .collect(),
            fars: vec![
                Far { id: 1, action: Action::Forward, tunnel: None },
                Far { id: 2, action: Action::Forward, tunnel: Some(tunnel) },
            ],
            qers: has_qer.then_some(qer).into_iter().collect(),
            urrs: self.urr.then_some(urr).into_iter().collect(),
        }
    }
}
