//! The forwarder: moves frames from one port to another, one way or both, unchanged unless it is
//! given MAC addresses.

use std::io;

use dray_port::{Batch, Frame, PortUri, Transmit};

use crate::links::{Links, OpenPort};
use crate::receive_queues::{Progress, ReceiveQueues};
use crate::{ForwardJob, ForwardReport, OnSample, RoleError, Signal};

/// Length of the MAC addresses with which a frame begins.
const ADDRESSES_LEN: usize = 12;

/// A forwarder with its ports open: frames that arrive at one port leave at the other.
pub struct Forwarder {
    job: ForwardJob,
    rx_queues: ReceiveQueues,
    /// In the order of the role's ports.
    outs: Vec<Out>,
    pub(crate) links: Links,
}

/// Destination of frames.
struct Out {
    uri: PortUri,
    tx: Vec<Box<dyn Transmit>>,
    /// Number of the role's queues that lead to this port.
    queues: usize,
    /// Destination and source MAC address in frames that leave, if they are changed.
    addresses: Option<[u8; ADDRESSES_LEN]>,
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
        let out = |uri: &PortUri, tx, from: &[_], addresses| Out {
            uri: uri.clone(),
            tx,
            queues: from.len(),
            addresses,
        };
        let addresses = job.addresses.map(|[to, from]| {
            let mut both = [0; ADDRESSES_LEN];
            both[..6].copy_from_slice(&to.0);
            both[6..].copy_from_slice(&from.0);
            both
        });
        let mut outs = vec![out(right_uri, right.tx, &left.rx, addresses)];
        let mut rx_queues = vec![(left_uri.clone(), left.rx)];
        if job.both_ways {
            outs.push(out(left_uri, left.tx, &right.rx, None));
            rx_queues.push((right_uri.clone(), right.rx));
        }
        Ok(Self { rx_queues: ReceiveQueues::new(rx_queues, job.yielding), outs, links, job })
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
            self.rx_queues.serve(self.job.interval, signal, on_sample, |rx_queues| {
                let mut worked = false;
                let mut index = 0;
                for out in outs.iter_mut() {
                    for queue in 0..out.queues {
                        worked |= forward(rx_queues, index, out, queue, &mut report)?;
                        index += 1;
                    }
                }
                Ok(Progress { frames: report.received, bytes: report.bytes, worked })
            })?;
        report.refused = report.received - report.transmitted;
        report.dropped = self.rx_queues.dropped()?;
        (report.samples, report.arrivals) = (samples, arrivals);
        Ok(report)
    }
}

impl Forwarder {
    /// Returns the queues through which the forwarder transmits.
    pub(crate) fn outputs(&mut self) -> impl Iterator<Item = &mut dyn Transmit> {
        self.outs.iter_mut().flat_map(|out| &mut out.tx).map(|tx| &mut **tx as &mut dyn Transmit)
    }
}

/// Forwards the frames in the role's queue `index`, which is queue `queue` of its port; returns
/// true if there were any.
fn forward(
    rx_queues: &mut ReceiveQueues,
    index: usize,
    out: &mut Out,
    queue: usize,
    report: &mut ForwardReport,
) -> Result<bool, RoleError> {
    let addresses = out.addresses.as_ref();
    // A flow stays in one queue, and so in order.
    let count = out.tx.len();
    let tx = &mut *out.tx[queue % count];
    pass(rx_queues, index, &out.uri, report, |frames| {
        let accepted = frames.iter().filter(|frame| tx.accepts(frame));
        let batch: Batch<'_> = match addresses {
            None => accepted.copied().collect(),
            Some(head) => accepted.filter_map(|frame| readdress(frame, head)).collect(),
        };
        transmit(tx, &batch)
    })
}

/// Returns the frame with other MAC addresses; `None` if it is too short to have any.
fn readdress<'a>(frame: &Frame<'a>, addresses: &'a [u8; ADDRESSES_LEN]) -> Option<Frame<'a>> {
    let has_addresses = frame.len() >= ADDRESSES_LEN;
    has_addresses.then(|| frame.with_head(addresses, ADDRESSES_LEN..frame.len()))
}

/// Lends the frames in one of the role's queues to `send`, which returns how many it transmitted to
/// the port `to`, and counts them; returns true if there were any.
pub(crate) fn pass(
    rx_queues: &mut ReceiveQueues,
    index: usize,
    to: &PortUri,
    report: &mut ForwardReport,
    mut send: impl FnMut(&[Frame<'_>]) -> io::Result<u64>,
) -> Result<bool, RoleError> {
    let mut failure = None;
    let lent = rx_queues.receive(index, &mut |frames| {
        report.received += frames.len() as u64;
        report.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        match send(frames) {
            Ok(transmitted) => report.transmitted += transmitted,
            Err(error) => failure = Some(error),
        }
        frames.len()
    })?;
    match failure {
        Some(error) => Err(RoleError::port(to)(error)),
        None => Ok(lent > 0),
    }
}

/// Transmits a batch; returns the number of frames that the port took and has not lost.
pub(crate) fn transmit(tx: &mut dyn Transmit, batch: &[Frame<'_>]) -> io::Result<u64> {
    let taken = tx.transmit(batch)?;
    Ok((taken - tx.lost().of_call().len()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_addresses_replace_the_old_ones() {
        let addresses = [7; ADDRESSES_LEN];
        let bytes: Vec<u8> = (0..64).collect();
        let readdressed = |bytes: &[u8]| {
            let mut copy = vec![0; bytes.len()];
            let frame = Frame::from(bytes);
            readdress(&frame, &addresses).map(|frame| {
                frame.copy_into(&mut copy);
                copy
            })
        };
        assert_eq!(readdressed(&bytes), Some([&addresses, &bytes[12..]].concat()));
        assert_eq!(readdressed(&bytes[..12]), Some(addresses.to_vec()));
        assert_eq!(readdressed(&bytes[..11]), None);
    }
}
