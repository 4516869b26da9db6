//! Runtimes, and the programs that each needs.

use std::fmt;
use std::process::Command;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::process::installed;

/// Time limit for a runtime to print its version. Some are slow to start, especially on a busy
/// machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runtime that creates the containers in which roles run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// The lab: a process in its own namespaces that sees the machine's files.
    #[default]
    Embedded,
    /// A private Docker engine.
    Docker,
    /// Podman.
    Podman,
    /// LXC's `lxc-start`.
    Lxc,
    /// `crun` with a bundle.
    Crun,
    /// `runc` with a bundle.
    Runc,
}

/// Programs that must be installed for a runtime.
struct Requirement {
    /// Program that prints the version.
    program: &'static str,
    /// Other required programs, of the same package or its dependencies.
    others: &'static [&'static str],
    /// Oldest supported version.
    oldest: (u32, u32),
    /// Debian package.
    package: &'static str,
}

impl Runtime {
    /// All runtimes.
    pub const ALL: [Self; 6] =
        [Self::Embedded, Self::Docker, Self::Podman, Self::Lxc, Self::Crun, Self::Runc];

    /// Name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Lxc => "lxc",
            Self::Crun => "crun",
            Self::Runc => "runc",
        }
    }

    fn requirement(self) -> Option<Requirement> {
        let of = |program, others, oldest, package| {
            Some(Requirement { program, others, oldest, package })
        };
        match self {
            Self::Embedded => None,
            // Since this version, no image has to be pulled, and the control group's place can be
            // set in both cgroup versions.
            Self::Docker => of("dockerd", &["docker", "containerd"], (20, 10), "docker.io"),
            Self::Podman => of("podman", &["conmon"], (3, 4), "podman"),
            // Since this version, the control group's place can be set.
            Self::Lxc => of("lxc-start", &[], (4, 0), "lxc"),
            Self::Crun => of("crun", &[], (1, 0), "crun"),
            Self::Runc => of("runc", &[], (1, 0), "runc"),
        }
    }

    /// Returns the version. The error for a missing or outdated runtime says what to install.
    pub fn version(self) -> Result<String, LabError> {
        self.find().map_err(|what| {
            let package = self.package().unwrap_or_default();
            self.wrong(format!("{what}; apt install {package}"))
        })
    }

    /// Returns the Debian package.
    pub(crate) fn package(self) -> Option<&'static str> {
        self.requirement().map(|requirement| requirement.package)
    }

    /// Returns the version, or what is wrong with the installation. Each program prints its version
    /// once: some take a second.
    pub(crate) fn find(self) -> Result<String, String> {
        static FOUND: [OnceLock<Result<String, String>>; Runtime::ALL.len()] =
            [const { OnceLock::new() }; Runtime::ALL.len()];
        FOUND[self as usize].get_or_init(|| self.read_version()).clone()
    }

    fn read_version(self) -> Result<String, String> {
        let Some(requirement) = self.requirement() else {
            return Ok(env!("CARGO_PKG_VERSION").to_owned());
        };
        let Requirement { program, others, oldest, .. } = requirement;
        let find = |program: &str| {
            installed::find(program, None).ok_or_else(|| format!("{program} is not installed"))
        };
        let file = find(program)?;
        others.iter().try_for_each(|other| find(other).map(drop))?;
        let mut question = Command::new(file);
        let answer = installed::first_answer(question.arg("--version"), TIMEOUT);
        let answer = answer.unwrap_or_default();
        let (version, number) = parse_version(&answer)
            .ok_or_else(|| format!("unexpected output of {program} --version: {answer:?}"))?;
        if number < oldest {
            let (major, minor) = oldest;
            return Err(format!(
                "{program} {version} is too old; {major}.{minor} or later is required"
            ));
        }
        Ok(version.to_owned())
    }

    pub(super) fn wrong(self, what: String) -> LabError {
        LabError::Runtime { runtime: self.name(), what }
    }
}

/// Finds the version in a line such as `Docker version 20.10.24+dfsg1, build 297e128`, and its
/// first two numbers.
pub(super) fn parse_version(line: &str) -> Option<(&str, (u32, u32))> {
    let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let version = line.split_whitespace().find(is_version)?.trim_end_matches(',');
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((version, (numbers.next()?.ok()?, numbers.next()?.ok()?)))
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|runtime| runtime.name() == text);
        found.ok_or_else(|| dray_text::advice(text, Self::ALL.map(Self::name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_engine_versions() {
        let version = |line| parse_version(line).map(|(_, number)| number);
        for (line, expected) in [
            ("Docker version 20.10.24+dfsg1, build 297e128", (20, 10)),
            ("podman version 4.3.1", (4, 3)),
            ("5.0.2", (5, 0)),
            ("crun version 1.8.1", (1, 8)),
            ("runc version 1.1.5+ds1", (1, 1)),
            ("runc version 1.2-rc1", (1, 2)),
        ] {
            assert_eq!(version(line), Some(expected), "{line}");
        }
        for line in ["", "Docker", "version x.y", "7"] {
            assert_eq!(version(line), None, "{line}");
        }
        let (text, _) = parse_version("Docker version 20.10.24+dfsg1, build 297e128").unwrap();
        assert_eq!(text, "20.10.24+dfsg1");
    }

    #[test]
    fn unknown_runtime_error_lists_runtimes() {
        for runtime in Runtime::ALL {
            assert_eq!(runtime.name().parse(), Ok(runtime));
        }
        let message = "rkt".parse::<Runtime>().unwrap_err();
        assert!(message.contains("embedded, docker, podman, lxc, crun, runc"), "{message}");
    }
}
