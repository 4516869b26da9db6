//! Queries and settings of the kernel's network interfaces: by ioctl, including ethtool's, and by
//! generic netlink; all act on the calling thread's network namespace. And these namespaces.

mod ethtool;
mod exchange;
mod family;
mod genetlink;
mod interface;
mod namespace;
pub mod privilege;
mod tap;
mod user;
pub mod wireguard;

pub use exchange::exchange;
pub use family::{DeferralSettings, Napi, Netdev, XdpFeatures};
pub use genetlink::families;
pub use interface::Interface;
pub use namespace::{NetworkNamespace, on_a_thread};
pub use tap::{
    TapFormat, TapOffloads, attach_tap, attached_tap, create_tap, keep_tap, set_tap_offloads,
};
pub use user::peer_user;
