//! The echo: every IPv4/UDP frame goes back to where it came from, its addresses swapped.

use dray_port::{BATCH_MAX, Batch, Transmit};
use dray_wire::{FRAME_MAX, headers};

use crate::intake::{Intake, Progress};
use crate::{EchoJob, ForwardReport, OnSample, RoleError, Signal};

/// An echo with its port open.
pub struct Echo {
    job: EchoJob,
    intake: Intake,
    out: Box<dyn Transmit>,
}

impl Echo {
    /// Opens the port.
    pub fn open(job: EchoJob) -> Result<Self, RoleError> {
        RoleError::check_transmits(&job.port)?;
        let port = job.port.open()?;
        Ok(Self { intake: Intake::new(vec![(job.port.clone(), port.rx)]), out: port.tx, job })
    }

    /// Sends back until `signal` ends it. What is not an IPv4/UDP frame is dropped and counted.
    pub fn run(
        mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ForwardReport, RoleError> {
        let mut report = ForwardReport::default();
        // A lent frame is not ours to change.
        let mut replies: Vec<Vec<u8>> =
            (0..BATCH_MAX).map(|_| Vec::with_capacity(FRAME_MAX)).collect();
        let (port, out) = (&self.job.port, &mut self.out);
        let samples = self.intake.serve(self.job.interval, signal, on_sample, |intake| {
            let received = intake.receive(0)?;
            report.received += received.len() as u64;
            report.bytes += received.iter().map(|frame| frame.len() as u64).sum::<u64>();
            let mut batch = Batch::new();
            let echoed = received.iter().filter(|frame| headers::udp_payload(frame).is_some());
            for (frame, reply) in echoed.zip(&mut replies) {
                reply.clear();
                reply.extend_from_slice(frame);
                headers::swap_addresses(reply);
                batch.push(reply.as_slice());
            }
            report.transmitted += out.transmit(&batch).map_err(RoleError::port(port))? as u64;
            let worked = !received.is_empty();
            Ok(Progress { frames: report.received, bytes: report.bytes, worked })
        })?;
        report.refused = report.received - report.transmitted;
        report.dropped = self.intake.dropped()?;
        report.samples = samples;
        Ok(report)
    }
}
