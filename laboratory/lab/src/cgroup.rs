//! Control groups of the lab, version 1 or 2, depending on the host.
//!
//! Every container gets `dray/LAB/CONTAINER` in each hierarchy in use. `LAB` identifies the process
//! that owns the lab by PID namespace, PID and start time, followed by a number that tells its labs
//! apart, so the name alone tells the remains of a killed lab from a living one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const OURS: &str = "dray";

/// A mounted hierarchy that can hold our groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Version 2; `cpuset`: the CPU set controller is available here.
    V2 {
        cpuset: bool,
    },
    V1Cpuset,
    V1Cpuacct,
    /// Any other version 1 hierarchy: container engines make groups there as well.
    V1Other,
}

/// The groups of one lab.
#[derive(Debug)]
pub(crate) struct LabGroup {
    hierarchies: Vec<Hierarchy>,
    lab: String,
}

impl LabGroup {
    /// Names the groups of a new lab of this process, without creating them.
    pub(crate) fn new() -> Self {
        Self { hierarchies: hierarchies(), lab: new_name() }
    }

    /// Creates a container's groups, confined to `cpus`, and moves `pid` into them. Returns false
    /// if the host refuses; only CPU affinity pins the container then.
    pub(crate) fn add(&self, container: &str, pid: Pid, cpus: &str) -> io::Result<bool> {
        let mut added = !self.hierarchies.is_empty();
        for hierarchy in &self.hierarchies {
            // Another lab that ends at the same time may remove the common parent.
            let tries = (0..100).map(|_| hierarchy.add(&self.lab, container, pid, cpus));
            let is_missing = |result: &io::Result<()>| {
                result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            };
            let result = { tries }.find(|result| !is_missing(result));
            match result.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())) {
                Err(error) if is_refusal(&error) => added = false,
                result => result?,
            }
        }
        Ok(added)
    }

    /// Returns the lab's own version 2 group. If version 1 confines the containers, creates the
    /// group with a subgroup for every container, given as name and first process; the containers
    /// keep their CPUs.
    pub(crate) fn version_2<'c>(
        &mut self,
        containers: impl Iterator<Item = (&'c str, Pid)>,
    ) -> io::Result<PathBuf> {
        let is_v2 = |h: &&Hierarchy| matches!(h.kind, Kind::V2 { .. });
        if let Some(used) = self.hierarchies.iter().find(is_v2) {
            return Ok(used.mount.join(OURS).join(&self.lab));
        }
        let Some(mounted) = mounted().into_iter().find(|h| is_v2(&h)) else {
            let what = "no control groups of version 2 are mounted";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        };
        // Version 1 controls the CPU sets.
        let used = Hierarchy { kind: Kind::V2 { cpuset: false }, ..mounted };
        self.hierarchies.push(used.clone());
        for (name, pid) in containers {
            used.add(&self.lab, name, pid, "")?;
        }
        Ok(used.mount.join(OURS).join(&self.lab))
    }

    /// Path of the group that contains all groups of the lab, from the root of every hierarchy.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/").join(OURS).join(&self.lab)
    }

    /// Returns true if the process is in one of the lab's groups.
    pub(crate) fn contains(&self, pid: Pid) -> bool {
        let path = self.path();
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero()));
        groups.is_ok_and(|groups| groups.contains(&*path.to_string_lossy()))
    }

    /// Removes the lab's groups, which must be empty or become empty soon.
    pub(crate) fn remove(&self) -> io::Result<()> {
        mounted().iter().try_for_each(|hierarchy| hierarchy.remove(&self.lab))
    }
}

/// Returns a unique name for an object that would outlive this process if it were killed. The name
/// identifies its owner, and no other call in this PID namespace ever returns it.
pub(crate) fn new_name() -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let start = start_time(pid).unwrap_or(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("{}-{pid}-{start}-{number}", pid_namespace())
}

/// Removes the groups of labs whose owner is gone and kills the processes in them. Returns the
/// names of the labs.
pub(crate) fn remove_stale() -> io::Result<Vec<String>> {
    let mut removed = Vec::new();
    for hierarchy in mounted() {
        let Ok(labs) = fs::read_dir(hierarchy.mount.join(OURS)) else { continue };
        for lab in labs.flatten() {
            let name = lab.file_name().to_string_lossy().into_owned();
            if !lab.path().is_dir() || !is_stale(&name) {
                continue;
            }
            kill_tree(&lab.path());
            hierarchy.remove(&name)?;
            if !removed.contains(&name) {
                removed.push(name);
            }
        }
    }
    Ok(removed)
}

