//! Memory that the driver shares.

use std::fs::File;
use std::ptr::NonNull;
use std::sync::Arc;

use dray_shm::{GuestMemory, Mapping, MemoryFile};
use vhost::vhost_user::Result;
use vhost::vhost_user::message::VhostUserMemoryRegion;

use super::{Backend, UserRegion};

impl Backend {
    /// Returns a pointer to `len` bytes at an address of the driver's process.
    pub(super) fn translate(&self, user: u64, len: u64) -> Option<NonNull<u8>> {
        let region =
            self.regions.iter().find(|r| (r.user..=r.user + (r.len - 1)).contains(&user))?;
        self.memory.translate(region.guest + (user - region.user), len, &mut 0)
    }

    /// Checks that a driver may share `count` regions of `len` bytes in all.
    pub(super) fn check_memory(&mut self, count: usize, len: u64) -> Result<()> {
        self.device.memory.check(count, len).or_else(|why| self.refuse(why))
    }

    pub(super) fn map(&mut self, region: VhostUserMemoryRegion, file: File) -> Result<UserRegion> {
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

    /// Makes the regions the memory of the queues, all of which are stopped, and starts the queues
    /// whose setup is complete.
    pub(super) fn use_regions(&mut self) -> Result<()> {
        let regions = self.regions.iter().map(|region| (region.guest, region.mapping.clone()));
        match GuestMemory::of_mapped(regions) {
            Ok(memory) => self.memory = Arc::new(memory),
            Err(error) => return self.refuse(error.to_string()),
        }
        (0..self.vrings.len()).try_for_each(|index| self.start(index))
    }
}
