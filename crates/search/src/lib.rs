//! Finds the highest loads that a system carries within given losses: the non-drop rate, where
//! nothing may be lost, and partial drop rates.
//!
//! The method is that of MLRsearch (draft-ietf-bmwg-mlrsearch): several [goals](Goal) are looked for
//! at once and learn from each other's trials; trials are short at first and grow, and so does the
//! precision; and a load counts as carried although a share of its trials went wrong, so that one
//! disturbance does not decide. Which load is tried next follows from the trials there were, and from
//! nothing else, so a search can be stopped, saved and gone on with.
//!
//! ```
//! use std::time::Duration;
//! use dray_search::{Goal, Search, Trial};
//!
//! let goal = Goal { loss_ratio: 0.0, width: 0.01, ..Goal::default() };
//! let mut search = Search::new(vec![goal], 1..=1_000_000);
//! while let Some(next) = search.next() {
//!     // A system that loses what is above 700,000 frames per second.
//!     let loss_ratio = (1.0 - 700_000.0 / next.load as f64).max(0.0);
//!     search.add(Trial { load: next.load, duration: next.duration, loss_ratio });
//! }
//! let found = search.found()[0];
//! assert!((693_000..=700_000).contains(&found.lower.unwrap()));
//! ```
#![forbid(unsafe_code)]

mod goal;
mod search;
mod verdict;

pub use goal::Goal;
pub use search::{Found, Next, Search};
pub use verdict::Trial;
