//! Parameters of a request: environment variables that the runtime sets.

use std::path::{Path, PathBuf};

use crate::reply::{CniError, code};

/// A container's interface that a request concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) container: String,
    /// Name of the interface in the container.
    pub(crate) interface: String,
    /// File of the container's network namespace; `None` if it is gone.
    pub(crate) netns: Option<PathBuf>,
}

/// Environment variables, by name.
pub(crate) type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

/// Maximum length of a container's identifier, so that it can be in the name of a file.
const CONTAINER_MAX: usize = 200;

impl Call {
    /// Reads the variables of ADD, CHECK and DEL. Only DEL can do without a namespace.
    pub(crate) fn read(variables: Variables<'_>, needs_netns: bool) -> Result<Self, CniError> {
        let get = |name: &str| variables(name).filter(|value| !value.is_empty());
        let invalid = |what: String| CniError::new(code::INVALID_ENVIRONMENT, what);
        let container = get("CNI_CONTAINERID").ok_or_else(|| {
            invalid("CNI_CONTAINERID: missing; give the container's identifier".into())
        })?;
        if !is_identifier(&container) {
            return Err(invalid(format!(
                "CNI_CONTAINERID={container}: give 1 to {CONTAINER_MAX} of A-Z a-z 0-9 . _ -, \
                 beginning with a letter or digit"
            )));
        }
        let interface = get("CNI_IFNAME")
            .ok_or_else(|| invalid("CNI_IFNAME: missing; give a name, for example eth0".into()))?;
        if interface.len() > 15 || !is_identifier(&interface) {
            return Err(invalid(format!(
                "CNI_IFNAME={interface}: give 1 to 15 of A-Z a-z 0-9 . _ -, beginning with a letter \
                 or digit"
            )));
        }
        let netns = get("CNI_NETNS").map(PathBuf::from);
        match &netns {
            None if needs_netns => {
                let what = "CNI_NETNS: missing; give the file of the container's network namespace";
                return Err(invalid(what.to_owned()));
            }
            Some(path) => check_netns("CNI_NETNS=", path)?,
            None => {}
        }
        Ok(Self { container, interface, netns })
    }
}

pub(crate) fn is_identifier(text: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    text.len() <= CONTAINER_MAX
        && text.bytes().all(known)
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// Checks the path of a container's network namespace, which becomes a value in the port's URI.
/// `name` precedes it in the error.
pub(crate) fn check_netns(name: &str, path: &Path) -> Result<(), CniError> {
    if path.is_absolute() && path.to_str().is_some_and(|text| !text.contains(['&', '\n'])) {
        return Ok(());
    }
    let what = "give the absolute path of a network namespace, without & and line ends";
    Err(CniError::new(code::INVALID_ENVIRONMENT, format!("{name}{}: {what}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)], needs_netns: bool) -> Result<Call, CniError> {
        let get = |name: &str| {
            let found = given.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Call::read(&get, needs_netns)
    }

    #[test]
    fn invalid_variable_is_named() {
        let right = [("CNI_CONTAINERID", "a"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "/a")];
        assert_eq!(read(&right, true).unwrap().interface, "eth0");
        for (name, value, part) in [
            ("CNI_CONTAINERID", "", "CNI_CONTAINERID: missing"),
            ("CNI_CONTAINERID", "../a", "CNI_CONTAINERID=../a: give 1 to 200"),
            ("CNI_IFNAME", "", "CNI_IFNAME: missing"),
            ("CNI_IFNAME", "a/b", "CNI_IFNAME=a/b: give 1 to 15"),
            ("CNI_IFNAME", "..", "CNI_IFNAME=..: give 1 to 15"),
            ("CNI_IFNAME", "sixteen_letters_", "CNI_IFNAME=sixteen"),
            ("CNI_NETNS", "", "CNI_NETNS: missing"),
            ("CNI_NETNS", "a", "CNI_NETNS=a: give the absolute path"),
            ("CNI_NETNS", "/a&b", "CNI_NETNS=/a&b: give"),
        ] {
            let mut given = right;
            given.iter_mut().filter(|(key, _)| *key == name).for_each(|pair| pair.1 = value);
            let error = read(&given, true).unwrap_err();
            assert_eq!(error.code, code::INVALID_ENVIRONMENT);
            assert!(error.msg.contains(part), "{}", error.msg);
        }
        assert_eq!(read(&right[..2], false).unwrap().netns, None);
    }
}
