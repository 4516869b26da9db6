//! Options of a network, which engines pass as texts: `--opt vlan=10`.

use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::network::{NEWEST, Network, PORT_KEYS, with_port_keys};
use crate::reply::{CniError, code};

/// A checked network.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) network: Network,
    /// True if the network's gateway is the default route of its containers.
    pub(super) default_route: bool,
}

const CONTROL: &str = "control";
const DEFAULT_ROUTE: &str = "defaultRoute";

impl Options {
    /// Checks the options of the network `name`, whose containers can have ports of some kinds.
    pub(super) fn parse(
        name: &str,
        options: &Map<String, Value>,
        kinds: &[Kind],
    ) -> Result<Self, CniError> {
        let mut keys = Map::new();
        keys.insert("cniVersion".to_owned(), json!(NEWEST));
        keys.insert("name".to_owned(), json!(name));
        let mut default_route = false;
        for (key, value) in options {
            let Value::String(text) = value else {
                return Err(CniError::invalid(format!("option {key}: {value}: give a text")));
            };
            match key.as_str() {
                DEFAULT_ROUTE => {
                    default_route = text.parse().map_err(|_| {
                        CniError::invalid(format!("option {key}={text}: give true or false"))
                    })?;
                }
                known if known == CONTROL || PORT_KEYS.contains(&known) => {
                    keys.insert(key.clone(), typed(known, text));
                }
                _ => {
                    let known = with_port_keys(&[CONTROL, DEFAULT_ROUTE]);
                    let hint = dray_text::hint(key, known.iter().copied());
                    let known = known.join(", ");
                    let what =
                        format!("option {key}={text}: unknown{hint} networks of dray take {known}");
                    return Err(CniError::new(code::UNSUPPORTED_FIELD, what));
                }
            }
        }
        let text = Value::Object(keys).to_string();
        let network = Network::parse(text.as_bytes())
            .map_err(|error| CniError { msg: format!("option {}", error.msg), ..error })?;
        if !kinds.contains(&network.kind) {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            return Err(CniError::invalid(format!(
                "option kind={}: give {}; a container gets a device of another kind by \
                 `--device dray.dev/port=NAME`",
                network.kind.name(),
                names.join(" or ")
            )));
        }
        Ok(Self { network, default_route })
    }
}

/// Returns a value of the type that its key has in a network configuration, or else the text, which
/// is then named as invalid.
fn typed(key: &str, text: &str) -> Value {
    let number = |text: &str| text.parse::<u64>().ok().map(|number| json!(number));
    let typed = match key {
        "mtu" | "native" | "queues" | "vlan" => number(text),
        "spoofCheck" => text.parse::<bool>().ok().map(|flag| json!(flag)),
        "trunk" => text
            .split(',')
            .map(|vlan| number(vlan.trim()))
            .collect::<Option<Vec<_>>>()
            .map(Value::Array),
        _ => None,
    };
    typed.unwrap_or_else(|| json!(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &Value) -> Result<Options, CniError> {
        Options::parse("n", options.as_object().unwrap(), &[Kind::Tap, Kind::Memif])
    }

    #[test]
    fn texts_become_typed_keys() {
        let options = parse(&json!({
            "kind": "memif", "mtu": "9000", "trunk": "10, 20", "native": "1", "spoofCheck": "false",
            "rate": "1Gbit", "defaultRoute": "true",
        }));
        let Options { network, default_route } = options.unwrap();
        assert_eq!((network.kind, network.mtu, network.spoof_check), (Kind::Memif, 9000, false));
        assert_eq!(network.trunk.unwrap().len(), 2);
        assert!(default_route && !parse(&json!({})).unwrap().default_route);
    }

    #[test]
    fn error_names_option_and_what_is_allowed() {
        for (options, part) in [
            (json!({"vlna": "5"}), "option vlna=5: unknown: did you mean vlan?"),
            (json!({"ipam": "x"}), "option ipam=x: unknown"),
            (json!({"port": "x"}), "option port=x: unknown"),
            (json!({"vlan": "x"}), "option vlan: \"x\": give 1 to 4094"),
            (json!({"vlan": 5}), "option vlan: 5: give a text"),
            (json!({"trunk": "1,x"}), "option trunk: \"1,x\": give VLANs"),
            (json!({"mtu": "10"}), "option mtu: 10: give 68 to 9000"),
            (json!({"kind": "vhost"}), "option kind=vhost: give tap or memif;"),
            (json!({"defaultRoute": "1"}), "option defaultRoute=1: give true or false"),
        ] {
            let error = parse(&options).unwrap_err();
            assert!(error.msg.contains(part), "{}", error.msg);
        }
    }
}
