//! The echo: sends every IPv4/UDP frame back to its sender, with the addresses swapped.

use dray_port::{BATCH_MAX, Batch, Frame, Transmit};
use dray_wire::{FRAME_MAX, flow};

use crate::intake::{Intake, Progress};
use crate::links::{Links, OpenPort};
use crate::{EchoJob, ForwardReport, OnSample, RoleError, Signal};

/// An echo with its port open.
pub struct Echo {
    job: EchoJob,
    intake: Intake,
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
            intake: Intake::new(vec![(job.port.clone(), port.rx)], job.yielding),
            out: port.tx,
            links,
            job,
        })
    }

    /// Returns the queues through which the echo transmits.
    pub(crate) fn lanes(&mut self) -> impl Iterator<Item = &mut dyn Transmit> {
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
            self.intake.serve(self.job.interval, signal, on_sample, |intake| {
                let mut failure = None;
                let lent = intake.receive(0, &mut |frames| {
                    report.received += frames.len() as u64;
                    report.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
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
                    match out.transmit(&batch) {
                        Ok(taken) => {
                            let lost = out.lost().of_call().len();
                            report.transmitted += (taken - lost) as u64;
                        }
                        Err(error) => failure = Some(error),
                    }
                    frames.len()
                })?;
                if let Some(error) = failure {
                    return Err(RoleError::port(port)(error));
                }
                let worked = lent > 0;
                Ok(Progress { frames: report.received, bytes: report.bytes, worked })
            })?;
        report.refused = report.received - report.transmitted;
        report.dropped = self.intake.dropped()?;
        (report.samples, report.arrivals) = (samples, arrivals);
        Ok(report)
    }
}
