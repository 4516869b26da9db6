//! Results of checks.

use serde::Serialize;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Group of the check.
    pub group: &'static str,
    /// Checked item.
    pub item: String,
    /// State of the item.
    pub state: State,
    /// Short description of what was found.
    pub detail: String,
    /// Cost of a problem and how to fix it; `None` if it costs nothing or cannot be fixed.
    pub advice: Option<String>,
}

/// State of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Present.
    Ok,
    /// Not present.
    Missing,
    /// Present, but measurements will suffer.
    Warning,
    /// Cannot be determined.
    Unknown,
}

impl Finding {
    pub(super) fn new(
        group: &'static str,
        item: impl Into<String>,
        state: State,
        detail: impl Into<String>,
    ) -> Self {
        Self { group, item: item.into(), state, detail: detail.into(), advice: None }
    }

    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Finding for a check that needs privileges.
pub(super) fn needs_root(group: &'static str, item: &str) -> Finding {
    Finding::new(group, item, State::Unknown, "only root can test it")
        .advise("dray does not use it without root; run this with sudo")
}

/// Formats a size with a unit: `48 KiB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (1..UNITS.len()).rev().find(|unit| bytes >= 1 << (10 * unit)).unwrap_or(0);
    let one = 1_u64 << (10 * unit);
    if bytes.is_multiple_of(one) {
        return format!("{} {}", bytes / one, UNITS[unit]);
    }
    format!("{:.1} {}", bytes as f64 / one as f64, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(48 << 10), "48 KiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(2 << 40), "2 TiB");
    }
}
