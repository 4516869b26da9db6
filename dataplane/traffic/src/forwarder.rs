//! The forwarder: moves frames from one port to another, one way or both, unchanged.

use dray_port::{Batch, PortUri, Transmit};

use crate::intake::{Intake, Progress};
use crate::links::{Links, OpenPort};
use crate::{ForwardJob, ForwardReport, OnSample, RoleError, Signal};

/// A forwarder with its ports open: frames that arrive at one port leave at the other.
pub struct Forwarder {
    job: ForwardJob,
    intake: Intake,
    /// In the order of the intake's ports.
    outs: Vec<Out>,
    pub(crate) links: Links,
}

/// Destination of frames.
struct Out {
    uri: PortUri,
    tx: Vec<Box<dyn Transmit>>,
    /// Number of the intake's queues that lead to this port.
    queues: usize,
}

impl Forwarder {
    /// Opens both ports.
    pub fn open(job: ForwardJob, open: &OpenPort<'_>) -> Result<Self, RoleError> {
        let (left_uri, right_uri) = &job.ports;
        RoleError::check_transmits(right_uri)?;
        if job.both_ways {
            RoleError::check_transmits(left_uri)?;
        }
        let mut links = Links::default();
        let (left, right) = (links.open(left_uri, open)?, links.open(right_uri, open)?);
        let out = |uri: &PortUri, tx, from: &[_]| Out { uri: uri.clone(), tx, queues: from.len() };
        let mut outs = vec![out(right_uri, right.tx, &left.rx)];
        let mut intake = vec![(left_uri.clone(), left.rx)];
        if job.both_ways {
            outs.push(out(left_uri, left.tx, &right.rx));
            intake.push((right_uri.clone(), right.rx));
        }
        Ok(Self { intake: Intake::new(intake, job.yielding), outs, links, job })
    }

    /// Forwards until `signal` ends it. A frame that the outgoing port refuses is dropped and
    /// counted.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ForwardReport, RoleError> {
        let mut report = ForwardReport::default();
        let outs = &mut self.outs;
        let (samples, arrivals) =
            self.intake.serve(self.job.interval, signal, on_sample, |intake| {
                let mut worked = false;
                let mut index = 0;
                for Out { uri, tx, queues } in outs.iter_mut() {
                    for queue in 0..*queues {
                        // A flow stays in one queue, and so in order.
                        let count = tx.len();
                        let tx = &mut tx[queue % count];
                        worked |= forward(intake, index, uri, &mut **tx, &mut report)?;
                        index += 1;
                    }
                }
                Ok(Progress { frames: report.received, bytes: report.bytes, worked })
            })?;
        report.refused = report.received - report.transmitted;
        report.dropped = self.intake.dropped()?;
        (report.samples, report.arrivals) = (samples, arrivals);
        Ok(report)
    }
}

impl Forwarder {
    /// Returns the queues through which the forwarder transmits.
    pub(crate) fn lanes(&mut self) -> impl Iterator<Item = &mut dyn Transmit> {
        self.outs.iter_mut().flat_map(|out| &mut out.tx).map(|tx| &mut **tx as &mut dyn Transmit)
    }
}

/// Forwards the frames in one of the intake's queues; returns true if there were any.
fn forward(
    intake: &mut Intake,
    index: usize,
    to: &PortUri,
    tx: &mut dyn Transmit,
    report: &mut ForwardReport,
) -> Result<bool, RoleError> {
    let mut failure = None;
    let lent = intake.receive(index, &mut |frames| {
        report.received += frames.len() as u64;
        report.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let batch: Batch<'_> = frames.iter().filter(|frame| tx.accepts(frame)).copied().collect();
        match tx.transmit(&batch) {
            Ok(taken) => report.transmitted += (taken - tx.lost().of_call().len()) as u64,
            Err(error) => failure = Some(error),
        }
        frames.len()
    })?;
    match failure {
        Some(error) => Err(RoleError::port(to)(error)),
        None => Ok(lent > 0),
    }
}
