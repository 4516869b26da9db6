//! Store of the supervisor, with which a process passes its state to the next process of its
//! program: systemd's file descriptor store (sd_notify(3), `FDSTORE=1`).
//!
//! The program stores *pages*: each is some text and any number of descriptors. A page is an unread
//! message at one end of a connection whose other end is closed, and the supervisor has that end:
//! whatever happens to this process, the page is complete or missing. A process that reads a page
//! takes it out of the store, so that an invalid page is tried only once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::ioctl_fionread;

use crate::Channel;
use crate::calls::inherited;
use crate::notify::{NotifySocket, Supervisor};

/// Names of pages in the store begin with this; their number follows.
const NAME: &str = "dray-";
/// Maximum length of a page's text in bytes.
const TEXT_MAX: u64 = 1 << 28;
/// Time limit for a message without a reply.
const PATIENCE: Duration = Duration::from_millis(100);

/// The supervisor's store.
#[derive(Debug)]
pub struct Store {
    socket: Arc<NotifySocket>,
    /// Number of pages stored so far.
    count: AtomicU64,
}

/// A page in the store.
#[derive(Debug)]
pub struct StoredPage {
    number: u64,
    waits: Channel,
}

/// A page of another process.
#[derive(Debug)]
pub struct OwnedPage {
    /// Text of the page.
    pub text: Vec<u8>,
    /// Descriptors of the page.
    pub descriptors: Vec<OwnedFd>,
}

impl Store {
    /// Returns the store of `supervisor`, if there is one.
    pub fn of(supervisor: &Supervisor) -> Option<Self> {
        let socket = supervisor.socket.clone()?;
        Some(Self::new(socket))
    }

    fn new(socket: Arc<NotifySocket>) -> Self {
        Self { socket, count: AtomicU64::new(0) }
    }

    /// Stores a page with the supervisor. A supervisor without a store, or whose store is full,
    /// drops it without an error.
    pub fn put(&self, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<StoredPage> {
        // A connection whose other end is not read has room for little.
        let mut file = File::from(memfd_create("dray-page", MemfdFlags::CLOEXEC)?);
        file.write_all(text)?;
        let (channel, waits) = Channel::pair()?;
        let file = [file.as_fd()].into_iter();
        let descriptors: Vec<_> = file.chain(descriptors.iter().copied()).collect();
        channel.send(&[], &descriptors, PATIENCE)?;
        drop(channel);
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        // The other end is closed, which would take it out of the store.
        let message = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={NAME}{number}");
        self.socket.send(&message, &[waits.as_fd()])?;
        Ok(StoredPage { number, waits: Channel::of(waits)? })
    }

    /// Takes a page out of the store, and closes its descriptors.
    pub fn remove(&self, page: &StoredPage) {
        // An empty page counts as none, if this message does not arrive.
        let _ = self.socket.send(&format!("FDSTOREREMOVE=1\nFDNAME={NAME}{}", page.number), &[]);
        let _ = page.waits.receive(PATIENCE);
    }

    /// Takes out the pages that an earlier process has stored, in that order.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn take(&self) -> Result<Vec<OwnedPage>, String> {
        let mut pages = BTreeMap::new();
        let mut wrong = None;
        for (name, descriptor) in inherited() {
            let Some(number) =
                name.strip_prefix(NAME).and_then(|number| number.parse::<u64>().ok())
            else {
                continue;
            };
            let _ = self.socket.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]);
            match read(descriptor) {
                Ok(page) => pages.extend(page.map(|page| (number, page))),
                Err(error) => wrong = Some(format!("page {number}: {error}")),
            }
        }
        wrong.map_or_else(|| Ok(pages.into_values().collect()), Err)
    }
}

/// Reads a page; `None` if it has been removed.
fn read(descriptor: OwnedFd) -> io::Result<Option<OwnedPage>> {
    if ioctl_fionread(&descriptor)? == 0 {
        return Ok(None);
    }
    let (_, descriptors) = Channel::of(descriptor)?.receive(PATIENCE)?;
    let mut descriptors = descriptors.into_iter();
    let file = descriptors.next().ok_or_else(|| io::Error::other("it has no text"))?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    let mut text = Vec::new();
    File::from(file).take(TEXT_MAX).read_to_end(&mut text)?;
    Ok(Some(OwnedPage { text, descriptors: descriptors.collect() }))
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::mem::MaybeUninit;
    use std::os::unix::net::UnixDatagram;

    use rustix::cmsg_space;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    use super::*;

    fn received(supervisor: &UnixDatagram) -> (String, Vec<OwnedFd>) {
        let mut bytes = [0; 128];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = recvmsg(supervisor, &mut parts, &mut ancillary, flags).unwrap().bytes;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                descriptors.extend(came);
            }
        }
        (String::from_utf8(bytes[..length].to_vec()).unwrap(), descriptors)
    }

    #[test]
    fn page_is_stored_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        let store = Store::new(Arc::new(NotifySocket::open(path.to_str().unwrap()).unwrap()));
        let files: Vec<_> = (0..300).map(|_| File::open("/dev/null").unwrap()).collect();
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let text = vec![b'x'; 1 << 20];
        drop(store.put(&text, &files).unwrap());
        let second_page = store.put(b"second", &[]).unwrap();
        let (message, mut first) = received(&supervisor);
        assert_eq!(message, "FDSTORE=1\nFDPOLL=0\nFDNAME=dray-0");
        let (message, mut second) = received(&supervisor);
        assert_eq!(message, "FDSTORE=1\nFDPOLL=0\nFDNAME=dray-1");
        store.remove(&second_page);
        assert_eq!(received(&supervisor).0, "FDSTOREREMOVE=1\nFDNAME=dray-1");
        let page = read(first.remove(0)).unwrap().expect("a page");
        assert_eq!((page.text == text, page.descriptors.len()), (true, 300));
        assert!(read(second.remove(0)).unwrap().is_none());
        assert!(read(File::open("/dev/null").unwrap().into()).is_err());
    }
}
