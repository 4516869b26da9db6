//! Labs that tests put up.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::{dray, success};
use dray_lab::standing::{ContainerState, LabState};

pub(crate) const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");

/// A lab that is taken down even if the test fails.
pub(crate) struct Up(pub(crate) String);

impl Up {
    pub(crate) fn example(name: &str) -> Self {
        Self::file(&format!("{EXAMPLES}/{name}.toml"), name)
    }

    pub(crate) fn text(text: &str, name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::file(&write(folder.path(), text), name)
    }

    pub(crate) fn file(file: &str, name: &str) -> Self {
        let said = success(&["lab", "up", file, "--name", name]);
        let up = Self(name.to_owned());
        assert!(said.starts_with(&format!("lab {name} is up: ")), "{said}");
        up
    }

    pub(crate) fn state(&self) -> LabState {
        let json = success(&["lab", "ls", &self.0, "--json"]);
        let states: Vec<LabState> = serde_json::from_str(&json).unwrap();
        states.into_iter().next().unwrap()
    }

    pub(crate) fn container(&self, name: &str) -> ContainerState {
        let mut containers = self.state().containers.into_iter();
        containers.find(|container| container.name == name).unwrap()
    }

    pub(crate) fn exec(&self, container: &str, command: &[&str]) -> Output {
        dray(&[&["lab", "exec", "--lab", &self.0, container, "--"], command].concat())
    }

    pub(crate) fn exec_well(&self, container: &str, command: &[&str]) -> String {
        let output = self.exec(container, command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{container}: {command:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn down(self) {
        success(&["lab", "down", &self.0]);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It is down already if the test succeeded.
        dray(&["lab", "down", &self.0]);
    }
}

pub(crate) fn write(folder: &Path, text: &str) -> String {
    let file = folder.join("topology.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Two containers and a veth pair.
pub(crate) const PAIR: &str = "\
[[containers]]
name = 'a'
[[containers]]
name = 'b'
[[links]]
kind = 'veth'
ends = ['a', 'b']
network = '10.7.0.0/24'
";
