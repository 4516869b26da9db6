//! QEMU command line of a machine.

use std::process::{Command, Stdio};

use crate::channels::Channels;
use crate::vhost_user::escape;
use crate::vm::Vm;

/// Path of the QEMU that `scripts/setup-vm.sh` finds or unpacks.
pub(crate) const QEMU: &str = "/var/cache/dray/qemu/qemu-system-x86_64";

/// Kernel arguments: no watchdog, no address randomization, no self-tests of the ciphers, which
/// take a fifth of the time to boot; a kernel panic ends the machine. The kernel would panic if too
/// few timer interrupts came in a short time, which happens if the host is busy.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable \
                                no_timer_check nowatchdog cryptomgr.notests random.trust_cpu=on";

/// Returns the command that runs `vm`.
pub(crate) fn command(vm: &Vm, channels: &Channels) -> Command {
    let (memory, nodes) = (vm.memory_mib, vm.nodes);
    let mut command = Command::new(QEMU);
    let mut add = |option: &str, value: &str| {
        command.args([option, value]);
    };
    add("-name", &escape(&vm.name));
    // A vhost-user peer maps the guest's memory, so the memory must be a file.
    let (each, cpus) = (memory / nodes, vm.cpus / nodes);
    add("-machine", "q35,accel=tcg");
    for node in 0..nodes {
        add("-object", &format!("memory-backend-memfd,id=memory{node},size={each}M,share=on"));
        let (first, last) = (node * cpus, (node + 1) * cpus - 1);
        add("-numa", &format!("node,memdev=memory{node},cpus={first}-{last}"));
    }
    add("-m", &format!("{}M", each * nodes));
    add("-cpu", "max");
    add("-smp", &vm.cpus.to_string());
    add("-display", "none");
    let files = vm.files.display();
    add("-kernel", &format!("{files}/vmlinuz"));
    add("-initrd", &format!("{files}/initrd"));
    add("-append", &format!("{KERNEL_ARGUMENTS} {}", vm.kernel_arguments.join(" ")));
    // The guest restarts when the script ends; QEMU exits instead.
    add("-action", "reboot=shutdown");
    command.args(["-nodefaults", "-no-user-config"]);
    // An IOMMU must come before the devices behind it.
    command.args(&vm.arguments);
    for (index, card) in vm.vhost_user.iter().enumerate() {
        command.args(card.qemu_arguments(index));
    }

    let mut add = |option: &str, value: &str| {
        command.args([option, value]);
    };
    // The host's mounted file systems appear as one.
    add("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap");
    add("-device", "virtio-9p-pci,bus=pcie.0,fsdev=host,mount_tag=host");
    add("-fw_cfg", &format!("name=opt/dray/script,file={}", channels.script.path()));
    add("-chardev", &format!("file,id=console,path={}", channels.console.path()));
    add("-serial", "chardev:console");
    add("-device", "virtio-serial-pci,bus=pcie.0");
    for (name, file) in [("output", &channels.output), ("status", &channels.status)] {
        add("-chardev", &format!("file,id={name},path={}", file.path()));
        add("-device", &format!("virtserialport,chardev={name},name={name}"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
