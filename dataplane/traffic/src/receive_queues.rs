//! The ports from which a role receives, and the loop around them.

use std::time::Duration;

use dray_datapath::Arrivals;
use dray_port::{PATIENCE, PortUri, Receive, Take, Wait, clock, wait_any};

use crate::sample::Sampler;
use crate::signal::Ending;
use crate::{OnSample, RoleError, Sample, Signal};

/// Time between rounds over the ports until the start time of the sender is known.
const UNTIL_BEGUN: Duration = Duration::from_millis(1);

/// One or several receive queues. A single one waits as its URI says; several are polled in turn,
/// and if all of them may block, the role sleeps on all of them together.
pub(crate) struct ReceiveQueues {
    ports: Vec<(PortUri, Box<dyn Receive>)>,
    sleep_together: bool,
    /// True if another role shares this CPU: yield to it while there is nothing to do.
    yielding: bool,
}

/// Progress of a role after a round over its ports.
pub(crate) struct Progress {
    /// Frames counted so far.
    pub(crate) frames: u64,
    /// Bytes of these frames.
    pub(crate) bytes: u64,
    /// True if this round found a frame of any kind.
    pub(crate) worked: bool,
}

impl ReceiveQueues {
    /// Creates them from all queues of `ports`, in their order.
    pub(crate) fn new(ports: Vec<(PortUri, Vec<Box<dyn Receive>>)>, yielding: bool) -> Self {
        let queues =
            |(uri, queues): (PortUri, Vec<_>)| queues.into_iter().map(move |rx| (uri.clone(), rx));
        let mut ports: Vec<(PortUri, Box<dyn Receive>)> =
            ports.into_iter().flat_map(queues).collect();
        let several = ports.len() > 1;
        if several {
            for (uri, rx) in &mut ports {
                if uri.wait() == Wait::Block {
                    rx.set_wait(Wait::Poll { pause_us: 0 });
                }
            }
        }
        let sleep_together = several && ports.iter().all(|(uri, _)| uri.wait() == Wait::Block);
        Self { ports, sleep_together, yielding }
    }

    pub(crate) fn len(&self) -> usize {
        self.ports.len()
    }

    /// Lends the frames in the port to `take`; returns their number.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        index: usize,
        take: &mut Take<'_>,
    ) -> Result<usize, RoleError> {
        let (uri, rx) = &mut self.ports[index];
        rx.receive(take).map_err(RoleError::port(uri))
    }

    /// Calls `round` repeatedly until `signal` ends the role; returns the samples taken meanwhile
    /// and the rate of arrivals.
    pub(crate) fn serve(
        &mut self,
        interval: Duration,
        signal: &Signal,
        on_sample: Option<OnSample>,
        mut round: impl FnMut(&mut Self) -> Result<Progress, RoleError>,
    ) -> Result<(Vec<Sample>, Arrivals), RoleError> {
        let mut sampler = Sampler::new(interval, on_sample);
        let mut ending = Ending::new(signal);
        sampler.worked(0);
        let mut from = clock::ticks();
        loop {
            let Progress { frames, bytes, worked } = round(self)?;
            let now = clock::ticks();
            if worked {
                sampler.worked(now - from);
            }
            from = now;
            sampler.poll(now, frames, bytes);
            if !ending.continues(now, worked) {
                let arrivals = sampler.arrivals();
                return Ok((sampler.finish(frames, bytes), arrivals));
            }
            if !worked && !signal.begun() {
                // Other roles that are not ready yet need the CPU.
                std::thread::sleep(UNTIL_BEGUN);
                from = clock::ticks();
            } else if !worked && self.idle()? {
                from = clock::ticks();
            }
        }
    }

    /// Called after a round over all ports that found no frame: leaves the CPU to others, if
    /// allowed. Returns true if it did.
    pub(crate) fn idle(&mut self) -> Result<bool, RoleError> {
        if self.sleep_together {
            let mut ports: Vec<&mut dyn Receive> =
                self.ports.iter_mut().map(|(_, rx)| &mut **rx as &mut dyn Receive).collect();
            let slept = wait_any(&mut ports, PATIENCE);
            slept.map_err(RoleError::port(&self.ports[0].0))?;
        } else if self.yielding {
            std::thread::yield_now();
        }
        Ok(self.sleep_together || self.yielding)
    }

    /// Returns the number of frames that the ports dropped because they were not received in time.
    pub(crate) fn dropped(&self) -> Result<u64, RoleError> {
        let of =
            |(uri, rx): &(PortUri, Box<dyn Receive>)| rx.dropped().map_err(RoleError::port(uri));
        self.ports.iter().map(of).sum()
    }
}
