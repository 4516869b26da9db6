//! How endpoints that share a CPU give it to each other.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::PeerDir;
use crate::LabError;

/// `yield.c`, built.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/yield.so"));

/// Makes a DPDK program give its CPU away when it has no work.
pub(super) struct Yielding {
    pub(super) ports: usize,
    pub(super) queues: u16,
    /// Entries of the smallest ring.
    pub(super) ring: u16,
}

impl Yielding {
    /// Loads the library into the command's program.
    pub(super) fn load(&self, dir: &PeerDir, command: &mut Command) -> Result<(), LabError> {
        command
            .env("LD_PRELOAD", library(dir)?)
            .env("DRAY_YIELD_PORTS", self.ports.to_string())
            .env("DRAY_YIELD_QUEUES", self.queues.to_string())
            .env("DRAY_YIELD_RING", self.ring.to_string());
        Ok(())
    }
}

fn library(dir: &PeerDir) -> Result<PathBuf, LabError> {
    let path = dir.join("yield.so");
    // Another endpoint may have it mapped: writing into it would change that one's code.
    if !path.exists() {
        fs::write(&path, LIBRARY)
            .map_err(LabError::doing(format!("writing {}", path.display())))?;
    }
    Ok(path)
}
