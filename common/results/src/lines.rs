//! How near the CPUs of a trial are to each other. Virtual CPUs move, and figures measured near and
//! far can differ by a factor of three, so trials in different states are not averaged or compared.

use serde::{Deserialize, Serialize};

/// A cache line that takes longer than this from one CPU to another and back is far away, in
/// nanoseconds. On the machines measured, CPUs that share a cache take 40 to 120 where it serves
/// eight cores (AMD), 130 to 240 where it is spread over a whole processor (Intel), and others 300
/// to 500.
const FAR_NS: f64 = 260.0;

/// Distance between the CPUs of trials, by the time that a cache line takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// At most 260 ns there and back.
    Near,
    /// Longer.
    Far,
    /// The distance changed during the trial.
    Changed,
}

impl Distance {
    /// Returns the distance of CPUs between which a cache line took `before_ns` before a trial and
    /// `after_ns` after it, there and back.
    pub fn of(before_ns: f64, after_ns: f64) -> Self {
        match (before_ns > FAR_NS, after_ns > FAR_NS) {
            (false, false) => Self::Near,
            (true, true) => Self::Far,
            _ => Self::Changed,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Near => "near each other",
            Self::Far => "far from each other",
            Self::Changed => "moved during the trials",
        }
    }
}

/// Distance between the CPUs of a row's trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Lines {
    /// Distance in all trials of the row.
    pub distance: Distance,
    /// Distance in most trials of the run. Rows with another one do not compare with the others.
    pub of_run: Distance,
    /// Time that a cache line took between the CPUs that are farthest apart, there and back, in
    /// nanoseconds: the mean over the trials.
    pub round_trip_ns: f64,
    /// Number of trials left out because the distance was another one, or enough had been
    /// repeated; not those that `left_out` of the noise counts.
    pub left_out: usize,
}

impl Lines {
    /// Describes why the row does not compare with others of its run, if that is so.
    pub fn disturbed(&self) -> Option<String> {
        let Self { distance, of_run, round_trip_ns, .. } = self;
        self.changed().or_else(|| {
            (distance != of_run).then(|| {
                format!(
                    "the CPUs were {} ({round_trip_ns:.0} ns), not {} as in the other rows",
                    distance.in_words(),
                    of_run.in_words()
                )
            })
        })
    }

    /// Describes that the distance changed during the trials, if it did: the row does not compare
    /// with any other.
    pub fn changed(&self) -> Option<String> {
        let Self { distance, .. } = self;
        (*distance == Distance::Changed).then(|| format!("the CPUs {}", distance.in_words()))
    }

    /// Describes the distance, in words and nanoseconds.
    pub fn describe(&self) -> String {
        format!("{} ({:.0} ns)", self.distance.in_words(), self.round_trip_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_must_be_the_same_before_and_after() {
        assert_eq!(Distance::of(58.0, 61.0), Distance::Near);
        assert_eq!(Distance::of(139.0, 235.0), Distance::Near, "over the mesh of one processor");
        assert_eq!(Distance::of(320.0, 350.0), Distance::Far);
        assert_eq!(Distance::of(58.0, 350.0), Distance::Changed);
        assert_eq!(Distance::of(350.0, 58.0), Distance::Changed);
    }

    #[test]
    fn other_distance_than_the_run_disturbs() {
        let lines =
            |distance, of_run| Lines { distance, of_run, round_trip_ns: 330.0, left_out: 0 };
        assert_eq!(lines(Distance::Far, Distance::Far).disturbed(), None);
        let words = lines(Distance::Far, Distance::Near).disturbed().unwrap();
        assert_eq!(
            words,
            "the CPUs were far from each other (330 ns), not near each other as in the other rows"
        );
        assert!(lines(Distance::Changed, Distance::Near).disturbed().unwrap().contains("moved"));
    }
}
