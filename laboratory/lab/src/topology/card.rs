//! Checks a network card and its virtual functions in a topology file.

use dray_wire::MacAddr;
use toml::Spanned;

use super::file::{self, Wrong, at};
use crate::LinkKind;
use crate::link::Functions;

/// 0 = no VLAN; 4095 is reserved (IEEE 802.1Q, table 9-2).
const VLANS: std::ops::RangeInclusive<u16> = 0..=4094;

/// Checks and returns the settings of a link's virtual functions; the defaults if none are given.
pub(super) fn check(link: &file::Link, kind: LinkKind) -> Result<Functions, Wrong> {
    match &link.parent {
        None if kind.needs_card() => {
            let what = format!(
                "a {kind} link needs parent = \"INTERFACE\": the network card whose virtual functions \
                 its ends get"
            );
            return Err(at(&link.kind, what));
        }
        Some(parent) if !kind.needs_card() => {
            let what = format!("parent: a {kind} link has no network card; leave it out");
            return Err(at(parent, what));
        }
        _ => {}
    }
    let Some(written) = &link.functions else { return Ok(Functions::default()) };
    if !kind.needs_card() {
        let what = format!("functions: a {kind} link has no virtual functions; leave it out");
        return Err(at(written, what));
    }
    let functions = written.get_ref();
    if let Some(vlan) = functions.vlan.as_ref().filter(|vlan| !VLANS.contains(vlan.get_ref())) {
        let (given, first, last) = (vlan.get_ref(), VLANS.start(), VLANS.end());
        return Err(at(vlan, format!("vlan = {given}: give {first} (untagged) to {last}")));
    }
    Ok(Functions {
        macs: check_macs(link, functions.macs.as_ref())?,
        vlan: functions.vlan.as_ref().map(|vlan| *vlan.get_ref()),
        spoof_check: functions.spoof_check,
        trust: functions.trust,
    })
}

/// Returns a MAC address for each end; empty if the file gives none.
fn check_macs(
    link: &file::Link,
    macs: Option<&Spanned<Vec<Spanned<String>>>>,
) -> Result<Vec<MacAddr>, Wrong> {
    let Some(macs) = macs else { return Ok(Vec::new()) };
    let (given, count) = (macs.get_ref().len(), link.ends.get_ref().len());
    if given != count {
        let what = format!("macs: {given} given for {count} ends; give one for each");
        return Err(at(macs, what));
    }
    let mut checked = Vec::new();
    for text in macs.get_ref() {
        let mac = text.get_ref().parse();
        let mac: MacAddr =
            mac.map_err(|error: dray_wire::ParseMacError| at(text, error.to_string()))?;
        let wrong = |what: &str| Err(at(text, format!("MAC address {mac}: {what}")));
        if !mac.is_station() {
            return wrong("not a unicast address; give one such as 02:00:00:00:00:01");
        }
        if checked.contains(&mac) {
            return wrong("used by two ends; give each its own");
        }
        checked.push(mac);
    }
    Ok(checked)
}
