//! Our switch on the "host", with containers that the CNI plugin attaches, as pods of kind `tap`.

use std::io;

use dray_cni::{Output, Records};
use serde_json::{Value, json};

use super::end::End;
use super::segment::Segment;
use crate::LabError;
use crate::namespace::with_own_mounts;
use crate::peer::{END_PORT, OwnSwitch, PeerDir, PeerSwitch, SWITCH_CONTROL, Wiring};

/// Records of the plugin, in the directory of the peers.
const STORE: &str = "cni";

pub(super) fn start(
    segment: &Segment<'_>,
    dir: &PeerDir,
    cpu: usize,
) -> Result<PeerSwitch, LabError> {
    let (wiring, ports) = (Wiring::Learning, Vec::new());
    // The kernel forwards most frames.
    let own = OwnSwitch { cpu, wiring, sleeps: true, ports };
    let switch = PeerSwitch::start_own(dir, segment.lab.program(), &own, segment.lab.cancel())?;
    let records = Records::at(dir.join(STORE));
    let calls: Vec<_> = segment.ends().map(|end| Call::new(segment, dir, end)).collect();
    // The plugin mounts the network namespace of the switch's ends. Without the mount, it exists as
    // long as the switch has these ends open.
    let added = with_own_mounts(|| calls.iter().try_for_each(|call| call.add(&records)));
    added.map_err(segment.doing("CNI plugin"))?;
    Ok(switch)
}

/// A call of the plugin for one end.
struct Call {
    variables: [(&'static str, String); 4],
    configuration: Value,
}

impl Call {
    fn new(segment: &Segment<'_>, dir: &PeerDir, end: &End) -> Self {
        let container = &segment.lab[end.container];
        let netns = format!("/proc/{}/ns/net", container.pid().as_raw_nonzero());
        Self {
            variables: [
                ("CNI_COMMAND", "ADD".to_owned()),
                ("CNI_CONTAINERID", end.id.to_string()),
                ("CNI_IFNAME", end.name().to_owned()),
                ("CNI_NETNS", netns),
            ],
            configuration: json!({
                "cniVersion": "1.1.0",
                "name": "lab",
                "kind": "tap",
                "control": dir.join(SWITCH_CONTROL),
                "port": format!("{END_PORT}{}", end.id),
                "mac": end.mac.to_string(),
                "mtu": segment.mtu,
            }),
        }
    }

    fn add(&self, records: &Records) -> io::Result<()> {
        let variable = |name: &str| {
            let found = self.variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.clone())
        };
        let input = self.configuration.to_string();
        match dray_cni::run(records, &variable, input.as_bytes()) {
            Output { status: 0, .. } => Ok(()),
            Output { text, .. } => {
                let error: Value = serde_json::from_str(&text)?;
                Err(io::Error::other(error["msg"].as_str().unwrap_or(&text).to_owned()))
            }
        }
    }
}
