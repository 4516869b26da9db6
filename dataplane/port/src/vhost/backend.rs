//! The effect of a driver's messages on the device. The `vhost` crate reads and checks the
//! messages; this module implements them.
//!
//! Nothing in this module touches a frame. It collects what the driver announces, and when a queue
//! has everything it needs, puts a ready [`Running`] into its slot.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use dray_ring::QueueSize;
use dray_ring::packed::{PackedDevice, PackedLayout};
use dray_ring::split::{SplitDevice, SplitLayout};
use dray_shm::{GuestMemory, Mapping, MemoryFile};
use dray_wire::offload::Offloads;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    FrontendReq, VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
    VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures,
    VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_config::{
    VIRTIO_F_ANY_LAYOUT, VIRTIO_F_IN_ORDER, VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6, VIRTIO_NET_F_HOST_TSO4,
    VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO, VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::device::{Device, comes_from_driver};
use super::message;
use super::queue::{Headers, Queue, Running};
use crate::event::PeerEvent;
use crate::live::{Conversation, Words};
use crate::slot::State;

/// vhost-user's own feature bit: protocol features are supported.
const PROTOCOL_FEATURES: u64 = 1 << 30;
const PROTOCOL_FEATURES_OFFERED: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS);
/// Features by which a driver leaves work on its frames to us (`HOST`), or takes it over (`GUEST`).
const OFFLOADS: u64 = bit(VIRTIO_NET_F_CSUM)
    | bit(VIRTIO_NET_F_HOST_TSO4)
    | bit(VIRTIO_NET_F_HOST_TSO6)
    | bit(VIRTIO_NET_F_HOST_USO)
    | bit(VIRTIO_NET_F_GUEST_CSUM)
    | bit(VIRTIO_NET_F_GUEST_TSO4)
    | bit(VIRTIO_NET_F_GUEST_TSO6)
    | bit(VIRTIO_NET_F_GUEST_USO4)
    | bit(VIRTIO_NET_F_GUEST_USO6);

/// One connected driver, as far as its setup has come.
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
    /// Address in the driver's own process, by which the driver names its rings.
    user: u64,
    len: u64,
    mapping: Arc<Mapping>,
    /// For another process that continues the session.
    file: MemoryFile,
    offset: u64,
}

/// State of one virtqueue, as announced by the driver.
#[derive(Default)]
struct Vring {
    size: Option<QueueSize>,
    addresses: Option<Addresses>,
    base: u16,
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

    fn offered(&self) -> u64 {
        let several = if self.device.vrings() > 2 { bit(VIRTIO_NET_F_MQ) } else { 0 };
        bit(VIRTIO_F_VERSION_1)
            | bit(VIRTIO_F_ANY_LAYOUT)
            | bit(VIRTIO_F_IN_ORDER)
            | bit(VIRTIO_F_RING_PACKED)
            | bit(VIRTIO_RING_F_INDIRECT_DESC)
            | bit(VIRTIO_RING_F_EVENT_IDX)
            | bit(VIRTIO_NET_F_MRG_RXBUF)
            | if self.device.offloads { OFFLOADS } else { 0 }
            | several
            | PROTOCOL_FEATURES
    }

    fn has(&self, feature: u32) -> bool {
        self.features.is_some_and(|features| features & bit(feature) != 0)
    }

