//! Configuration files: parsed, or refused in one line. A parsed configuration is written as a file
//! that means the same.
#![no_main]

use dray_switch::SwitchConfig;
use dray_switch::config::ConfigError;
use libfuzzer_sys::fuzz_target;

fn read(text: &str) -> Result<SwitchConfig, ConfigError> {
    let config = SwitchConfig::from_toml(text)?;
    config.check(&[0, 1]).map_err(|error| error.find_line(text))?;
    Ok(config)
}

fuzz_target!(|text: &str| {
    match read(text) {
        Ok(config) => assert_eq!(read(&config.to_toml()), Ok(config)),
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            assert!(error.line.is_none_or(|line| line <= text.lines().count().max(1)), "{error}");
        }
    }
});
