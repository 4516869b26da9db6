#!/usr/bin/env bash
# Builds the boot files of the lab's virtual machines: a Debian kernel with its modules, and an initial
# file system with scripts/vm-init.sh; and finds QEMU. Packages are unpacked, not installed, so the host
# boots as before.
# Usage: setup-vm.sh [FOLDER SUITE]: by default /var/cache/dray/vm, with the newest kernel.
set -euo pipefail

cd "$(dirname "$0")"
init=$PWD/vm-init.sh
cache=/var/cache/dray
vm=${1:-$cache/vm}
qemu=$cache/qemu
# Its kernel supports AF_XDP zero copy for virtio-net and igb; that of Debian 12's backports does not.
kernel_suite=${2:-trixie-backports}
# Its QEMU makes virtual functions of virtio-net cards.
qemu_suite=trixie-backports
export PATH=$PATH:/usr/sbin:/sbin

have_kernel() { [ "$(cat "$vm/suite" 2>/dev/null)" = "$kernel_suite" ]; }
makes_functions() { "$1" -device virtio-net-pci,help 2>/dev/null | grep sriov-pf >/dev/null; }
if command -v depmod >/dev/null && makes_functions "$qemu/qemu-system-x86_64" && have_kernel &&
    [ "$vm/initrd" -nt "$init" ] && [ "$vm/initrd" -nt setup-vm.sh ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    exec sudo ./setup-vm.sh "$@"
fi
if [ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ]; then
    echo "setup-vm.sh: the lab's virtual machines need Debian's packages for amd64" >&2
    exit 1
fi

command -v depmod >/dev/null || ./install-backport.sh kmod

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
work=$(mktemp -d -p "$cache")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"

# Fetches lists of packages from suites of Debian, beside the host's own.
options=(-qq -o APT::Sandbox::User=root -o "Dir::State=$work/state" -o "Dir::Cache=$work/cache"
    -o Dir::Etc::SourceParts=/dev/null -o "Dir::Etc::SourceList=$work/sources.list"
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
    -o "Dir::State::status=$work/status" -o pkgCacheGen::Essential=none)
suites() {
    mkdir -p state/lists/partial cache/archives/partial
    touch status
    local suite
    for suite; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
    done >sources.list
    apt-get "${options[@]}" update
}

if ! makes_functions "$qemu/qemu-system-x86_64"; then
    mkdir new-qemu
    own=$(command -v qemu-system-x86_64 || true)
    if makes_functions "$own"; then
        ln -s "$own" new-qemu/
    else
        # Unpacked with all that it needs: its C library may be newer than the host's.
        suites "${qemu_suite%-backports}" "$qemu_suite"
        echo "Unpacking QEMU into $qemu" >&2
        apt-get "${options[@]}" -y -t "$qemu_suite" --no-install-recommends --download-only install qemu-system-x86 >/dev/null
        for package in cache/archives/*.deb; do
            dpkg -x "$package" new-qemu
        done
        libraries=$qemu/usr/lib/x86_64-linux-gnu
        cat >new-qemu/qemu-system-x86_64 <<END
#!/bin/sh
export QEMU_MODULE_DIR=$libraries/qemu
exec $libraries/ld-linux-x86-64.so.2 --library-path $libraries --argv0 qemu-system-x86_64 \\
    $qemu/usr/bin/qemu-system-x86_64 \\
    -L $qemu/usr/share/qemu -L $qemu/usr/share/seabios -L $qemu/usr/lib/ipxe/qemu "\$@"
END
        chmod 755 new-qemu/qemu-system-x86_64
    fi
    rm -rf "$qemu"
    mv new-qemu "$qemu"
fi

if ! have_kernel; then
    suites "${kernel_suite%-backports}" "$kernel_suite"
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
