//! Handling of the driver's messages: each changes the session, or is refused.

use std::fs::File;
use std::sync::Arc;

use dray_ring::QueueSize;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{GpuBackend, Result, VhostUserBackendReqHandlerMut};

use super::features::PROTOCOL_FEATURES_OFFERED;
use super::{Addresses, Backend};
use crate::ends::slot::State;

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
