//! One stream on the receiver's side.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::calls;
use super::pattern::{self, HEAD_LEN, Pattern};

/// A connection, on the receiver's side.
pub(super) struct Incoming {
    pub(super) socket: OwnedFd,
    head: [u8; HEAD_LEN],
    /// Bytes read from the connection.
    offset: u64,
    /// Number of the stream, once its head was read.
    pub(super) number: Option<u16>,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Nothing to read now.
    Nothing,
    /// This many more intact bytes of the stream; 0 while its head is incomplete.
    Intact(usize),
    /// Bytes that differ from those of the stream.
    Corrupt,
    /// Not a test stream: its head is wrong.
    Foreign,
    /// The stream has ended.
    End,
    /// The connection broke.
    Broken,
}

impl Incoming {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, head: [0; HEAD_LEN], offset: 0, number: None }
    }

    /// Reads once into `buffer` and checks the bytes.
    pub(super) fn read(&mut self, buffer: &mut [u8], pattern: &Pattern, whole: bool) -> Read {
        match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Read::End,
            Ok((len, _)) => self.check(&buffer[..len], pattern, whole),
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            Err(_) => Read::Broken,
        }
    }

    fn check(&mut self, bytes: &[u8], pattern: &Pattern, whole: bool) -> Read {
        let (mut rest, mut count) = (bytes, bytes.len());
        if self.number.is_none() {
            let at = self.offset as usize;
            let (head, behind) = bytes.split_at(bytes.len().min(HEAD_LEN - at));
            self.head[at..at + head.len()].copy_from_slice(head);
            self.offset += head.len() as u64;
            if self.offset < HEAD_LEN as u64 {
                return Read::Intact(0);
            }
            self.number = pattern::number(&self.head);
            (rest, count) = (behind, HEAD_LEN + behind.len());
        }
        let Some(number) = self.number else { return Read::Foreign };
        let intact = pattern.matches(number, self.offset, rest, whole);
        self.offset += rest.len() as u64;
        if intact { Read::Intact(count) } else { Read::Corrupt }
    }

    /// Returns the bytes that TCP itself carried, by the kernel's count. `ended`: the count
    /// includes the connection's end, which counts as one.
    pub(super) fn by_tcp(&self, ended: bool) -> io::Result<u64> {
        let info = calls::tcp_info(self.socket.as_fd())?;
        Ok(info.received.saturating_sub(u64::from(ended)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming() -> Incoming {
        let (a, _) = std::os::unix::net::UnixStream::pair().unwrap();
        Incoming::new(a.into())
    }

    fn stream(number: u16, pattern: &Pattern) -> Vec<u8> {
        let behind = pattern.at(number, HEAD_LEN as u64);
        [&pattern::head(number)[..], behind].concat()
    }

    #[test]
    fn stream_is_intact_in_any_pieces() {
        let pattern = Pattern::new(5000);
        let bytes = stream(3, &pattern);
        for cut in [1, 7, 16, 17, 100, 4999] {
            let mut incoming = incoming();
            let mut count = 0;
            for part in bytes.chunks(cut) {
                match incoming.check(part, &pattern, true) {
                    Read::Intact(more) => count += more,
                    other => panic!("{other:?} in pieces of {cut}"),
                }
            }
            assert_eq!((incoming.number, count), (Some(3), bytes.len()), "{cut}");
        }
    }

    #[test]
    fn missing_byte_corrupts_the_rest() {
        let pattern = Pattern::new(5000);
        let mut bytes = stream(0, &pattern);
        bytes.remove(1000);
        let mut incoming = incoming();
        let reads: Vec<_> =
            bytes.chunks(500).map(|part| incoming.check(part, &pattern, false)).collect();
        assert_eq!(reads[..2], [Read::Intact(500); 2]);
        assert!(reads[2..].iter().all(|read| *read == Read::Corrupt), "{reads:?}");
    }

    #[test]
    fn other_bytes_are_a_foreign_stream() {
        let pattern = Pattern::new(100);
        assert_eq!(incoming().check(b"GET / HTTP/1.1\r\n\r\n", &pattern, false), Read::Foreign);
        let mut slow = incoming();
        assert_eq!(slow.check(b"GET /", &pattern, false), Read::Intact(0));
        assert_eq!(slow.check(b" HTTP/1.1\r\n", &pattern, false), Read::Foreign);
    }
}
