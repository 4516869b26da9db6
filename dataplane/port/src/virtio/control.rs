//! The session with a back end.

use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::{
    VIRTIO_F_ANY_LAYOUT, VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_net::{VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF};
use vmm_sys_util::eventfd::EventFd;

use super::memory::{HEADER_LEN, QueueOffsets, SharedMemory};
use super::queue::{Device, ReceiveQueue, SLOTS_MAX, Terms, TransmitQueue};
use super::uri::VirtioUri;
use crate::ends::headers::{self, Headers, TO_DEVICE, TO_DRIVER};
use crate::ends::pairs::Pairs;
use crate::ends::peer_memory::PeerMemory;
use crate::ends::slot::{Slot, State};
use crate::session::connection::{Control, End, Woken};
use crate::signal::peer_event::PeerEvent;

/// vhost-user's own feature bit: protocol features are supported.
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Time within which a back end must have completed the whole setup.
const REPLY: Duration = Duration::from_secs(5);
/// How often a port that waits for a reply checks whether it is being closed.
const LOOK: Duration = Duration::from_millis(50);

/// Sets up the port with one back end, and serves it until it disconnects, violates the protocol or
/// the port is closed.
pub(super) fn session(
    device: &Device,
    uri: &VirtioUri,
    memory: &mut PeerMemory<SharedMemory>,
    stream: UnixStream,
    control: &Control,
) -> End {
    let socket = match stream.try_clone() {
        Ok(socket) => socket,
        Err(error) => return End::Refused(format!("socket: {error}")),
    };
    // The `vhost` crate waits for a reply forever, whatever timeout the socket has.
    let introduced = std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let socket = &socket;
        let watch = scope.spawn(move || {
            let start = Instant::now();
            while is_done.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                if start.elapsed() > REPLY || control.is_stopping() {
                    // This ends the wait for a reply.
                    let _ = socket.shutdown(Shutdown::Both);
                    return true;
                }
            }
            false
        });
        let introduced = introduce(device, uri, memory, stream);
        drop(done);
        match watch.join() {
            Ok(true) => introduced.map_err(|why| format!("no reply for {REPLY:?}; {why}")),
            _ => introduced,
        }
    });
    if control.is_stopping() {
        return stop(device, memory, End::Stop);
    }
    let end = match introduced {
        Ok((_frontend, features)) => {
            control.change(|status| status.features = features);
            // A back end sends nothing unasked: if the socket is readable, it has disconnected.
            loop {
                let woken = control.wait(Some(socket.as_fd()), None);
                if control.is_stopping() {
                    break End::Stop;
                }
                if let Some(failure) = device.failure() {
                    break End::Refused(failure.to_string());
                }
                if matches!(woken, Woken::Readable) {
                    break End::Left;
                }
            }
        }
        Err(why) => End::Refused(why),
    };
    stop(device, memory, end)
}

/// Takes all queues from the data threads, and the memory from the back end.
fn stop(device: &Device, memory: &mut PeerMemory<SharedMemory>, end: End) -> End {
    device.pairs.iter().for_each(|pair| pair.stop(|queue| queue.call.as_fd()));
    memory.release(&end);
    end
}

const fn bit(feature: u32) -> u64 {
    1 << feature
}

