//! Finds the highest loads that a system carries within given loss ratios: the non-drop rate, at
//! which nothing is lost, and partial drop rates.
//!
//! The method is that of MLRsearch (draft-ietf-bmwg-mlrsearch). The search handles several
//! [goals](Goal) at once, and each goal uses the trials of the others. Trials start short and
//! coarse and become longer and more precise. A load counts as carried even if a share of its
//! trials went wrong, so that a single disturbance does not decide. The next load depends only on
//! the trials so far, so a search can be stopped, saved and resumed.
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
