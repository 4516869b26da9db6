//! Keys of a port as options.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use dray_port::PortUri;
use dray_switch::PortConfig;
use dray_switch::config::{KEYS, Key, Keys, Name, PortError};

/// The keys that were given, each as the option of its name.
pub(super) struct Given(Vec<(&'static Key, String)>);

impl Given {
    /// Returns the port with these keys.
    pub(super) fn of_port(&self, name: Name, uri: PortUri) -> Result<PortConfig, PortError> {
        let mut keys = Keys::new(name, uri);
        for (key, value) in &self.0 {
            key.set(&mut keys, value).expect("the value was checked");
        }
        keys.try_into()
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command.args(KEYS.iter().map(|key| {
            let option = Arg::new(key.name).long(key.name.replace('_', "-"));
            let check = |value: &str| key.check(value).map(|()| value.to_owned());
            option.value_name(key.value).help(key.about.trim_end_matches('.')).value_parser(check)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |key: &'static Key| Some((key, matches.get_one::<String>(key.name)?.clone()));
        Ok(Self(KEYS.iter().filter_map(value).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the help of an option that takes a whole port.
pub(super) fn help() -> String {
    let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
    format!(
        "A port; repeat for each: NAME=URI, then `,key=value` for {} (see `add-port --help`; lists \
         as 10+20)",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_and_text_of_a_key_describe_the_same_port() {
        for given in [
            "vlan=10,group=g,rate_in=10Gbit+1Mpps,burst=5ms",
            "trunk=10+20,native=1,storm=1kpps,rate_out=1Mpps",
            "pair=b,mac=52:54:00:00:00:01+52:54:00:00:00:02,spoof_check=false",
        ] {
            let option = |pair: &str| {
                let (key, value) = pair.split_once('=').unwrap();
                [format!("--{}", key.replace('_', "-")), value.to_owned()]
            };
            let words =
                ["add-port".to_owned()].into_iter().chain(given.split(',').flat_map(option));
            let command = Given::augment_args(Command::new("add-port"));
            let keys = Given::from_arg_matches(&command.get_matches_from(words)).unwrap();
            let port = keys.of_port("a".parse().unwrap(), "null:".parse().unwrap()).unwrap();
            assert_eq!(port, format!("a=null:,{given}").parse().unwrap());
        }
    }
}
