//! QEMU guests with a card at a vhost-user socket.

use std::path::Path;

use dray_testvm::{RunningVm, VhostUser, Vm};
use dray_wire::MacAddr;

/// Starts a guest with one network card, `02:00:00:00:00:NUMBER` and 10.0.0.NUMBER, that prints the
/// former and runs `script`. QEMU connects again whenever it loses the socket.
pub fn guest(number: u64, socket: &Path, is_packed: bool, script: &str) -> RunningVm {
    let card = VhostUser::reconnect(socket, MacAddr::local(number));
    let set_up = format!(
        "set -e
         /busybox ip address add 10.0.0.{number}/24 dev eth0
         /busybox ip link set eth0 up
         cat /sys/class/net/eth0/address"
    );
    Vm::new(&format!("guest {number}"))
        .memory_mib(256)
        .vhost_user(if is_packed { card.packed() } else { card })
        .script(&format!("{set_up}\n{script}\n"))
        .start()
        .unwrap()
}
