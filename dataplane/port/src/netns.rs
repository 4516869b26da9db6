//! Opening a port in another network namespace.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::query::{Query, UriError};
use crate::scheme::Failed;

/// Takes the key `netns`: the file of the network namespace that has the port.
pub(crate) fn parse(query: &mut Query<'_>) -> Result<Option<PathBuf>, UriError> {
    let allowed = "the path of a network namespace's file, such as /proc/1/ns/net";
    query.take("netns", allowed, |text| text.starts_with('/').then(|| PathBuf::from(text)))
}

/// Runs `open` in the network namespace at `path`; without a path, in the calling thread's.
pub(crate) fn open_in<T: Send>(
    path: Option<&Path>,
    open: impl FnOnce() -> Result<T, Failed> + Send,
) -> Result<T, Failed> {
    let Some(path) = path else { return open() };
    let fail = |error| ("network namespace", error);
    let namespace = File::open(path).map_err(fail)?;
    let within = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| fail(errno.into()))?;
        open()
    };
    // The thread's change of its namespace ends with it.
    thread::scope(|scope| {
        scope.spawn(within).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
