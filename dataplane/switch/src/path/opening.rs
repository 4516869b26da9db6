//! Opening ports.

use std::collections::HashMap;

use dray_port::{Bound, OpenError, Port};

use crate::config::{Name, PortConfig};
use crate::error::SwitchError;

/// Ports of a configuration, some of which are open.
pub(super) struct Opening<'c> {
    bound: HashMap<&'c Name, Bound<'c>>,
    open: HashMap<&'c Name, Port>,
}

impl<'c> Opening<'c> {
    /// Does for `ports` all that needs privileges: binds sockets, whose owners are set, and opens
    /// uplinks.
    pub(super) fn new(ports: &'c [PortConfig]) -> Result<Self, SwitchError> {
        let mut opening = Self { bound: HashMap::new(), open: HashMap::new() };
        // Sockets first: a socket in use is an error before any interface is touched.
        for port in ports {
            let bound = port.uri.bind().map_err(|error| refused(&error))?;
            opening.bound.insert(&port.name, bound);
        }
        for port in ports.iter().filter(|port| !port.uri.is_local()) {
            if let Some(opened) = opening.open(&port.name)? {
                opening.open.insert(&port.name, opened);
            }
        }
        Ok(opening)
    }

    /// Opens a port that is not open yet, and returns it.
    pub(super) fn open(&mut self, name: &Name) -> Result<Option<Port>, SwitchError> {
        match self.bound.remove(name) {
            Some(bound) => bound.open_offloading().map(Some).map_err(|error| refused(&error)),
            None => Ok(self.open.remove(name)),
        }
    }
}

/// Opens a port with the offloads that the switch handles.
pub(super) fn open_port(config: &PortConfig) -> Result<Port, SwitchError> {
    config.uri.open_offloading().map_err(|error| refused(&error))
}

pub(super) fn refused(error: &OpenError) -> SwitchError {
    let is_outside = dray_sandbox::is_entered() && (error.is_denied() || error.is_not_found());
    let hint = if is_outside {
        "; the sandbox allows sockets only in /run/dray and in the directories of the control \
         socket and of the ports given when the switch started, and abstract sockets of peers only \
         if one of those ports has one"
    } else {
        ""
    };
    SwitchError::Open(format!("{error}{hint}"))
}

/// Checks that a port can be opened, and is no tool for tests, if this process is in a sandbox.
pub(super) fn check_sandbox(config: &PortConfig) -> Result<(), SwitchError> {
    let uri = || config.uri.to_string();
    match dray_sandbox::is_entered() {
        true if !config.uri.is_local() => Err(SwitchError::Sandboxed { uri: uri() }),
        true if config.uri.is_impaired() => Err(SwitchError::TestTool { uri: uri() }),
        _ => Ok(()),
    }
}
