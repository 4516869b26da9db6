//! Labs that are up, by name.

use dray_lab::{LabError, standing};

use crate::common::Failure;

/// Finds a lab that is up. A name without a lab is wrong usage.
pub(super) fn find(name: Option<&str>) -> Result<standing::StandingLab, Failure> {
    standing::find(name).map_err(|error| match error {
        LabError::NoSuchLab { .. } if name.is_some() => Failure::usage(error),
        other => other.into(),
    })
}
