//! A switch that moves frames on the calling thread, between ports that the caller made.

use std::io;
use std::sync::Arc;

use dray_port::{Port, clock};

use super::port::OpenPort;
use super::setting::Setting;
use super::view::View;
use super::worker::{Shared, Worker};
use crate::config::{Mode, Pairs, SwitchConfig};
use crate::counters::Counters;

/// The data path of a [`Switch`](super::Switch) without its threads: for tests, fuzzers and
/// benchmarks, which need it to be deterministic.
pub struct InlineSwitch {
    view: Arc<View>,
    worker: Worker<Arc<Shared>>,
}

impl InlineSwitch {
    /// Creates a switch with the ports of `config`, which must have been checked. `ports` are used
    /// instead of the ones their URIs name.
    pub fn new(config: &SwitchConfig, ports: Vec<Port>) -> io::Result<Self> {
        assert_eq!(config.ports.len(), ports.len(), "one port for each configured one");
        let setting = Setting::new(config);
        let mut view = View::default();
        let mut pairs = Pairs::default();
        for (index, (port, config)) in ports.into_iter().zip(&config.ports).enumerate() {
            let workers = vec![0; port.rx.len()];
            let open = OpenPort::new(index as u16, config.clone(), port, &workers, (1, &setting))?;
            view.ports.push(Some(Arc::new(open)));
            if setting.mode == Mode::Patch && config.mirror.is_empty() {
                pairs.add(config).map_err(io::Error::other)?;
            }
        }
        view.pair(&pairs);
        view.pin();
        view.mirror();
        let view = Arc::new(view);
        let shared = Arc::new(Shared::new(Arc::new(setting), 0)?);
        shared.publish(view.clone());
        Ok(Self { view, worker: Worker::new(shared) })
    }

    /// Moves one batch of each port.
    pub fn step(&mut self) {
        self.worker.step();
    }

    /// Moves one batch of each port that may have frames, as a running worker does in most of its
    /// rounds.
    pub fn round(&mut self) {
        self.worker.round(clock::ticks());
    }

    /// Publishes the counters, and finds the silent ports, as a running worker does once in a
    /// while.
    pub fn publish(&mut self) {
        self.worker.publish();
    }

    /// Returns the counters of a port, by its index in the configuration.
    pub fn counters(&self, port: usize) -> Counters {
        self.view.port(port as u16).map(|port| port.counted()).unwrap_or_default()
    }
}
