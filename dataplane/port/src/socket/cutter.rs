//! Cuts packets of several segments for a reader that handles no offloads.

use arrayvec::ArrayVec;
use dray_wire::offload::{Finish, HEADERS_MAX, Offload};

use super::receive::{Filled, LINE, SLOT_LEN};
use crate::{BATCH_MAX, FRAME_LIMIT};

/// Segments lent at a time have at most this length in all, up to the end of the last one: they are
/// to stay in the second-level cache until they are read.
const TOGETHER: usize = 128 << 10;

/// Length of the room for segments, in bytes.
pub(super) const ROOM_LEN: usize = TOGETHER + SLOT_LEN;

/// The packet that is being cut. One that becomes more segments than there is room for is continued
/// when these have been taken.
#[derive(Default)]
pub(super) struct Cutter {
    packet: Option<Filled>,
    /// Number of its next segment.
    next: usize,
    /// Used part of the room.
    used: usize,
}

impl Cutter {
    /// Frees the room: the segments have been taken.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Begins with a packet.
    pub(super) fn begin(&mut self, packet: Filled) {
        (self.packet, self.next) = (Some(packet), 0);
    }

    /// Returns true if there are segments to come.
    pub(super) fn is_busy(&self) -> bool {
        self.packet.is_some()
    }

    /// Writes segments of the packet, which is in `memory`, to the room at its end, and adds them to
    /// `filled`. Returns false, and drops the packet, if its segments are too long or its headers do
    /// not fit its offload.
    pub(super) fn cut(
        &mut self,
        memory: &mut [u8],
        filled: &mut ArrayVec<Filled, BATCH_MAX>,
    ) -> bool {
        let Some(packet) = self.packet.take() else { return true };
        let room_start = memory.len() - ROOM_LEN;
        let (slots, room) = memory.split_at_mut(room_start);
        let bytes = &slots[packet.start..packet.start + packet.len];
        let finish = Finish::new(bytes, packet.offload);
        let Some(finish) = finish.filter(|finish| finish.frame_max() <= FRAME_LIMIT) else {
            return false;
        };
        let mut head = [0; HEADERS_MAX];
        while self.next < finish.count() {
            if filled.is_full() || self.used > TOGETHER {
                self.packet = Some(packet);
                break;
            }
            let head_len = finish.head(self.next, &mut head);
            let part = &bytes[finish.part(self.next)];
            let segment = &mut room[self.used..][..head_len + part.len()];
            segment[..head_len].copy_from_slice(&head[..head_len]);
            segment[head_len..].copy_from_slice(part);
            let (start, len) = (room_start + self.used, segment.len());
            filled.push(Filled { start, len, offload: Offload::None });
            self.used = (self.used + len).next_multiple_of(LINE);
            self.next += 1;
        }
        true
    }
}
