//! Features that the device offers, and what was negotiated of them.

use dray_wire::offload::Offloads;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use virtio_bindings::virtio_config::{
    VIRTIO_F_ANY_LAYOUT, VIRTIO_F_IN_ORDER, VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_net::{VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::super::device::comes_from_driver;
use super::Backend;
use crate::ends::headers::{self, TO_DEVICE, TO_DRIVER};

/// vhost-user's own feature bit: protocol features are supported.
const PROTOCOL_FEATURES: u64 = 1 << 30;
pub(super) const PROTOCOL_FEATURES_OFFERED: VhostUserProtocolFeatures =
    VhostUserProtocolFeatures::MQ
        .union(VhostUserProtocolFeatures::REPLY_ACK)
        .union(VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS);

impl Backend {
    pub(super) fn offered(&self) -> u64 {
        let offloads = TO_DEVICE.iter().chain(&TO_DRIVER);
        let offloads = offloads.fold(0, |all, (feature, _)| all | bit(*feature));
        let several = if self.device.vrings() > 2 { bit(VIRTIO_NET_F_MQ) } else { 0 };
        bit(VIRTIO_F_VERSION_1)
            | bit(VIRTIO_F_ANY_LAYOUT)
            | bit(VIRTIO_F_IN_ORDER)
            | bit(VIRTIO_F_RING_PACKED)
            | bit(VIRTIO_RING_F_INDIRECT_DESC)
            | bit(VIRTIO_RING_F_EVENT_IDX)
            | bit(VIRTIO_NET_F_MRG_RXBUF)
            | if self.device.offloads { offloads } else { 0 }
            | several
            | PROTOCOL_FEATURES
    }

    pub(super) fn has(&self, feature: u32) -> bool {
        self.features.is_some_and(|features| features & bit(feature) != 0)
    }

    /// Returns true if the driver enables its queues by a message: it does with protocol features.
    pub(super) fn needs_enabling(&self) -> bool {
        self.features.is_none_or(|features| features & PROTOCOL_FEATURES != 0)
    }

    /// Returns the offloads negotiated for virtqueue `index`: those that the driver may leave to
    /// the device, or accepts from it.
    pub(super) fn offloads(&self, index: usize) -> Offloads {
        let features = self.features.unwrap_or_default();
        if comes_from_driver(index) {
            headers::to_device(features)
        } else {
            headers::to_driver(features)
        }
    }

    /// Returns true if the driver has chosen its features.
    pub(crate) fn has_features(&self) -> bool {
        self.features.is_some()
    }

    /// Returns the names of the negotiated features, for people.
    pub(crate) fn negotiated(&self) -> Vec<String> {
        let names = [
            (VIRTIO_F_VERSION_1, "version_1"),
            (VIRTIO_F_RING_PACKED, "packed"),
            (VIRTIO_F_IN_ORDER, "in_order"),
            (VIRTIO_NET_F_MRG_RXBUF, "mrg_rxbuf"),
            (VIRTIO_RING_F_INDIRECT_DESC, "indirect_desc"),
            (VIRTIO_RING_F_EVENT_IDX, "event_idx"),
            (VIRTIO_NET_F_MQ, "mq"),
        ];
        let names = names.iter().chain(&TO_DEVICE).chain(&TO_DRIVER);
        names.filter(|(bit, _)| self.has(*bit)).map(|(_, name)| (*name).to_owned()).collect()
    }
}

const fn bit(feature: u32) -> u64 {
    1 << feature
}
