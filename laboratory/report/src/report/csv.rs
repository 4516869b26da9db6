//! Results as CSV (RFC 4180): figures in base units, for programs and spreadsheets.

use dray_results::{
    Measured, MeasuredStreams, Outcome, Percentiles, ResultRow, StreamOutcome, StreamRow,
};

use crate::charts::rows::cores;
use crate::escape;
use crate::input::Run;

/// A row of a run.
#[derive(Clone, Copy)]
enum Row<'a> {
    Frames(&'a ResultRow),
    Streams(&'a StreamRow),
}

/// A line: a row and its run.
struct Line<'a> {
    run: &'a Run,
    row: Row<'a>,
}

/// Returns the field of a line in one column.
type Field = fn(&Line) -> String;

/// Every column: its name and its fields.
const COLUMNS: &[(&str, Field)] = &[
    ("file", |it| it.run.name()),
    ("experiment", |it| it.run.results.experiment.clone()),
    ("time", |it| it.run.results.time.clone()),
    ("cpu_model", |it| it.run.results.host.cpu_model.clone().unwrap_or_default()),
    ("kernel", |it| it.run.results.host.kernel.clone()),
    ("quick", |it| it.run.results.settings.quick.to_string()),
    ("technique", |it| it.row(|row| &row.technique, |row| &row.technique)),
    ("link", |it| it.row(|row| &row.link, |row| &row.link)),
    ("endpoint", |it| it.row(|row| &row.endpoint, |row| &row.endpoint)),
    ("topology", |it| it.frames(|row| Some(&row.topology))),
    ("forwarders", |it| it.frames(|row| Some(row.forwarders))),
    ("frame_size", |it| it.frames(|row| Some(row.frame_size))),
    ("burst", |it| it.frames(|row| Some(row.burst))),
    ("flows", |it| it.frames(|row| Some(row.flows))),
    ("stations", |it| it.frames(|row| Some(row.stations))),
    ("pairs", |it| it.row(|row| &row.pairs, |row| &row.pairs)),
    ("mtu", |it| it.row(|row| &row.mtu, |row| &row.mtu)),
    ("runtime", |it| it.row(|row| &row.runtime, |row| &row.runtime)),
    ("upf", |it| it.frames(|row| row.upf)),
    ("ports", |it| it.frames(|row| row.ports)),
    ("offered_pps", |it| it.frames(|row| row.offered_pps)),
    ("paper_pps", |it| it.frames(|row| row.paper_pps)),
    ("skipped", |it| match it.row {
        Row::Frames(ResultRow { outcome: Outcome::Skipped { skipped }, .. }) => skipped.clone(),
        Row::Streams(StreamRow { outcome: StreamOutcome::Skipped { skipped }, .. }) => {
            skipped.clone()
        }
        _ => String::new(),
    }),
    ("trials", |it| it.either(|found| Some(found.trials), |found| Some(found.trials))),
    ("sent_pps", |it| it.measured(|_, found| Some(found.sent_pps))),
    ("received_pps", |it| it.measured(|_, found| Some(found.received_pps))),
    ("interval95_pps", |it| it.measured(|_, found| Some(found.interval()?.half))),
    ("loss_ratio", |it| it.measured(|_, found| Some(found.loss_ratio))),
    ("counters_agree", |it| it.either(|found| found.counters_agree, |found| found.counters_agree)),
    ("disturbed", |it| it.either(Measured::disturbed, MeasuredStreams::disturbed)),
    ("shared_cores", |it| {
        it.either(|it| Some(it.setting.shared_cores), |it| Some(it.setting.shared_cores))
    }),
    ("cores", |it| it.either(cores, |found| Some(found.cpu.cores()))),
    ("cycles_per_frame", |it| it.measured(|_, found| found.cycles_per_frame)),
    ("limit_share", |it| it.measured(|_, found| found.limit_share)),
    ("p50_ns", |it| it.there_and_back(|times| Some(times.p50))),
    ("p90_ns", |it| it.there_and_back(|times| Some(times.p90))),
    ("p99_ns", |it| it.there_and_back(|times| Some(times.p99))),
    ("p999_ns", |it| it.there_and_back(|times| Some(times.p999))),
    ("max_ns", |it| it.there_and_back(|times| Some(times.max))),
    ("p9999_ns", |it| it.there_and_back(|times| times.p9999)),
    ("one_way_p50_ns", |it| it.one_way(|times| Some(times.p50))),
    ("one_way_p90_ns", |it| it.one_way(|times| Some(times.p90))),
    ("one_way_p99_ns", |it| it.one_way(|times| Some(times.p99))),
    ("one_way_p999_ns", |it| it.one_way(|times| Some(times.p999))),
    ("one_way_p9999_ns", |it| it.one_way(|times| times.p9999)),
    ("one_way_max_ns", |it| it.one_way(|times| Some(times.max))),
    ("load_share", |it| it.measured(|row, _| row.load_share)),
    ("mbps_per_core", |it| it.measured(|_, found| found.mbps_per_core)),
    ("switch_work_ns", |it| it.measured(|_, found| found.switch_work_ns())),
    ("lowest_share", |it| it.measured(|_, found| found.lowest_share)),
    ("streams", |it| it.streams(|row| Some(row.streams))),
    ("goodput_bps", |it| it.streams(|row| Some(row.measured()?.goodput_bps))),
    ("interval95_bps", |it| it.streams(|row| Some(row.measured()?.interval()?.half))),
    ("isolation", |it| {
        it.frames(|row| {
            let verdict = serde_json::to_value(row.isolation()?.verdict).ok()?;
            verdict.as_str().map(str::to_owned)
        })
    }),
];

