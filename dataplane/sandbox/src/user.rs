//! Another user for a process of root: first it acts as this user with its capabilities, so that
//! what it creates belongs to that user, and then it becomes this user without any.
//!
//! The calls concern the calling thread and those that it starts later, so there must be no others.

use std::io;

use rustix::process::{
    Gid, Uid, geteuid, getuid, parent_process_death_signal, set_parent_process_death_signal,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::capabilities;

/// Takes the group `gid`, and `groups` besides, instead of those of root.
pub fn join_groups(gid: u32, groups: &[u32]) -> io::Result<()> {
    let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
    let gid = Gid::from_raw(gid);
    with_same_parent(|| {
        set_thread_groups(&groups)?;
        Ok(set_thread_res_gid(gid, gid, gid)?)
    })
}

/// Acts as the user `uid`, with the capabilities of before. With 0, acts as root again.
pub fn act_as(uid: u32) -> io::Result<()> {
    with_same_parent(|| {
        set_thread_res_uid(None, Uid::from_raw(uid), None)?;
        capabilities::raise()
    })
}

/// Becomes the user that the process acts as. There is no way back.
pub fn become_user() -> io::Result<()> {
    let user = geteuid();
    // A supervisor may forbid the call.
    if getuid() == user {
        return Ok(());
    }
    with_same_parent(|| Ok(set_thread_res_uid(user, user, user)?))
}

/// Does `change`, at which the kernel forgets the signal that the process gets when its parent
/// dies.
fn with_same_parent(change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let signal = parent_process_death_signal()?;
    change()?;
    Ok(set_parent_process_death_signal(signal)?)
}
