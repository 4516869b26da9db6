//! A network card whose virtual functions a lab uses, and the record by which they are given back.

use std::cell::Cell;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::LabError;
use crate::host::pci_function;
use crate::process::PeerDir;

/// Prefix of the names of card records; the card's name follows.
const RECORD: &str = "card-";

/// A card whose virtual functions were created here. Dropping it removes them; for a killed run, a
/// record in the peers' directory has the same effect.
#[derive(Debug)]
pub(crate) struct Card {
    pub(super) name: String,
    /// Number of functions, and of those that links have taken.
    count: usize,
    taken: Cell<usize>,
    record: PathBuf,
    /// Keeps the directory of the record.
    _dir: PeerDir,
}

pub(super) fn no_card(what: String) -> LabError {
    LabError::NoCard { what }
}

impl Card {
    /// Creates `count` virtual functions, without drivers, on the card `name`, which has none yet.
    pub(crate) fn create(dir: PeerDir, name: &str, count: usize) -> Result<Self, LabError> {
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
        let (name, taken) = (name.to_owned(), Cell::new(0));
        let card = Self { name, count, taken, record, _dir: dir };
        let name = &card.name;
        write(name, "sriov_drivers_autoprobe", "0").map_err(doing("drivers"))?;
        let made = write(name, "sriov_numvfs", &count.to_string());
        made.map_err(doing("virtual functions"))?;
        Ok(card)
    }

    /// Returns the numbers of the next `count` functions.
    pub(super) fn take(&self, count: usize) -> Range<usize> {
        let taken = self.taken.get();
        assert!(taken + count <= self.count, "the links' functions have been counted");
        self.taken.set(taken + count);
        taken..taken + count
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// Starts the driver of virtual function `number`: `driver`, or that of its network interface.
    pub(super) fn start_driver(&self, number: usize, driver: Option<&str>) -> io::Result<()> {
        let function = fs::canonicalize(self.function(number))?;
        if let Some(driver) = driver {
            fs::write(function.join("driver_override"), driver)?;
        }
        fs::write("/sys/bus/pci/drivers_probe", bus_address(&function))
    }

    /// Stops the driver of virtual function `number`.
    pub(super) fn stop_driver(&self, number: usize) -> io::Result<()> {
        let function = fs::canonicalize(self.function(number))?;
        fs::write(function.join("driver/unbind"), bus_address(&function))
    }

    /// Bus address of virtual function `number`.
    pub(super) fn address(&self, number: usize) -> io::Result<String> {
        Ok(bus_address(&fs::canonicalize(self.function(number))?))
    }

    /// Folder of virtual function `number`.
    pub(super) fn function(&self, number: usize) -> PathBuf {
        device(&self.name).join(format!("virtfn{number}"))
    }

    /// Folder of the interface of virtual function `number`, once its driver has made it.
    pub(super) fn interface(&self, number: usize) -> Option<PathBuf> {
        let function = self.function(number);
        // A virtio driver makes the interface for a device of its own below the function.
        let below = fs::read_dir(&function).into_iter().flatten().flatten();
        let devices =
            below.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"virtio"));
        let mut devices = devices.map(|entry| entry.path()).chain([function]);
        devices.find_map(|device| first(&device.join("net")))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        if let Err(error) = restore(&self.record) {
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
pub(crate) fn restore_all(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(RECORD) {
            restore(&entry.path())?;
        }
    }
    Ok(())
}

fn restore(record: &Path) -> io::Result<()> {
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

/// Returns the folder of the card's PCI function.
fn device(card: &str) -> PathBuf {
    let device = Path::new("/sys/class/net").join(card).join("device");
    fs::canonicalize(&device).map_or(device, pci_function)
}

fn bus_address(function: &Path) -> String {
    function.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns an entry of a directory.
fn first(directory: &Path) -> Option<PathBuf> {
    Some(fs::read_dir(directory).ok()?.next()?.ok()?.path())
}

fn number(card: &str, file: &str) -> Option<usize> {
    fs::read_to_string(device(card).join(file)).ok()?.trim().parse().ok()
}

pub(super) fn write(card: &str, file: &str, value: &str) -> io::Result<()> {
    fs::write(device(card).join(file), value)
}