    /// Returns what was negotiated for virtqueue `index`: what the driver may leave to us on its
    /// frames, or takes over on ours.
    fn offloads(&self, index: usize) -> Offloads {
        let has = |feature| self.has(feature);
        if comes_from_driver(index) {
            let udp = has(VIRTIO_NET_F_HOST_USO);
            Offloads {
                checksum: has(VIRTIO_NET_F_CSUM),
                tcp4: has(VIRTIO_NET_F_HOST_TSO4),
                tcp6: has(VIRTIO_NET_F_HOST_TSO6),
                udp4: udp,
                udp6: udp,
            }
        } else {
            Offloads {
                checksum: has(VIRTIO_NET_F_GUEST_CSUM),
                tcp4: has(VIRTIO_NET_F_GUEST_TSO4),
                tcp6: has(VIRTIO_NET_F_GUEST_TSO6),
                udp4: has(VIRTIO_NET_F_GUEST_USO4),
                udp6: has(VIRTIO_NET_F_GUEST_USO6),
            }
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

    /// Hands the queue to the data thread, if it has everything it needs.
    fn start(&mut self, index: usize) -> Result<()> {
        let needs_enabling = self.features.is_none_or(|f| f & PROTOCOL_FEATURES != 0);
        let vring = &self.vrings[index];
        let (Some(size), Some(addresses)) = (vring.size, vring.addresses) else { return Ok(()) };
        let ready = self.features.is_some()
            && !self.regions.is_empty()
            && vring.started
            && (vring.enabled || !needs_enabling);
        if !ready {
            return Ok(());
        }
        let queue = match self.queue(size, addresses, vring.base) {
            Ok(queue) => queue,
            Err(why) => return self.refuse(format!("virtqueue {index}: {why}")),
        };
        let modern = self.has(VIRTIO_F_VERSION_1) || self.has(VIRTIO_NET_F_MRG_RXBUF);
        let mergeable = self.has(VIRTIO_NET_F_MRG_RXBUF);
        let headers = Headers {
            len: if modern { 12 } else { 10 },
            mergeable,
            offloads: self.offloads(index),
        };
        let vring = &mut self.vrings[index];
        let running = Running {
            queue,
            memory: self.memory.clone(),
            call: vring.call.take(),
            headers,
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

    /// Creates a queue from rings in the driver's memory.
    fn queue(
        &self,
        size: QueueSize,
        addresses: Addresses,
        base: u16,
    ) -> std::result::Result<Queue, String> {
        let find = |part: &str, user: u64, len: usize| {
            self.translate(user, len as u64).ok_or_else(|| {
                format!("{part}, {len} bytes at {user:#x}, is outside the shared memory")
            })
        };
        let (indirect, event_index) =
            (self.has(VIRTIO_RING_F_INDIRECT_DESC), self.has(VIRTIO_RING_F_EVENT_IDX));
        let Addresses { descriptors, driver, device } = addresses;
        if self.has(VIRTIO_F_RING_PACKED) {
            let len = PackedLayout::descriptors_len(size);
            let descriptors = find("descriptor ring", descriptors, len)?;
            let driver = find("driver event suppression", driver, PackedLayout::EVENT_LEN)?;
            let device = find("device event suppression", device, PackedLayout::EVENT_LEN)?;
            // SAFETY: all parts were just found mapped, and the memory outlives the queue: the
            // holder of the queue holds the memory too.
            let layout = unsafe { PackedLayout::new(size, descriptors, driver, device) };
            let layout = layout.map_err(|error| error.to_string())?;
            PackedDevice::new(layout, base, indirect, event_index)
                .map(Queue::Packed)
                .map_err(|error| error.to_string())
        } else {
            let len = SplitLayout::descriptors_len(size);
            let descriptors = find("descriptor table", descriptors, len)?;
            let driver = find("available ring", driver, SplitLayout::available_len(size))?;
            let device = find("used ring", device, SplitLayout::used_len(size))?;
            // SAFETY: as above.
            let layout = unsafe { SplitLayout::new(size, descriptors, driver, device) };
            let layout = layout.map_err(|error| error.to_string())?;
            // All buffers are returned in order, so the used index is the position that any device
            // before us, or this program before a crash, had reached.
            let base = SplitDevice::used_in_ring(&layout);
            Ok(Queue::Split(SplitDevice::new(layout, base, indirect, event_index)))
        }
    }

    /// Translates `len` bytes at an address of the driver's process to our pointer.
    fn translate(&self, user: u64, len: u64) -> Option<NonNull<u8>> {
        let region =
            self.regions.iter().find(|r| (r.user..=r.user + (r.len - 1)).contains(&user))?;
        self.memory.translate(region.guest + (user - region.user), len, &mut 0)
    }

    /// Checks that a driver may share `count` regions of `len` bytes in all.
    fn check_memory(&mut self, count: usize, len: u64) -> Result<()> {
        self.device.memory.check(count, len).or_else(|why| self.refuse(why))
    }

    fn map(&mut self, region: VhostUserMemoryRegion, file: File) -> Result<UserRegion> {
        let (guest, user) = (region.guest_phys_addr, region.user_addr);
        let (len, offset) = (region.memory_size, region.mmap_offset);
        if len == 0 || user.checked_add(len).is_none() {
            return self
                .refuse(format!("invalid memory region: {len} bytes at user address {user:#x}"));
        }
        let file = match MemoryFile::from_peer(file.into()) {
            Ok(file) => file,
            Err(error) => return self.refuse(error.to_string()),
        };
        match Mapping::new(&file, offset, len) {
            Ok(mapping) => {
                Ok(UserRegion { guest, user, len, mapping: Arc::new(mapping), file, offset })
            }
            Err(error) => {
                let index = self.regions.len();
                self.refuse(format!("memory region {index}: {error}"))
            }
        }
    }

    /// Takes all queues from the data threads.
    fn stop_all(&mut self) {
        (0..self.vrings.len()).for_each(|index| self.stop(index));
    }

    /// Gives the regions to the queues, all of which are stopped, and starts the queues that have
    /// everything they need.
    fn use_regions(&mut self) -> Result<()> {
        let regions = self.regions.iter().map(|region| (region.guest, region.mapping.clone()));
        match GuestMemory::of_mapped(regions) {
            Ok(memory) => self.memory = Arc::new(memory),
            Err(error) => return self.refuse(error.to_string()),
        }
        (0..self.vrings.len()).try_for_each(|index| self.start(index))
    }

    /// Takes the queue from the data thread, waiting until it is not in use, and keeps what is
    /// needed to start it again.
    fn stop(&mut self, index: usize) {
        if let State::Running(running) = self.device.slot(index).replace(State::Stopped) {
            self.vrings[index].base = running.base();
            self.vrings[index].call = running.call;
        }
        if let Some(kick) = &self.vrings[index].kick {
            self.device.forget_kick(index, kick.as_fd());
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
        let attention = self.device.attention();
        match fd.map(|fd| PeerEvent::from_peer(fd.into(), attention)).transpose() {
            Ok(event) => Ok(event),
            Err(error) => self.refuse(format!("{what} of virtqueue {index}: {error}")),
        }
    }

    /// Returns true if the driver has chosen its features.
    pub(super) fn has_features(&self) -> bool {
        self.features.is_some()
    }

    /// Returns the names of the negotiated features, for people.
    pub(super) fn negotiated(&self) -> Vec<String> {
        let names = [
            (VIRTIO_F_VERSION_1, "version_1"),
            (VIRTIO_F_RING_PACKED, "packed"),
            (VIRTIO_F_IN_ORDER, "in_order"),
            (VIRTIO_NET_F_MRG_RXBUF, "mrg_rxbuf"),
            (VIRTIO_RING_F_INDIRECT_DESC, "indirect_desc"),
            (VIRTIO_RING_F_EVENT_IDX, "event_idx"),
            (VIRTIO_NET_F_MQ, "mq"),
            (VIRTIO_NET_F_CSUM, "csum"),
            (VIRTIO_NET_F_HOST_TSO4, "host_tso4"),
            (VIRTIO_NET_F_HOST_TSO6, "host_tso6"),
            (VIRTIO_NET_F_HOST_USO, "host_uso"),
            (VIRTIO_NET_F_GUEST_CSUM, "guest_csum"),
            (VIRTIO_NET_F_GUEST_TSO4, "guest_tso4"),
            (VIRTIO_NET_F_GUEST_TSO6, "guest_tso6"),
            (VIRTIO_NET_F_GUEST_USO4, "guest_uso4"),
            (VIRTIO_NET_F_GUEST_USO6, "guest_uso6"),
        ];
        names.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| (*name).to_owned()).collect()
    }
}

impl Backend {
    /// Returns the messages that lead to the present state.
    pub(super) fn said(&self) -> io::Result<Conversation> {
        let mut said = Vec::new();
        let mut say = |request, body: &[u64], descriptors: &[BorrowedFd<'_>]| {
            let body: Vec<u8> = body.iter().flat_map(|word| word.to_ne_bytes()).collect();
            said.push(message::say(request, &body, descriptors)?);
            io::Result::Ok(())
        };
        if let Some(features) = self.protocol_features {
            say(FrontendReq::SET_PROTOCOL_FEATURES, &[features], &[])?;
        }
        if let Some(features) = self.features {
            say(FrontendReq::SET_FEATURES, &[features], &[])?;
        }
        let has_slots = VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS.bits();
        let words = |r: &UserRegion| [r.guest, r.len, r.user, r.offset];
        if self.protocol_features.is_some_and(|features| features & has_slots != 0) {
            for region in &self.regions {
                let [guest, len, user, offset] = words(region);
                let body = [0, guest, len, user, offset];
                say(FrontendReq::ADD_MEM_REG, &body, &[region.file.as_fd()])?;
            }
        } else if !self.regions.is_empty() {
            let count = std::iter::once(self.regions.len() as u64);
            let body: Vec<_> = count.chain(self.regions.iter().flat_map(words)).collect();
            let files: Vec<_> = self.regions.iter().map(|region| region.file.as_fd()).collect();
            say(FrontendReq::SET_MEM_TABLE, &body, &files)?;
        }
        let mut starts = Vec::new();
        for (index, vring) in self.vrings.iter().enumerate() {
            let number = index as u64;
            if let Some(size) = vring.size {
                say(FrontendReq::SET_VRING_NUM, &[pair(number, size.get().into())], &[])?;
            }
            if let Some(Addresses { descriptors, driver, device }) = vring.addresses {
                let body = [number, descriptors, device, driver, 0];
                say(FrontendReq::SET_VRING_ADDR, &body, &[])?;
            }
            let slot = self.device.slot(index).lock();
            let call = match &*slot {
                State::Running(queue) | State::Failed(_, queue) => &queue.call,
                State::Stopped => &vring.call,
            };
            if let Some(call) = call {
                say(FrontendReq::SET_VRING_CALL, &[number], &[call.as_fd()])?;
            }
            if vring.enabled {
                say(FrontendReq::SET_VRING_ENABLE, &[pair(number, 1)], &[])?;
            }
            if vring.started {
                let kick: Vec<_> = vring.kick.iter().map(AsFd::as_fd).collect();
                let body = number | if kick.is_empty() { NO_DESCRIPTOR } else { 0 };
                starts.push(message::say(FrontendReq::SET_VRING_KICK, &body.to_ne_bytes(), &kick)?);
            }
        }
        Ok(Conversation { said, starts })
    }

    /// Returns the messages that tell where the queues stand, which no data thread uses any more.
    pub(super) fn bases(&self) -> Vec<Words> {
        let base = |(index, vring): (usize, &Vring)| {
            let running = self.device.slot(index).look(Running::base);
            let base = pair(index as u64, running.unwrap_or(vring.base).into());
            message::words(FrontendReq::SET_VRING_BASE, &base.to_ne_bytes())
        };
        self.vrings.iter().enumerate().map(base).collect()
    }

    /// Signals all running queues: whoever used buffers before may not have done so.
    pub(super) fn call_all(&self) {
        for index in 0..self.vrings.len() {
            if let State::Running(running) = &*self.device.slot(index).lock()
                && let Some(call) = &running.call
            {
                call.signal();
            }
        }
    }
}

/// Bit of the message with a kick: the message has no descriptor, and the ring is polled.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// Returns the words of a message of two 32-bit numbers.
fn pair(index: u64, number: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&(index as u32).to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop_all();
    }
}

const fn bit(feature: u32) -> u64 {
    1 << feature
}

impl VhostUserBackendReqHandlerMut for Backend {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.refuse("RESET_DEVICE was not negotiated".to_owned())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !self.offered();
        if unknown != 0 {
            return self.refuse(format!("features {unknown:#x} were not offered"));
        }
        let runs = (0..self.vrings.len()).any(|index| self.device.slot(index).is_running());
        if runs && self.features.is_some_and(|now| now != features) {
            return self.refuse("features changed while virtqueues run".to_owned());
        }
        self.features = Some(features);
        (0..self.vrings.len()).try_for_each(|index| self.restart(index))
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let len = regions.iter().fold(0u64, |len, region| len.saturating_add(region.memory_size));
        self.check_memory(regions.len(), len)?;
        // The old memory is unmapped first: both together could be twice the limit.
        self.stop_all();
        self.memory = Arc::default();
        self.regions.clear();
        for (region, file) in regions.iter().zip(files) {
            let region = self.map(*region, file)?;
            self.regions.push(region);
        }
        self.use_regions()?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        match QueueSize::new(num) {
            Ok(size) => self.must_be_stopped(index, "the size")?.size = Some(size),
            Err(error) => return self.refuse(format!("virtqueue {index}: {error}")),
        }
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let addresses = Addresses { descriptors, driver: available, device: used };
        self.must_be_stopped(index, "the address")?.addresses = Some(addresses);
        self.start(index as usize)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        // A packed ring's used position, in the upper half, equals its available position: no
        // buffer is ever in flight in a stopped ring.
        self.must_be_stopped(index, "the base")?.base = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.vring(index)?;
        self.stop(index as usize);
        let vring = self.vring(index)?;
        vring.started = false;
        vring.kick = None;
        vring.call = None;
        let base = u32::from(vring.base);
        Ok(VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let kick = self.event("the kick", index, fd)?;
        self.stop(index.into());
        let vring = self.vring(index.into())?;
        vring.kick = kick;
        vring.started = true;
        self.start(index.into())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let call = self.event("the call", index, fd)?;
        // The call changes while the queue runs, when a guest masks an interrupt.
        let index = usize::from(index);
        let new = call.clone();
        let old = match &mut *self.device.slot(index).lock() {
            State::Running(running) => std::mem::replace(&mut running.call, call),
            _ => std::mem::replace(&mut self.vrings[index].call, call),
        };
        // Closing and signalling can take long, and a data thread may be waiting for the lock.
        drop(old);
        if self.device.slot(index).is_running()
            && let Some(call) = new
        {
            // Buffers used under the old call may not have been signalled.
            call.signal();
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _: Option<File>) -> Result<()> {
        self.vring(index.into()).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL_FEATURES_OFFERED)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !PROTOCOL_FEATURES_OFFERED.bits();
        if unknown != 0 {
            return self.refuse(format!("protocol features {unknown:#x} were not offered"));
        }
        self.protocol_features = Some(features);
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.vrings.len() as u64 / 2)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        if self.vring(index)?.enabled != enable {
            self.stop(index as usize);
            self.vring(index)?.enabled = enable;
            self.start(index as usize)?;
        }
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(self.device.memory.regions as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        let len = self.regions.iter().map(|region| region.len).sum::<u64>();
        self.check_memory(self.regions.len() + 1, len.saturating_add(region.memory_size))?;
        let region = VhostUserMemoryRegion::new(
            region.guest_phys_addr,
            region.memory_size,
            region.user_addr,
            region.mmap_offset,
        );
        let region = self.map(region, file)?;
        self.stop_all();
        self.regions.push(region);
        self.use_regions()?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (guest, len) = (region.guest_phys_addr, region.memory_size);
        if !self.regions.iter().any(|r| (r.guest, r.len) == (guest, len)) {
            return self.refuse(format!("no memory region of {len} bytes at {guest:#x} to remove"));
        }
        self.stop_all();
        self.regions.retain(|r| (r.guest, r.len) != (guest, len));
        self.use_regions()
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        self.refuse("GET_CONFIG was not negotiated".to_owned())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        self.refuse("SET_CONFIG was not negotiated".to_owned())
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        self.refuse("GPU_SET_SOCKET is not for network devices".to_owned())
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        self.refuse("GET_SHARED_OBJECT was not negotiated".to_owned())
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        self.refuse("GET_INFLIGHT_FD was not negotiated".to_owned())
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        self.refuse("SET_INFLIGHT_FD was not negotiated".to_owned())
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        self.refuse("SET_DEVICE_STATE_FD was not negotiated".to_owned())
    }

    fn check_device_state(&mut self) -> Result<()> {
        self.refuse("CHECK_DEVICE_STATE was not negotiated".to_owned())
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        self.refuse("GET_SHMEM_CONFIG was not negotiated".to_owned())
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        self.refuse("SET_LOG_BASE was not negotiated".to_owned())
    }
}

impl Backend {
    /// Starts a queue that was missing something.
    fn restart(&mut self, index: usize) -> Result<()> {
        if self.device.slot(index).is_running() { Ok(()) } else { self.start(index) }
    }
}
