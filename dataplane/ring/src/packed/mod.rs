//! The packed virtqueue (Virtio 1.3, section 2.8): one ring of descriptors that both sides write,
//! with two flags in each descriptor that tell which side owns it.

mod device;
mod driver;
mod layout;

pub use device::PackedDevice;
pub use driver::PackedDriver;
pub use layout::PackedLayout;
