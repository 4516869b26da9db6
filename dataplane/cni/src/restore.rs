//! Ports after a restart of the switch, and what is left of containers that are gone.
//!
//! A switch that is killed loses its descriptors, so its ports are opened again in the containers'
//! namespaces. Two programs can do this. The switch does it at its start, before it gives up its
//! privileges: then ports come back by themselves, with no further program that must run. For a
//! switch without privileges, `dray cni restore` does it. Both read the records of the plugin, which
//! say what each container should have, and skip a container whose namespace they do not see: they
//! may run in a container themselves. Only the plugin, which the runtime starts where namespaces are
//! visible, takes such a container for gone ([`reap`]).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use dray_daemon::Lock;
use dray_switch::PortConfig;

use crate::attachment::{Attachment, end_id, switch_error};
use crate::kind::Kind;
use crate::reply::CniError;
use crate::store::Store;

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
pub fn reopen(store: &Store, control: &Path) -> (Vec<Opened>, Vec<String>) {
    let (mut opened, mut problems) = (Vec::new(), Vec::new());
    each(store, control, &mut problems, |attachment, lock| {
        let descriptors = attachment.open(&store.ends())?;
        opened.push(Opened { port: attachment.port.clone(), descriptors, _lock: lock });
        Ok(())
    });
    (opened, problems)
}

/// Gives the running switch at `control` the ports that containers should have and it lacks.
pub fn restore(store: &Store, control: &Path) -> Restored {
    let mut restored = Restored::default();
    let Restored { added, problems } = &mut restored;
    each(store, control, problems, |attachment, _lock| {
        if !attachment.has_port().map_err(|error| switch_error(&error))? {
            attachment.restore_port(&attachment.open(&store.ends())?)?;
            added.push(attachment.port.clone());
        }
        Ok(())
    });
    restored
}

/// Removes what is left of containers that are gone. An open port keeps a network namespace alive
/// that no container uses any more.
pub(crate) fn reap(store: &Store) {
    for key in store.keys().unwrap_or_default() {
        let is_gone = || {
            let attachment = store.load(&key).ok().flatten().filter(Attachment::is_gone)?;
            // An engine creates the container's namespace after its interface.
            let is_coming = attachment.is_moved && store.age(&key) < START_MAX;
            (!is_coming).then_some(attachment)
        };
        if is_gone().is_none() {
            continue;
        }
        if let Ok(Some(_lock)) = store.try_lock(&key)
            && let Some(attachment) = is_gone()
        {
            // If the switch does not reply, a later request tries again.
            let _ = forget(store, &attachment);
        }
    }
}

/// Maximum time until a container exists whose interface an engine has asked for.
const START_MAX: Duration = Duration::from_secs(60);

/// Removes an attachment and its record.
pub(crate) fn forget(store: &Store, attachment: &Attachment) -> Result<(), CniError> {
    attachment.detach()?;
    forget_detached(store, attachment)
}

/// Removes an attachment whose port is removed, and its record.
pub(crate) fn forget_detached(store: &Store, attachment: &Attachment) -> Result<(), CniError> {
    attachment.release(&store.ends())?;
    let key = attachment.key();
    store.remove(&key).map_err(|error| CniError::io(&key, &error))
}

/// Calls `work` for each record of the switch at `control` that no other process works on: a request
/// in progress adds or removes its port itself.
fn each(
    store: &Store,
    control: &Path,
    problems: &mut Vec<String>,
    mut work: impl FnMut(&Attachment, Lock) -> Result<(), CniError>,
) {
    let keys = store.keys().unwrap_or_else(|error| {
        problems.push(error.to_string());
        Vec::new()
    });
    for key in keys {
        let done = |work: &mut dyn FnMut(&Attachment, Lock) -> Result<(), CniError>| {
            let Some(lock) = store.try_lock(&key)? else { return Ok(()) };
            let Some(attachment) = store.load(&key)? else { return Ok(()) };
            if attachment.control != control {
                return Ok(());
            }
            work(&attachment, lock).map_err(|error| {
                if attachment.kind == Kind::Tap {
                    store.ends().shut(end_id(&key));
                }
                io::Error::other(error.msg)
            })
        };
        if let Err(error) = done(&mut work) {
            problems.push(format!("{key}: {error}"));
        }
    }
}
