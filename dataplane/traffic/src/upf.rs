//! A user plane function as a role: one direction, or both at the same time.

use std::panic;
use std::thread::{self, ScopedJoinHandle};

use dray_datapath::placement;
use dray_port::PortUri;
use dray_upf::{DropReason, Upf, Worker};
use dray_wire::gtpu::Direction;

use crate::links::{Links, OpenPort};
use crate::receive_queues::{Progress, ReceiveQueues};
use crate::{Arrivals, ForwardReport, Report, RoleError, Sample, Signal, UpfJob};

/// A user plane function with its ports open.
pub struct UserPlane {
    job: UpfJob,
    upf: Upf,
    workers: Vec<(Direction, Worker)>,
    pub(crate) links: Links,
}

impl UserPlane {
    /// Opens both ports and creates all sessions; calls `progress` now and then meanwhile.
    pub fn open(job: UpfJob, open: &OpenPort<'_>, progress: &dyn Fn()) -> Result<Self, RoleError> {
        let (n3_uri, n6_uri) = (&job.n3, &job.n6);
        let mut links = Links::default();
        let ports = [links.open(n3_uri, open)?, links.open(n6_uri, open)?];
        let (upf, workers) = Upf::create(&job.config, ports, 1, None, progress)?;
        let workers = Direction::ALL.into_iter().zip(workers);
        let mut workers: Vec<_> = workers.map(|(way, mut of)| (way, of.remove(0))).collect();
        workers.retain(|(direction, _)| job.way.directions().contains(direction));
        Ok(Self { job, upf, workers, links })
    }

    /// Forwards until `signal` ends it. Packets that it drops, for whatever reason, count as
    /// `refused`.
    pub fn run(&mut self, signal: &Signal) -> Result<Report, RoleError> {
        let Self { job, upf, workers, .. } = self;
        let job = &*job;
        // The first direction runs on this thread, a second one on its own.
        let forwarded = thread::scope(|scope| {
            let run = |number: usize, (direction, worker): &mut (Direction, Worker)| {
                placement::pin_thread(job.cpus[number]);
                let forwarded = forward(job, *direction, worker, signal);
                forwarded.inspect_err(|_| signal.stop())
            };
            let (first, rest) = workers.split_first_mut().expect("a way has a direction");
            let rest: Vec<_> = rest.iter_mut().map(|it| scope.spawn(move || run(1, it))).collect();
            let first = run(0, first);
            let join = |thread: ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
            };
            std::iter::once(first).chain(rest.into_iter().map(join)).collect::<Result<Vec<_>, _>>()
        })?;
        let mut reports = forwarded.into_iter().map(|it| Report::Forward(it.report(upf)));
        let first = reports.next().expect("a way has a direction");
        Ok(match reports.next() {
            Some(second) => Report::Both(Box::new([first, second])),
            None => first,
        })
    }
}

/// Outcome of one direction.
struct Forwarded {
    direction: Direction,
    dropped: u64,
    arrivals: Arrivals,
    samples: Vec<Sample>,
}

fn forward(
    job: &UpfJob,
    direction: Direction,
    worker: &mut Worker,
    signal: &Signal,
) -> Result<Forwarded, RoleError> {
    let from: &PortUri = if direction == Direction::Uplink { &job.n3 } else { &job.n6 };
    let failed = RoleError::port(from);
    // Without ports: the user plane function polls its own.
    let mut nothing = ReceiveQueues::new(Vec::new(), job.yielding && !job.sleeping);
    let (samples, arrivals) = nothing.serve(job.interval, signal, None, |_| {
        let mut worked = worker.poll().map_err(&failed)?;
        if !worked && job.sleeping {
            worker.sleep().map_err(&failed)?;
            worked = worker.poll().map_err(&failed)?;
        }
        let counters = worker.counters();
        Ok(Progress { frames: counters.rx_packets, bytes: counters.rx_bytes, worked })
    })?;
    worker.publish();
    let dropped = worker.dropped().map_err(&failed)?;
    Ok(Forwarded { direction, dropped, arrivals, samples })
}

impl Forwarded {
    fn report(self, upf: &Upf) -> ForwardReport {
        let Self { direction, dropped, arrivals, samples } = self;
        let counters = match direction {
            Direction::Uplink => upf.uplink(),
            Direction::Downlink => upf.downlink(),
        };
        let lost = [DropReason::Missed, DropReason::Malformed];
        let lost: u64 = lost.iter().map(|reason| counters.drops.get(*reason)).sum();
        let received = counters.rx_packets - lost;
        ForwardReport {
            received,
            transmitted: counters.tx_packets,
            bytes: counters.rx_bytes,
            refused: received - counters.tx_packets,
            dropped,
            arrivals,
            samples,
        }
    }
}
