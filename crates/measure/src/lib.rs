//! Measurement: one [`trial`] of one [`technique`], and [`experiments`] made of many.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod cpu;
pub mod experiments;
mod peer_ends;
pub mod results;
pub mod stats;
pub mod table;
pub mod technique;
pub mod topology;
pub mod trial;

pub use experiments::{Case, EXPERIMENTS, Experiment, Settings};
pub use results::{ResultRow, Results};
pub use technique::{Endpoint, Technique};
pub use topology::Shape;
