//! Rights to connect to a socket: mode, owner and group of its file.

use std::fs;
use std::io;
use std::str::FromStr;
use std::sync::LazyLock;

use rustix::fs::{Gid, Uid};

/// Mode of a socket's file if only an owner or a group is given.
const MODE_USUAL: u32 = 0o660;

/// Mode, owner and group of a socket's file. Without any of them, the umask gives the mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Permission bits, 0 to 0777. Connecting requires write permission.
    pub mode: Option<u32>,
    /// The user that owns the file.
    pub owner: Option<Account>,
    /// The group of the file.
    pub group: Option<Account>,
}

/// Name or number of a user or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account(String);

/// Rights as the kernel takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) mode: u32,
    pub(crate) owner: Option<Uid>,
    pub(crate) group: Option<Gid>,
}

impl Access {
    /// The keys in a URI's query.
    pub const KEYS: [&str; 3] = ["mode", "owner", "group"];
    /// Values that `mode` takes.
    pub const MODES: &str = "three or four octal digits, 000 to 0777, for example 0660";
    /// Values that `owner` takes.
    pub const OWNERS: &str = "the name or number of a user";
    /// Values that `group` takes.
    pub const GROUPS: &str = "the name or number of a group";

    /// Parses a mode; `None` if it is invalid.
    pub fn parse_mode(text: &str) -> Option<u32> {
        let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777)
    }

    /// Returns the keys and values that are given, as in a URI.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let account = |account: &Option<Account>| account.as_ref().map(|account| account.0.clone());
        let mode = self.mode.map(|mode| format!("{mode:04o}"));
        let values = [mode, account(&self.owner), account(&self.group)];
        Self::KEYS.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)))
    }

    /// Looks up names. Returns `None` if nothing is given.
    pub(crate) fn rights(&self) -> io::Result<Option<Rights>> {
        if *self == Self::default() {
            return Ok(None);
        }
        let [users, groups] = &*ACCOUNTS;
        let owner = self.owner.as_ref().map(|owner| owner.number("owner", users)).transpose()?;
        let group = self.group.as_ref().map(|group| group.number("group", groups)).transpose()?;
        Ok(Some(Rights {
            mode: self.mode.unwrap_or(MODE_USUAL),
            owner: owner.map(Uid::from_raw),
            group: group.map(Gid::from_raw),
        }))
    }
}

/// A file of names and numbers: passwd(5), group(5).
pub(crate) struct Accounts {
    path: &'static str,
    text: io::Result<String>,
}

static ACCOUNTS: LazyLock<[Accounts; 2]> = LazyLock::new(|| {
    ["/etc/passwd", "/etc/group"].map(|path| Accounts { path, text: fs::read_to_string(path) })
});

/// Reads the names of users and groups, for the time when the process may not read files any more.
pub fn read_accounts() {
    LazyLock::force(&ACCOUNTS);
}

/// Returns the users and the groups.
pub(crate) fn accounts() -> &'static [Accounts; 2] {
    &ACCOUNTS
}

impl Accounts {
    /// Returns the fields of each line; none if the file cannot be read.
    pub(crate) fn entries(&self) -> Vec<Vec<&str>> {
        let text = self.text.as_deref().unwrap_or_default();
        text.lines().map(|line| line.split(':').collect()).collect()
    }
}

impl Account {
    fn number(&self, key: &str, accounts: &Accounts) -> io::Result<u32> {
        if let Ok(number) = self.0.parse() {
            return Ok(number);
        }
        let (name, path) = (&self.0, accounts.path);
        let wrong = |kind, what: String| Err(io::Error::new(kind, format!("{key}={name}: {what}")));
        if let Err(error) = &accounts.text {
            let what = format!("{path}: {error}; give the number of the {key}");
            return wrong(error.kind(), what);
        }
        let entries = accounts.entries();
        let mut named = entries.iter().filter(|fields| fields[0] == name);
        let number = named.find_map(|fields| fields.get(2)?.parse().ok());
        match number {
            Some(number) => Ok(number),
            None => wrong(
                io::ErrorKind::NotFound,
                format!("not in {path}; give a name in this file, or a number"),
            ),
        }
    }
}

impl FromStr for Account {
    type Err = ();

    /// Accepts names that `useradd` accepts, and numbers.
    fn from_str(text: &str) -> Result<Self, ()> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let is_number = text.bytes().all(|b| b.is_ascii_digit());
        // The kernel takes the highest number for "unchanged".
        let in_range = !is_number || text.parse().is_ok_and(|number: u32| number < u32::MAX);
        let fits = (1..=32).contains(&text.len()) && text.bytes().all(plain) && in_range;
        if fits && !text.starts_with('-') { Ok(Self(text.to_owned())) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_octal_without_special_bits() {
        for (text, mode) in [("0660", 0o660), ("777", 0o777), ("000", 0)] {
            assert_eq!(Access::parse_mode(text), Some(mode));
        }
        for wrong in ["", "6", "66", "0888", "1777", "00660", "+660", "rw-", "0o660"] {
            assert_eq!(Access::parse_mode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn account_is_name_or_number() {
        for right in ["0", "107", "root", "www-data", "a.b_c"] {
            assert_eq!(right.parse::<Account>(), Ok(Account(right.to_owned())));
        }
        for wrong in ["", "-1", "a b", "a:b", "4294967295", "99999999999", "ä", &"x".repeat(33)] {
            assert!(wrong.parse::<Account>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_group_is_named_with_its_file() {
        let access = Access { group: Some("nosuch".parse().unwrap()), ..Access::default() };
        let error = access.rights().unwrap_err().to_string();
        assert_eq!(error, "group=nosuch: not in /etc/group; give a name in this file, or a number");
        let access = Access { group: Some("root".parse().unwrap()), ..Access::default() };
        let rights = access.rights().unwrap().unwrap();
        assert_eq!((rights.mode, rights.owner, rights.group), (0o660, None, Some(Gid::ROOT)));
        assert_eq!(Access::default().rights().unwrap(), None);
    }
}
