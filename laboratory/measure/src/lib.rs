//! Measurement: a [`trial`] measures one [`technique`]; [`experiments`] consist of many trials,
//! which a [`plan`] lists and [`rounds`] runs.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod clock;
mod cost;
pub mod cpu;
mod distance;
pub mod endpoint;
mod ends;
pub mod experiments;
mod isolation;
mod jobs;
mod needs;
mod neighbour;
mod noise;
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
