//! Pace of packets, independent of how long the load waited before and after.

use dray_port::clock;

/// Packets after the first batch, and the time from the first batch to the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Number of packets.
    pub packets: u64,
    /// Time in nanoseconds.
    pub ns: u64,
}

/// Notes when a count of packets grows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// Tick of the first batch, and the count after it.
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl Span {
    /// Called with the count after each batch, which was handled at the tick `now`.
    pub(super) fn note(&mut self, now: u64, packets: u64) {
        if packets != self.last.1 {
            self.first.get_or_insert((now, packets));
            self.last = (now, packets);
        }
    }

    pub(super) fn pace(&self) -> Pace {
        let Some((tick, packets)) = self.first else { return Pace::default() };
        Pace { packets: self.last.1 - packets, ns: clock::nanoseconds(self.last.0 - tick) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_excludes_time_before_first_and_after_last_packet() {
        let ms = clock::ticks_per_second() / 1000;
        let mut span = Span::default();
        for (at, packets) in [(1, 0), (500, 32), (600, 64), (700, 132), (9000, 132)] {
            span.note(at * ms, packets);
        }
        let Pace { packets, ns } = span.pace();
        assert!(packets == 100 && ns.abs_diff(200_000_000) < 1000, "{packets} in {ns} ns");
        assert_eq!(Span::default().pace(), Pace::default());
    }
}
