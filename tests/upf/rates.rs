//! Maximum bit rates of a session, as TCP between two kernels sees them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use dray_lab::NetworkNamespace;

use crate::common::stream::{assert_rate, measure};
use crate::common::veths::Veths;
use crate::common::{alone, eventually, serves};
use crate::fixture::Upf;

/// Returns the configuration of one of two user plane functions whose N3 interfaces face each
/// other, so that each is the other's gNB: `own` and `other` number them.
fn config(own: u8, other: u8, qer: &str) -> String {
    format!(
        "[n3]\nmac = '02:00:00:00:03:0{own}'\naddresses = ['10.3.0.{own}']\nmtu = 1500\n\
         [n6]\nmac = '02:00:00:00:06:0{own}'\naddresses = ['10.{own}.0.1']\nmtu = 1500\n\
         routes = [{{ to = '0.0.0.0/0', via = '10.{own}.0.2' }}]\n\
         [[sessions]]\nseid = 1\nue = ['10.{other}.0.2']\n\
         pdrs = [\n\
           {{ id = 1, precedence = 9, from = 'access', teid = {own}, far = 1, qers = [1] }},\n\
           {{ id = 2, precedence = 9, from = 'core', far = 2, qers = [1] }},\n\
         ]\n\
         fars = [\n\
           {{ id = 1, action = 'forward' }},\n\
           {{ id = 2, action = 'forward', tunnel = {{ gnb = '10.3.0.{other}', teid = {other} }} }},\n\
         ]\n\
         qers = [{{ id = 1{qer} }}]\n"
    )
}

/// Two user plane functions between a user and a server.
struct Path {
    veths: Veths,
    hosts: [NetworkNamespace; 2],
}

impl Path {
    fn new() -> Self {
        let veths = Veths::new(1, &[["n3x1", "n3x2"]]);
        let hosts = [(); 2].map(|()| NetworkNamespace::scratch().unwrap());
        for (number, host) in (1..).zip(&hosts) {
            let path = format!("/proc/{}/fd/{}", std::process::id(), host.as_fd().as_raw_fd());
            veths.ip(&format!("link add n6x{number} type veth peer name eth0 netns {path}"));
            veths.ip(&format!("link set n6x{number} addrgenmode none up"));
            for arguments in [
                "link set eth0 mtu 1400 up".to_owned(),
                format!("address add 10.{number}.0.2/24 dev eth0"),
                format!("route add default via 10.{number}.0.1"),
            ] {
                let mut ip = Command::new("ip");
                ip.args(arguments.split(' '));
                assert!(host.enter(|| ip.status()).unwrap().success(), "ip {arguments}");
            }
        }
        Self { veths, hosts }
    }

    /// Calls `measured` while packets pass, of which the second user plane function limits the
    /// rate.
    fn with<T>(&self, qer: &str, measured: impl FnOnce([&NetworkNamespace; 2]) -> T) -> T {
        let start = |(number, files): (u8, &Upf)| {
            let (n3, n6) = (format!("raw:n3x{number}"), format!("raw:n6x{number}"));
            self.veths.0.enter(|| files.start("upf", &n3, &n6, &[])).unwrap()
        };
        let files = [Upf::with_config(&config(1, 2, "")), Upf::with_config(&config(2, 1, qer))];
        let _upfs = (1..).zip(&files).map(start).collect::<Vec<_>>();
        assert!(files.iter().all(|files| eventually(|| serves(files.at("upf.sock")))));
        let [user, server] = &self.hosts;
        let reaches = || {
            let mut ping = Command::new("ping");
            ping.args(["-q", "-c", "1", "-W", "1", "10.2.0.2"]).stdout(Stdio::null());
            user.enter(|| ping.status()).unwrap().success()
        };
        assert!(eventually(reaches));
        measured([user, server])
    }
}

/// Connections get nine tenths of the rate in either direction, or of half of what passes without a
/// limit, and never more than 1.05 of it in a second.
#[test]
fn tcp_gets_the_rate_of_a_session_with_time() {
    let _alone = alone();
    require_root!();
    let path = Path::new();
    let to_user: SocketAddr = "10.1.0.2:9000".parse().unwrap();
    let to_server: SocketAddr = "10.2.0.2:9000".parse().unwrap();
    let time = Duration::from_secs(4);
    for (mbps, connections) in [(10, 1), (20, 8), (100, 1), (100, 8), (1000, 1)] {
        for address in [to_server, to_user] {
            let measure = |limit: &str| {
                path.with(limit, |[user, server]| {
                    let ends = if address == to_server { [user, server] } else { [server, user] };
                    measure(ends, address, connections, time)
                })
            };
            let what = format!("{mbps} Mb/s to {address}, {connections} connections");
            let limit = format!(", mbr_uplink_kbps = {mbps}000, mbr_downlink_kbps = {mbps}000");
            // A build for tests is slow, and other programs run beside it.
            let can = || measure("").mean / 2.0;
            assert_rate(&what, f64::from(mbps) * 1e6, can, || measure(&limit));
        }
    }
}
