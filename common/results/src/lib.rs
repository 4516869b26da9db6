//! Results of `dray bench`, as `--json` writes them and as reports read them: rows, figures and
//! their uncertainty, facts about the host and the settings. `docs/result.schema.json`, which is
//! derived from the types here, describes the format for other programs.
#![forbid(unsafe_code)]

mod agreement;
mod check;
mod clock;
mod cpu;
mod drop_rate;
mod host;
mod interval;
mod isolation;
mod latency;
mod limit;
mod lines;
mod lost_at;
mod measured;
mod needs;
mod neighbour;
mod noise;
mod ports;
mod results;
mod row;
#[cfg(test)]
mod schema;
mod setting;
pub mod stats;
mod streams;
mod table;
mod upf;

pub use agreement::{Agreement, Agreements};
pub use check::Check;
pub use clock::{ClockFacts, Offset};
pub use cpu::{Cpu, CpuCost};
pub use drop_rate::{DropRate, LimitedBy, SearchRecord};
pub use host::{Cache, HostFacts, HugepagePool};
pub use interval::Interval;
pub use isolation::{Isolation, Verdict};
pub use latency::Percentiles;
pub use limit::LimitRow;
pub use lines::{Distance, Lines};
pub use lost_at::LostAt;
pub use measured::{Measured, SWITCH};
pub use needs::{Needs, SetUp};
pub use neighbour::Neighbour;
pub use noise::Noise;
pub use ports::{PortLoad, Traffic};
pub use results::{AnyMeasured, AnySkipped, Incomplete, Results, SCHEMA, SettingsRecord};
pub use row::{EMBEDDED, Outcome, ResultRow};
pub use setting::{EngineFacts, Programs, SettingOfRun, SwitchFacts};
pub use streams::{MeasuredStreams, StreamOutcome, StreamRow};
pub use table::{Layout, Table};
pub use upf::{UPF, UpfLoad, Way};