/// Exchanges all messages of the setup. Returns the names of the negotiated features, for people.
fn introduce(
    device: &Device,
    uri: &VirtioUri,
    memory: &mut PeerMemory<SharedMemory>,
    stream: UnixStream,
) -> Result<(Frontend, Vec<String>), String> {
    let says = |what: &'static str| move |error: vhost::Error| format!("{what}: {error}");
    let vrings = 2 * device.pairs.len();
    let mut back_end = Frontend::from_stream(stream, vrings as u64);
    let offered = back_end.get_features().map_err(says("GET_FEATURES"))?;
    let several = device.pairs.len() > 1;
    // Back ends older than version 1 (Snabb) can take our frames too if they have mergeable
    // buffers, whose header has the same length, and accept header and frame in one buffer.
    let older = bit(VIRTIO_NET_F_MRG_RXBUF) | bit(VIRTIO_F_ANY_LAYOUT);
    let mut needed = match offered & bit(VIRTIO_F_VERSION_1) {
        0 if offered & older == older => vec![("any_layout", bit(VIRTIO_F_ANY_LAYOUT))],
        _ => vec![("version_1", bit(VIRTIO_F_VERSION_1))],
    };
    if uri.packed {
        needed.push(("packed", bit(VIRTIO_F_RING_PACKED)));
    }
    if several {
        needed.push(("mq", bit(VIRTIO_NET_F_MQ)));
    }
    if let Some((name, _)) = needed.iter().find(|(_, bit)| offered & bit == 0) {
        return Err(format!("the back end does not offer {name}"));
    }
    let wished = wished(offered, uri.offload && usize::from(uri.size.get()) >= SLOTS_MAX);
    let agreed: Vec<(&str, u64)> = needed.into_iter().chain(wished).collect();
    let features = agreed.iter().fold(offered & PROTOCOL_FEATURES, |all, (_, bit)| all | bit);

    back_end.set_owner().map_err(says("SET_OWNER"))?;
    if offered & PROTOCOL_FEATURES != 0 {
        let known = back_end.get_protocol_features().map_err(says("GET_PROTOCOL_FEATURES"))?;
        let mut wanted = VhostUserProtocolFeatures::REPLY_ACK;
        if several {
            wanted |= VhostUserProtocolFeatures::MQ;
        }
        let wanted = known & wanted;
        back_end.set_protocol_features(wanted).map_err(says("SET_PROTOCOL_FEATURES"))?;
        if wanted.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            back_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
    }
    back_end.set_features(features).map_err(says("SET_FEATURES"))?;

    let memory = memory.allocate().map_err(|error| format!("shared memory: {error}"))?;
    // The back end gets addresses of this process as guest addresses.
    let address = memory.at(0).as_ptr() as u64;
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: address,
        userspace_addr: address,
        memory_size: memory.len() as u64,
        mmap_offset: 0,
        mmap_handle: memory.fd().as_raw_fd(),
    };
    back_end.set_mem_table(&[region]).map_err(says("SET_MEM_TABLE"))?;

    // Open vSwitch counts the queues as soon as the first pair is enabled, so all queues must be
    // announced before that.
    let transmit: Vec<_> = (0..device.pairs.len())
        .map(|number| set_up(&back_end, device, features, uri, &memory, number))
        .collect::<Result<_, _>>()?;
    if offered & PROTOCOL_FEATURES != 0 {
        for index in 0..vrings {
            back_end.set_vring_enable(index, true).map_err(says("SET_VRING_ENABLE"))?;
        }
    }
    for (pair, transmit) in device.pairs.iter().zip(transmit).rev() {
        install(&pair.transmit, transmit);
        pair.wakes.wake();
    }
    Ok((back_end, agreed.into_iter().map(|(name, _)| name.to_owned()).collect()))
}

/// Returns the features that the port wishes for and `offered` has: their names and bits.
fn wished(offered: u64, offloads: bool) -> Vec<(&'static str, u64)> {
    let has = |feature: u32| offered & bit(feature) != 0;
    let mergeable = (VIRTIO_NET_F_MRG_RXBUF, "mrg_rxbuf");
    let mut wished = vec![mergeable];
    for (direction, spread) in [(&TO_DEVICE[..], true), (&TO_DRIVER[..], has(mergeable.0))] {
        // Segmentation needs checksums (Virtio 1.3, section 5.1.3.1), and long frames several
        // slots.
        match direction {
            [checksum, segmentation @ ..] if offloads && has(checksum.0) => {
                wished.push(*checksum);
                wished.extend(segmentation.iter().filter(|_| spread));
            }
            _ => {}
        }
    }
    wished.retain(|(feature, _)| has(*feature));
    wished.into_iter().map(|(feature, name)| (name, bit(feature))).collect()
}

