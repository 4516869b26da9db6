//! One direction of a user plane function as a role.

use dray_port::PortUri;
use dray_upf::{DropReason, Upf, Worker};
use dray_wire::gtpu::Direction;

use crate::links::{Links, OpenPort};
use crate::receive_queues::{Progress, ReceiveQueues};
use crate::{ForwardReport, OnSample, RoleError, Signal, UpfJob};

/// A user plane function with its ports open; only one direction runs.
pub struct UserPlane {
    job: UpfJob,
    upf: Upf,
    worker: Worker,
    pub(crate) links: Links,
}

impl UserPlane {
    /// Opens both ports and creates all sessions; calls `progress` now and then meanwhile.
    pub fn open(job: UpfJob, open: &OpenPort<'_>, progress: &dyn Fn()) -> Result<Self, RoleError> {
        let (n3_uri, n6_uri) = (&job.n3, &job.n6);
        let mut links = Links::default();
        let ports = [links.open(n3_uri, open)?, links.open(n6_uri, open)?];
        let (upf, workers) = Upf::create(&job.config, ports, 1, None, progress)?;
        let [uplink, downlink] = workers.map(|mut workers| workers.remove(0));
        let worker = match job.direction {
            Direction::Uplink => uplink,
            Direction::Downlink => downlink,
        };
        Ok(Self { job, upf, worker, links })
    }

    /// Forwards until `signal` ends it. Packets that it drops, for whatever reason, count as
    /// `refused`.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ForwardReport, RoleError> {
        let Self { job, upf, worker, .. } = self;
        let from: &PortUri = if job.direction == Direction::Uplink { &job.n3 } else { &job.n6 };
        let failed = RoleError::port(from);
        // Without ports: the user plane function polls its own.
        let mut nothing = ReceiveQueues::new(Vec::new(), job.yielding && !job.sleeping);
        let (samples, arrivals) = nothing.serve(job.interval, signal, on_sample, |_| {
            let mut worked = worker.poll().map_err(&failed)?;
            if !worked && job.sleeping {
                worker.sleep().map_err(&failed)?;
                worked = worker.poll().map_err(&failed)?;
            }
            let counters = worker.counters();
            Ok(Progress { frames: counters.rx_packets, bytes: counters.rx_bytes, worked })
        })?;
        worker.publish();
        let counters = match job.direction {
            Direction::Uplink => upf.uplink(),
            Direction::Downlink => upf.downlink(),
        };
        let lost = [DropReason::Missed, DropReason::Malformed];
        let lost: u64 = lost.iter().map(|reason| counters.drops.get(*reason)).sum();
        let received = counters.rx_packets - lost;
        Ok(ForwardReport {
            received,
            transmitted: counters.tx_packets,
            bytes: counters.rx_bytes,
            refused: received - counters.tx_packets,
            dropped: worker.dropped().map_err(&failed)?,
            arrivals,
            samples,
        })
    }
}
