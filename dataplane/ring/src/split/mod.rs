//! The split virtqueue (Virtio 1.3, section 2.7): a table of descriptors, a ring of those available
//! to the device, and a ring of those that the device has used.

mod device;
mod driver;
mod layout;

pub use device::SplitDevice;
pub use driver::SplitDriver;
pub use layout::SplitLayout;
