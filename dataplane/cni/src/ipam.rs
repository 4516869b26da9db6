//! Delegation to the plugin that manages addresses.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::call::Variables;
use crate::reply::{CniError, code};

/// A running plugin.
pub(crate) struct Plugin {
    name: String,
    program: PathBuf,
    child: Child,
}

impl Plugin {
    /// Starts the plugin `name`, found in a folder of `CNI_PATH`, with the environment of this
    /// process and the same network configuration. Variables in `instead` replace those of the
    /// environment.
    pub(crate) fn start(
        name: &str,
        instead: &[(&str, &str)],
        variables: Variables<'_>,
        configuration: &[u8],
    ) -> Result<Self, CniError> {
        let program = find(name, variables("CNI_PATH").as_deref().unwrap_or_default())?;
        let mut child = Command::new(&program)
            .envs(instead.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed(&program))?;
        if let Some(mut input) = child.stdin.take() {
            match input.write_all(configuration) {
                // It need not read what it does not use.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    return Err(failed(&program)(error));
                }
                _ => {}
            }
        }
        Ok(Self { name: name.to_owned(), program, child })
    }

    /// Waits until it has ended; returns its result, null if it has none.
    pub(crate) fn finish(self) -> Result<Value, CniError> {
        let Self { name, program, child } = self;
        let output = child.wait_with_output().map_err(failed(&program))?;
        let reply: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        if output.status.success() {
            return match (output.stdout.is_empty(), reply) {
                (true, _) => Ok(Value::Null),
                (false, Some(reply)) => Ok(reply),
                (false, None) => {
                    let what = format!("IPAM plugin {name}: its result is not JSON");
                    Err(CniError::new(code::REFUSED, what))
                }
            };
        }
        let said = reply.as_ref().and_then(|reply| {
            let text = |key: &str| reply[key].as_str().filter(|text| !text.is_empty());
            let details = text("details").map(|details| format!(" ({details})"));
            let number = reply["code"].as_u64().and_then(|number| u32::try_from(number).ok());
            Some((number, format!("{}{}", text("msg")?, details.unwrap_or_default())))
        });
        let (number, what) =
            said.unwrap_or_else(|| (None, format!("it failed: {}", output.status)));
        let number = number.filter(|number| *number > 0).unwrap_or(code::REFUSED);
        Err(CniError::new(number, format!("IPAM plugin {name}: {what}")))
    }
}

fn failed(program: &Path) -> impl Fn(io::Error) -> CniError {
    let what = format!("IPAM plugin {}", program.display());
    move |error| CniError::io(&what, &error)
}

fn find(name: &str, folders: &str) -> Result<PathBuf, CniError> {
    let folders = folders.split(':').filter(|folder| !folder.is_empty());
    let found =
        folders.clone().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let folders: Vec<_> = folders.collect();
        let what = format!(
            "ipam.type: no plugin {name:?} in CNI_PATH={}; install it there, for example from \
             github.com/containernetworking/plugins",
            folders.join(":")
        );
        CniError::new(code::INVALID_CONFIG, what)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn delegate(
        name: &str,
        instead: &[(&str, &str)],
        variables: Variables<'_>,
        configuration: &[u8],
    ) -> Result<Value, CniError> {
        Plugin::start(name, instead, variables, configuration)?.finish()
    }

    /// Runs a script as the plugin.
    fn run(script: &str) -> Result<Value, CniError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ipam");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("/nonexistent:{}", folder.path().display());
        let get = |name: &str| (name == "CNI_PATH").then(|| path.clone());
        // Another thread of the test program may fork while the script is open for writing.
        loop {
            let result = delegate("ipam", &[("CNI_COMMAND", "ADD")], &get, br#"{"name":"n"}"#);
            match &result {
                Err(error) if error.msg.contains("Text file busy") => {}
                _ => return result,
            }
        }
    }

    #[test]
    fn plugin_gets_command_and_configuration() {
        let result = run(r#"read -r text; echo "{\"command\":\"$CNI_COMMAND\",\"got\":$text}""#);
        let result = result.unwrap();
        assert_eq!(result, serde_json::json!({"command": "ADD", "got": {"name": "n"}}));
        assert_eq!(run("exit 0").unwrap(), Value::Null);
    }

    #[test]
    fn error_of_plugin_is_passed_on() {
        let error = run(r#"echo '{"code":11,"msg":"full","details":"10.0.0.0/30"}'; exit 1"#);
        let error = error.unwrap_err();
        assert_eq!((error.code, error.msg.as_str()), (11, "IPAM plugin ipam: full (10.0.0.0/30)"));
        let error = run("echo oops; exit 3").unwrap_err();
        assert_eq!(error.code, code::REFUSED);
        assert!(error.msg.contains("exit status: 3"), "{}", error.msg);
        assert!(run("echo oops").unwrap_err().msg.contains("not JSON"));
        let error = delegate("nosuch", &[], &|_| None, b"").unwrap_err();
        assert!(error.msg.contains("no plugin \"nosuch\" in CNI_PATH="), "{}", error.msg);
    }
}
