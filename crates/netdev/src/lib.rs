//! What is asked of the kernel's network interfaces, and what they are told: by ioctl, ethtool's among
//! them, and by generic netlink. All of it is of the calling thread's network namespace.

mod ethtool;
mod exchange;
mod family;
mod genetlink;
mod interface;
mod tap;

pub use exchange::exchange;
pub use family::{DeferralSettings, Napi, Netdev, XdpFeatures};
pub use genetlink::families;
pub use interface::Interface;
pub use tap::{attach_tap, keep_tap};
