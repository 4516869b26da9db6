//! Devices of the Container Device Interface (CDI): ports whose peer in a container needs a
//! directory.
//!
//! A container runtime that is given a device, as in `podman run --device dray.dev/port=web`, looks
//! it up in the files of `/etc/cdi` and `/var/run/cdi`, and mounts what they say. A device of ours
//! is the directory of a port's socket, at the same path in the container. It is read-only if the
//! switch creates the socket: the container can connect to it, but not replace it.
//!
//! A user who may add a port can name any directory, so a device is made only of one that holds
//! nothing but the port's socket and that only root can replace.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dray_port::PortUri;
use dray_socket::{Lock, Place};
use dray_switch::PortConfig;
use dray_switch::config::Name;
use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::attachment::Attachment;

/// Default directory of the specifications; runtimes also read `/etc/cdi`.
pub const FOLDER: &str = "/var/run/cdi";
/// Oldest version of the specification with all that a device has here: runtimes refuse versions
/// that they do not know. Since this version, names may begin with a digit.
const VERSION: &str = "0.5.0";

/// A device: what a container gets mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name, which begins and ends with a letter or digit, with those and `_`, `-`, `.` between.
    pub name: String,
    /// Directories and files of the host that are mounted.
    pub mounts: Vec<Mount>,
}

/// A directory or a file of the host in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Path on the host.
    pub host: PathBuf,
    /// Path in the container.
    pub container: PathBuf,
    /// True if the container may not write there.
    pub read_only: bool,
}

impl Device {
    fn to_json(&self) -> Value {
        let mount = |mount: &Mount| {
            let access = if mount.read_only { "ro" } else { "rw" };
            json!({
                "hostPath": mount.host,
                "containerPath": mount.container,
                "options": [access, "bind", "nosuid", "nodev", "noexec"],
            })
        };
        let mounts: Vec<_> = self.mounts.iter().map(mount).collect();
        json!({"name": self.name, "containerEdits": {"mounts": mounts}})
    }
}

/// A file of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specification {
    /// Kind of the devices, the part of their names before `=`.
    kind: String,
    /// Name of the file.
    file: String,
    devices: Vec<Device>,
}

impl Specification {
    /// Creates the specification of a switch's ports.
    pub fn of_ports(devices: Vec<Device>) -> Self {
        Self { kind: "dray.dev/port".into(), file: "dray.dev-port.json".into(), devices }
    }

    /// Creates the specification of what `driver` prepared for the claim `uid`.
    pub fn of_claim(driver: &str, uid: &str, devices: Vec<Device>) -> Self {
        let file = format!("{driver}-claim_{uid}.json");
        Self { kind: format!("{driver}/claim"), file, devices }
    }

    /// Returns the devices.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the name by which runtimes know a device.
    pub fn qualified_name(&self, device: &Device) -> String {
        format!("{}={}", self.kind, device.name)
    }

    /// Returns the content of the file.
    pub fn to_json(&self) -> Value {
        let devices: Vec<_> = self.devices.iter().map(Device::to_json).collect();
        json!({"cdiVersion": VERSION, "kind": self.kind, "devices": devices})
    }

    /// Writes the file in `folder`, which is created if it does not exist: at once, so that a
    /// runtime reads the old one or the new one. Without devices the file is removed.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        // Runtimes mount the directories that the files name.
        dray_socket::own_directory(folder, 0o755)?;
        let place = Place::of(&folder.join(&self.file))?;
        // Runtimes read only files with the suffixes .json and .yaml.
        let _lock = Lock::take(&folder.join(format!("{}.lock", self.file)))?;
        if self.devices.is_empty() {
            return place.remove();
        }
        place.replace(format!("{:#}\n", self.to_json()).as_bytes(), 0o644)
    }
}

/// Devices, and ports that cannot be one, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// Devices, by name.
    pub devices: Vec<Device>,
    /// Ports that cannot be a device, each with what would be right.
    pub problems: Vec<(Name, String)>,
}

