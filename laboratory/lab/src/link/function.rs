//! Settings of a virtual function of a network card: requested from the card's driver, and read
//! back.

use std::io;

use dray_wire::MacAddr;
use netlink_packet_route::link::{VfInfo, VfInfoMac, VfInfoSpoofCheck, VfInfoTrust, VfInfoVlan};
use rustix::io::Errno;

use crate::netlink::Netlink;

/// Settings for the virtual functions at a link's ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Functions {
    /// MAC addresses, in the order of the ends. Ends beyond the list get addresses of the lab.
    pub macs: Vec<MacAddr>,
    /// VLAN that the card puts the functions in, 0 for none; `None` for a VLAN of the link's own.
    pub vlan: Option<u16>,
    /// True if the card drops frames sent from other addresses.
    pub spoof_check: bool,
    /// True if the user of a function may change its address and receive all frames.
    pub trust: bool,
}

impl Default for Functions {
    fn default() -> Self {
        Self { macs: Vec::new(), vlan: None, spoof_check: true, trust: false }
    }
}

/// Settings of one virtual function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VirtualFunction {
    /// Number of the function on the card.
    pub(super) number: u32,
    pub(super) mac: MacAddr,
    /// VLAN; 0 for none.
    pub(super) vlan: u16,
    pub(super) spoof_check: bool,
    pub(super) trust: bool,
}

impl VirtualFunction {
    /// Applies the settings by the driver of the card `index`. An error names the setting that the
    /// driver rejected, or accepted without applying it.
    pub(super) fn set(&self, netlink: &Netlink, index: u32) -> io::Result<()> {
        for wanted in self.settings() {
            // A driver that does not know trust grants none.
            if matches!(&wanted, VfInfo::Trust(trust) if !trust.enabled) {
                continue;
            }
            let set = netlink.set_virtual_function(index, wanted.clone());
            set.map_err(|error| refused(&wanted, &error))?;
        }
        let functions = netlink.virtual_functions(index)?;
        let reported = functions.get(self.number as usize).map_or(&[][..], Vec::as_slice);
        self.settings().iter().try_for_each(|wanted| is_taken(wanted, reported))
    }

    fn settings(&self) -> [VfInfo; 4] {
        let number = self.number;
        [
            VfInfo::Mac(VfInfoMac::new(number, &self.mac.0)),
            VfInfo::Vlan(VfInfoVlan::new(number, self.vlan.into(), 0)),
            VfInfo::SpoofCheck(VfInfoSpoofCheck::new(number, self.spoof_check)),
            VfInfo::Trust(VfInfoTrust::new(number, self.trust)),
        ]
    }
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
    let what = match Errno::from_io_error(error) {
        Some(Errno::OPNOTSUPP) => format!("{wanted}: not supported by the card's driver"),
        _ => format!("{wanted}: rejected by the card's driver: {error}"),
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
    fn rejected_function_setting_is_named() {
        let function = VirtualFunction {
            number: 3,
            mac: MacAddr::local(7),
            vlan: 5,
            spoof_check: true,
            trust: true,
        };
        let wanted = function.settings();
        let words: Vec<_> = wanted.iter().map(describe).collect();
        let expected = ["MAC address 02:00:00:00:00:07", "VLAN 5", "spoof check on", "trust on"];
        assert_eq!(words, expected);
        let [.., trust] = &wanted;
        let cannot = refused(trust, &Errno::OPNOTSUPP.into()).to_string();
        assert_eq!(cannot, "trust on: not supported by the card's driver");
        let will_not = refused(trust, &Errno::BUSY.into()).to_string();
        assert!(will_not.starts_with("trust on: rejected by the card's driver: "), "{will_not}");

        is_taken(trust, &wanted).unwrap();
        let not_trusted = VirtualFunction { trust: false, ..function }.settings();
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
