//! Listening sockets of a program: the control socket, and one for metrics.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dray_daemon::{ControlAddress, ControlSocket, ListenError, MetricsAddress, SocketError};

/// Duplicates of the listening sockets of a process.
#[derive(Debug)]
pub struct Sockets {
    /// The control socket.
    pub control: OwnedFd,
    /// The socket for metrics.
    pub metrics: Option<OwnedFd>,
}

/// A listening socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketsError {
    /// The control socket.
    #[error(transparent)]
    Control(#[from] SocketError),
    /// The socket for metrics.
    #[error(transparent)]
    Metrics(#[from] ListenError),
}

impl Sockets {
    /// Duplicates sockets.
    pub fn new(control: &ControlSocket, metrics: Option<&TcpListener>) -> io::Result<Self> {
        let control = control.as_fd().try_clone_to_owned()?;
        let metrics = metrics.map(|socket| socket.as_fd().try_clone_to_owned()).transpose()?;
        Ok(Self { control, metrics })
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.control].into_iter().chain(&self.metrics).map(AsFd::as_fd)
    }

    /// Listens at both addresses, with the sockets of the process `before` if it listens there. The
    /// control socket of a process that `is_running` is taken in any case.
    pub fn listen(
        control: &ControlAddress,
        metrics: Option<MetricsAddress>,
        before: Option<Self>,
        is_running: bool,
    ) -> Result<(ControlSocket, Option<TcpListener>), SocketsError> {
        let (socket, monitors) =
            before.map_or((None, None), |before| (Some(before.control), before.metrics));
        let socket = match socket {
            Some(socket) if is_running => ControlSocket::inherit(&control.path, socket)?,
            left => ControlSocket::inherit_or_bind(control, left)?,
        };
        Ok((socket, metrics.map(|address| address.listen_with(monitors)).transpose()?))
    }
}
