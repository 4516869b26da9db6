//! systemd's journal, by its native protocol: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::fs::fstat;
use tracing::Level;

use super::text::Text;

/// A connection to the journal.
pub(super) struct Journal(UnixDatagram);

impl Journal {
    /// Address of the journal's socket.
    const SOCKET: &str = "/run/systemd/journal/socket";

    /// Connects to the journal if the process's standard error is the stream that the variable
    /// JOURNAL_STREAM names (systemd.exec(5)).
    pub(super) fn of_process() -> Option<Self> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let stat = fstat(io::stderr()).ok()?;
        let is_stderr = stream == format!("{}:{}", stat.st_dev, stat.st_ino);
        is_stderr.then(|| Self::connect(Path::new(Self::SOCKET)).ok()).flatten()
    }

    fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        // A busy journal must not delay the program.
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Sends an event; its message is the line that standard error would get.
    pub(super) fn send(&self, level: Level, text: &Text) -> io::Result<()> {
        self.0.send(&entry(level, text)).map(drop)
    }

    /// Returns a connection whose entries are discarded.
    #[cfg(test)]
    pub(super) fn unread() -> Self {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        std::thread::spawn(move || while theirs.recv(&mut [0; 1]).is_ok() {});
        Self(ours)
    }
}

fn entry(level: Level, text: &Text) -> Vec<u8> {
    // Severities of syslog(3).
    let priority = match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    let mut entry = Vec::new();
    field(&mut entry, "MESSAGE", &text.to_string());
    field(&mut entry, "PRIORITY", priority);
    field(&mut entry, "SYSLOG_IDENTIFIER", "dray");
    for (name, value) in &text.fields {
        field(&mut entry, &format!("DRAY_{}", name.to_ascii_uppercase()), value);
    }
    entry
}

fn field(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend((value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_has_fields_and_length_of_value_with_line_breaks() {
        let mut text = Text::from("peer disconnected");
        text.add("port", "a");
        text.add("reason", "x\ny");
        let mut expected = b"MESSAGE=peer disconnected port=a reason=\"x\\ny\"\nPRIORITY=4\n\
              SYSLOG_IDENTIFIER=dray\nDRAY_PORT=a\nDRAY_REASON\n"
            .to_vec();
        expected.extend(b"\x03\0\0\0\0\0\0\0x\ny\n");
        assert_eq!(entry(Level::WARN, &text), expected);
    }
}
