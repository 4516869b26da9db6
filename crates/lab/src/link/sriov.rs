//! SR-IOV: virtual functions of one network card, moved into the containers. The card's own switch
//! forwards frames among them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::function::{Functions, VirtualFunction};
use super::{End, Link, LinkKind, LinkOptions, Segment};
use crate::netlink::Netlink;
use crate::process::PeerDir;
use crate::{ContainerId, Lab, LabError, NetworkNamespace};

/// Prefix of the names of card records; the card's name follows.
const RECORD: &str = "card-";
/// Time limit for a driver to create the interface of a function.
const PATIENCE: Duration = Duration::from_secs(10);
/// Polling interval of waits.
const INTERVAL: Duration = Duration::from_millis(5);

/// A card whose virtual functions were created here. Dropping it removes them; for a killed run, a
/// record in the peers' directory has the same effect.
#[derive(Debug)]
struct Card {
    name: String,
    record: PathBuf,
    /// Keeps the directory of the record.
    _dir: PeerDir,
}

pub(super) fn link(
    lab: &mut Lab,
    kind: LinkKind,
    pairs: &[[ContainerId; 2]],
    options: LinkOptions,
) -> Result<Vec<Link>, LabError> {
    let (name, functions) = lab.card().cloned().ok_or_else(|| {
        no_card(
            "give a network card with --parent; containers get its virtual functions".to_owned(),
        )
    })?;
    let dir = lab.dir()?;
    lab.link_interfaces(kind, pairs, options, |segment| {
        let count = segment.ends().count();
        let card = Card::create(dir, &name, count)?;
        card.hand_out(segment, &functions)?;
        Ok(Some(Box::new(card)))
    })
}

fn no_card(what: String) -> LabError {
    LabError::NoCard { what }
}

impl Card {
    /// Creates `count` virtual functions, without drivers, on the card `name`, which has none yet.
    fn create(dir: PeerDir, name: &str, count: usize) -> Result<Self, LabError> {
        let wrong = |what: String| Err(no_card(format!("{name}: {what}")));
        match dray_netdev::Interface::find(name).and_then(|card| card.is_up()) {
            Ok(true) => {}
            Ok(false) => return wrong(format!("interface is down; ip link set {name} up")),
            Err(error) => return wrong(error.to_string()),
        }
        let Some(total) = number(name, "sriov_totalvfs") else {
            return wrong(
                "no virtual functions; they need SR-IOV in the card, its driver and the firmware"
                    .to_owned(),
            );
        };
        if total < count {
            return wrong(format!(
                "{count} virtual functions needed, but the card has at most {total}"
            ));
        }
        match number(name, "sriov_numvfs") {
            Some(0) => {}
            Some(there) => {
                let file = device(name).join("sriov_numvfs");
                let what = "virtual functions exist already and may be in use";
                return wrong(format!(
                    "{there} {what}; to remove them: echo 0 > {}",
                    file.display()
                ));
            }
            None => return wrong("the number of its virtual functions cannot be read".to_owned()),
        }
        let record = dir.join(&format!("{RECORD}{name}"));
        let doing = |what: &str| LabError::doing(format!("{what} of card {name}"));
        fs::write(&record, "").map_err(doing("record"))?;
        let card = Self { name: name.to_owned(), record, _dir: dir };
        write(name, "sriov_drivers_autoprobe", "0").map_err(doing("drivers"))?;
        let made = write(name, "sriov_numvfs", &count.to_string());
        made.map_err(doing("virtual functions"))?;
        Ok(card)
    }

