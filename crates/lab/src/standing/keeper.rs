//! The process that a standing lab lives in.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::build::Built;
use super::{Request, SOCKET, claim};
use crate::topology::Topology;
use crate::{Cancel, Lab, LabError};

/// How often the keeper looks whether it was cancelled.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long it waits for a request, and for its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest request.
const REQUEST_MAX: u64 = 1024;

/// What a keeper is told.
pub struct Order {
    /// The `dray` that runs inside containers.
    pub program: PathBuf,
    /// The lab's name.
    pub name: String,
    /// The file that the topology is from; commands run in its folder.
    pub file: PathBuf,
    /// What that file says.
    pub text: String,
    /// The topology.
    pub topology: Topology,
}

/// Makes a lab, says so by `on_up`, and keeps it until it is asked or cancelled. Nothing is left then,
/// nor after an error; one of `on_up` means that nobody waits for the lab any more.
///
/// The lab dies with the calling thread. Who asked for its end has the answer when the process ends.
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
    on_up().map_err(LabError::doing("saying that the lab is up"))?;
    let asked = serve(&listener, &built, order, cancel);
    drop(built);
    drop(dir);
    // Who asked waits for the end of the connection, and so of this process.
    std::mem::forget(asked);
    Ok(())
}

/// Answers requests; returns who asked for the end, if somebody did.
fn serve(
    listener: &UnixListener,
    built: &Built,
    order: &Order,
    cancel: &Cancel,
) -> Option<UnixStream> {
    loop {
        cancel.check().ok()?;
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        // An error is a signal, and looked at above.
        if !matches!(poll(&mut ready, Some(&INTERVAL)), Ok(1..)) {
            continue;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        // Only root can connect; one that goes away again is nobody's loss.
        match request(&stream) {
            Ok(Request::Down) => return Some(stream),
            Ok(Request::State) => {
                let state =
                    built.state(&order.name, &order.file.display().to_string(), &order.text);
                let _ = answer(&stream, &state);
            }
            Err(_) => {}
        }
    }
}

fn request(stream: &UnixStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn answer(mut stream: &UnixStream, state: &super::LabState) -> io::Result<()> {
    let mut line = serde_json::to_vec(state).expect("states are plain data");
    line.push(b'\n');
    stream.write_all(&line)
}
