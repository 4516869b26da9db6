#!/usr/bin/env bash
# Builds netmap for the lab's virtual machines: its kernel module and its programs, from the source
# that the folder $PEERS has (netmap.tar.xz, or a checkout called netmap; from
# https://github.com/luigirizzo/netmap). Result, with a kernel that netmap supports:
# /var/cache/dray/vm-netmap. Without a source it does nothing.
set -euo pipefail

cd "$(dirname "$0")"
cache=/var/cache/dray
vm=$cache/vm-netmap
# The newest kernel against which netmap builds unchanged.
kernel_suite=bookworm-backports

if [ -f "${PEERS:-}/netmap.tar.xz" ]; then
    unpack() { tar -x -f "$PEERS/netmap.tar.xz" -C "$1"; }
elif [ -d "${PEERS:-}/netmap" ]; then
    unpack() { cp -r "$PEERS/netmap" "$1"; }
else
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    exec sudo PEERS="$PEERS" ./setup-netmap.sh
fi
mkdir -p "$cache"
exec 8>"$cache/netmap.lock"
flock 8
work=$(mktemp -d -p "$cache")
trap 'rm -rf "$work"' EXIT
unpack "$work"
source=$work/netmap
rm -rf "$source/.git"
hash=$(cd "$source" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
if [ "$(cat "$vm/netmap/hash" 2>/dev/null)" = "$hash" ]; then
    ./setup-vm.sh "$vm" "$kernel_suite"
    exit
fi
# Module and kernel must be of the same version, and Debian keeps only the newest.
rm -rf "$vm"
./setup-vm.sh "$vm" "$kernel_suite"
release=$(ls "$vm/lib/modules")
./install-backport.sh "linux-headers-$release" gcc make dwarves libelf-dev bc libc6-dev
echo "Building netmap for Linux $release" >&2
mkdir "$work/build"
(
    cd "$work/build"
    "$source/LINUX/configure" --no-drivers --no-utils --apps=pkt-gen,bridge,vale-ctl \
        --kernel-dir="/usr/src/linux-headers-$release"
    make -j"$(nproc)"
) >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; exit 1; }
mkdir "$work/netmap/result"
for file in netmap.ko pkt-gen bridge vale-ctl; do
    cp "$(find "$work/build" -type f -name "$file" | head -n 1)" "$work/netmap/result/"
done
echo "$hash" >"$work/netmap/result/hash"
mv "$work/netmap/result" "$vm/netmap"
