//! Frames with a virtio-net header from a peer: any header and bytes are checked, and what is
//! accepted is finished into frames that need nothing more.
#![no_main]

use dray_wire::offload::{
    Accept, Finish, HEADERS_MAX, Layout, Offload, Offloads, SEGMENTS_MAX, VirtioNet, complete,
    complete_sctp,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((header, frame)) = bytes.split_first_chunk() else { return };
    let header = VirtioNet::read(*header);
    assert_eq!(VirtioNet::read(header.bytes()), header);
    let mut frame = frame.to_vec();
    // As from a kernel, which need not say that a checksum is partial.
    let header = header.with_partial_checksum(&mut frame);
    match header.check(&frame, frame.len(), Offloads::ALL) {
        Ok(Accept::Complete { start, at }) => complete(&mut frame, start, at),
        Ok(Accept::CompleteSctp { start, end }) => complete_sctp(&mut frame[..end], start),
        Ok(Accept::Carry(offload)) => finish(&frame, offload),
        Err(_) => {}
    }
    // The peer may change the frame after it was checked.
    finish(&frame, Offload::Checksum);
    for kind in [Offload::Tcp, Offload::TcpEcn, Offload::Udp] {
        finish(&frame, segments(header.gso_size, kind));
    }
});

fn segments(size: u16, kind: fn(std::num::NonZeroU16) -> Offload) -> Offload {
    std::num::NonZeroU16::new(size).map_or(Offload::None, kind)
}

fn finish(frame: &[u8], offload: Offload) {
    let Some(finish) = Finish::new(frame, offload) else { return };
    assert!(finish.count() <= SEGMENTS_MAX);
    let payload = Layout::of(frame, frame.len()).expect("as above").payload;
    let mut next = payload;
    for index in 0..finish.count() {
        let mut head = [0; HEADERS_MAX];
        let len = finish.head(index, &mut head);
        let part = finish.part(index);
        assert!(len == payload && part.start == next && len + part.len() <= finish.frame_max());
        next = part.end;
        if offload.segment().is_some() {
            let segment = [&head[..len], &frame[part]].concat();
            let layout = Layout::of(&segment, segment.len()).expect("a packet");
            assert_eq!((layout.payload, layout.end), (payload, segment.len()));
        }
    }
    assert_eq!(next, frame.len());
}
