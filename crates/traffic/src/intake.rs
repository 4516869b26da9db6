//! The ports that a role receives from, and how it sleeps when none of them has a frame.

use dray_port::{Batch, PortUri, Receive, Wait, wait_any};

use crate::RoleError;

/// One or several receiving halves. A single one waits by itself, as its URI says; several are
/// polled in turn, and where all of them may block, they sleep together.
pub(crate) struct Intake {
    ports: Vec<(PortUri, Box<dyn Receive>)>,
    sleep_together: bool,
}

impl Intake {
    pub(crate) fn new(mut ports: Vec<(PortUri, Box<dyn Receive>)>) -> Self {
        let several = ports.len() > 1;
        if several {
            for (uri, rx) in &mut ports {
                if uri.wait() == Wait::Block {
                    rx.set_wait(Wait::Poll { pause_us: 0 });
                }
            }
        }
        let sleep_together = several && ports.iter().all(|(uri, _)| uri.wait() == Wait::Block);
        Self { ports, sleep_together }
    }

    pub(crate) fn len(&self) -> usize {
        self.ports.len()
    }

    /// Lends what the port has.
    #[inline]
    pub(crate) fn receive(&mut self, index: usize) -> Result<Batch<'_>, RoleError> {
        let (uri, rx) = &mut self.ports[index];
        let mut batch = Batch::new();
        rx.receive(&mut batch).map_err(RoleError::port(uri))?;
        Ok(batch)
    }

    /// To be called after a round over all ports that found no frame.
    pub(crate) fn idle(&self) -> Result<(), RoleError> {
        if self.sleep_together {
            let (uri, _) = &self.ports[0];
            wait_any(self.ports.iter().map(|(_, rx)| &**rx)).map_err(RoleError::port(uri))?;
        }
        Ok(())
    }

    /// Frames that the ports dropped so far because they were not received in time.
    pub(crate) fn dropped(&self) -> Result<u64, RoleError> {
        let of =
            |(uri, rx): &(PortUri, Box<dyn Receive>)| rx.dropped().map_err(RoleError::port(uri));
        self.ports.iter().map(of).sum()
    }
}
