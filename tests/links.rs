//! Links by netlink, in a namespace made for the purpose.

mod common;

use std::io;
use std::net::Ipv4Addr;

use dray_lab::NetworkNamespace;
use dray_lab::netlink::{Netlink, VethEnd};
use dray_wire::MacAddr;

#[test]
fn a_veth_pair_and_a_bridge() {
    require_root!();
    let namespace = NetworkNamespace::scratch().unwrap();
    let netlink = Netlink::open(&namespace).unwrap();
    let end = |name, id| VethEnd { namespace: &namespace, name, mac: MacAddr::local(id) };
    netlink.create_veth(end("a", 1), end("b", 2), 9000).unwrap();
    netlink.create_bridge("br").unwrap();
    let index = |name| netlink.interface(name).unwrap().index;
    netlink.set_master(index("b"), index("br")).unwrap();
    for name in ["a", "b", "br"] {
        netlink.set_up(index(name)).unwrap();
    }
    netlink.add_address(index("a"), Ipv4Addr::new(198, 18, 0, 1), 30).unwrap();
    netlink.add_neighbour(index("a"), Ipv4Addr::new(198, 18, 0, 2), MacAddr::local(9)).unwrap();
    let error = netlink.create_bridge("br").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    netlink.delete(index("a")).unwrap();
    let names: Vec<_> = netlink.interfaces().unwrap().into_iter().map(|i| i.name).collect();
    assert!(names.contains(&"br".to_owned()) && !names.contains(&"b".to_owned()), "{names:?}");
}
