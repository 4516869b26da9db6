//! Restriction of the file system by Landlock (Documentation/userspace-api/landlock.rst).

use std::io;
use std::path::Path;
use std::ptr;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

/// Returns the kernel's version of Landlock, from 1.
///
/// # Errors
/// `ENOSYS` if the kernel was built without it, `EOPNOTSUPP` if it was booted without it.
pub fn landlock_version() -> io::Result<u32> {
    const VERSION: libc::c_long = 1;
    // SAFETY: with this flag the call reads no memory and changes nothing.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0, VERSION) };
    u32::try_from(version).map_err(|_| io::Error::last_os_error())
}

/// Returns what takes all access to files, except for creating and removing sockets, and creating
/// directories for them, in `directories`, and reading files in `readable`; signals to other
/// processes; and, unless `abstract_peers`, connecting to abstract sockets of other processes.
pub(crate) fn allow(
    directories: &[&Path],
    readable: Option<&Path>,
    abstract_peers: bool,
) -> Result<RulesetCreated, String> {
    let describe = |error: landlock::RulesetError| error.to_string();
    let ruleset = Ruleset::default()
        // The first version is required; later ones are used if the kernel has them.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(describe)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))
        .map_err(describe)?
        .handle_access(AccessNet::from_all(ABI::V4))
        .map_err(describe)?
        .scope(if abstract_peers {
            Scope::Signal.into()
        } else {
            BitFlags::from(Scope::Signal) | Scope::AbstractUnixSocket
        })
        .map_err(describe)?;
    let mut ruleset = ruleset.create().map_err(describe)?;
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::MakeDir;
    let rules = directories.iter().map(|directory| (*directory, sockets));
    for (directory, allowed) in rules.chain(readable.map(|path| (path, AccessFs::ReadFile.into())))
    {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
        let directory = PathFd::new(directory).map_err(|error| named(&error))?;
        let rule = PathBeneath::new(directory, allowed);
        ruleset = ruleset.add_rule(rule).map_err(describe)?;
    }
    Ok(ruleset)
}

/// Restricts the calling thread to `allowed`. Open descriptors stay usable.
pub(crate) fn restrict(allowed: RulesetCreated) -> Result<(), String> {
    allowed.restrict_self().map(drop).map_err(|error| error.to_string())
}
