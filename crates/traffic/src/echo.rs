//! The echo: every IPv4/UDP frame goes back to where it came from, its addresses swapped.

use dray_port::{BATCH_MAX, Batch, Transmit, clock};
use dray_wire::{FRAME_MAX, headers};

use crate::intake::Intake;
use crate::sample::Sampler;
use crate::signal::Ending;
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
        let mut sampler = Sampler::new(self.job.interval, on_sample);
        let mut ending = Ending::new(signal);
        // A lent frame is not ours to change.
        let mut replies: Vec<Vec<u8>> =
            (0..BATCH_MAX).map(|_| Vec::with_capacity(FRAME_MAX)).collect();
        loop {
            let received = self.intake.receive(0)?;
            let worked = !received.is_empty();
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
            drop(received);
            let taken = self.out.transmit(&batch).map_err(RoleError::port(&self.job.port))?;
            report.transmitted += taken as u64;
            let now = clock::ticks();
            sampler.poll(now, report.received, report.bytes);
            if !ending.go_on(now, worked) {
                break;
            }
        }
        report.refused = report.received - report.transmitted;
        report.dropped = self.intake.dropped()?;
        report.samples = sampler.finish(report.received, report.bytes);
        Ok(report)
    }
}
