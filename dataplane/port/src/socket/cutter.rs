//! Cuts packets of several segments for a reader that handles no offloads, and those in tunnels for
//! all.

use dray_wire::offload::{Finish, HEADERS_MAX, Offload, Tunnel};

use super::slots::{LINE, SLOT_LEN};
use crate::FRAME_LIMIT;
use crate::frame::received::{Filled, ReceivedFrames};

/// Maximum length of the segments that are lent together, not counting the last one: they should
/// stay in the second-level cache until they are read.
const TOGETHER: usize = 128 << 10;

/// Length of the room for segments, in bytes.
pub(super) const ROOM_LEN: usize = TOGETHER + SLOT_LEN;

/// Segments one packet at a time. If there is no room for all segments of a packet, the rest
/// follows once the first ones have been taken.
pub(super) struct Cutter {
    /// True if the reader handles no offloads.
    pub(super) cuts_all: bool,
    packet: Option<(Filled, Option<Tunnel>)>,
    /// Number of its next segment.
    next: usize,
    /// Used part of the room.
    used: usize,
}

impl Cutter {
    pub(super) fn new(cuts_all: bool) -> Self {
        Self { cuts_all, packet: None, next: 0, used: 0 }
    }

    /// Frees the room: the segments have been taken.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Starts a packet, which may be in a tunnel.
    pub(super) fn begin(&mut self, packet: Filled, tunnel: Option<Tunnel>) {
        (self.packet, self.next) = (Some((packet, tunnel)), 0);
    }

    /// Returns true if there are segments to come.
    pub(super) fn is_busy(&self) -> bool {
        self.packet.is_some()
    }

    /// Writes segments of the packet, which is in `memory`, to the room at its end, and adds them
    /// to `filled`. Returns false, and drops the packet, if its segments are too long or its
    /// headers do not fit its offload.
    pub(super) fn cut(&mut self, memory: &mut [u8], filled: &mut ReceivedFrames) -> bool {
        let Some((packet, tunnel)) = self.packet.take() else { return true };
        let room_start = memory.len() - ROOM_LEN;
        let (slots, room) = memory.split_at_mut(room_start);
        let (outer, bytes) = slots[packet.start..packet.start + packet.len]
            .split_at(tunnel.map_or(0, |tunnel| tunnel.inner()));
        let finish = Finish::new(bytes, packet.offload);
        let fits = |finish: &Finish<'_>| outer.len() + finish.frame_max() <= FRAME_LIMIT;
        let Some(finish) = finish.filter(fits) else { return false };
        let mut head = [0; HEADERS_MAX];
        while self.next < finish.count() {
            if filled.is_full() || self.used > TOGETHER {
                self.packet = Some((packet, tunnel));
                break;
            }
            let head_len = finish.head(self.next, &mut head);
            let part = &bytes[finish.part(self.next)];
            let segment = &mut room[self.used..][..outer.len() + head_len + part.len()];
            let (to_outer, to_inner) = segment.split_at_mut(outer.len());
            to_outer.copy_from_slice(outer);
            to_inner[..head_len].copy_from_slice(&head[..head_len]);
            to_inner[head_len..].copy_from_slice(part);
            if let Some(tunnel) = tunnel {
                tunnel.finish(segment, self.next);
            }
            let (start, len) = (room_start + self.used, segment.len());
            filled.push(Filled { start, len, offload: Offload::None });
            self.used = (self.used + len).next_multiple_of(LINE);
            self.next += 1;
        }
        true
    }
}