/// Returns the devices of a switch: containers' attachments that need a directory, and `ports`, all
/// ports of the switch, that have a socket in a directory of their own.
pub fn devices(attachments: &[Attachment], ports: &[PortConfig]) -> Devices {
    let mut found = Devices::default();
    // Claims have a specification of their own.
    for attachment in attachments.iter().filter(|attachment| !attachment.is_claim()) {
        if let Some(directory) = attachment.directory.clone() {
            found.add(&attachment.port.name, Ok((directory, attachment.is_read_only())));
        }
    }
    for port in ports.iter().filter(|port| !attachments.iter().any(|it| it.port.name == port.name))
    {
        found.add(&port.name, directory_of(port, ports));
    }
    found.devices.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

impl Devices {
    fn add(&mut self, name: &Name, directory: Result<(PathBuf, bool), String>) {
        let named = directory.and_then(|directory| check_name(name).map(|()| directory));
        match named {
            Ok((host, read_only)) => {
                let mount = Mount { container: host.clone(), host, read_only };
                self.devices.push(Device { name: name.to_string(), mounts: vec![mount] });
            }
            Err(why) => self.problems.push((name.clone(), why)),
        }
    }
}

/// Checks a name against the grammar of device names, whose last character is more restricted than
/// that of a port.
fn check_name(name: &Name) -> Result<(), String> {
    if name.as_str().ends_with(|last: char| last.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err("the name of a device ends with a letter or digit; give the port another name".to_owned())
}

/// Returns the directory of a port's socket, and true if the switch creates the socket there.
fn directory_of(port: &PortConfig, ports: &[PortConfig]) -> Result<(PathBuf, bool), String> {
    const RIGHT: &str = "a device is a port such as vhost:/run/dray/NAME/vhost.sock";
    let is_shared = matches!(port.uri, PortUri::Vhost(_) | PortUri::Virtio(_) | PortUri::Memif(_));
    let socket = port.uri.socket_path().filter(|_| is_shared);
    let socket = socket.ok_or_else(|| format!("it has no socket in a directory; {RIGHT}"))?;
    let directory = socket.parent().filter(|directory| directory.is_absolute());
    let directory = directory.ok_or_else(|| format!("its socket has a relative path; {RIGHT}"))?;
    if port.fd > 0 {
        let what = "it was added with a file descriptor, whose directory may be another here";
        return Err(format!("{what}; {RIGHT}"));
    }
    let shares = |other: &&PortConfig| {
        let theirs = other.uri.socket_path().and_then(Path::parent);
        other.name != port.name && theirs == Some(directory)
    };
    let shown = directory.display();
    if let Some(other) = ports.iter().find(shares) {
        let other = other.name.as_str();
        return Err(format!("{shown} is also the directory of port {other:?}; {RIGHT}"));
    }
    check_directory(directory, socket).map_err(|what| format!("{shown} {what}; {RIGHT}"))?;
    Ok((directory.to_owned(), port.uri.socket_directory().is_some()))
}

/// Checks that a directory holds nothing but `socket`, and that only root, or the user of this
/// process, can replace it or a directory above it.
fn check_directory(directory: &Path, socket: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    for above in directory.ancestors() {
        let file = fs::symlink_metadata(above).map_err(failed)?;
        let above = above.display();
        if !file.is_dir() {
            return Err(format!("is not a directory, or below a link: {above}"));
        }
    }
    for above in directory.ancestors().skip(1) {
        let file = fs::symlink_metadata(above).map_err(failed)?;
        let is_sticky = file.mode() & 0o1000 != 0;
        let is_ours = file.uid() == 0 || file.uid() == geteuid().as_raw();
        if !is_ours || (file.mode() & 0o022 != 0 && !is_sticky) {
            let above = above.display();
            return Err(format!("can be replaced by users who may write in {above}"));
        }
    }
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if Some(name.as_os_str()) != socket.file_name() {
            return Err(format!("also holds {}", name.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn port(text: &str) -> PortConfig {
        text.parse().unwrap()
    }

    /// Returns the reason why the first of these ports is no device.
    #[track_caller]
    fn reason(ports: &[&str]) -> String {
        let ports: Vec<_> = ports.iter().map(|text| port(text)).collect();
        let found = devices(&[], &ports);
        let name = &ports[0].name;
        let reason = found.problems.into_iter().find(|(of, _)| of == name);
        reason.unwrap_or_else(|| panic!("{name} is a device")).1
    }

    /// Rules of the specification's text and its JSON schema for a file with nothing but mounts.
    fn schema() -> Value {
        let object = |required: &[&str], properties: Value| {
            json!({
                "type": "object", "required": required, "properties": properties,
                "additionalProperties": false,
            })
        };
        let path = json!({"type": "string", "pattern": "^/"});
        let mount = object(
            &["hostPath", "containerPath"],
            json!({
                "hostPath": path, "containerPath": path,
                "options": {"type": "array", "items": {"type": "string"}},
                "type": {"type": "string"},
            }),
        );
        let edits = object(&[], json!({"mounts": {"type": "array", "items": mount}}));
        let device = object(
            &["name", "containerEdits"],
            json!({
                "name": {"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"},
                "containerEdits": edits,
            }),
        );
        object(
            &["cdiVersion", "kind", "devices"],
            json!({
                "cdiVersion": {"enum": ["0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0"]},
                "kind": {
                    "type": "string",
                    "pattern": "^[A-Za-z0-9][A-Za-z0-9.-]*/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]$",
                },
                "devices": {"type": "array", "minItems": 1, "items": device},
            }),
        )
    }

    fn device(name: &str, read_only: bool) -> Device {
        let path = PathBuf::from(format!("/run/dray/{name}"));
        let mount = Mount { host: path.clone(), container: path, read_only };
        Device { name: name.to_owned(), mounts: vec![mount] }
    }

    #[test]
    fn specification_matches_schema() {
        let spec = Specification::of_ports(vec![device("web", true), device("7.net1", false)]);
        let value = spec.to_json();
        let schema = schema();
        let errors = |value: &Value| {
            let validator = jsonschema::validator_for(&schema).unwrap();
            validator.iter_errors(value).map(|error| error.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(errors(&value), [""; 0]);
        let options =
            |at: usize| &value["devices"][at]["containerEdits"]["mounts"][0]["options"][0];
        assert_eq!((options(0), options(1)), (&json!("ro"), &json!("rw")));
        assert_eq!(spec.qualified_name(&spec.devices()[0]), "dray.dev/port=web");
        let claim = Specification::of_claim("a.example.com", "u", vec![device("u_r", true)]);
        assert_eq!(errors(&claim.to_json()), [""; 0]);
        assert_eq!(claim.qualified_name(&claim.devices()[0]), "a.example.com/claim=u_r");
        // A file without devices, and one with a name that a port may have.
        for wrong in [vec![], vec![device("a-", true)]] {
            assert!(!errors(&Specification::of_ports(wrong).to_json()).is_empty());
        }
    }

    #[test]
    fn port_with_directory_of_its_own_is_device() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "b", "c"] {
            fs::create_dir(at(name)).unwrap();
        }
        let _socket = UnixListener::bind(at("a/vhost.sock")).unwrap();
        let root = folder.path().display();
        let ports = [
            port(&format!("c=memif:{root}/c/memif.sock?role=server")),
            port(&format!("a=vhost:{root}/a/vhost.sock")),
            port(&format!("b=vhost:{root}/b/vhost.sock?client=1")),
        ];
        let found = devices(&[], &ports);
        assert_eq!(found.problems, []);
        let found: Vec<_> =
            found.devices.iter().map(|it| (it.name.as_str(), it.mounts[0].read_only)).collect();
        assert_eq!(found, [("a", true), ("b", false), ("c", true)]);
    }

    #[test]
    fn port_without_directory_of_its_own_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "open/a"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("a/switch.sock"), "").unwrap();
        fs::set_permissions(at("open"), Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink("/etc", at("link")).unwrap();
        let root = folder.path().display();
        let uri = |path: &str| format!("a=vhost:{root}/{path}/x.sock");
        for (ports, part) in [
            (vec!["a=raw:eth0".to_owned()], "no socket in a directory; a device is"),
            (vec!["a=vhost:@a".to_owned()], "no socket in a directory"),
            (vec!["a=vhost:a/x.sock".to_owned()], "relative path"),
            (vec!["a=vhost:/x.sock".to_owned()], "/ also holds"),
            (vec![format!("a=unix:{root}/b/x.sock")], "no socket in a directory"),
            (vec![uri("a")], "also holds switch.sock"),
            (vec![uri("none")], "cannot be read: No such file"),
            (vec![uri("link")], "is not a directory, or below a link"),
            (vec![uri("link/cdi")], "cannot be read"),
            (vec![uri("open/a")], "can be replaced by users who may write in"),
            (
                vec![uri("a"), format!("b=vhost:{root}/a/y.sock")],
                "is also the directory of port \"b\"",
            ),
            (vec![format!("a-=vhost:{root}/open/x.sock")], "also holds a"),
        ] {
            let ports: Vec<_> = ports.iter().map(String::as_str).collect();
            let reason = reason(&ports);
            assert!(reason.contains(part), "{ports:?}: {reason}");
        }
        fs::create_dir(at("b")).unwrap();
        let reason = reason(&[&format!("a-=vhost:{root}/b/x.sock")]);
        assert!(reason.contains("ends with a letter or digit"), "{reason}");
        let mut handed = port(&format!("a=vhost:{root}/b/x.sock?client=1"));
        handed.fd = 1;
        let found = devices(&[], &[handed]);
        assert!(found.problems[0].1.contains("file descriptor"), "{found:?}");
    }

    #[test]
    fn file_is_replaced_and_removed_with_its_last_device() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cdi");
        let save = |names: &[&str]| {
            let devices = names.iter().map(|name| device(name, true)).collect();
            Specification::of_ports(devices).save(&folder).unwrap();
        };
        save(&["a", "b"]);
        save(&["b"]);
        let text = fs::read_to_string(folder.join("dray.dev-port.json")).unwrap();
        assert!(text.contains("\"b\"") && !text.contains("\"a\""), "{text}");
        save(&[]);
        save(&[]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
