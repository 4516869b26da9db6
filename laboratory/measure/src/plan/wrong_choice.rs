//! Errors in the user's choices; each message says what would be right.

use std::time::Duration;

use dray_lab::Runtime;
use dray_lab::placement::NoSuchCpu;
use dray_port::BATCH_MAX;
use dray_wire::FRAME_MIN;
use dray_wire::ethernet::ETHERNET_LEN;

use super::limits::{PAIRS_MAX, STREAMS_MAX};
use crate::technique::{Technique, UnknownTechnique};

/// Invalid choice.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the error messages describe the variants")]
pub enum WrongChoice {
    #[error(transparent)]
    Technique(#[from] UnknownTechnique),
    #[error("experiment {experiment} does not measure {given}; {advice}")]
    TechniqueOfAnother { experiment: &'static str, given: String, advice: String },
    #[error(
        "--size {given}: {FRAME_MIN} to {max} bytes (MTU {mtu} plus {ETHERNET_LEN} of Ethernet \
         header)"
    )]
    Size { given: usize, max: usize, mtu: u32 },
    #[error(
        "--rate {given}: must be more than 0 frames per second, for example 100000, 100k or 1.5M"
    )]
    Rate { given: f64 },
    #[error("--loss {given}: 0 or more and less than 1, or less than 100%")]
    Loss { given: f64 },
    #[error("--loss with --rate {given}: --loss searches for the rate, so give only one of them")]
    LossAndRate { given: f64 },
    #[error("--burst {given}: 1 to {BATCH_MAX} frames")]
    Burst { given: usize },
    #[error("--pairs {given}: 1 to {PAIRS_MAX} pairs of sender and receiver")]
    Pairs { given: usize },
    #[error("--pairs: {experiment} has roles other than sender and receiver; leave out --pairs")]
    OtherRoles { experiment: &'static str },
    #[error(
        "--pairs {given}: {technique} has one program for both ends, so only 1 pair is allowed"
    )]
    OnePair { given: usize, technique: Technique },
    #[error("--runtime {given}: {technique} is a link of {own} containers; leave out --runtime")]
    OtherRuntime { given: Runtime, technique: Technique, own: Runtime },
    #[error("--flows {given}: 1 to 16384 flows per link of the sender")]
    Flows { given: u16 },
    #[error("--flows {given}: {technique} has 1 to {STREAMS_MAX} streams")]
    Streams { given: u16, technique: Technique },
    #[error("--flows {given}: {technique} sends one flow per socket; choose raw techniques")]
    OneFlow { given: u16, technique: Technique },
    #[error("--stations {given}: 1 to 16384 MAC address pairs, with --flows 1")]
    Stations { given: u16 },
    #[error(
        "--stations {given}: {technique} sends from one station; choose raw sockets on a link that \
         carries any address, such as bridge/raw, or our endpoints that share memory"
    )]
    OneStation { given: u16, technique: Technique },
    #[error(
        "--stations {given}: a user plane function connects one gNB with one server; only 1 \
         is allowed"
    )]
    UpfStations { given: u16 },
    #[error("--stations {given}: the rows of this experiment have stations; leave out --stations")]
    PortsStations { given: u16 },
    #[error(
        "--size {given}: {technique} sends streams, whose frame size follows from the MTU; choose \
         other techniques, or --mtu"
    )]
    NoSize { given: usize, technique: Technique },
    #[error("{technique} cannot send at a given rate; choose other techniques")]
    NoRate { technique: Technique },
    #[error("{option} {given}: given twice; give each value once")]
    Twice { option: &'static str, given: String },
    #[error("--parent {given}: no such interface; available: {there}")]
    NoInterface { given: String, there: String },
    #[error(
        "--cable {given}: no technique has a cable between two hosts; choose hosts/bridge, vxlan or \
         others of dray bench tunnels"
    )]
    NoCable { given: u64 },
    #[error("--trials {given}: 1 to 1000")]
    Trials { given: usize },
    #[error("--duration {} s: 0.2 to 3600 seconds", given.as_secs_f64())]
    Duration { given: Duration },
    #[error("--mtu {given}: 68 to 9000 bytes")]
    Mtu { given: u32 },
    #[error(transparent)]
    Cpu(NoSuchCpu),
}
