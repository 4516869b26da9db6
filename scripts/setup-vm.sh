#!/usr/bin/env bash
# Makes what virtual machines of the lab boot from, in /var/cache/dray/vm: a kernel of Debian's
# with its modules, and the initial file system of scripts/vm-init.sh. The kernel's package is
# unpacked, not installed, so the host boots as before. Installs QEMU where it is missing.
set -euo pipefail

cd "$(dirname "$0")"
init=$PWD/vm-init.sh
cache=/var/cache/dray
vm=$cache/vm
# Its kernel has AF_XDP without copies for virtio-net and igb, which Debian 12's backports lack.
kernel_suite=trixie-backports
export PATH=$PATH:/usr/sbin:/sbin

missing=()
# Debian 12's own is too old.
qemu-system-x86_64 -device help 2>/dev/null | grep '"igb"' >/dev/null || missing+=(qemu-system-x86)
command -v depmod >/dev/null || missing+=(kmod)
have_kernel() { [ "$(cat "$vm/suite" 2>/dev/null)" = "$kernel_suite" ]; }
if [ ${#missing[@]} = 0 ] && have_kernel && [ "$vm/initrd" -nt "$init" ] && [ "$vm/initrd" -nt setup-vm.sh ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    exec sudo ./setup-vm.sh
fi
if [ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ]; then
    echo "setup-vm.sh: the lab's virtual machines need Debian's packages for amd64" >&2
    exit 1
fi

# Debian 12 has a QEMU without the igb card; its backports have one.
[ ${#missing[@]} = 0 ] || ./install-backport.sh "${missing[@]}"

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
work=$(mktemp -d -p "$cache")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"

if ! have_kernel; then
    # The list is for us alone: what the host upgrades from stays as it is.
    mkdir sources
    cp -r /etc/apt/sources.list.d/. sources/
    options=(-qq -o "Dir::Etc::SourceParts=$work/sources" -o APT::Sandbox::User=root)
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$key] http://deb.debian.org/debian $kernel_suite main" >sources/dray.list
    apt-get "${options[@]}" update
    # linux-image-amd64 is empty and depends on the kernel of the day, which is in several packages.
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
    # Later packages have in /usr what those of Debian 12 have in /.
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
    # vm-init.sh loads them in the order of their names.
    "$vm/busybox" xzcat "$file" >"root/modules/$number-$(basename "$file" .xz)"
done
(cd root && find . | "$vm/busybox" cpio -o -H newc 2>/dev/null | gzip -1) >initrd
mv initrd "$vm/"
