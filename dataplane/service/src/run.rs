//! Life of the process of a service.

use std::io;
use std::thread;

use dray_daemon::{FAREWELL, Supervisor};
use dray_datapath::Cancel;
use tracing::error;

use crate::port_log::PortLog;
use crate::service::Service;

/// Prepares the process of a service, before there are ports and threads.
pub fn begin() -> io::Result<()> {
    dray_port::share_heap();
    dray_port::survive_truncation()?;
    dray_daemon::watch_threads();
    dray_daemon::announce_failures();
    dray_socket::refuse_own_sockets();
    Ok(())
}

/// Watches `service` for as long as `goes_on` returns true, which is called many times a second:
/// reports to the supervisor and logs what happens at ports. If a thread dies, the process ends.
pub fn run(
    service: &impl Service,
    supervisor: &mut Supervisor,
    log: &mut PortLog,
    mut goes_on: impl FnMut() -> bool,
) {
    while goes_on() {
        end_if_failed();
        if let Err(why) = supervisor.tend(|| service.check_alive()) {
            error!("{why}");
        }
        log.update(|| service.logged_ports());
        thread::sleep(Cancel::INTERVAL);
    }
    supervisor.stopping();
}

/// Ends the process if a thread has died.
fn end_if_failed() {
    if let Some(why) = dray_daemon::failure() {
        thread::sleep(FAREWELL);
        dray_daemon::exit(why);
    }
}
