//! Ports of claims: of containers that do not exist yet, such as those that Kubernetes' dynamic
//! resource allocation prepares. A claim's port has a directory, and nothing in a network
//! namespace. Its records are those of the plugin, so a switch that starts again opens its port
//! again.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use dray_switch::config::Name;
use dray_wire::MacAddr;
use serde_json::{Map, Value};

use crate::attachment::{Attachment, key_of, switch_error};
use crate::call::{Call, is_identifier};
use crate::kind::Kind;
use crate::network::Network;
use crate::plan::describe;
use crate::records::Records;
use crate::reply::{CniError, code};
use crate::restore::forget;

/// A claim.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'c> {
    /// Identifier, in the names of the ports and their directories.
    pub uid: &'c str,
    /// Namespace and name, for people.
    pub owner: &'c str,
    /// Control socket of the switch.
    pub control: &'c Path,
}

/// A port of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPort {
    /// Name of the port in the switch.
    pub name: Name,
    /// How the program in the container uses it.
    pub kind: Kind,
    /// Address of the container.
    pub mac: MacAddr,
    /// Maximum size of packets.
    pub mtu: usize,
    /// Directory of the socket.
    pub directory: PathBuf,
    /// True if the switch creates the socket, false if the program in the container does.
    pub read_only: bool,
}

/// Gives a claim a port for each of `parameters`, which have the keys of the plugin's
/// configuration. A port that the claim has already stays as it is, since a container may use it.
/// If one cannot be had, the new ones are removed again.
pub fn prepare(
    records: &Records,
    claim: Claim<'_>,
    parameters: &[&Map<String, Value>],
) -> io::Result<Vec<ClaimPort>> {
    let mut new = Vec::new();
    let ports = parameters.iter().enumerate();
    let ports = ports.map(|(number, keys)| prepare_one(records, claim, number, keys, &mut new));
    let prepared = ports.collect::<Result<Vec<_>, _>>();
    if prepared.is_err() {
        for attachment in &new {
            // The error that made it fail is the one to report.
            let _ = forget(records, attachment);
        }
    }
    prepared.map_err(|error| io::Error::other(error.msg))
}

fn prepare_one(
    records: &Records,
    claim: Claim<'_>,
    number: usize,
    parameters: &Map<String, Value>,
    new: &mut Vec<Attachment>,
) -> Result<ClaimPort, CniError> {
    check_uid(claim.uid)?;
    let key = key_of(claim.uid, &number.to_string());
    let _lock = records.lock(&key)?;
    let old = records.load(&key)?;
    // A claim keeps the address that it was given.
    let mac = old.as_ref().and_then(Attachment::mac).unwrap_or_else(random_mac);
    let (attachment, port) = plan(records, claim, number, parameters, mac)?;
    match old {
        Some(old) if old == attachment => {}
        old => {
            if let Some(old) = old {
                forget(records, &old)?;
            }
            records.save(&attachment)?;
            new.push(attachment.clone());
        }
    }
    let ends = records.ends();
    attachment.create(&ends)?;
    if !attachment.has_port().map_err(|error| switch_error(&error))? {
        attachment.add_port(&attachment.open(&ends)?)?;
    }
    Ok(port)
}

fn check_uid(uid: &str) -> Result<(), CniError> {
    if is_identifier(uid) { Ok(()) } else { Err(wrong_uid(uid, "give letters, digits, hyphens")) }
}

fn wrong_uid(uid: &str, what: &str) -> CniError {
    CniError::new(code::INVALID_ENVIRONMENT, format!("UID {uid:?} of a claim: {what}"))
}

/// Returns an address that no program knows beforehand: one that does could give it to another port
/// first.
fn random_mac() -> MacAddr {
    MacAddr::local(RandomState::new().hash_one(()))
}

/// Returns the attachment for a claim's port, and what its container needs to know. The container
/// has the address of `parameters`, or `mac`.
fn plan(
    records: &Records,
    claim: Claim<'_>,
    number: usize,
    parameters: &Map<String, Value>,
    mac: MacAddr,
) -> Result<(Attachment, ClaimPort), CniError> {
    let Claim { uid, owner, control } = claim;
    let name: Name =
        format!("{uid}.{number}").parse().map_err(|error| wrong_uid(uid, &format!("{error}")))?;
    let network = Network::of_claim(parameters)?;
    let network = Network {
        name: owner.to_owned(),
        control: control.to_owned(),
        port_name: Some(name.clone()),
        mac: network.mac.or(Some(mac)),
        ..network
    };
    let call = Call { container: uid.to_owned(), interface: number.to_string(), netns: None };
    let (attachment, _) = describe(records, &call, &network)?;
    let port = ClaimPort {
        name,
        kind: network.kind,
        mac: network.mac.unwrap_or(mac),
        mtu: network.mtu,
        directory: attachment.directory.clone().unwrap_or_default(),
        read_only: attachment.is_read_only(),
    };
    Ok((attachment, port))
}

