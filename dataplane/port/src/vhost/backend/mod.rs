//! The effect of a driver's messages on the device. The `vhost` crate reads and checks the
//! messages; this module implements them.
//!
//! No code in this module accesses a frame. It collects the driver's announcements, and inserts a
//! [`Running`] queue into its slot once the setup of that queue is complete.

mod features;
mod memory;
mod messages;
mod session;

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use dray_ring::packed::{PackedDevice, PackedLayout};
use dray_ring::split::{SplitDevice, SplitLayout};
use dray_ring::{DeviceQueue, Progress, QueueSize};
use dray_shm::{GuestMemory, Mapping, MemoryFile};
use vhost::vhost_user::{Error, Result};
use virtio_bindings::virtio_config::{VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1};
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::device::{Device, comes_from_driver};
use super::queue::{Queue, Running};
use crate::ends::headers::Headers;
use crate::ends::layout::with_layout;
use crate::ends::slot::State;
use crate::frame::Copier;
use crate::signal::peer_event::PeerEvent;

/// State of the session with one driver.
pub(super) struct Backend {
    device: Arc<Device>,
    features: Option<u64>,
    protocol_features: Option<u64>,
    regions: Vec<UserRegion>,
    memory: Arc<GuestMemory>,
    vrings: Vec<Vring>,
    /// The reason for which the last message was refused.
    pub(super) refusal: Option<String>,
}

/// A mapped region of the driver's memory.
struct UserRegion {
    guest: u64,
    /// Address in the driver's process, by which the driver identifies its rings.
    user: u64,
    len: u64,
    mapping: Arc<Mapping>,
    /// File of the region, for another process that continues the session.
    file: MemoryFile,
    offset: u64,
}

/// State of one virtqueue, as announced by the driver.
#[derive(Default)]
struct Vring {
    size: Option<QueueSize>,
    addresses: Option<Addresses>,
    base: u16,
    /// Position at which the old process has stopped.
    progress: Option<Progress>,
    kick: Option<PeerEvent>,
    call: Option<PeerEvent>,
    started: bool,
    enabled: bool,
}

/// Addresses of a ring in the driver's process.
#[derive(Clone, Copy)]
struct Addresses {
    descriptors: u64,
    /// Available ring, or driver event suppression.
    driver: u64,
    /// Used ring, or device event suppression.
    device: u64,
}

impl Backend {
    pub(super) fn new(device: Arc<Device>) -> Self {
        let vrings = (0..device.vrings()).map(|_| Vring::default()).collect();
        Self {
            device,
            features: None,
            protocol_features: None,
            regions: Vec::new(),
            memory: Arc::default(),
            vrings,
            refusal: None,
        }
    }

    /// Refuses a message, which disconnects the driver.
    fn refuse<T>(&mut self, why: String) -> Result<T> {
        self.refusal = Some(why);
        Err(Error::InvalidParam)
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        let count = self.vrings.len();
        if index as usize >= count {
            return self.refuse(format!("no virtqueue {index}: the device has {count}"));
        }
        Ok(&mut self.vrings[index as usize])
    }

    /// Makes the queue available to the data thread, if the setup is complete.
    fn start(&mut self, index: usize) -> Result<()> {
        let vring = &self.vrings[index];
        let (Some(size), Some(addresses)) = (vring.size, vring.addresses) else { return Ok(()) };
        let ready = self.features.is_some()
            && !self.regions.is_empty()
            && vring.started
            && (vring.enabled || !self.needs_enabling());
        if !ready {
            return Ok(());
        }
        let position = (vring.base, vring.progress);
        let mut queue = match self.queue(size, addresses, position, comes_from_driver(index)) {
            Ok(queue) => queue,
            Err(why) => return self.refuse(format!("virtqueue {index}: {why}")),
        };
        let progress = self.device.progress.of(index);
        with_layout!(&mut queue, queue => queue.publish_progress(progress));
        let modern = self.has(VIRTIO_F_VERSION_1) || self.has(VIRTIO_NET_F_MRG_RXBUF);
        let mergeable = self.has(VIRTIO_NET_F_MRG_RXBUF);
        let headers = Headers {
            len: if modern { 12 } else { 10 },
            mergeable,
            offloads: self.offloads(index),
        };
        let vring = &mut self.vrings[index];
        vring.progress = None;
        let running = Running {
            queue,
            memory: self.memory.clone(),
            call: vring.call.take(),
            headers,
            copier: Copier::new(),
            malformed: self.device.malformed_counter(),
        };
        self.device.slot(index).replace(State::Running(running));
        if let Some(kick) = &vring.kick
            && let Err(error) = self.device.watch_kick(index, kick.as_fd())
        {
            return self.refuse(format!("virtqueue {index}: kick: {error}"));
        }
        self.device.wake(index);
        Ok(())
    }

