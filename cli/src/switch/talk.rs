//! Client of the switch for the commands that talk to a running one.

use dray_switch::client::Client;
use dray_switch::config::CONTROL;

use crate::common::Failure;
use crate::control::Control;

/// Returns a client of the switch that the options select.
pub(super) fn client(control: &Control) -> Result<Client, Failure> {
    Ok(Client::new(&control.socket(CONTROL, "dray switch")?))
}
