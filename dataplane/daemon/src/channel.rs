//! Messages with any number of file descriptors, between two processes of one user.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair, sockopt,
};

/// Number of descriptors that come with one byte.
const CHUNK: usize = 64;
/// Maximum number of descriptors of a message.
const DESCRIPTORS_MAX: usize = 1 << 16;
/// Maximum length of a message in bytes.
const LEN_MAX: usize = 1 << 28;

/// One end of a connection on which messages are exchanged.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Creates both ends.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((Self(ours), theirs))
    }

    /// Takes the end that another process has made.
    pub fn of(socket: OwnedFd) -> io::Result<Self> {
        let is_right = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&socket) == Ok(SocketType::STREAM);
        match is_right {
            true => Ok(Self(socket)),
            false => Err(io::Error::other("it is not a Unix stream socket")),
        }
    }

    /// Sends a message. Waits at most `patience` for the other end to read. Only waiting counts: a
    /// busy machine may let this process run later.
    pub fn send(
        &self,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        let head = [message.len() as u64, descriptors.len() as u64].map(u64::to_ne_bytes);
        self.write(head.as_flattened(), &[], deadline)?;
        for chunk in descriptors.chunks(CHUNK) {
            self.write(&[0], chunk, deadline)?;
        }
        self.write(message, &[], deadline)
    }

    fn write(
        &self,
        mut bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(CHUNK))];
        while !bytes.is_empty() {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                // They come with the only byte.
                ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            let parts = [IoSlice::new(bytes)];
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.0, &parts, &mut ancillary, flags) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Receives a message. Waits at most `patience` until all of it has come; only waiting counts.
    pub fn receive(&self, patience: Duration) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let deadline = Instant::now() + patience;
        let mut descriptors = Vec::new();
        let mut head = [[0; 8]; 2];
        self.read(head.as_flattened_mut(), &mut descriptors, deadline)?;
        let [len, count] = head.map(|bytes| usize::try_from(u64::from_ne_bytes(bytes)));
        let (Ok(len @ ..=LEN_MAX), Ok(count @ ..=DESCRIPTORS_MAX)) = (len, count) else {
            return Err(io::Error::other("invalid length of a message"));
        };
        for _ in 0..count.div_ceil(CHUNK) {
            self.read(&mut [0], &mut descriptors, deadline)?;
        }
        // Grows as bytes arrive: the announced length may be wrong.
        let mut message = Vec::new();
        while message.len() < len {
            let have = message.len();
            message.resize(len.min(have + (1 << 20)), 0);
            self.read(&mut message[have..], &mut descriptors, deadline)?;
        }
        match descriptors.len() == count {
            true => Ok((message, descriptors)),
            false => {
                let have = descriptors.len();
                let what = format!("{have} of {count} file descriptors came: `ulimit -n`?");
                Err(io::Error::other(what))
            }
        }
    }

    fn read(
        &self,
        mut bytes: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
        deadline: Instant,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(CHUNK))];
        while !bytes.is_empty() {
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = match recvmsg(&self.0, &mut parts, &mut ancillary, flags) {
                Ok(received) => received.bytes,
                Err(Errno::AGAIN) => {
                    self.wait(PollFlags::IN, deadline)?;
                    continue;
                }
                Err(errno) => return Err(errno.into()),
            };
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = message {
                    descriptors.extend(came);
                }
            }
            if received == 0 {
                let what = "the other process has ended, or given up";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            bytes = &mut bytes[received..];
        }
        Ok(())
    }

    /// Waits at most until `deadline` for the other end to send or to read.
    fn wait(&self, events: PollFlags, deadline: Instant) -> io::Result<()> {
        let rest = deadline.saturating_duration_since(Instant::now());
        let rest = Timespec::try_from(rest).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.0, events)], Some(&rest)) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "the other process is silent")),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ends the connection: the other end can send nothing from now on. What it has sent before can
    /// still be received.
    pub fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn long_message_arrives_with_all_descriptors() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs).unwrap();
        let message = vec![7; 3 << 20];
        let files: Vec<_> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
        thread::scope(|scope| {
            let sent = scope.spawn(|| {
                let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
                ours.send(&message, &files, PATIENCE)?;
                ours.send(b"", &[], PATIENCE)
            });
            let (received, descriptors) = theirs.receive(PATIENCE).unwrap();
            assert_eq!((received == message, descriptors.len()), (true, 200));
            assert_eq!(theirs.receive(PATIENCE).unwrap().0, b"");
            sent.join().unwrap().unwrap();
        });
    }

    #[test]
    fn truncated_message_is_an_error() {
        let head = |len: u64, count: u64| [len, count].map(u64::to_ne_bytes).concat();
        for (bytes, part) in [
            (vec![], "ended"),
            (vec![1; 7], "ended"),
            ([head(4, 0), vec![1; 3]].concat(), "ended"),
            (head(u64::MAX, 0), "invalid length"),
            (head(0, u64::MAX), "invalid length"),
            ([head(0, 1), vec![0]].concat(), "0 of 1 file descriptors"),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&bytes).unwrap();
            drop(theirs);
            let error = Channel::of(ours.into()).unwrap().receive(PATIENCE).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn silent_end_is_waited_for_only_so_long() {
        let (ours, _theirs) = Channel::pair().unwrap();
        let error = ours.receive(Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error:?}");
    }

    #[test]
    fn what_has_come_is_received_however_late() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs).unwrap();
        let files: Vec<_> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        ours.send(b"all", &files, Duration::ZERO).unwrap();
        drop(ours);
        let (received, descriptors) = theirs.receive(Duration::ZERO).unwrap();
        assert_eq!((&received[..], descriptors.len()), (&b"all"[..], 200));
    }

    #[test]
    fn nothing_can_be_sent_to_a_closed_end() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs).unwrap();
        theirs.send(b"before", &[], PATIENCE).unwrap();
        ours.close();
        assert!(theirs.send(b"after", &[], PATIENCE).is_err());
        assert_eq!(ours.receive(PATIENCE).unwrap().0, b"before");
        assert!(ours.receive(PATIENCE).is_err());
    }
}