    /// Starts a queue unless it is running.
    fn restart(&mut self, index: usize) -> Result<()> {
        if self.device.slot(index).is_running() { Ok(()) } else { self.start(index) }
    }

    /// Creates a queue from rings in the driver's memory. `position` is that at which another
    /// device has stopped: its base, and its progress if it was interrupted. The driver `sends` on
    /// it or receives.
    fn queue(
        &self,
        size: QueueSize,
        addresses: Addresses,
        position: (u16, Option<Progress>),
        sends: bool,
    ) -> std::result::Result<Queue, String> {
        let find = |part: &str, user: u64, len: usize| {
            self.translate(user, len as u64).ok_or_else(|| {
                format!("{part}, {len} bytes at {user:#x}, is outside the shared memory")
            })
        };
        let (indirect, event_index) =
            (self.has(VIRTIO_RING_F_INDIRECT_DESC), self.has(VIRTIO_RING_F_EVENT_IDX));
        let Addresses { descriptors, driver, device } = addresses;
        let (base, progress) = position;
        if self.has(VIRTIO_F_RING_PACKED) {
            let len = PackedLayout::descriptors_len(size);
            let descriptors = find("descriptor ring", descriptors, len)?;
            let driver = find("driver event suppression", driver, PackedLayout::EVENT_LEN)?;
            let device = find("device event suppression", device, PackedLayout::EVENT_LEN)?;
            // SAFETY: all parts were just found mapped, and the queue's owner keeps them mapped.
            let layout = unsafe { PackedLayout::new(size, descriptors, driver, device) };
            let layout = layout.map_err(|error| error.to_string())?;
            let device = match progress {
                None => PackedDevice::new(layout, base, indirect, event_index),
                Some(at) => PackedDevice::resume(layout, at, sends, indirect, event_index),
            };
            device.map(Queue::Packed).map_err(|error| error.to_string())
        } else {
            let len = SplitLayout::descriptors_len(size);
            let descriptors = find("descriptor table", descriptors, len)?;
            let driver = find("available ring", driver, SplitLayout::available_len(size))?;
            let device = find("used ring", device, SplitLayout::used_len(size))?;
            // SAFETY: as above.
            let layout = unsafe { SplitLayout::new(size, descriptors, driver, device) };
            let layout = layout.map_err(|error| error.to_string())?;
            if let Some(at) = progress {
                let device = SplitDevice::resume(layout, at, sends, indirect, event_index);
                return device.map(Queue::Split).map_err(|error| error.to_string());
            }
            // Devices return all buffers in order, so the used index is the position of the last
            // one.
            let base = SplitDevice::used_in_ring(&layout);
            Ok(Queue::Split(SplitDevice::new(layout, base, indirect, event_index)))
        }
    }

    /// Stops all queues.
    fn stop_all(&mut self) {
        (0..self.vrings.len()).for_each(|index| self.stop(index));
    }

    /// Stops the queue, waiting until the data thread does not use it. It can be started again.
    fn stop(&mut self, index: usize) {
        if let State::Running(running) = self.device.slot(index).replace(State::Stopped) {
            self.vrings[index].base = running.base();
            self.vrings[index].call = running.call;
        }
        self.device.progress.clear(index);
        if let Some(kick) = &self.vrings[index].kick {
            self.device.unwatch_kick(index, kick.as_fd());
        }
    }

    fn must_be_stopped(&mut self, index: u32, what: &str) -> Result<&mut Vring> {
        self.vring(index)?;
        if self.device.slot(index as usize).is_running() {
            return self.refuse(format!("{what} of virtqueue {index} changed while it runs"));
        }
        self.vring(index)
    }

    fn event(&mut self, what: &str, index: u8, fd: Option<File>) -> Result<Option<PeerEvent>> {
        self.vring(index.into())?;
        let wake = self.device.control_wake();
        match fd.map(|fd| PeerEvent::from_peer(fd.into(), wake)).transpose() {
            Ok(event) => Ok(event),
            Err(error) => self.refuse(format!("{what} of virtqueue {index}: {error}")),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop_all();
    }
}