/// Removes all ports of the claim `uid`; it succeeds if there are none, or the switch is down.
pub fn unprepare(records: &Records, uid: &str) -> io::Result<()> {
    let mut result = Ok(());
    for attachment in records.all()? {
        if attachment.is_claim() && attachment.container == uid {
            let removed =
                records.lock(&attachment.key()).and_then(|_lock| forget(records, &attachment));
            // A port that cannot be removed must not keep the others.
            result = result.and(removed.map_err(|error| io::Error::other(error.msg)));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan_of(uid: &str, parameters: &Value) -> Result<(Attachment, ClaimPort), CniError> {
        let claim = Claim { uid, owner: "n/c", control: Path::new("/run/dray/switch.sock") };
        check_uid(uid)?;
        plan(&Records::at(""), claim, 1, parameters.as_object().unwrap(), random_mac())
    }

    #[test]
    fn each_kind_has_socket_in_directory() {
        for (kind, uri, fd, read_only) in [
            ("vhost", "vhost:/run/dray/vhost/u.1/vhost.sock?client=1", 1, false),
            ("virtio", "vhost:/run/dray/vhost/u.1/vhost.sock?mode=0666", 0, true),
            ("memif", "memif:/run/dray/vhost/u.1/memif.sock?role=server&mode=0666", 0, true),
        ] {
            let (attachment, port) = plan_of("u", &json!({"kind": kind})).unwrap();
            assert_eq!((attachment.port.uri.to_string().as_str(), attachment.port.fd), (uri, fd));
            assert_eq!((port.read_only, port.mtu), (read_only, 1500));
            assert!(attachment.is_claim() && !attachment.is_gone());
        }
        let (attachment, _) = plan_of("u", &json!({"kind": "virtio", "queues": 2})).unwrap();
        assert_eq!(
            attachment.port.uri.to_string(),
            "vhost:/run/dray/vhost/u.1/vhost.sock?queues=2&mode=0666"
        );
    }

    #[test]
    fn address_of_claim_cannot_be_known_beforehand() {
        let mac = || plan_of("u", &json!({})).unwrap().1.mac;
        let macs = [mac(), mac(), mac()];
        assert!(macs[0] != macs[1] && macs[1] != macs[2], "{macs:?}");
        assert!(macs.iter().all(|mac| mac.is_station()));
    }

    #[test]
    fn parameters_become_settings_of_the_port() {
        let parameters = json!({
            "vlan": 10, "group": "g", "mac": "02:00:00:00:00:01", "spoofCheck": false, "mtu": 9000,
            "rate": "1Gbit",
        });
        let (attachment, port) = plan_of("u", &parameters).unwrap();
        assert_eq!((port.kind, port.mtu), (Kind::Vhost, 9000));
        assert_eq!(port.mac.to_string(), "02:00:00:00:00:01");
        let written = serde_json::to_value(&attachment.port).unwrap();
        assert_eq!((&written["vlan"], &written["group"]), (&json!(10), &json!("g")));
        assert_eq!(written["rate_in"], "1Gbit");
    }

    #[test]
    fn error_names_parameter_and_what_is_allowed() {
        for (uid, parameters, part) in [
            ("u", json!({"kind": "tap"}), "kind: \"tap\": a claim is prepared before"),
            ("u", json!({"port": "p"}), "port: \"p\": unknown key; a claim takes group, kind"),
            ("u", json!({"name": "p"}), "name: \"p\": unknown key"),
            ("u", json!({"vlna": 1}), "vlna: 1: unknown key: did you mean vlan?"),
            ("u", json!({"vlan": 0}), "vlan: 0: give 1 to 4094"),
            ("../u", json!({}), "UID \"../u\" of a claim"),
            ("", json!({}), "UID \"\" of a claim"),
        ] {
            let error = plan_of(uid, &parameters).unwrap_err();
            assert!(error.msg.contains(part), "{}", error.msg);
        }
        assert!(plan_of(&"u".repeat(70), &json!({})).unwrap_err().msg.contains("1 to 64"));
    }
}
