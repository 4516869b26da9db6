//! The program whose processes take over from each other, and the version of what they exchange.

use serde::{Deserialize, Serialize};

/// A program that can be taken over.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the program in messages, such as `switch`.
    pub name: &'static str,
    /// Command line of the program, such as `dray switch`.
    pub command: &'static str,
    /// Version of the messages. Two processes must have the same.
    pub format: u32,
}

/// A take-over cannot be started or completed; the running program, if there is one, continues.
#[derive(Debug, thiserror::Error)]
#[error("take-over: {0}")]
pub struct TakeoverError(pub String);

/// Version of a process: the first part of every page, and the first message of every take-over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Version of dray.
    version: String,
    /// [Format](Program::format) of its messages.
    format: u32,
}

impl Program {
    pub(crate) fn hello(&self) -> Hello {
        Hello { version: env!("CARGO_PKG_VERSION").to_owned(), format: self.format }
    }

    /// Checks that this process can read the pages of the process `before`.
    pub(crate) fn check_readable(&self, before: &Hello) -> Result<(), TakeoverError> {
        let own = self.hello();
        if own.format == before.format {
            return Ok(());
        }
        Err(TakeoverError(format!(
            "the {} before was dray {} and this is dray {}, whose states differ (formats {} and {})",
            self.name, before.version, own.version, before.format, own.format
        )))
    }

    /// Returns the reason why `new` cannot take over from `running`; `None` if it can.
    pub(crate) fn differ(&self, running: &Hello, new: &Hello) -> Option<String> {
        (running.format != new.format).then(|| {
            format!(
                "the running {} is dray {} and the new one dray {}, which exchange other messages \
                 (formats {} and {}): stop the one, then start the other",
                self.name, running.version, new.version, running.format, new.format
            )
        })
    }
}
