//! Files of a capture.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use dray_capture::pcapng::{self, Packet};
use dray_capture::{Counts, Record};
use dray_socket::Place;

/// Size in bytes at which the buffer is written.
const LONG: usize = 1 << 20;

/// Rotation of the files of a capture.
pub(super) struct Rotation {
    /// At this number of bytes.
    pub(super) size: u64,
    /// Number of files to keep.
    pub(super) keep: Option<u32>,
}

/// Why nothing more can be written.
pub(super) enum Ended {
    /// The reader of a pipe has gone: it has seen enough.
    ByReader,
    Failed(anyhow::Error),
}

/// Writes frames into a file, or one after the other.
pub(super) struct Output {
    /// `None`: standard output.
    path: Option<PathBuf>,
    rotation: Option<Rotation>,
    /// Number of the file.
    number: u32,
    file: File,
    /// Number of bytes written into the file, all of whole blocks.
    written: u64,
    /// Blocks that are not yet written.
    buffer: Vec<u8>,
    snaplen: u32,
    filter: String,
    /// Number and name of each port, in the order of interfaces.
    ports: Vec<(u16, String)>,
    /// Interface of a port, by its number.
    interfaces: Vec<Option<u32>>,
}

impl Output {
    pub(super) fn create(
        path: Option<PathBuf>,
        rotation: Option<Rotation>,
        snaplen: u32,
        filter: &str,
    ) -> anyhow::Result<Self> {
        let number = 1;
        let file = match &path {
            None => stdout()?,
            Some(path) => open(&name(path, rotation.as_ref(), number))?,
        };
        let mut output = Self {
            path,
            rotation,
            number,
            file,
            written: 0,
            buffer: Vec::with_capacity(2 * LONG),
            snaplen,
            filter: filter.to_owned(),
            ports: Vec::new(),
            interfaces: Vec::new(),
        };
        output.begin();
        Ok(output)
    }

    /// Begins a file.
    fn begin(&mut self) {
        let Self { buffer, snaplen, filter, ports, .. } = self;
        pcapng::section(buffer, concat!("dray ", env!("CARGO_PKG_VERSION")));
        for (_, name) in ports {
            pcapng::interface(buffer, name, *snaplen, filter);
        }
    }

    /// Returns true if a port has an interface.
    pub(super) fn knows(&self, port: u16) -> bool {
        matches!(self.interfaces.get(usize::from(port)), Some(Some(_)))
    }

    /// Adds an interface for a port.
    pub(super) fn add(&mut self, port: u16, name: &str) {
        let at = usize::from(port);
        if self.interfaces.len() <= at {
            self.interfaces.resize(at + 1, None);
        }
        self.interfaces[at] = Some(self.ports.len() as u32);
        self.ports.push((port, name.to_owned()));
        pcapng::interface(&mut self.buffer, name, self.snaplen, &self.filter);
    }

    /// Adds a frame of a port that has an interface.
    pub(super) fn packet(&mut self, record: &Record<'_>, time: Duration, comment: &str) {
        let interface = self.interfaces[usize::from(record.port)].unwrap_or_default();
        let Record { len, bytes, kind, .. } = *record;
        let is_inbound = kind.is_inbound();
        let packet = Packet { interface, time, len, bytes, is_inbound, comment };
        pcapng::packet(&mut self.buffer, &packet);
    }

    /// Returns true if the buffer is full.
    pub(super) fn is_long(&self) -> bool {
        self.buffer.len() >= LONG
    }

    /// Writes what has been added; begins another file if it is time.
    pub(super) fn write(&mut self, counts: impl Fn(u16) -> Counts) -> Result<(), Ended> {
        self.flush()?;
        let (Some(path), Some(rotation)) = (&self.path, &self.rotation) else { return Ok(()) };
        if self.written < rotation.size {
            return Ok(());
        }
        let next = open(&name(path, Some(rotation), self.number + 1)).map_err(Ended::Failed)?;
        if let Some(old) = rotation.keep.and_then(|keep| (self.number + 1).checked_sub(keep)) {
            // Another program may have removed it.
            let _ = fs::remove_file(name(path, Some(rotation), old));
        }
        self.finish(counts)?;
        (self.file, self.written) = (next, 0);
        self.number += 1;
        self.begin();
        Ok(())
    }

    /// Ends a file with the statistics of its interfaces.
    pub(super) fn finish(&mut self, counts: impl Fn(u16) -> Counts) -> Result<(), Ended> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (interface, (port, _)) in self.ports.iter().enumerate() {
            let Counts { captured, missed } = counts(*port);
            let received = captured + missed;
            pcapng::statistics(&mut self.buffer, interface as u32, now, received, missed);
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Ended> {
        let mut done = 0;
        while done < self.buffer.len() {
            match self.file.write(&self.buffer[done..]) {
                Ok(0) => return Err(self.failed(done, &ErrorKind::WriteZero.into())),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(Ended::ByReader),
                Err(error) => return Err(self.failed(done, &error)),
            }
        }
        self.written += done as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Cuts the file after its last whole block; `done` bytes of the buffer were written.
    fn failed(&self, done: usize, error: &io::Error) -> Ended {
        let whole = pcapng::whole_blocks(&self.buffer[..done]) as u64;
        let Some(path) = &self.path else {
            return Ended::Failed(anyhow!("standard output: {error}"));
        };
        let _ = self.file.set_len(self.written + whole);
        let file = name(path, self.rotation.as_ref(), self.number);
        Ended::Failed(anyhow!("{}: {error}; it ends with the last whole frame", file.display()))
    }
}

/// Returns the name of the file of this number.
fn name(path: &Path, rotation: Option<&Rotation>, number: u32) -> PathBuf {
    if rotation.is_none() {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("_{number:05}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Creates a file that only its owner can read: it has frames of all ports.
fn open(path: &Path) -> anyhow::Result<File> {
    let created = Place::target(path).and_then(|place| place.create(0o600));
    created.map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Returns standard output without a buffer.
fn stdout() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_file_precedes_its_extension() {
        let rotation = Rotation { size: 1, keep: None };
        let name = |path: &str, number| name(path.as_ref(), Some(&rotation), number);
        assert_eq!(name("/x/a.b.pcapng", 1), Path::new("/x/a.b_00001.pcapng"));
        assert_eq!(name("a", 12), Path::new("a_00012"));
    }
}
