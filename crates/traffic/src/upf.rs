//! One direction of a user plane function as a role.

use dray_port::PortUri;
use dray_upf::{Direction, Upf};

use crate::intake::{Intake, Progress};
use crate::links::Links;
use crate::users::UserWay;
use crate::{ForwardReport, OnSample, RoleError, Signal, UpfJob};

/// A user plane function with its ports open; only one direction runs.
pub struct UserPlane {
    job: UpfJob,
    upf: Upf,
    direction: Direction,
    pub(crate) links: Links,
}

impl UserPlane {
    /// Opens both ports and creates all sessions.
    pub fn open(job: UpfJob) -> Result<Self, RoleError> {
        let (n3_uri, n6_uri) = (&job.n3, &job.n6);
        let (n3, n6) = (n3_uri.open()?, n6_uri.open()?);
        let mut links = Links::default();
        links.add(n3_uri, &n3);
        links.add(n6_uri, &n6);
        let (upf, directions) = Upf::new(&job.config, n3, n6)?;
        let [uplink, downlink] = directions;
        let direction = match job.way {
            UserWay::Uplink => uplink,
            UserWay::Downlink => downlink,
        };
        Ok(Self { job, upf, direction, links })
    }

    /// Forwards until `signal` ends it. Packets that it drops, for whatever reason, count as
    /// `refused`.
    pub fn run(
        &mut self,
        signal: &Signal,
        on_sample: Option<OnSample>,
    ) -> Result<ForwardReport, RoleError> {
        let Self { job, upf, direction, .. } = self;
        let from: &PortUri = if job.way == UserWay::Uplink { &job.n3 } else { &job.n6 };
        let failed = RoleError::port(from);
        // Without ports: the user plane function polls its own.
        let mut nothing = Intake::new(Vec::new(), job.yielding && !job.sleeping);
        let samples = nothing.serve(job.interval, signal, on_sample, |_| {
            let mut worked = direction.poll().map_err(&failed)?;
            if !worked && job.sleeping {
                direction.sleep().map_err(&failed)?;
                worked = direction.poll().map_err(&failed)?;
            }
            let counters = direction.counters();
            Ok(Progress { frames: counters.rx_packets, bytes: counters.rx_bytes, worked })
        })?;
        direction.publish();
        let counters = match job.way {
            UserWay::Uplink => upf.uplink(),
            UserWay::Downlink => upf.downlink(),
        };
        Ok(ForwardReport {
            received: counters.rx_packets,
            transmitted: counters.tx_packets,
            bytes: counters.rx_bytes,
            refused: counters.rx_packets - counters.tx_packets,
            dropped: direction.dropped().map_err(&failed)?,
            samples,
        })
    }
}
