//! Settings of a virtual function of a network card: requested from the card's driver, and read
//! back.

use std::io;

use dray_wire::MacAddr;
use netlink_packet_route::link::{VfInfo, VfInfoMac, VfInfoSpoofCheck, VfInfoTrust, VfInfoVlan};
use rustix::io::Errno;

use crate::netlink::Netlink;

/// Settings for the virtual functions at a link's ends. One that is not given has a default, which
/// a driver that does not support it need not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// MAC addresses, in the order of the ends. Ends beyond the list get addresses of the lab.
    pub macs: Vec<MacAddr>,
    /// VLAN that the card puts the functions in, 0 for none; by default a VLAN of the link's own.
    pub vlan: Option<u16>,
    /// True if the card drops frames sent from other addresses; by default it does.
    pub spoof_check: Option<bool>,
    /// True if the user of a function may change its address and receive all frames; by default
    /// not.
    pub trust: Option<bool>,
}

/// Settings of one virtual function, each with whether the link cannot do without it.
#[derive(Debug)]
pub(super) struct VirtualFunction {
    /// Number of the function on the card.
    number: u32,
    settings: [(VfInfo, bool); 4],
}

impl VirtualFunction {
    /// Returns the settings of the card's function `number` at end `end` of a link: those of
    /// `functions`, or else the address `mac`, the VLAN `vlan`, which the link needs or does not
    /// need, and the defaults.
    pub(super) fn new(
        number: usize,
        functions: &Functions,
        end: usize,
        mac: MacAddr,
        (vlan, needs_vlan): (u16, bool),
    ) -> Self {
        let (number, given) = (number as u32, functions.macs.get(end));
        let vlan_id = functions.vlan.unwrap_or(vlan).into();
        let (check, trust) = (functions.spoof_check, functions.trust);
        let settings = [
            (VfInfo::Mac(VfInfoMac::new(number, &given.unwrap_or(&mac).0)), given.is_some()),
            (
                VfInfo::Vlan(VfInfoVlan::new(number, vlan_id, 0)),
                // A driver without VLANs leaves functions in none.
                functions.vlan.map_or(needs_vlan, |vlan| vlan != 0),
            ),
            (
                VfInfo::SpoofCheck(VfInfoSpoofCheck::new(number, check.unwrap_or(true))),
                check.is_some(),
            ),
            (VfInfo::Trust(VfInfoTrust::new(number, trust.unwrap_or(false))), trust.is_some()),
        ];
        Self { number, settings }
    }

    /// Applies the settings by the driver of the card `index`. Returns true if the card gives the
    /// function its address. An error names the setting that the driver rejected, or accepted
    /// without applying it.
    pub(super) fn set(&self, netlink: &Netlink, index: u32) -> io::Result<bool> {
        let mut applied = Vec::new();
        for (wanted, is_needed) in &self.settings {
            match netlink.set_virtual_function(index, wanted.clone()) {
                Ok(()) => applied.push(wanted),
                Err(error) if !is_needed && is_unsupported(&error) => {}
                Err(error) => return Err(refused(wanted, &error)),
            }
        }
        let functions = netlink.virtual_functions(index)?;
        let reported = functions.get(self.number as usize).map_or(&[][..], Vec::as_slice);
        applied.iter().try_for_each(|wanted| is_taken(wanted, reported))?;
        Ok(applied.iter().any(|setting| matches!(setting, VfInfo::Mac(_))))
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::OPNOTSUPP)
}

/// Describes a setting in the words of topology files and of ip-link(8).
fn describe(setting: &VfInfo) -> String {
    let on = |enabled| if enabled { "on" } else { "off" };
    match setting {
        VfInfo::Mac(VfInfoMac { mac: [a, b, c, d, e, f, ..], .. }) => {
            format!("MAC address {}", MacAddr([*a, *b, *c, *d, *e, *f]))
        }
        VfInfo::Vlan(vlan) => format!("VLAN {}", vlan.vlan_id),
        VfInfo::SpoofCheck(check) => format!("spoof check {}", on(check.enabled)),
        VfInfo::Trust(trust) => format!("trust {}", on(trust.enabled)),
        other => format!("{other:?}"),
    }
}

fn refused(wanted: &VfInfo, error: &io::Error) -> io::Error {
    let wanted = describe(wanted);
    let what = match is_unsupported(error) {
        true => format!("{wanted}: not supported by the card's driver"),
        false => format!("{wanted}: rejected by the card's driver: {error}"),
    };
    io::Error::new(error.kind(), what)
}

/// Fails if the card reports a different value of the setting, or none.
fn is_taken(wanted: &VfInfo, reported: &[VfInfo]) -> io::Result<()> {
    let same = |other: &&VfInfo| std::mem::discriminant(*other) == std::mem::discriminant(wanted);
    let wrong = |what: String| Err(io::Error::other(format!("{}: {what}", describe(wanted))));
    match reported.iter().find(same) {
        Some(other) if other == wanted => Ok(()),
        Some(other) => wrong(format!("the card still reports {}", describe(other))),
        None => wrong("not reported by the card's driver".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_needs_the_settings_that_were_given() {
        let needed = |functions: &Functions, needs_vlan| {
            let vlan = (5, needs_vlan);
            let function = VirtualFunction::new(9, functions, 1, MacAddr::local(7), vlan);
            function.settings.map(|(_, is_needed)| is_needed)
        };
        let macs = vec![MacAddr::local(1)];
        let all = Functions { macs, vlan: Some(5), spoof_check: Some(true), trust: Some(false) };
        assert_eq!(needed(&Functions::default(), false), [false; 4]);
        assert_eq!(needed(&Functions::default(), true), [false, true, false, false]);
        // The list has no address for the second function.
        assert_eq!(needed(&all, false), [false, true, true, true]);
        let in_no_vlan = Functions { vlan: Some(0), ..Functions::default() };
        assert_eq!(needed(&in_no_vlan, true), [false; 4]);
    }

    #[test]
    fn rejected_function_setting_is_named() {
        let settings = |functions: &Functions| {
            let function = VirtualFunction::new(0, functions, 0, MacAddr::local(7), (5, true));
            function.settings.map(|(setting, _)| setting)
        };
        let wanted = settings(&Functions { trust: Some(true), ..Functions::default() });
        let words: Vec<_> = wanted.iter().map(describe).collect();
        let expected = ["MAC address 02:00:00:00:00:07", "VLAN 5", "spoof check on", "trust on"];
        assert_eq!(words, expected);
        let [.., trust] = &wanted;
        let cannot = refused(trust, &Errno::OPNOTSUPP.into()).to_string();
        assert_eq!(cannot, "trust on: not supported by the card's driver");
        let will_not = refused(trust, &Errno::BUSY.into()).to_string();
        assert!(will_not.starts_with("trust on: rejected by the card's driver: "), "{will_not}");

        is_taken(trust, &wanted).unwrap();
        let not_trusted = settings(&Functions::default());
        let error = is_taken(trust, &not_trusted).unwrap_err().to_string();
        assert_eq!(error, "trust on: the card still reports trust off");
        assert!(
            is_taken(trust, &[])
                .unwrap_err()
                .to_string()
                .contains("not reported by the card's driver")
        );
    }
}