    /// Gives each end a function, which is configured before its driver starts.
    fn hand_out(&self, segment: &Segment<'_>, functions: &Functions) -> Result<(), LabError> {
        let doing = |what: &str| segment.doing(&format!("{what} of card {}", self.name));
        let here = NetworkNamespace::current().map_err(doing("network namespace"))?;
        let netlink = Netlink::open(&here).map_err(doing("network namespace"))?;
        let index = netlink.interface(&self.name).map_err(doing("interface"))?.index;
        // Links may outnumber VLANs, but no card has functions for that many links.
        let own_vlan = 1 + (segment.number - 1) % 4094;
        for (number, end) in segment.ends().enumerate() {
            let function = VirtualFunction {
                number: number as u32,
                mac: functions.macs.get(number).copied().unwrap_or(end.mac),
                vlan: functions.vlan.unwrap_or(own_vlan as u16),
                spoof_check: functions.spoof_check,
                trust: functions.trust,
            };
            let set = function.set(&netlink, index);
            set.map_err(doing(&format!("virtual function {number}")))?;
        }
        write(&self.name, "sriov_drivers_autoprobe", "1").map_err(doing("drivers"))?;
        // Drivers read the address when they start, so they are started only now.
        for number in 0..segment.ends().count() {
            let address = fs::canonicalize(self.function(number)).map_err(doing("bus address"))?;
            let address = address.file_name().unwrap_or_default().as_encoded_bytes();
            let begun = fs::write("/sys/bus/pci/drivers_probe", address);
            begun.map_err(doing("driver of a virtual function"))?;
        }
        for (number, end) in segment.ends().enumerate() {
            self.move_into(segment, &netlink, number, end)?;
        }
        Ok(())
    }

    fn move_into(
        &self,
        segment: &Segment<'_>,
        netlink: &Netlink,
        number: usize,
        end: &End,
    ) -> Result<(), LabError> {
        let doing = |what: &str| segment.doing(&format!("{what} {number} of card {}", self.name));
        let folder = self.function(number).join("net");
        let deadline = Instant::now() + PATIENCE;
        let index = loop {
            // Identified by its index: another program may be about to rename it.
            let entry = fs::read_dir(&folder).ok().and_then(|mut entries| entries.next()?.ok());
            let text =
                entry.and_then(|entry| fs::read_to_string(entry.path().join("ifindex")).ok());
            if let Some(index) = text.and_then(|text| text.trim().parse().ok()) {
                break index;
            }
            if Instant::now() > deadline {
                let what = "virtual functions got no interface; is their driver installed?";
                return Err(no_card(format!("{}: {what}", self.name)));
            }
            segment.lab.cancel().check()?;
            thread::sleep(INTERVAL);
        };
        let container = &segment.lab[end.container];
        let moved = netlink.move_to(index, container.namespace(), end.name());
        moved.map_err(doing("moving virtual function"))?;
        let index = container.netlink().interface(end.name());
        let index = index.map_err(doing("virtual function"))?.index;
        container.netlink().set_mtu(index, segment.mtu).map_err(doing("MTU of virtual function"))
    }

    fn function(&self, number: usize) -> PathBuf {
        device(&self.name).join(format!("virtfn{number}"))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        if let Err(error) = give_back(&self.record) {
            let file = device(&self.name).join("sriov_numvfs");
            eprintln!(
                "dray: card {} could not be restored: {error}; see {}",
                self.name,
                file.display()
            );
        }
    }
}

/// Gives back the cards that have records in a directory.
pub(crate) fn give_back_all(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(RECORD) {
            give_back(&entry.path())?;
        }
    }
    Ok(())
}

fn give_back(record: &Path) -> io::Result<()> {
    let file = record.file_name().unwrap_or_default().to_string_lossy();
    let name = file.strip_prefix(RECORD).unwrap_or_default();
    for (file, value) in [("sriov_numvfs", "0"), ("sriov_drivers_autoprobe", "1")] {
        match write(name, file, value) {
            // The card is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    match fs::remove_file(record) {
        // Another process has cleaned up.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn device(card: &str) -> PathBuf {
    Path::new("/sys/class/net").join(card).join("device")
}

fn number(card: &str, file: &str) -> Option<usize> {
    fs::read_to_string(device(card).join(file)).ok()?.trim().parse().ok()
}

fn write(card: &str, file: &str, value: &str) -> io::Result<()> {
    fs::write(device(card).join(file), value)
}
