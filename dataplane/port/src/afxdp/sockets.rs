//! AF_XDP sockets of this process. New ones share the UMEM or the program of others.

use std::sync::{Arc, Mutex, Weak};

use super::AfxdpUri;
use super::program::Program;
use super::socket::{Rings, Socket};
use super::umem::Umem;
use crate::lock::lock;
use crate::uri::failed::Failed;

static OPEN: Mutex<Vec<Weak<Socket>>> = Mutex::new(Vec::new());

/// Creates a socket for a queue of the program's interface, on a free slot of `umem`. `parts`:
/// frames may lie in several chunks.
pub(super) fn join(
    uri: &AfxdpUri,
    umem: &Arc<Umem>,
    program: &Arc<Program>,
    queue: u32,
    parts: bool,
) -> Result<(Arc<Socket>, Rings), Failed> {
    let _joining = lock(&umem.joining);
    let slot = umem.take_slot().map_err(|error| ("UMEM", error))?;
    // The removal of an interface unregisters the UMEM of its sockets.
    let others = open(|socket| Arc::ptr_eq(socket.umem(), umem));
    let other = others.iter().find(|socket| !socket.is_gone()).map(|socket| &**socket);
    slot.set_owner(program.interface().index(), queue, parts);
    let (socket, rings) = Socket::new(uri, slot, program.clone(), other.is_none(), parts)?;
    socket.bind(uri, queue, other)?;
    Ok((add(socket), rings))
}

/// Adds a socket.
pub(super) fn add(socket: Socket) -> Arc<Socket> {
    let socket = Arc::new(socket);
    let mut sockets = lock(&OPEN);
    sockets.retain(|socket| socket.strong_count() > 0);
    sockets.push(Arc::downgrade(&socket));
    socket
}

/// Returns false if an interface with sockets of the program was removed.
pub(super) fn is_attached(program: &Program) -> bool {
    let sockets = open(|socket| std::ptr::eq(socket.program(), program));
    !sockets.iter().any(|socket| socket.is_gone())
}

/// Returns the sockets that `is_wanted`.
fn open(is_wanted: impl Fn(&Socket) -> bool) -> Vec<Arc<Socket>> {
    let sockets: Vec<_> = lock(&OPEN).iter().filter_map(Weak::upgrade).collect();
    sockets.into_iter().filter(|socket| is_wanted(socket)).collect()
}
