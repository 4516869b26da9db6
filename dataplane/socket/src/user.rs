//! User that a daemon runs as, which root has started.

use std::io;

use rustix::fs::{Gid, Mode, OFlags, chownat, fchmod, fstat, openat};

use crate::FOLDER;
use crate::access::{Account, accounts};
use crate::place::{find_own_directory, own_directory};

/// A user, with the groups of its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name, or number if it has none.
    pub name: String,
    /// Number of the user.
    pub uid: u32,
    /// Number of the user's group.
    pub gid: u32,
    /// Numbers of all its groups.
    pub groups: Vec<u32>,
}

impl User {
    /// Name of the user that the packages add.
    pub const USUAL: &str = "dray";

    /// Looks up a user by `USER[:GROUP]`, names or numbers, in `/etc/passwd` and `/etc/group`.
    /// Returns `None` if there is no such user.
    ///
    /// # Errors
    /// A text of another form, or a group that is not in `/etc/group`.
    pub fn find(text: &str) -> Result<Option<Self>, String> {
        let [passwd, group] = accounts();
        find_in(text, &passwd.entries(), &group.entries())
    }
}

fn find_in(text: &str, users: &[Vec<&str>], groups: &[Vec<&str>]) -> Result<Option<User>, String> {
    let (user, group) =
        text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let is_account = |text: &str| text.parse::<Account>().is_ok();
    if !is_account(user) || group.is_some_and(|group| !is_account(group)) {
        return Err("allowed is USER or USER:GROUP, each a name or a number".to_owned());
    }
    let number =
        |entry: &[&str], at: usize| entry.get(at).and_then(|text| text.parse::<u32>().ok());
    let uid: Option<u32> = user.parse().ok();
    let entry = users.iter().find(|entry| match uid {
        Some(_) => number(entry, 2) == uid,
        None => entry[0] == user,
    });
    let Some(uid) = uid.or_else(|| number(entry?, 2)) else { return Ok(None) };
    let of_user = || entry.and_then(|entry| number(entry, 3));
    let gid = match group {
        None => {
            of_user().ok_or_else(|| format!("not in /etc/passwd; give its group: {uid}:GROUP"))?
        }
        Some(group) => group
            .parse()
            .ok()
            .or_else(|| groups.iter().find(|entry| entry[0] == group).and_then(|it| number(it, 2)))
            .ok_or_else(|| {
                format!("group {group}: not in /etc/group; give a name in this file, or a number")
            })?,
    };
    let name = entry.map_or(user, |entry| entry[0]);
    let is_member = |entry: &&Vec<&str>| {
        entry.get(3).is_some_and(|members| members.split(',').any(|member| member == name))
    };
    let others = groups.iter().filter(is_member).filter_map(|entry| number(entry, 2));
    let groups = [gid].into_iter().chain(others.filter(|other| *other != gid)).collect();
    Ok(Some(User { name: name.to_owned(), uid, gid, groups }))
}

/// Lets the group `gid`, which the calling process is in, create files in the default directory of
/// sockets, if that belongs to root alone: like the package's description of it for
/// systemd-tmpfiles. Members cannot replace files of others. Makes the directory if it is missing.
pub fn share_folder(gid: u32) -> io::Result<()> {
    own_directory(FOLDER.as_ref(), 0o755)?;
    // Root makes the directory before another user can make one of the same name.
    for name in ["cni", "vhost", "claims"] {
        own_directory(format!("{FOLDER}/{name}").as_ref(), 0o700)?;
    }
    let Some(folder) = find_own_directory(FOLDER.as_ref())? else { return Ok(()) };
    let stat = fstat(&folder)?;
    if stat.st_uid != 0 || ![0, gid].contains(&stat.st_gid) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(&folder, ".", flags, Mode::empty())?;
    chownat(&folder, "", None, Some(Gid::from_raw(gid)), rustix::fs::AtFlags::EMPTY_PATH)?;
    Ok(fchmod(&folder, Mode::from_raw_mode(0o1775))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Result<Option<User>, String> {
        let entries = |text: &'static str| -> Vec<Vec<&str>> {
            text.lines().map(|line| line.split(':').collect()).collect()
        };
        let passwd = entries("root:x:0:0:root:/:/bin/sh\ndray:x:977:978::/run/dray:\nbroken\n");
        let group = entries("root:x:0:\nkvm:x:107:qemu,dray\ndray:x:978:dray\nx:y\nno:x:5:draya\n");
        find_in(text, &passwd, &group)
    }

    #[test]
    fn user_is_found_with_groups() {
        let user = |name: &str, uid, groups: &[u32]| {
            let (name, gid, groups) = (name.to_owned(), groups[0], groups.to_vec());
            Ok(Some(User { name, uid, gid, groups }))
        };
        let dray = |groups: &[u32]| user("dray", 977, groups);
        assert_eq!(find("dray"), dray(&[978, 107]));
        assert_eq!(find("977"), dray(&[978, 107]));
        assert_eq!(find("dray:kvm"), dray(&[107, 978]));
        assert_eq!(find("dray:5"), dray(&[5, 107, 978]));
        assert_eq!(find("42:43"), user("42", 42, &[43]));
        for unknown in ["nosuch", "broken", "nosuch:kvm"] {
            assert_eq!(find(unknown), Ok(None), "{unknown}");
        }
    }

    #[test]
    fn wrong_user_is_named() {
        for (text, part) in [
            ("42", "not in /etc/passwd; give its group: 42:GROUP"),
            ("dray:nosuch", "group nosuch: not in /etc/group"),
            ("", "allowed is USER or USER:GROUP"),
            ("dray:", "allowed is USER"),
            ("4294967295", "allowed is USER"),
            ("a b", "allowed is USER"),
        ] {
            let why = find(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
