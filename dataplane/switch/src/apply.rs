//! Applying a configuration file to a running switch: what differs is changed, and the rest stays.

use serde_json::Value;

use crate::changes::{object, shown};
use crate::config::{ConfigError, SwitchConfig};
use crate::control::SwitchControl;
use crate::error::SwitchError;

pub use crate::changes::{Change, Changes, KeyChange, Kind};

/// Keys of a configuration besides its ports.
const SETTINGS: [&str; 10] = [
    "mode",
    "flow",
    "cpus",
    "idle",
    "age_s",
    "table_size",
    "port_addresses",
    "peer_memory",
    "control",
    "metrics",
];

/// The configuration of a running switch, apart from its ports.
#[derive(Debug)]
pub struct Configuration {
    settings: SwitchConfig,
    /// Keys that the command line has given, and a file does not change.
    given: Vec<&'static str>,
}

impl Configuration {
    /// Creates the configuration of a switch that was started with `config`, of which its command
    /// line has `given` these keys.
    pub fn new(config: SwitchConfig, given: Vec<&'static str>) -> Self {
        Self { settings: SwitchConfig { ports: Vec::new(), ..config }, given }
    }

    /// Returns the settings: the configuration without ports.
    pub fn settings(&self) -> &SwitchConfig {
        &self.settings
    }

    /// Makes the ports of `switch` those of the file `text`: all of them, or with an error none.
    /// Ports that do not come from a file stay: those of the command line, and those added at the
    /// control socket. Does nothing if it is a `dry_run`.
    pub fn apply(
        &self,
        switch: &dyn SwitchControl,
        text: &str,
        dry_run: bool,
    ) -> Result<Changes, SwitchError> {
        let file = SwitchConfig::from_toml(text)?;
        let located = |error: ConfigError| error.find_line(text);
        self.check_settings(&file).map_err(located)?;
        // CPUs were checked when the switch started, and cannot be others.
        let wanted = SwitchConfig { ports: file.ports, ..self.settings.clone() };
        wanted.check(&self.settings.cpus).map_err(located)?;
        switch.apply(&wanted, dry_run).map_err(|error| match error {
            SwitchError::Config(error) => located(error).into(),
            error => error,
        })
    }

    /// Checks that settings in a file are those that the switch runs with.
    fn check_settings(&self, file: &SwitchConfig) -> Result<(), ConfigError> {
        let mut file = SwitchConfig { ports: Vec::new(), ..file.clone() };
        if file.cpus.is_empty() {
            file.cpus.clone_from(&self.settings.cpus);
        }
        let [old, new] = [&self.settings, &file].map(object);
        for key in SETTINGS.into_iter().filter(|key| !self.given.contains(key)) {
            let [old, new] = [&old, &new].map(|config| config.get(key).unwrap_or(&Value::Null));
            if old != new {
                let what = format!(
                    "the switch runs with {}, and cannot change it while it runs: restart it, or \
                     start its successor with dray switch --take-over",
                    shown(old)
                );
                return Err(ConfigError::of_key(key, &shown(new), &what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_file_must_be_those_that_run() {
        let running = SwitchConfig { cpus: vec![3], ..SwitchConfig::default() };
        let configuration = Configuration::new(running, vec!["idle"]);
        for (text, expected) in [
            ("", None),
            ("cpus = [3]\nidle = 'never'\nage_s = 300", None),
            ("cpus = [3, 4]", Some("cpus = 3+4: the switch runs with 3,")),
            ("flow = 'backpressure'", Some("flow = backpressure: the switch runs with drop,")),
            ("table_size = 9000", Some("table_size = 9000: the switch runs with 65536,")),
            ("metrics = '127.0.0.1:7'", Some("metrics = 127.0.0.1:7: the switch runs with none,")),
        ] {
            let file = SwitchConfig::from_toml(text).unwrap();
            let why = configuration.check_settings(&file);
            let why = why.map_err(|error| error.find_line(text).to_string());
            match (why, expected) {
                (Ok(()), None) => {}
                (Err(why), Some(part)) => {
                    assert!(why.starts_with(&format!("line 1: {part}")), "{why}");
                }
                (why, _) => panic!("{text}: {why:?}"),
            }
        }
    }

    /// A key that is not compared could be changed without effect.
    #[test]
    fn all_settings_are_compared() {
        let config =
            SwitchConfig { metrics: "127.0.0.1:7".parse().ok(), ..SwitchConfig::default() };
        let config = SwitchConfig { cpus: vec![1], ..config };
        let mut keys: Vec<_> = SETTINGS.iter().map(|key| (*key).to_owned()).collect();
        keys.sort();
        assert_eq!(object(&config).into_iter().map(|(key, _)| key).collect::<Vec<_>>(), keys);
    }
}
