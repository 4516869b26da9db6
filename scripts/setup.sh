#!/usr/bin/env bash
# Installs and lists the missing Debian packages for a purpose.
# Usage: setup.sh build|demo|ns-3|release|test|bench|fuzz|profile
set -euo pipefail

purpose=${1:?usage: setup.sh build|demo|ns-3|release|test|bench|fuzz|profile}

# COMMAND:PACKAGE pairs for needed commands.
# rustc links with a C compiler; clang compiles XDP programs for the kernel's virtual machine.
build="cc:gcc clang:clang"
# Third-party switches and endpoints.
peers="dpdk-testpmd:dpdk-dev ovsdb-server:openvswitch-switch-dpdk"
# Container engines; netavark creates Podman's networks.
engines="dockerd:docker.io podman:podman lxc-start:lxc crun:crun runc:runc /usr/lib/podman/netavark:netavark"
# dpkg-shlibdeps finds the libraries that a package needs.
packages="dpkg-shlibdeps:dpkg-dev strip:binutils git:git"
# Tests open reports in a browser.
browser="chromium:chromium chromedriver:chromium-driver"
case $purpose in
    build | demo) needs=$build ;;
    release) needs="$build make:make $packages" ;;
    test) needs="$build $packages debootstrap:debootstrap lintian:lintian systemd-analyze:systemd cmake:cmake $peers $engines ip:iproute2 c++:g++ make:make pkg-config:pkg-config ping:iputils-ping iperf3:iperf3 tshark:tshark tcpdump:tcpdump newuidmap:uidmap promtool:prometheus $browser" ;;
    ns-3) needs="$build cmake:cmake c++:g++ make:make pkg-config:pkg-config" ;;
    fuzz) needs="$build c++:g++" ;;
    bench) needs="$build $peers ip:iproute2 iperf3:iperf3 sockperf:sockperf jq:jq" ;;
    profile) needs="$build perf:linux-perf" ;;
    *) echo "setup.sh: unknown purpose '$purpose': give build, demo, ns-3, release, test, bench, fuzz or profile" >&2 && exit 2 ;;
esac

if ! command -v cargo >/dev/null; then
    echo "cargo not found: install Rust 1.88 or later from https://rustup.rs" >&2
    exit 1
fi

missing=()
for need in $needs; do
    # sbin folders may be missing in a user's PATH.
    PATH=$PATH:/usr/sbin:/sbin command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
done
# Linking also needs the C library's start files, which are in a separate package.
if ! command -v cc >/dev/null || [ ! -e "$(cc -print-file-name=Scrt1.o)" ]; then
    missing+=(libc6-dev)
fi
# ns-3 (60 MB) is a library.
if [[ $purpose =~ ^(ns-3|test)$ ]] && [ ! -e /usr/include/ns3/fd-net-device-module.h ]; then
    missing+=(libns3-dev)
fi
# A module for Debian's Python.
if [ "$purpose" = test ] && ! /usr/bin/python3 -c 'import scapy.contrib.gtp' 2>/dev/null; then
    missing+=(python3-scapy)
fi
# Go 1.23 or later; Debian 12 has an older version.
has_go() { [ "$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')" -ge 23 ] 2>/dev/null; }
if [[ $purpose = test || $purpose = bench ]] && ! has_go && command -v apt-get >/dev/null; then
    "$(dirname "$0")/install-backport.sh" golang-go
fi
if [[ $purpose = test || $purpose = bench ]] && has_go; then
    "$(dirname "$0")/setup-cni.sh"
fi
if [ "$purpose" = test ] && has_go; then
    # Tests see no network but their own.
    go -C "$(dirname "$0")/../dataplane/upf/tests/go-gtp" mod download
    ! command -v apt-get >/dev/null || "$(dirname "$0")/setup-engines.sh"
fi
if [ "$purpose" = test ] && command -v python3 >/dev/null; then
    "$(dirname "$0")/setup-kubernetes.sh"
fi
# On other machines, tests that need a virtual machine are skipped.
if [ "$purpose" = test ] && [ "$(uname -m)" = x86_64 ] && command -v apt-get >/dev/null; then
    "$(dirname "$0")/setup-vm.sh"
    "$(dirname "$0")/setup-netmap.sh"
fi
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "apt-get not found; install these Debian packages by other means: ${missing[*]}" >&2
    exit 1
fi
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "Installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# Do not start installed services: a container engine started at installation would change the
# machine's network.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap '$sudo rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
    $sudo chmod 755 $policy
fi
# shellcheck disable=SC2086 # $sudo may be empty
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