/// Announces a pair of virtqueues, and starts receiving on one of them. Returns the other one, to
/// be used once it is enabled.
fn set_up(
    back_end: &Frontend,
    device: &Device,
    features: u64,
    uri: &VirtioUri,
    memory: &Arc<SharedMemory>,
    number: usize,
) -> Result<TransmitQueue, String> {
    let pair = &device.pairs[number];
    let offsets = [2 * number, 2 * number + 1].map(|index| memory.offsets(index));
    for slot in [pair.receive.is_running(), pair.transmit.is_running()] {
        assert!(!slot, "taken out when the last back end left");
    }
    let events = || -> std::io::Result<(EventFd, PeerEvent)> {
        let event = PeerEvent::for_peer(&pair.wake)?;
        let copy = event.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is our own eventfd, and its ownership is passed on here.
        let copy = unsafe { EventFd::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(copy)) };
        Ok((copy, event))
    };
    let events = || events().map_err(|error| format!("eventfd: {error}"));
    let (receive_kick_theirs, receive_kick) = events()?;
    let (transmit_kick_theirs, transmit_kick) = events()?;
    let (call_theirs, call) = events()?;
    let (unused_call, _) = events()?;
    for (index, offsets, kick, call) in [
        (2 * number, &offsets[0], &receive_kick_theirs, &call_theirs),
        (2 * number + 1, &offsets[1], &transmit_kick_theirs, &unused_call),
    ] {
        announce(back_end, memory, uri, index, offsets, kick, call)
            .map_err(|error| format!("virtqueue: {error}"))?;
    }
    pair.wakes.watch(call.as_fd()).map_err(|error| format!("eventfd: {error}"))?;
    // Posts all buffers before the ring is enabled.
    let [into, out] = offsets;
    let mergeable = features & bit(VIRTIO_NET_F_MRG_RXBUF) != 0;
    let [left_to_us, left_to_it] = [headers::to_driver(features), headers::to_device(features)]
        .map(|offloads| Terms {
            headers: Headers { len: HEADER_LEN as u32, mergeable, offloads },
            malformed: device.malformed.clone(),
        });
    install(&pair.receive, ReceiveQueue::new(memory, uri, &into, receive_kick, call, left_to_us)?);
    TransmitQueue::new(memory, uri, &out, transmit_kick, left_to_it)
}

fn install<Q>(slot: &Slot<Q>, queue: Q) {
    slot.replace(State::Running(queue));
}

/// Announces one virtqueue to the back end.
fn announce(
    back_end: &Frontend,
    memory: &SharedMemory,
    uri: &VirtioUri,
    index: usize,
    offsets: &QueueOffsets,
    kick: &EventFd,
    call: &EventFd,
) -> vhost::Result<()> {
    let address = |offset| memory.at(offset).as_ptr() as u64;
    let size = uri.size.get();
    back_end.set_vring_num(index, size)?;
    // A packed ring starts with the wrap counter 1.
    back_end.set_vring_base(index, if uri.packed { 1 << 15 } else { 0 })?;
    back_end.set_vring_addr(
        index,
        &VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: address(offsets.descriptors),
            used_ring_addr: address(offsets.device),
            avail_ring_addr: address(offsets.driver),
            log_addr: None,
        },
    )?;
    back_end.set_vring_call(index, call)?;
    back_end.set_vring_kick(index, kick)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortUri;
    use std::os::unix::net::UnixListener;

    #[test]
    fn port_with_silent_back_end_can_be_closed() {
        let path = std::env::temp_dir().join(format!("dray-silent-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let silent = UnixListener::bind(&path).unwrap();
        let uri: PortUri = format!("virtio:{}?hugepages=0", path.display()).parse().unwrap();
        let port = uri.open().unwrap();
        let (_stream, _) = silent.accept().unwrap();
        let (closed, is_closed) = mpsc::channel();
        let _ = std::fs::remove_file(&path);
        std::thread::spawn(move || {
            drop(port);
            closed.send(()).unwrap();
        });
        is_closed.recv_timeout(Duration::from_secs(20)).expect("closing does not wait for it");
    }
}
