//! Layouts: how results are put into a table.

/// How an experiment's results are put into a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A row for each result, all figures in it.
    List,
    /// A row for each endpoint, a column for each link, the paper's figure in front.
    EndpointsByLink,
    /// A row for each number of forwarders, a column for each technique.
    ForwardersByTechnique,
    /// The same of the rates at which frames were sent.
    SentByForwarders,
    /// A row for each offered rate, a column for each technique.
    RatesByTechnique,
    /// A row for each technique, a column for each size.
    TechniquesBySize,
    /// A row for each switch with each endpoint, columns for each size, and what switches need.
    Switches,
    /// The limit of the machine only.
    Limits,
    /// A row for each number of pairs, columns for each technique and MTU: goodput, and loss.
    PairsByTechnique,
    /// A row for each technique and size, columns for each loss that is allowed.
    DropRates,
    /// A row for each technique, load and rate of a user plane function: what passes it, and what it
    /// passes for each core that it is busy on.
    UserPlane,
    /// A row for each technique and size, columns for each runtime.
    Runtimes,
    /// A row for each technique and size, columns for what a neighbour does.
    Neighbours,
    /// A row for each technique, columns for what it needs.
    Needs,
    /// A row for each technique, columns for how long round trips take.
    RoundTrips,
    /// A table for each way and size: a row for each technique and load, columns for how long frames
    /// take.
    Latencies,
    /// A row for each technique and size, columns for how closely the receiver looks.
    Checks,
}
