//! Tests the fast parser against the full one.

use dray_port::memory::Peer;
use dray_wire::gtpu::{Container, Direction};
use dray_wire::{MacAddr, checksum};
use proptest::prelude::*;

use super::*;
use crate::config::InterfaceConfig;
use crate::matcher::qfis;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 1]);
const OWN: [[u8; 16]; 2] = [[10, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0xfd; 16]];

fn own() -> Interface {
    let [v4, v6] = OWN;
    let config = InterfaceConfig {
        mac: MAC,
        addresses: vec![v4[..4].first_chunk::<4>().copied().unwrap_or_default().into(), v6.into()],
        mtu: 1500,
        routes: Vec::new(),
        gnbs: Vec::new(),
        neighbours: Vec::new(),
    };
    let ours = config.addresses.clone();
    Interface::new(("n3", 0), &config, ours, Peer::default().port().tx).unwrap()
}

/// The headers around a user's packet.
#[derive(Clone, Debug)]
struct Around {
    v6: bool,
    /// Words of IPv4 options, or units of an IPv6 extension header.
    options: u8,
    extension: Option<u8>,
    /// IPv4 flags and fragment offset.
    fragment: u16,
    tos: u8,
    gtp_flags: u8,
    message: u8,
    /// GTP-U extension headers: type and units.
    extensions: Vec<(u8, u8)>,
    container: Option<u8>,
    inner: Vec<u8>,
    /// Ethernet padding.
    padding: usize,
}

fn around() -> impl Strategy<Value = Around> {
    let outer = (
        prop::bool::weighted(0.3),
        prop_oneof![3 => Just(0u8), 1 => 0u8..11],
        prop::option::weighted(0.3, prop::sample::select(vec![0u8, 43, 44, 51, 60])),
        prop_oneof![Just(0x4000u16), Just(0), Just(0x2000), Just(5), any::<u16>()],
        any::<u8>(),
    );
    let flags = prop_oneof![Just(0x30u8), Just(0x34), Just(0x32), Just(0x36), 0x20u8..0x40];
    let message = prop_oneof![8 => Just(255u8), 1 => any::<u8>()];
    let extension = (prop::sample::select(vec![0x85u8, 0x40, 0xc0, 0x82, 0x03, 0xc1]), 0u8..4);
    let gtp = (
        flags,
        message,
        prop::collection::vec(extension, 0..3),
        prop::option::weighted(0.7, 0u8..64),
        prop_oneof![prop::collection::vec(any::<u8>(), 0..120), Just(vec![0x45; 100])],
        0usize..40,
    );
    (outer, gtp).prop_map(|((v6, options, extension, fragment, tos), gtp)| {
        let (gtp_flags, message, extensions, container, inner, padding) = gtp;
        Around {
            v6,
            options,
            extension,
            fragment,
            tos,
            gtp_flags,
            message,
            extensions,
            container,
            inner,
            padding,
        }
    })
}

impl Around {
    fn is_usual(&self) -> bool {
        let flags = if self.container.is_some() { 0x34 } else { 0x30 };
        !self.v6
            && self.options == 0
            && self.fragment & 0xbfff == 0
            && (self.gtp_flags, self.message) == (flags, 255)
            && self.extensions.is_empty()
    }

