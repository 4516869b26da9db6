//! The forwarder: frames from one port to another, one way or both, unchanged.

use dray_port::{Batch, Transmit};

use crate::intake::{Intake, Progress};
use crate::{ForwardJob, ForwardReport, OnSample, RoleError, Signal};

/// A forwarder with its ports open: what the intake's port `i` receives, `out[i]` transmits.
pub struct Forwarder {
    job: ForwardJob,
    intake: Intake,
    out: Vec<Box<dyn Transmit>>,
}

impl Forwarder {
    /// Opens both ports.
    pub fn open(job: ForwardJob) -> Result<Self, RoleError> {
        let (left_uri, right_uri) = &job.ports;
        RoleError::check_transmits(right_uri)?;
        if job.both_ways {
            RoleError::check_transmits(left_uri)?;
        }
        let (left, right) = (left_uri.open()?, right_uri.open()?);
        let mut intake = vec![(left_uri.clone(), left.rx)];
        let mut out = vec![right.tx];
        if job.both_ways {
            intake.push((right_uri.clone(), right.rx));
            out.push(left.tx);
        }
        Ok(Self { intake: Intake::new(intake, job.yielding), out, job })
    }

    /// Forwards until `signal` ends it. A frame that the port out does not take is dropped and
    /// counted.
    pub fn run(
        mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ForwardReport, RoleError> {
        let mut report = ForwardReport::default();
        let (ports, out) = (&self.job.ports, &mut self.out);
        let samples = self.intake.serve(self.job.interval, signal, on_sample, |intake| {
            let mut worked = false;
            for (index, out) in out.iter_mut().enumerate() {
                let mut failure = None;
                let lent = intake.receive(index, &mut |frames| {
                    report.received += frames.len() as u64;
                    report.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
                    let batch: Batch<'_> =
                        frames.iter().filter(|frame| out.accepts(frame)).copied().collect();
                    match out.transmit(&batch) {
                        Ok(taken) => report.transmitted += taken as u64,
                        Err(error) => failure = Some(error),
                    }
                    frames.len()
                })?;
                if let Some(error) = failure {
                    let to = if index == 0 { &ports.1 } else { &ports.0 };
                    return Err(RoleError::port(to)(error));
                }
                worked |= lent > 0;
            }
            Ok(Progress { frames: report.received, bytes: report.bytes, worked })
        })?;
        report.refused = report.received - report.transmitted;
        report.dropped = self.intake.dropped()?;
        report.samples = samples;
        Ok(report)
    }
}
