//! The command line.

use std::path::{Path, PathBuf};

use dray_daemon::LogLevel;

/// Maximum number of devices in a ResourceSlice.
const PORTS_MAX: u16 = 128;

/// Driver for Kubernetes' dynamic resource allocation: ports of this node's `dray switch` as
/// devices.
///
/// Runs on each node (deploy/kubernetes/dra.yaml). It reaches the API server as a pod does, or by
/// $KUBECONFIG.
#[derive(Clone, Debug, clap::Parser)]
#[command(version)]
pub struct Settings {
    /// Name of this node.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node: String,
    /// Name of the driver, a DNS name; a further switch of a node needs one of its own.
    #[arg(long, value_name = "NAME", default_value = "dray.dev", value_parser = driver_name)]
    pub driver: String,
    /// Control socket of the switch.
    #[arg(long, value_name = "PATH", default_value = dray_switch::config::CONTROL)]
    pub control: PathBuf,
    /// Number of ports that claims can have at the same time, 1 to 128.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=i64::from(PORTS_MAX)))]
    pub ports: u16,
    /// Directory in which the kubelet looks for sockets of plugins.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/kubelet/plugins_registry")]
    pub registry: PathBuf,
    /// Directory for the driver's own socket; the kubelet must see it at the same path.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/kubelet/plugins")]
    pub plugins: PathBuf,
    /// Directory for CDI specifications, which the container runtime reads.
    #[arg(long, value_name = "DIRECTORY", default_value = dray_cni::cdi::FOLDER)]
    pub cdi: PathBuf,
    /// Log events of this level and of those before it: off, error, warn, info, debug or trace.
    #[arg(long, env = LogLevel::VARIABLE, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

impl Settings {
    /// Returns the path of the socket at which the kubelet registers the driver.
    pub fn registration_socket(&self) -> PathBuf {
        self.registry.join(format!("{}-reg.sock", self.driver))
    }

    /// Returns the path of the socket at which the kubelet requests the preparation of claims.
    pub fn plugin_socket(&self) -> PathBuf {
        self.plugins.join(&self.driver).join("dra.sock")
    }

    /// Returns the name of the switch: that of its socket.
    pub fn switch(&self) -> String {
        self.control
            .file_stem()
            .map(Path::new)
            .map_or_else(String::new, |name| name.display().to_string())
    }
}

/// Checks a name: it is part of the names of files, and the vendor in those of CDI devices.
fn driver_name(text: &str) -> Result<String, &'static str> {
    let is_label = |label: &str| {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let ends = [label.bytes().next(), label.bytes().last()];
        label.bytes().all(known) && ends.iter().all(|b| b.is_some_and(|b| b != b'-'))
    };
    if text.len() <= 63 && text.split('.').all(is_label) {
        return Ok(text.to_owned());
    }
    Err("give a DNS name of at most 63 lowercase letters, digits, hyphens and dots")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn defaults_are_those_of_a_node() {
        let settings = Settings::parse_from(["dray-k8s", "--node", "n1"]);
        assert_eq!(settings.switch(), "switch");
        let socket = Path::new("/var/lib/kubelet/plugins/dray.dev/dra.sock");
        assert_eq!(settings.plugin_socket(), socket);
        let socket = Path::new("/var/lib/kubelet/plugins_registry/dray.dev-reg.sock");
        assert_eq!(settings.registration_socket(), socket);
    }

    #[test]
    fn driver_name_is_dns_name() {
        for (name, is_right) in [
            ("dray.dev", true),
            ("a", true),
            ("A.b", false),
            ("a/b", false),
            ("a..b", false),
            ("-a", false),
        ] {
            assert_eq!(driver_name(name).is_ok(), is_right, "{name}");
        }
    }
}
