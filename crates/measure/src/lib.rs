//! Measurement: a [`trial`] measures one [`technique`]; [`experiments`] consist of many trials,
//! which a [`plan`] lists and [`rounds`] runs.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod clock;
mod cost;
pub mod cpu;
pub mod endpoint;
pub mod experiments;
pub mod interval;
pub mod isolation;
pub mod needs;
mod neighbour;
mod noise;
mod peer_ends;
pub mod plan;
pub mod results;
pub mod rounds;
pub mod selfcheck;
mod span;
pub mod stats;
pub mod streams;
pub mod table;
pub mod technique;
pub mod topology;
pub mod trial;
mod upf;

pub use endpoint::Endpoint;
pub use experiments::{EXPERIMENTS, Experiment};
pub use interval::Interval;
pub use needs::Needs;
pub use neighbour::Neighbour;
pub use noise::Noise;
pub use plan::{Case, Choices, Plan, Settings};
pub use results::{ResultRow, Results};
pub use streams::StreamRow;
pub use technique::Technique;
pub use topology::Shape;
pub use upf::UpfLoad;
