//! One interface, by ioctl (netdevice(7)).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// An interface of the network namespace in which it was found.
#[derive(Debug)]
pub struct Interface {
    name: String,
    index: u32,
    /// A socket in the interface's network namespace.
    socket: OwnedFd,
}

impl Interface {
    /// Finds the interface called `name` in the calling thread's network namespace.
    pub fn find(name: &str) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        let index = netdevice::name_to_index(&socket, name)?;
        Ok(Self { name: name.to_owned(), index, socket })
    }

    /// Returns true if an interface of the calling thread's network namespace has this index.
    pub fn is_index_used(index: u32) -> bool {
        let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None);
        socket.is_ok_and(|socket| netdevice::index_to_name(&socket, index).is_ok())
    }

    /// Returns the name by which it was found.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the interface index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns true if an interface with this index still exists.
    pub fn exists(&self) -> bool {
        netdevice::index_to_name(&self.socket, self.index).is_ok()
    }

    /// Returns the MTU, in bytes.
    pub fn mtu(&self) -> io::Result<usize> {
        let mut request = self.request();
        // SAFETY: SIOCGIFMTU reads the name and writes the MTU of this ifreq.
        unsafe { self.ioctl(libc::SIOCGIFMTU, &mut request) }?;
        // SAFETY: SIOCGIFMTU has just set this member of the union.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        usize::try_from(mtu).map_err(io::Error::other)
    }

    /// Sets the MTU, in bytes.
    pub fn set_mtu(&self, mtu: usize) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = libc::c_int::try_from(mtu).map_err(io::Error::other)?;
        // SAFETY: SIOCSIFMTU reads the name and the MTU of this ifreq.
        unsafe { self.ioctl(libc::SIOCSIFMTU, &mut request) }
    }

    /// Returns the Ethernet address.
    pub fn mac(&self) -> io::Result<[u8; 6]> {
        let mut request = self.request();
        // SAFETY: SIOCGIFHWADDR reads the name and writes the address of this ifreq.
        unsafe { self.ioctl(libc::SIOCGIFHWADDR, &mut request) }?;
        // SAFETY: SIOCGIFHWADDR has just set this member of the union.
        let bytes = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
        Ok(std::array::from_fn(|at| bytes[at] as u8))
    }

    /// Sets the Ethernet address.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut request = self.request();
        // SAFETY: an all-zero sockaddr is a valid value.
        let mut address: libc::sockaddr = unsafe { mem::zeroed() };
        address.sa_family = libc::ARPHRD_ETHER;
        for (to, from) in address.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_hwaddr = address;
        // SAFETY: SIOCSIFHWADDR reads the name and the address of this ifreq.
        unsafe { self.ioctl(libc::SIOCSIFHWADDR, &mut request) }
    }

    /// Renames the interface, which must be down.
    pub fn rename(self, name: &str) -> io::Result<()> {
        let mut request = self.request();
        // SAFETY: a name is valid in this member of the union.
        request.ifr_ifru.ifru_newname = unsafe { mem::zeroed() };
        // SAFETY: the member has just been set.
        let newname = unsafe { &mut request.ifr_ifru.ifru_newname };
        newname.copy_from_slice(&request_for(name).ifr_name);
        // SAFETY: SIOCSIFNAME reads both names of this ifreq.
        unsafe { self.ioctl(libc::SIOCSIFNAME, &mut request) }
    }

    /// Returns true if the interface is administratively up.
    pub fn is_up(&self) -> io::Result<bool> {
        Ok(self.state()? & libc::IFF_UP != 0)
    }

    /// Returns true if the interface carries frames: it is up, and the other end of its link is
    /// there.
    pub fn is_running(&self) -> io::Result<bool> {
        Ok(self.state()? & libc::IFF_RUNNING != 0)
    }

    /// Returns true if the interface carries no frames: it is not [running](Self::is_running), or
    /// was removed.
    pub fn is_down(&self) -> bool {
        !self.is_running().unwrap_or(false)
    }

    /// Sets the interface up.
    pub fn set_up(&self) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = (self.state()? | libc::IFF_UP) as libc::c_short;
        // SAFETY: SIOCSIFFLAGS reads the name and the flags of this ifreq.
        unsafe { self.ioctl(libc::SIOCSIFFLAGS, &mut request) }
    }

    /// Returns the flags (`IFF_UP` and so on).
    fn state(&self) -> io::Result<libc::c_int> {
        let mut request = self.request();
        // SAFETY: SIOCGIFFLAGS reads the name and writes the flags of this ifreq.
        unsafe { self.ioctl(libc::SIOCGIFFLAGS, &mut request) }?;
        // SAFETY: SIOCGIFFLAGS has just set this member of the union.
        Ok(unsafe { request.ifr_ifru.ifru_flags }.into())
    }

    pub(crate) fn request(&self) -> libc::ifreq {
        request_for(&self.name)
    }

    /// # Safety
    /// `request` must be of the form that the ioctl `number` requires.
    pub(crate) unsafe fn ioctl(
        &self,
        number: libc::Ioctl,
        request: &mut libc::ifreq,
    ) -> io::Result<()> {
        // SAFETY: by the contract.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), number, request) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Returns a request about the interface `name`, truncated to the space available.
pub(crate) fn request_for(name: &str) -> libc::ifreq {
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}
