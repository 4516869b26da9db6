//! Labs that are up, by name, and what is in them.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use dray_lab::LabError;
use dray_lab::standing::{self, ContainerState, LabState};

use crate::common::{Failure, usage};

/// Finds a lab that is up. A name without a lab is wrong usage.
pub(super) fn find(name: Option<&str>) -> Result<standing::StandingLab, Failure> {
    standing::find(name).map_err(|error| match error {
        LabError::NoSuchLab { .. } if name.is_some() => Failure::usage(error),
        other => other.into(),
    })
}

/// Finds a container of a lab. A name without a container is wrong usage.
pub(super) fn container<'l>(
    state: &'l LabState,
    name: &str,
) -> Result<&'l ContainerState, Failure> {
    let found = state.containers.iter().find(|container| container.name == name);
    found.ok_or_else(|| {
        let names = state.containers.iter().map(|container| container.name.as_str());
        let (lab, advice) = (&state.name, dray_text::advice(name, names));
        usage!("lab {lab}: no such container: {name:?}; {advice}")
    })
}

/// Lists the names of containers.
pub(super) fn names(containers: &[&ContainerState]) -> String {
    let names: Vec<_> = containers.iter().map(|container| container.name.as_str()).collect();
    names.join(", ")
}

/// Finds the control socket of the program that runs in a lab, given as `LAB` or `LAB/CONTAINER`.
/// `usual` is the path outside of labs, `program` the command line that starts the program.
pub(crate) fn control_in_lab(which: &str, usual: &str, program: &str) -> Result<PathBuf, Failure> {
    let (lab, only) = match which.split_once('/') {
        Some((lab, container)) => (lab, Some(container)),
        None => (which, None),
    };
    let state = find(Some(lab))?.state()?;
    let candidates = match only {
        Some(name) => vec![container(&state, name)?],
        None => state.containers.iter().collect(),
    };
    let file = Path::new(usual).file_name().unwrap_or_default();
    let socket = |container: &ContainerState| container.control.join(file);
    let there: Vec<_> =
        candidates.into_iter().filter(|container| socket(container).exists()).collect();
    match there.as_slice() {
        [container] => Ok(socket(container)),
        [] => {
            let place = only.map_or("its containers", |_| "this container");
            Err(anyhow!("lab {which}: no `{program}` runs in {place}").into())
        }
        [first, ..] => {
            let (names, first) = (names(&there), &first.name);
            Err(usage!(
                "lab {lab}: `{program}` runs in {names}; name the container: --lab {lab}/{first}"
            ))
        }
    }
}
