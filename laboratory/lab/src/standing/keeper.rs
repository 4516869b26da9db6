//! The process that keeps a standing lab.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::build::Built;
use super::{Request, SOCKET, claim};
use crate::process::PeerDir;
use crate::topology::Topology;
use crate::{Cancel, Lab, LabError};

/// Interval between checks for cancellation.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Time limit to receive a request, and to send the reply.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a request in bytes.
const REQUEST_MAX: u64 = 1024;

/// Parameters of a keeper.
pub struct Order {
    /// Path of the `dray` that runs inside containers.
    pub program: PathBuf,
    /// Name of the lab.
    pub name: String,
    /// Topology file; commands run in its folder.
    pub file: PathBuf,
    /// Contents of that file.
    pub text: String,
    /// The checked topology.
    pub topology: Topology,
}

/// Creates a lab, calls `on_up` when it is up, and keeps it until a client takes it down or
/// `cancel` is set. Nothing is left afterwards, nor after an error. An error of `on_up` means that
/// the caller no longer waits for the lab.
///
/// The lab dies with the calling thread. The client that takes the lab down gets its reply when the
/// process ends.
pub fn keep(
    order: &Order,
    cancel: &Cancel,
    on_up: impl FnOnce() -> io::Result<()>,
) -> Result<(), LabError> {
    let mut lab = Lab::new(order.program.clone(), cancel.clone())?;
    let dir = lab.dir()?;
    claim(&order.name, dir.path())?;
    let file = std::path::absolute(&order.file).map_err(LabError::doing("the file's folder"))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let built = Built::new(lab, order.topology.clone(), &order.program, folder, cancel)?;
    let listener =
        UnixListener::bind(dir.join(SOCKET)).map_err(LabError::doing("control socket"))?;
    on_up().map_err(LabError::doing("reporting that the lab is up"))?;
    let mut asked = serve(&listener, &built, &dir, order, cancel);
    if let Some(client) = &mut asked {
        // The client may be gone.
        let _ = answer(client, &built.end());
    }
    drop(built);
    drop(dir);
    // The client waits for the end of the connection, and so for the end of this process.
    std::mem::forget(asked);
    Ok(())
}

/// Replies to requests. Returns the connection of the client that takes the lab down; `None` if
/// cancelled.
fn serve(
    listener: &UnixListener,
    built: &Built,
    dir: &PeerDir,
    order: &Order,
    cancel: &Cancel,
) -> Option<UnixStream> {
    loop {
        cancel.check().ok()?;
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        // An error means a signal; the check above handles it.
        if !matches!(poll(&mut ready, Some(&INTERVAL)), Ok(1..)) {
            continue;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        // Only root can connect, so failed requests are ignored.
        match request(&stream) {
            Ok(Request::Down) => return Some(stream),
            Ok(Request::State) => {
                let file = order.file.display().to_string();
                let state = built.state(dir, &order.name, &file, &order.text);
                let _ = answer(&stream, &state);
            }
            Err(_) => {}
        }
    }
}

fn request(stream: &UnixStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn answer(mut stream: &UnixStream, reply: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply).expect("replies are plain data");
    line.push(b'\n');
    stream.write_all(&line)
}
