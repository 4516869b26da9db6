#!/usr/bin/env bash
# Builds the boot files of the lab's virtual machines: a Debian kernel with its modules, and an initial
# file system with scripts/vm-init.sh. The kernel package is unpacked, not installed, so the host boots
# as before. Installs QEMU if it is missing.
# Usage: setup-vm.sh [FOLDER SUITE]: by default /var/cache/dray/vm, with the newest kernel.
set -euo pipefail

cd "$(dirname "$0")"
init=$PWD/vm-init.sh
cache=/var/cache/dray
vm=${1:-$cache/vm}
# Its kernel supports AF_XDP zero copy for virtio-net and igb; that of Debian 12's backports does not.
kernel_suite=${2:-trixie-backports}
export PATH=$PATH:/usr/sbin:/sbin

missing=()
# QEMU of Debian 12 has no igb card.
qemu-system-x86_64 -device help 2>/dev/null | grep '"igb"' >/dev/null || missing+=(qemu-system-x86)
command -v depmod >/dev/null || missing+=(kmod)
have_kernel() { [ "$(cat "$vm/suite" 2>/dev/null)" = "$kernel_suite" ]; }
if [ ${#missing[@]} = 0 ] && have_kernel && [ "$vm/initrd" -nt "$init" ] && [ "$vm/initrd" -nt setup-vm.sh ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    exec sudo ./setup-vm.sh "$@"
fi
if [ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ]; then
    echo "setup-vm.sh: the lab's virtual machines need Debian's packages for amd64" >&2
    exit 1
fi

# On Debian 12, QEMU comes from its backports.
[ ${#missing[@]} = 0 ] || ./install-backport.sh "${missing[@]}"

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
work=$(mktemp -d -p "$cache")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"

if ! have_kernel; then
    # A private sources list: the host's package sources are not changed.
    mkdir sources
    cp -r /etc/apt/sources.list.d/. sources/
    options=(-qq -o "Dir::Etc::SourceParts=$work/sources" -o APT::Sandbox::User=root)
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$key] http://deb.debian.org/debian $kernel_suite main" >sources/dray.list
    apt-get "${options[@]}" update
    # linux-image-amd64 is empty and depends on the current kernel, which consists of several packages.
    release=$(apt-cache "${options[@]}" show "linux-image-amd64/$kernel_suite" |
        sed -n 's/^Depends:.* linux-image-\([0-9][^ ,]*\).*/\1/p')
    mapfile -t packages < <(apt-cache "${options[@]}" pkgnames linux- |
        grep -E "^linux-(image|base|binary|modules)-${release//+/\\+}\$")
    echo "Unpacking into $vm: ${packages[*]}" >&2
    apt-get "${options[@]}" download "${packages[@]}" busybox-static
    mkdir files new
    for package in *.deb; do
        dpkg -x "$package" files
    done
    # Newer packages install into /usr, those of Debian 12 into /.
    mv "$(find files -type f -name 'vmlinuz*')" new/vmlinuz
    mv "$(find files -type f -path '*bin/busybox')" new/
    mkdir new/lib
    mv "$(find files -type d -path '*lib/modules')" new/lib/
    depmod -b new "$release"
    echo "$kernel_suite" >new/suite
    rm -rf "$vm"
    mv new "$vm"
fi

mkdir -p root/{dev,proc,sys,memory,host,root,bin,modules}
cp "$vm/busybox" root/bin/
cp "$init" root/init
release=$(ls "$vm/lib/modules")
for module in qemu_fw_cfg 9p 9pnet_virtio overlay virtio_net; do
    modprobe -d "$vm" -S "$release" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | nl -w3 -nrz | while read -r number file; do
    # vm-init.sh loads the modules in order of their names.
    "$vm/busybox" xzcat "$file" >"root/modules/$number-$(basename "$file" .xz)"
done
(cd root && find . | "$vm/busybox" cpio -o -H newc 2>/dev/null | gzip -1) >initrd
mv initrd "$vm/"
