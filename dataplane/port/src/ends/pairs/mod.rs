//! Pairs of queues in memory that a port shares with its peer: the code that `virtio`, `vhost` and
//! `memif` ports have in common. Each transport defines its queues; how data threads use queues
//! that a control thread inserts and removes is defined here, and compiled for each transport.
//!
//! * `queues`: the queues, and their state.
//! * `shared`: state that the halves and the link of an open port share.
//! * `receive`, `transmit`: the halves of such a port.

mod queues;
mod receive;
mod shared;
mod transmit;

use std::sync::Arc;

use crate::session::connection::Connection;
use crate::{Port, Wait};
use receive::ReceiveHalf;
use shared::Shared;
use transmit::TransmitHalf;

pub(crate) use queues::{Device, Pair, Pairs, ReceiveQueue, TransmitQueue};

/// Creates the port whose queues are `pairs`, which the thread of `connection` inserts.
pub(crate) fn port<P: Pairs>(pairs: Arc<P>, connection: Connection, wait: Wait) -> Port {
    let count = pairs.pairs().len();
    pairs.progress().into_iter().for_each(|progress| connection.publish_progress(progress.clone()));
    let shared = Arc::new(Shared { connection, pairs });
    Port {
        rx: (0..count)
            .map(|pair| Box::new(ReceiveHalf::new(shared.clone(), pair, wait)) as _)
            .collect(),
        tx: (0..count).map(|pair| Box::new(TransmitHalf::new(shared.clone(), pair)) as _).collect(),
        link: Some(shared),
    }
}