/// Formats a field; empty without a value.
fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

impl<'a> Line<'a> {
    /// Returns a field of all rows.
    fn row<T: ToString + ?Sized>(
        &self,
        frames: fn(&'a ResultRow) -> &'a T,
        streams: fn(&'a StreamRow) -> &'a T,
    ) -> String {
        match self.row {
            Row::Frames(row) => frames(row).to_string(),
            Row::Streams(row) => streams(row).to_string(),
        }
    }

    /// Returns a field of rows of frames.
    fn frames<T: ToString>(&self, of: impl Fn(&'a ResultRow) -> Option<T>) -> String {
        match self.row {
            Row::Frames(row) => text(of(row)),
            Row::Streams(_) => String::new(),
        }
    }

    /// Returns a field of rows of streams.
    fn streams<T: ToString>(&self, of: fn(&'a StreamRow) -> Option<T>) -> String {
        match self.row {
            Row::Frames(_) => String::new(),
            Row::Streams(row) => text(of(row)),
        }
    }

    /// Returns a field of rows of frames with figures.
    fn measured<T: ToString>(&self, of: impl Fn(&ResultRow, &Measured) -> Option<T>) -> String {
        self.frames(|row| of(row, row.measured()?))
    }

    fn there_and_back(&self, of: fn(&Percentiles) -> Option<u64>) -> String {
        self.measured(|_, found| of(found.latency_ns.as_ref()?))
    }

    fn one_way(&self, of: fn(&Percentiles) -> Option<u64>) -> String {
        self.measured(|_, found| of(found.one_way_ns.as_ref()?))
    }

    /// Returns a field of all rows with figures.
    fn either<T: ToString>(
        &self,
        frames: fn(&Measured) -> Option<T>,
        streams: fn(&MeasuredStreams) -> Option<T>,
    ) -> String {
        match self.row {
            Row::Frames(row) => text(row.measured().and_then(frames)),
            Row::Streams(row) => text(row.measured().and_then(streams)),
        }
    }
}

pub(super) fn render(runs: &[Run]) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut text = names.join(",") + "\r\n";
    for run in runs {
        let frames = run.results.results.iter().map(Row::Frames);
        for row in frames.chain(run.results.streams.iter().map(Row::Streams)) {
            let line = Line { run, row };
            let fields: Vec<String> =
                COLUMNS.iter().map(|(_, field)| escape::csv(&field(&line))).collect();
            text += &(fields.join(",") + "\r\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn csv_row_has_a_field_per_column() {
        let skipped = sample::row("bridge/udp", 64).with("skipped", "\"no, \\\"not\\\" here\"");
        // Without figures, only the reason for skipping is left.
        let skipped = skipped.with("sent", "null");
        let run = sample::run(&sample::results(&[sample::row("=veth/udp", 64), skipped]));
        let text = render(&[run]);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].contains(",'=veth/udp,") && lines[1].contains(",1000000,"), "{text}");
        assert!(lines[2].contains(",\"no, \"\"not\"\" here\","), "{text}");
        assert_eq!(lines[1].split(',').count(), COLUMNS.len());
    }

    #[test]
    fn csv_includes_streams_and_isolation() {
        let isolation = "{\"verdict\":\"isolated by design\",\"offered\":1,\"left\":1,\"dropped\":0,\"arrived\":0}";
        let isolated = sample::row("macvlan/vepa/raw", 64).with("sent", "null");
        let isolated = sample::run(&sample::results(&[isolated.with("isolation", isolation)]));
        let streams = sample::run(&sample::streams(&[("veth/tcp", &[9e9, 9e9])]));
        let text = render(&[isolated, streams]);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert!(lines[1].ends_with(",isolated by design"), "{text}");
        assert!(lines[2].contains(",9000000000,0,"), "{text}");
        assert!(lines.iter().all(|line| line.split(',').count() == COLUMNS.len()), "{text}");
    }
}
