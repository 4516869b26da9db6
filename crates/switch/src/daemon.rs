//! Where the data path is started.

use std::sync::Arc;

use crate::config::SwitchConfig;
use crate::engine::{Engine, EngineError};

/// Starts the workers and opens the ports of a configuration that was checked.
pub fn start(_config: &SwitchConfig) -> Result<Arc<dyn Engine>, EngineError> {
    Err(EngineError::Open("the data path is not yet built".to_owned()))
}
