//! A guest's network card on a vhost-user socket.

use std::path::{Path, PathBuf};

use dray_wire::MacAddr;

/// A virtio network card whose rings another program serves (vhost-user.rst of QEMU's manual).
#[derive(Clone, Debug)]
pub struct VhostUser {
    socket: PathBuf,
    mac: MacAddr,
    queues: u16,
    packed: bool,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Connect,
    Reconnect,
    Listen,
}

impl VhostUser {
    /// Creates a card with one queue pair and split rings. QEMU connects to `socket`, where a peer
    /// must already listen.
    pub fn connect(socket: &Path, mac: MacAddr) -> Self {
        Self { socket: socket.to_owned(), mac, queues: 1, packed: false, role: Role::Connect }
    }

    /// As [`connect`](Self::connect), but QEMU waits for a listening peer, before the guest starts
    /// and whenever the connection is lost.
    pub fn reconnect(socket: &Path, mac: MacAddr) -> Self {
        Self { role: Role::Reconnect, ..Self::connect(socket, mac) }
    }

    /// As [`connect`](Self::connect), but QEMU creates the socket and listens. The guest starts
    /// once a peer has connected.
    pub fn listen(socket: &Path, mac: MacAddr) -> Self {
        Self { role: Role::Listen, ..Self::connect(socket, mac) }
    }

    /// Sets the number of queue pairs to offer; the guest uses as many as it has CPUs.
    pub fn queues(mut self, queues: u16) -> Self {
        self.queues = queues;
        self
    }

    /// Offers packed rings.
    pub fn packed(mut self) -> Self {
        self.packed = true;
        self
    }

    pub(crate) fn qemu_arguments(&self, index: usize) -> [String; 6] {
        let role = match self.role {
            Role::Connect => "",
            Role::Reconnect => ",reconnect-ms=200",
            Role::Listen => ",server=on,wait=on",
        };
        let socket = escape(&self.socket.display().to_string());
        let Self { mac, queues, .. } = self;
        let mut device = format!("virtio-net-pci,netdev=vhost{index},mac={mac},romfile=");
        if self.packed {
            device += ",packed=on";
        }
        if self.queues > 1 {
            // One interrupt for each ring, one for the control queue, one for configuration
            // changes.
            device += &format!(",mq=on,vectors={}", 2 * queues + 2);
        }
        let network = format!("vhost-user,id=vhost{index},chardev=vhost{index},queues={queues}");
        let channel = format!("socket,id=vhost{index},path={socket}{role}");
        ["-chardev", &channel, "-netdev", &network, "-device", &device].map(str::to_owned)
    }

    /// Returns the socket if the machine has to remove it.
    pub(crate) fn into_own_socket(self) -> Option<PathBuf> {
        (self.role == Role::Listen).then_some(self.socket)
    }
}

/// QEMU needs commas within a value doubled.
pub(crate) fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vhost_user_card_arguments() {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let plain = VhostUser::connect(Path::new("/a,b"), mac).qemu_arguments(0);
        assert_eq!(plain[1], "socket,id=vhost0,path=/a,,b");
        assert_eq!(plain[3], "vhost-user,id=vhost0,chardev=vhost0,queues=1");
        assert_eq!(plain[5], "virtio-net-pci,netdev=vhost0,mac=02:00:00:00:00:01,romfile=");
        let card = VhostUser::listen(Path::new("/s"), mac).queues(2).packed();
        let arguments = card.qemu_arguments(1);
        assert_eq!(arguments[1], "socket,id=vhost1,path=/s,server=on,wait=on");
        assert!(arguments[5].ends_with(",packed=on,mq=on,vectors=6"), "{}", arguments[5]);
        assert_eq!(card.into_own_socket(), Some("/s".into()));
    }
}
