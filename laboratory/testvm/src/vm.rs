//! Builder of virtual machines: guest, devices and files.

use std::path::PathBuf;

use crate::vhost_user::VhostUser;

/// Folder where `scripts/setup-vm.sh` puts the kernel, its modules and the initial file system.
pub(crate) const FILES: &str = "/var/cache/dray/vm";

/// Builder of a virtual machine.
#[derive(Debug)]
pub struct Vm {
    pub(crate) name: String,
    pub(crate) memory_mib: u32,
    pub(crate) cpus: u32,
    pub(crate) nodes: u32,
    pub(crate) arguments: Vec<String>,
    pub(crate) kernel_arguments: Vec<String>,
    pub(crate) vhost_user: Vec<VhostUser>,
    pub(crate) script: String,
    pub(crate) files: PathBuf,
}

impl Vm {
    /// Creates a machine with one CPU, 512 MiB of memory, no network, and an empty script. `name`
    /// appears in messages.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            memory_mib: 512,
            cpus: 1,
            nodes: 1,
            arguments: Vec::new(),
            kernel_arguments: Vec::new(),
            vhost_user: Vec::new(),
            script: String::new(),
            files: FILES.into(),
        }
    }

    /// Boots the kernel that `scripts/setup-vm.sh` has put into `folder`.
    pub fn files(mut self, folder: &str) -> Self {
        self.files = folder.into();
        self
    }

    /// Sets the guest's memory, at least 128 MiB. Files that the script writes are stored in it
    /// too.
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Sets the number of CPUs.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Divides memory and CPUs evenly among NUMA nodes. A [card](Self::card) is at node 0.
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self
    }

    /// Adds a network card connected to a vhost-user socket. The first is `eth0`.
    pub fn vhost_user(mut self, card: VhostUser) -> Self {
        self.vhost_user.push(card);
        self
    }

    /// Adds QEMU arguments, such as `["-device", "igb,netdev=n"]`. The machine type is q35.
    pub fn arguments<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    /// Adds an IOMMU, before the devices behind it.
    pub fn iommu(self) -> Self {
        let arguments = ["-machine", "q35,kernel-irqchip=off", "-device", "intel-iommu"];
        self.arguments(arguments).kernel_argument("intel_iommu=on")
    }

    /// Adds an IOMMU and, behind it, a network card of virtio-net with `functions` virtual
    /// functions, at most 7. The functions have one Ethernet segment; the card itself has no
    /// cable. Its driver needs no copies for AF_XDP.
    pub fn card(self, functions: usize) -> Self {
        // XDP programs cannot parse frames with offloads.
        const OPTIONS: &str = "romfile=,disable-legacy=on,iommu_platform=on,guest_csum=off,\
                               guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,\
                               guest_uso4=off,guest_uso6=off";
        let device = |place: usize, part: &str| {
            let at = format!("bus=card,addr=0x0.0x{place},mac=02:00:00:00:01:0{place}");
            format!("virtio-net-pci,{at},netdev=card{place},{part},{OPTIONS}")
        };
        // Only this host bridge is at a node.
        let mut vm =
            self.iommu().arguments(["-device", "pxb-pcie,id=bridge,bus_nr=64,numa_node=0"]);
        vm = vm.arguments(["-device", "pcie-root-port,id=card,bus=bridge,chassis=9"]);
        // The functions come before the card that they belong to.
        for place in (0..=functions).rev() {
            let hub = format!("hubport,id=card{place},hubid={}", if place == 0 { 98 } else { 99 });
            let part = if place == 0 { "id=card-itself" } else { "sriov-pf=card-itself" };
            vm = vm.arguments(["-netdev", &hub, "-device", &device(place, part)]);
        }
        vm
    }

    /// Adds a kernel argument, such as `intel_iommu=on`.
    pub fn kernel_argument(mut self, argument: &str) -> Self {
        self.kernel_arguments.push(argument.to_owned());
        self
    }

    /// Sets the script that runs in the guest, for `sh` or for the interpreter on its `#!` line.
    /// The script has the host's commands in PATH, all of BusyBox as `/busybox`, the kernel's
    /// modules where `modprobe` looks for them, and the driver of virtio network cards loaded.
    pub fn script(mut self, script: &str) -> Self {
        script.clone_into(&mut self.script);
        self
    }
}
