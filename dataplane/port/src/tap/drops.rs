//! Counter of frames that the kernel dropped because a TAP device was not read in time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::total::Total;

/// Counter of an interface, relative to its creation. It stays when the interface has gone.
pub(super) struct Drops {
    /// `/proc/net/dev` of the network namespace in which it was opened.
    file: File,
    interface: String,
    /// Index of the counter in the interface's line.
    field: usize,
    total: Total,
}

/// Number of bytes that are read at a time, and in all: thousands of interfaces.
const PIECE: usize = 1 << 16;
const TEXT_MAX: usize = 1 << 24;

/// Index of each counter in the line of an interface, after its name: dropped on receive and
/// transmit.
const RX_DROPPED: usize = 3;
const TX_DROPPED: usize = 11;

impl Drops {
    /// Starts counting. Frames that a TAP's program reads were sent by the interface; frames that
    /// are read from a macvtap's device were received by the interface.
    pub(super) fn new(interface: &str, is_macvtap: bool) -> io::Result<Self> {
        let file = File::open("/proc/thread-self/net/dev")?;
        let field = if is_macvtap { RX_DROPPED } else { TX_DROPPED };
        let first = read(&file, interface, field);
        let total = Total::new(&first, u64::MAX);
        first.map(|_| Self { file, interface: interface.to_owned(), field, total })
    }

    /// Returns the number of dropped frames.
    pub(super) fn total(&self) -> u64 {
        self.total.at(&read(&self.file, &self.interface, self.field))
    }
}

/// Returns the counter's present value.
fn read(file: &File, interface: &str, field: usize) -> io::Result<u64> {
    let (mut text, mut len) = (Vec::new(), 0);
    while len < TEXT_MAX {
        text.resize(len + PIECE, 0);
        match file.read_at(&mut text[len..], len as u64)? {
            0 => break,
            more => len += more,
        }
    }
    let text = String::from_utf8_lossy(&text[..len]);
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the interface was removed");
    parse(&text, interface, field).ok_or_else(missing)
}

fn parse(text: &str, interface: &str, field: usize) -> Option<u64> {
    let named = |line: &str| {
        let (name, numbers) = line.rsplit_once(':')?;
        (name.trim() == interface).then(|| numbers.to_owned())
    };
    text.lines().find_map(named)?.split_whitespace().nth(field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_parsed_from_interface_line() {
        let text = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls
    lo:       1       2    3    4    5     6          7         8        9      10   11   12    13    14
 tap-a:      21      22   23   24   25    26         27        28       29      30   31   32    33    34
";
        assert_eq!(parse(text, "lo", RX_DROPPED), Some(4));
        assert_eq!(parse(text, "tap-a", TX_DROPPED), Some(32));
        assert_eq!(parse(text, "tap", TX_DROPPED), None);
    }
}
