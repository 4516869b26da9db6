//! State that the halves of an open port share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::CpuSet;

use super::queues::Pairs;
use crate::session::connection::Connection;
use crate::session::link::Link;
use crate::session::snapshot::Frozen;
use crate::session::status::{LinkState, LinkStatus};

/// State shared by the halves of an open port: the port is closed when the last half is dropped.
pub(super) struct Shared<P> {
    // First field, so that its thread has ended before the queues are dropped.
    pub(super) connection: Connection,
    pub(super) pairs: Arc<P>,
}

impl<P: Pairs> Link for Shared<P> {
    fn status(&self) -> LinkStatus {
        let mut status = self.connection.status();
        if self.pairs.is_running() {
            status.state = LinkState::Running;
        }
        status
    }

    fn move_control(&self, cpus: &CpuSet) {
        self.connection.move_control(cpus);
    }

    fn freeze(&self, timeout: Duration) -> Option<io::Result<Frozen<'_>>> {
        self.connection.freeze(timeout, || self.pairs.messages()).transpose()
    }

    fn changes(&self) -> u64 {
        self.pairs.progress().map_or(0, |progress| progress.changes())
    }

    fn on_change(&self, notify: Box<dyn Fn() + Send + Sync>) {
        self.connection.on_change(notify);
    }

    fn is_down(&self) -> bool {
        !self.pairs.is_running()
    }

    fn on_end(&self, notify: Box<dyn Fn() + Send + Sync>) {
        self.connection.on_end(notify);
    }
}
