//! The kinds of charts. Each draws the rows of a run that are of its kind; most runs have none.
//!
//! To add a kind, write it in a file here, as small as `latency.rs`, and add it to [`KINDS`].

mod cost;
pub(crate) mod drop_rates;
mod forwarders;
mod isolation;
mod latency;
mod latency_load;
pub(crate) mod needs;
mod offered;
pub(crate) mod pairs;
mod ports;
mod rates;
pub(crate) mod rows;
mod sizes;
mod user_plane;

use crate::figure::Figure;
use crate::input::Run;
use crate::technique::Techniques;

/// Draws the figures of one kind for a run.
type Kind = fn(&Run, &Techniques) -> Vec<Figure>;

/// All kinds, in the order of a report.
const KINDS: &[Kind] = &[
    drop_rates::draw,
    rates::draw,
    offered::draw,
    sizes::draw,
    forwarders::draw,
    pairs::draw,
    user_plane::draw,
    ports::draw,
    latency::draw,
    latency_load::draw,
    needs::draw,
    cost::draw,
    isolation::draw,
];

/// Draws all figures of a run.
pub(crate) fn figures(run: &Run, techniques: &Techniques) -> Vec<Figure> {
    KINDS.iter().flat_map(|draw| draw(run, techniques)).collect()
}