    fn frame(&self) -> Vec<u8> {
        let mut gtp = vec![self.gtp_flags, self.message, 0, 0, 0, 0, 1, 2];
        let container = self.container.map(|qfi| (0x85, vec![0x10, qfi]));
        let of_kind = |(kind, units): &(u8, u8)| match units {
            0 => (*kind, vec![]),
            units => (*kind, vec![0; 4 * usize::from(*units) - 2]),
        };
        let chain: Vec<_> = self.extensions.iter().map(of_kind).chain(container).collect();
        if self.gtp_flags & 7 != 0 {
            gtp.extend([0, 0, 0]);
            for (kind, content) in &chain {
                gtp.extend([*kind, (content.len() + 2) as u8 / 4]);
                gtp.extend(content);
            }
            gtp.push(0);
        }
        gtp.extend(&self.inner);
        let len = (gtp.len() - 8) as u16;
        gtp[2..4].copy_from_slice(&len.to_be_bytes());
        let udp = [40000, 2152, gtp.len() as u16 + 8, 0].map(u16::to_be_bytes).concat();
        let mut frame = [&MAC.0[..], &[2, 0, 0, 0, 3, 2]].concat();
        let upper = [udp, gtp].concat();
        match self.v6 {
            true => {
                let units = usize::from(self.options);
                let extension = self.extension.map(|kind| match kind {
                    44 => vec![17, 0, 0, self.fragment as u8, 0, 0, 0, 1],
                    51 => [&[17, units as u8][..], &vec![0; 4 * units + 6]].concat(),
                    _ => [&[17, units as u8][..], &vec![0; 8 * units + 6]].concat(),
                });
                let extension = extension.unwrap_or_default();
                let len = (extension.len() + upper.len()) as u16;
                frame.extend([0x86, 0xdd, 0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                frame.extend(len.to_be_bytes());
                frame.extend([self.extension.unwrap_or(17), 64]);
                frame.extend([[0xfd; 15].as_slice(), &[2], &OWN[1]].concat());
                frame.extend(extension);
            }
            false => {
                let header_len = 20 + 4 * usize::from(self.options);
                let mut ip = vec![0x40 | (header_len / 4) as u8, self.tos];
                ip.extend(((header_len + upper.len()) as u16).to_be_bytes());
                ip.extend([0, 7]);
                ip.extend(self.fragment.to_be_bytes());
                ip.extend([64, 17, 0, 0, 10, 0, 3, 2]);
                ip.extend(&OWN[0][..4]);
                ip.resize(header_len, 1);
                let sum = checksum::internet(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(ip);
            }
        }
        frame.extend(upper);
        frame.extend(vec![0; self.padding]);
        frame
    }
}

/// Corrects the checksum of an IPv4 header without options, so that parsing goes beyond it.
fn checksummed(frame: &mut [u8]) {
    if let Some(header) = frame.get_mut(14..34) {
        header[10..12].fill(0);
        let sum = checksum::internet(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// The full parser agrees with the fast one on every frame that the fast one accepts, and the
    /// fast one accepts all usual frames.
    #[test]
    fn fast_parser_agrees_with_full_parser(
        around in around(),
        changes in prop::collection::vec((0usize..90, any::<u8>()), 0..3),
        right_sum: bool, cut in prop::option::weighted(0.2, 0usize..200),
    ) {
        let own = own();
        let mut frame = around.frame();
        let is_usual = around.is_usual() && changes.is_empty() && cut.is_none();
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        if right_sum && !around.v6 && around.options == 0 {
            checksummed(&mut frame);
        }
        if let Some(cut) = cut {
            frame.truncate(cut);
        }
        let full = user_packet(&frame, frame.len(), &own).ok();
        let fast = frame.first_chunk().map(|head| usual_packet(head, frame.len(), &own));
        if let Some(Some(fast)) = fast {
            let source = ip::number(Ipv4Addr::from(fast.gnb).into());
            prop_assert_eq!(Some((fast, source)), full);
        }
        if let (Some(fast), true) = (fast, is_usual) {
            prop_assert!(fast.is_some());
        }
        // Parsing only the first bytes of a frame gives the same result, or reports that they are
        // too few.
        let seen = &frame[..frame.len().min(COPY_LEN)];
        match user_packet(seen, frame.len(), &own) {
            Ok(item) => prop_assert_eq!(Some(item), full),
            Err(Odd::Drop(_)) => prop_assert_eq!(full, None),
            Err(Odd::Fragment(_) | Odd::Other) => {}
        }
    }
}

#[test]
fn both_parsers_read_container_alike() {
    let own = own();
    for qfi in [None, Some(0), Some(63)] {
        let mut header = [0; 16];
        let container = qfi.map(|qfi| Container {
            direction: Direction::Uplink,
            qfi,
            reflective: false,
            paging_policy: None,
        });
        let len = gtpu::write_gpdu(&mut header, 7, container, 100);
        let flags = if qfi.is_some() { 0x34 } else { 0x30 };
        let around = Around {
            v6: false,
            options: 0,
            extension: None,
            fragment: 0x4000,
            tos: 3,
            gtp_flags: flags,
            message: 255,
            extensions: Vec::new(),
            container: qfi,
            inner: vec![0x45; 100],
            padding: 0,
        };
        let frame = around.frame();
        let item = usual_packet(frame.first_chunk().unwrap(), frame.len(), &own).unwrap();
        assert_eq!((item.qfis, item.ecn, usize::from(item.at)), (qfis(qfi), 3, 42 + len));
        let full = user_packet(&frame, frame.len(), &own).ok();
        assert_eq!(Some(item), full.map(|(item, _)| item));
    }
}