/// Returns the groups that are left of the owner of `name`, a result of [`new_name`].
pub(crate) fn left_by(name: &str) -> Vec<PathBuf> {
    let Some((owner, _)) = name.rsplit_once('-') else { return Vec::new() };
    let is_left = |group: &fs::DirEntry| {
        let name = group.file_name();
        name.to_string_lossy().rsplit_once('-').is_some_and(|(other, _)| other == owner)
    };
    let folders = mounted().into_iter().map(|hierarchy| hierarchy.mount.join(OURS));
    let groups = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    groups.filter(is_left).map(|group| group.path()).collect()
}

impl Hierarchy {
    /// Removes a lab's groups, and with the last lab the common parent.
    fn remove(&self, lab: &str) -> io::Result<()> {
        let ours = self.mount.join(OURS);
        let path = ours.join(lab);
        if path.exists() {
            remove_tree(&path)?;
        }
        // Fails, as it should, while another lab is alive.
        let _ = fs::remove_dir(&ours);
        Ok(())
    }

    fn add(&self, lab: &str, container: &str, pid: Pid, cpus: &str) -> io::Result<()> {
        let mut path = self.mount.clone();
        for part in [OURS, lab, container] {
            let parent = path.clone();
            path.push(part);
            if self.kind == (Kind::V2 { cpuset: true }) {
                fs::write(parent.join("cgroup.subtree_control"), "+cpuset")?;
            }
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => result?,
            }
            if self.kind == Kind::V1Cpuset {
                // A new version 1 group has no CPUs and no memory nodes, and accepts no process
                // until it does.
                for file in ["cpuset.mems", "cpuset.cpus"] {
                    if fs::read(path.join(file))?.trim_ascii().is_empty() {
                        fs::write(path.join(file), fs::read(parent.join(file))?)?;
                    }
                }
            }
        }
        if matches!(self.kind, Kind::V2 { cpuset: true } | Kind::V1Cpuset) {
            fs::write(path.join("cpuset.cpus"), cpus)?;
        }
        fs::write(path.join("cgroup.procs"), pid.as_raw_nonzero().to_string())
    }
}

/// Selects the hierarchies to use: version 2 if it has the CPU set controller; otherwise version 1
/// for CPU sets and accounting; otherwise version 2 without CPU sets.
fn hierarchies() -> Vec<Hierarchy> {
    choose(mounted())
}

/// Returns every usable hierarchy.
fn mounted() -> Vec<Hierarchy> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = parse_mounts(&mounts);
    for hierarchy in &mut found {
        if let Kind::V2 { cpuset } = &mut hierarchy.kind {
            let list = fs::read_to_string(hierarchy.mount.join("cgroup.controllers"));
            *cpuset = list.is_ok_and(|list| list.split_whitespace().any(|name| name == "cpuset"));
        }
    }
    found
}

/// Version of control groups that confines containers to their CPUs; `None` if neither does.
pub(crate) fn cpuset_version() -> Option<u8> {
    hierarchies().iter().find_map(|hierarchy| match hierarchy.kind {
        Kind::V2 { cpuset: true } => Some(2),
        Kind::V1Cpuset => Some(1),
        Kind::V2 { cpuset: false } | Kind::V1Cpuacct | Kind::V1Other => None,
    })
}

fn choose(mut found: Vec<Hierarchy>) -> Vec<Hierarchy> {
    let is_v2 = |h: &Hierarchy| matches!(h.kind, Kind::V2 { .. });
    if found.iter().any(|h| h.kind == Kind::V2 { cpuset: true })
        || !found.iter().any(|h| h.kind == Kind::V1Cpuset)
    {
        found.retain(is_v2);
    } else {
        found.retain(|h| matches!(h.kind, Kind::V1Cpuset | Kind::V1Cpuacct));
    }
    found
}

/// Parses `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
fn parse_mounts(text: &str) -> Vec<Hierarchy> {
    let parse = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mount = PathBuf::from(front.split(' ').nth(4)?);
        let mut back = back.split(' ');
        let (kind, _, options) = (back.next()?, back.next()?, back.next()?);
        let has = |name| options.split(',').any(|option| option == name);
        let kind = match kind {
            "cgroup2" => Kind::V2 { cpuset: false },
            "cgroup" if has("cpuset") => Kind::V1Cpuset,
            "cgroup" if has("cpuacct") => Kind::V1Cpuacct,
            "cgroup" => Kind::V1Other,
            _ => return None,
        };
        Some(Hierarchy { mount, kind })
    };
    let mut found: Vec<Hierarchy> = Vec::new();
    for hierarchy in text.lines().filter_map(parse) {
        if !found.iter().any(|known| known.mount == hierarchy.mount) {
            found.push(hierarchy);
        }
    }
    found
}

