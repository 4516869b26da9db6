//! The echo: sends every IPv4/UDP frame back to its sender, with the addresses swapped.

use dray_port::{BATCH_MAX, Batch, Frame, Transmit};
use dray_wire::{FRAME_MAX, flow};

use crate::forwarder::{pass, transmit};
use crate::links::{Links, OpenPort};
use crate::receive_queues::{Progress, ReceiveQueues};
use crate::{EchoJob, ForwardReport, OnSample, RoleError, Signal};

/// An echo with its port open.
pub struct Echo {
    job: EchoJob,
    rx_queues: ReceiveQueues,
    out: Vec<Box<dyn Transmit>>,
    pub(crate) links: Links,
}

impl Echo {
    /// Opens the port.
    pub fn open(job: EchoJob, open: &OpenPort<'_>) -> Result<Self, RoleError> {
        RoleError::check_transmits(&job.port)?;
        let mut links = Links::default();
        let port = links.open(&job.port, open)?;
        Ok(Self {
            rx_queues: ReceiveQueues::new(vec![(job.port.clone(), port.rx)], job.yielding),
            out: port.tx,
            links,
            job,
        })
    }

    /// Returns the queues through which the echo transmits.
    pub(crate) fn outputs(&mut self) -> impl Iterator<Item = &mut dyn Transmit> {
        self.out.iter_mut().map(|tx| &mut **tx as &mut dyn Transmit)
    }

    /// Sends frames back until `signal` ends it. Drops and counts frames that are not IPv4/UDP.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ForwardReport, RoleError> {
        let mut report = ForwardReport::default();
        // A lent frame must not be modified, so replies are built in copies.
        let mut replies: Vec<Vec<u8>> =
            (0..BATCH_MAX).map(|_| Vec::with_capacity(FRAME_MAX)).collect();
        let mut scratch = dray_port::scratch();
        let (port, out) = (&self.job.port, &mut self.out[0]);
        let (samples, arrivals) =
            self.rx_queues.serve(self.job.interval, signal, on_sample, |rx_queues| {
                let worked = pass(rx_queues, 0, port, &mut report, |frames| {
                    let mut batch = Batch::new();
                    let mut replies = replies.iter_mut();
                    for frame in frames {
                        let frame = frame.bytes(&mut scratch);
                        if flow::udp_payload(frame).is_none() {
                            continue;
                        }
                        let reply = replies.next().expect("one for each frame of a batch");
                        reply.clear();
                        reply.extend_from_slice(frame);
                        flow::swap_addresses(reply);
                        batch.push(Frame::from(reply.as_slice()));
                    }
                    transmit(&mut **out, &batch)
                })?;
                Ok(Progress { frames: report.received, bytes: report.bytes, worked })
            })?;
        report.refused = report.received - report.transmitted;
        report.dropped = self.rx_queues.dropped()?;
        (report.samples, report.arrivals) = (samples, arrivals);
        Ok(report)
    }
}
