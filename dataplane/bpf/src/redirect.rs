//! Programs that redirect frames from interface to interface.

use std::io;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::MapData;
use aya::maps::xdp::DevMapHash;
use aya::programs::Xdp;

use crate::attach::{Attached, Mode, XdpError, load_error, map_error, system_error};
use crate::learner::Learner;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.o"));

/// A program attached to interfaces, among which it redirects frames.
pub struct Redirect {
    mode: Mode,
    learner: Option<Learner>,
    _attached: Vec<Attached>,
    _ebpf: Ebpf,
}

impl Redirect {
    /// Redirects frames received at one of `interfaces`, indices in this network namespace, to the
    /// other.
    pub fn pair(interfaces: [u32; 2], modes: &[Mode]) -> Result<Self, XdpError> {
        let mut ebpf = crate::load(OBJECT).map_err(load_error)?;
        let [a, b] = interfaces;
        set_interfaces(&mut ebpf, "pairs", &[(a, b), (b, a)])?;
        let attached = attach(&mut ebpf, "dray_pairs", &interfaces, modes)?;
        Ok(Self { mode: attached[0].mode(), learner: None, _attached: attached, _ebpf: ebpf })
    }

    /// Redirects frames received at one of `interfaces` to the one where their destination was
    /// seen, or to all others if that is not known. A station that has been silent for `age` is
    /// forgotten.
    pub fn learning(interfaces: &[u32], modes: &[Mode], age: Duration) -> Result<Self, XdpError> {
        let mut ebpf = crate::load(OBJECT).map_err(load_error)?;
        let members: Vec<_> = interfaces.iter().map(|&index| (index, index)).collect();
        set_interfaces(&mut ebpf, "members", &members)?;
        let learner = Learner::start(&mut ebpf, interfaces, age)?;
        let attached = attach(&mut ebpf, "dray_learning", interfaces, modes)?;
        let mode = attached.first().map_or(modes[0], Attached::mode);
        Ok(Self { mode, learner: Some(learner), _attached: attached, _ebpf: ebpf })
    }

    /// Returns the mode in which the program runs, at all interfaces.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the number of known stations, in a learning program.
    pub fn stations(&self) -> Option<usize> {
        self.learner.as_ref().map(Learner::known)
    }
}

/// A program that does nothing: a veth accepts redirected frames from its other end only if a
/// program is attached.
#[derive(Debug)]
pub struct Pass {
    _attached: Vec<Attached>,
    _ebpf: Ebpf,
}

impl Pass {
    /// Attaches the program to the driver of an interface of this network namespace.
    pub fn attach(interface: u32) -> Result<Self, XdpError> {
        let mut ebpf = crate::load(OBJECT).map_err(load_error)?;
        let attached = attach(&mut ebpf, "dray_pass", &[interface], &[Mode::Native])?;
        Ok(Self { _attached: attached, _ebpf: ebpf })
    }
}

fn set_interfaces(ebpf: &mut Ebpf, map: &str, entries: &[(u32, u32)]) -> Result<(), XdpError> {
    let map = ebpf.map_mut(map).expect("the object has it");
    let mut map: DevMapHash<&mut MapData> = map.try_into().map_err(map_error)?;
    for (key, interface) in entries {
        map.insert(*key, *interface, None, 0)
            .map_err(|error| XdpError::Map(io::Error::other(error)))?;
    }
    Ok(())
}

fn attach(
    ebpf: &mut Ebpf,
    program: &str,
    interfaces: &[u32],
    modes: &[Mode],
) -> Result<Vec<Attached>, XdpError> {
    let program = ebpf.program_mut(program).expect("the object has it");
    let program: &mut Xdp = program.try_into().expect("of this type");
    program.load().map_err(|error| XdpError::Load(system_error(error)))?;
    Attached::to_all(program, interfaces, modes)
}