/// Returns true for the errors of a host that does not let us create control groups: no permission,
/// a read-only mount, or (version 2) a root group that belongs to a container and has processes in
/// it.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::Unsupported
    )
}

/// Returns true if the owner named by `NAMESPACE-PID-START-NUMBER` is gone. Returns false for names
/// of any other form and for PIDs of another namespace, which cannot be judged.
pub(crate) fn is_stale(lab: &str) -> bool {
    let numbers: Vec<u64> = lab.split('-').map_while(|part| part.parse().ok()).collect();
    let [namespace, pid, start, _] = numbers[..] else { return false };
    if numbers.len() != lab.split('-').count() {
        return false;
    }
    namespace == pid_namespace() && u32::try_from(pid).is_ok_and(|p| start_time(p) != Some(start))
}

/// Number of this process's PID namespace; 0 if unknown.
fn pid_namespace() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// Start time of a running process, in clock ticks since boot: field 22 of `/proc/PID/stat`.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name in parentheses, may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    // A zombie, killed but not yet waited for, counts as gone.
    let mut fields = after_name.split(' ');
    fields.next().filter(|state| *state != "Z")?;
    fields.nth(18)?.parse().ok()
}

/// Returns a group and all groups below it, deepest first. Skips groups that vanish meanwhile,
/// because another dray may be removing the same ones.
fn tree(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    folders.flat_map(|folder| tree(&folder)).chain([path.to_owned()]).collect()
}

fn kill_tree(path: &Path) {
    for group in tree(path) {
        let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Removes a group and all groups below it. Retries, because a group stays busy for a moment after
/// its last process was waited for.
fn remove_tree(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    for group in tree(path) {
        loop {
            match fs::remove_dir(&group) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
                {
                    thread::sleep(Duration::from_millis(2));
                }
                result => {
                    result?;
                    break;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
31 24 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
33 24 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
34 24 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
35 24 0:30 / /proc rw - proc proc rw
";

    #[test]
    fn prefers_cgroup_version_with_cpusets() {
        let found = parse_mounts(V1);
        let kinds: Vec<_> = found.iter().map(|h| h.kind).collect();
        let v2 = Kind::V2 { cpuset: false };
        assert_eq!(kinds, [Kind::V1Cpuset, Kind::V1Cpuacct, Kind::V1Other, v2]);
        assert_eq!(found[1].mount, Path::new("/sys/fs/cgroup/cpu,cpuacct"));

        let used = choose(found.clone());
        assert_eq!(used, found[..2]);

        let v2 = Hierarchy { mount: "/sys/fs/cgroup".into(), kind: Kind::V2 { cpuset: true } };
        assert_eq!(choose(vec![v2.clone(), found[1].clone()]), [v2]);
    }

    /// Checks the order of writes that version 2 needs, on plain files: each parent delegates a
    /// controller to its children, starting at the top.
    #[test]
    fn cgroup2_delegates_cpusets() {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().to_owned();
        let hierarchy = Hierarchy { mount: mount.clone(), kind: Kind::V2 { cpuset: true } };
        let pid = Pid::from_raw(4242).unwrap();
        hierarchy.add("1-2-3-4", "sender", pid, "0-1").unwrap();
        let read = |path: &str| fs::read_to_string(mount.join(path)).unwrap();
        for parent in ["", "dray/", "dray/1-2-3-4/"] {
            assert_eq!(read(&format!("{parent}cgroup.subtree_control")), "+cpuset");
        }
        assert_eq!(read("dray/1-2-3-4/sender/cpuset.cpus"), "0-1");
        assert_eq!(read("dray/1-2-3-4/sender/cgroup.procs"), "4242");
    }

    #[test]
    fn only_dead_owners_names_are_stale() {
        let (namespace, pid) = (pid_namespace(), std::process::id());
        let start = start_time(pid).unwrap();
        assert!(!is_stale(&format!("{namespace}-{pid}-{start}-0")));
        assert!(is_stale(&format!("{namespace}-{pid}-{}-7", start - 1)), "the PID was used again");
        assert!(is_stale(&format!("{namespace}-4194305-1-0")), "no such PID");
        assert!(!is_stale(&format!("{}-4194305-1-0", namespace + 1)), "not ours to judge");
        for name in ["somebody-elses", "docker", "", "1-2-3", "1-2-3-x", "1-2-3-4-x", "1-2-3-4-5"] {
            assert!(!is_stale(name), "{name}");
        }
    }
}
