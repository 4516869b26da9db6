//! Measurement: a [`trial`] measures one [`technique`]; [`experiments`] consist of many trials,
//! which a [`plan`] lists and [`rounds`] runs.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod clock;
mod cost;
pub mod cpu;
mod distance;
pub mod endpoint;
pub mod experiments;
mod isolation;
mod needs;
mod neighbour;
mod netmap_ends;
mod noise;
mod ns3_ends;
mod peer_ends;
pub mod plan;
mod ports;
mod reading;
pub mod rounds;
mod rows;
mod run;
pub mod selfcheck;
mod setting;
mod shape;
mod span;
mod state;
pub mod streams;
pub mod technique;
mod third_party;
mod timing;
pub mod topology;
pub mod trial;
mod upf;

pub use endpoint::Endpoint;
pub use experiments::{EXPERIMENTS, Experiment};
pub use plan::{Case, Choices, Plan, Settings};
pub use shape::Shape;
pub use technique::Technique;
pub use timing::Timing;
