//! Ports after a restart of the switch, and what is left of containers that are gone.
//!
//! A switch that is killed loses its descriptors, so its ports are opened again in the containers'
//! namespaces. Two programs can do this. The switch does it at its start, before it gives up its
//! privileges: then ports come back by themselves, with no further program that must run. For a
//! switch without privileges, `dray cni restore` does it. Both read the records of the plugin,
//! which say what each container should have, and skip a container whose namespace they do not see:
//! they may run in a container themselves. Only the plugin, which the runtime starts where
//! namespaces are visible, takes such a container for gone ([`reap`]).

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use dray_socket::Lock;
use dray_switch::PortConfig;

use crate::attachment::{Attachment, end_id, switch_error};
use crate::kind::Kind;
use crate::records::Records;
use crate::reply::CniError;

/// A port that has been opened in its container's namespace, for the switch to add.
pub struct Opened {
    /// The port.
    pub port: PortConfig,
    /// File descriptors of the port.
    pub descriptors: Vec<OwnedFd>,
    /// Keeps the plugin from changing the attachment until the switch has the port.
    _lock: Lock,
}

/// Outcome of [`restore`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Ports that the switch has again.
    pub added: Vec<PortConfig>,
    /// Errors, each with the attachment that it concerns.
    pub problems: Vec<String>,
}

/// Opens the ports of the switch at `control` that containers should have. A second value says what
/// could not be opened, and why.
pub fn reopen(records: &Records, control: &Path) -> (Vec<Opened>, Vec<String>) {
    let (mut opened, mut problems) = (Vec::new(), Vec::new());
    each(records, control, &mut problems, |attachment, lock| {
        let descriptors = attachment.open(&records.ends())?;
        opened.push(Opened { port: attachment.port.clone(), descriptors, _lock: lock });
        Ok(())
    });
    (opened, problems)
}

/// Gives the running switch at `control` the ports that containers should have and it lacks.
pub fn restore(records: &Records, control: &Path) -> Restored {
    let mut restored = Restored::default();
    let Restored { added, problems } = &mut restored;
    each(records, control, problems, |attachment, _lock| {
        if !attachment.has_port().map_err(|error| switch_error(&error))? {
            attachment.restore_port(&attachment.open(&records.ends())?)?;
            added.push(attachment.port.clone());
        }
        Ok(())
    });
    restored
}

/// Removes what is left of containers that are gone, and unfinished records. An open port keeps a
/// network namespace alive that no container uses any more.
pub(crate) fn reap(records: &Records) {
    for key in records.keys().unwrap_or_default() {
        let is_left = |attachment: &Option<Attachment>| {
            attachment.as_ref().is_none_or(|attachment| {
                // An engine creates the container's namespace after its interface.
                let is_coming = attachment.is_moved && records.age(&key) < START_MAX;
                attachment.is_gone() && !is_coming
            })
        };
        let left = || records.load(&key).ok().filter(is_left);
        if left().is_none() {
            continue;
        }
        if let Ok(Some(_lock)) = records.try_lock(&key)
            && let Some(attachment) = left()
        {
            // If the switch does not reply, a later request tries again.
            let _ = match attachment {
                Some(attachment) => forget(records, &attachment),
                None => records.remove(&key),
            };
        }
    }
}

/// Maximum time until a container exists whose interface an engine has asked for.
const START_MAX: Duration = Duration::from_secs(60);

/// Creates an attachment by `create`, in place of an earlier one with its key, which a request left
/// that was killed or is repeated. `undo` reverts what `create` does besides the attachment.
pub(crate) fn replace<T>(
    records: &Records,
    attachment: &Attachment,
    create: impl FnOnce() -> Result<T, CniError>,
    undo: impl Fn() -> Result<(), CniError>,
) -> Result<T, CniError> {
    let key = attachment.key();
    let _lock = records.lock(&key)?;
    if let Some(old) = records.load(&key)? {
        undo()?;
        forget(records, &old)?;
    }
    records.save(attachment)?;
    let created = create();
    if created.is_err() {
        // The first error is the one to report.
        let _ = undo();
        let _ = forget(records, attachment);
    }
    created
}

/// Removes an attachment and its record.
pub(crate) fn forget(records: &Records, attachment: &Attachment) -> Result<(), CniError> {
    attachment.detach()?;
    forget_detached(records, attachment)
}

/// Removes an attachment whose port is removed, and its record.
pub(crate) fn forget_detached(records: &Records, attachment: &Attachment) -> Result<(), CniError> {
    attachment.release(&records.ends())?;
    records.remove(&attachment.key())
}

/// Calls `work` for each record of the switch at `control` that no other process works on: a
/// request in progress adds or removes its port itself.
fn each(
    records: &Records,
    control: &Path,
    problems: &mut Vec<String>,
    mut work: impl FnMut(&Attachment, Lock) -> Result<(), CniError>,
) {
    let keys = records.keys().unwrap_or_else(|error| {
        problems.push(error.to_string());
        Vec::new()
    });
    for key in keys {
        let done = |work: &mut dyn FnMut(&Attachment, Lock) -> Result<(), CniError>| {
            let named = |error: CniError| error.msg;
            let Some(lock) = records.try_lock(&key).map_err(named)? else { return Ok(()) };
            let Some(attachment) = records.load(&key).map_err(named)? else { return Ok(()) };
            if attachment.control != control {
                return Ok(());
            }
            work(&attachment, lock).map_err(|error| {
                if attachment.kind == Kind::Tap {
                    records.ends().shut(end_id(&key));
                }
                format!("{key}: {}", error.msg)
            })
        };
        if let Err(problem) = done(&mut work) {
            problems.push(problem);
        }
    }
}
