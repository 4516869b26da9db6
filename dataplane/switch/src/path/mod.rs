//! The data path: ports, and the workers that move frames between them.
//!
//! Control threads build a [`View`](view::View), which has all that workers need, and publish it;
//! each worker adopts it between two batches. A view never changes, so adding or removing a port
//! does not disturb the others.

mod apply;
mod block;
mod bypass;
mod control;
mod finishing;
mod head;
mod housekeeper;
mod inline;
mod learning;
mod opening;
mod patch;
mod pins;
mod poll_set;
mod pool;
mod port;
mod ports;
mod setting;
mod shaper;
mod switch;
mod takeover;
mod tally;
mod view;
mod vlans;
mod waiting;
mod worker;
mod workers;

pub use inline::InlineSwitch;
pub use switch::Switch;
