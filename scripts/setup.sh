#!/usr/bin/env bash
# Installs the Debian packages that a purpose needs and that are missing, and says which.
# Usage: setup.sh build|demo|test|bench|fuzz|profile
set -euo pipefail

purpose=${1:?usage: setup.sh build|demo|test|bench|fuzz|profile}

# COMMAND:PACKAGE for whatever is looked for as a command.
# rustc has a C compiler link; clang compiles XDP programs for the kernel's virtual machine.
build="cc:gcc clang:clang"
# Other people's switches and endpoints.
peers="dpdk-testpmd:dpdk-dev ovsdb-server:openvswitch-switch-dpdk"
# Container engines.
# The last one makes Podman's networks.
engines="dockerd:docker.io podman:podman lxc-start:lxc crun:crun runc:runc /usr/lib/podman/netavark:netavark"
# Reports are looked at in one.
browser="chromium:chromium chromedriver:chromium-driver"
case $purpose in
    build | demo) needs=$build ;;
    test) needs="$build $peers $engines ip:iproute2 c++:g++ ping:iputils-ping tshark:tshark $browser" ;;
    fuzz) needs="$build c++:g++" ;;
    bench) needs="$build $peers ip:iproute2 iperf3:iperf3 sockperf:sockperf jq:jq" ;;
    profile) needs="$build perf:linux-perf" ;;
    *) echo "setup.sh: unknown purpose '$purpose'" >&2 && exit 2 ;;
esac

if ! command -v cargo >/dev/null; then
    echo "dray is built with Rust 1.88 or later, and there is no cargo: see https://rustup.rs" >&2
    exit 1
fi

missing=()
for need in $needs; do
    # Administrators' commands are not on everybody's PATH.
    PATH=$PATH:/usr/sbin:/sbin command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
done
# A compiler alone cannot link: the C library's start files are a package of their own.
if ! command -v cc >/dev/null || [ ! -e "$(cc -print-file-name=Scrt1.o)" ]; then
    missing+=(libc6-dev)
fi
# A Python module, of Debian's own Python.
if [ "$purpose" = test ] && ! /usr/bin/python3 -c 'import scapy.contrib.gtp' 2>/dev/null; then
    missing+=(python3-scapy)
fi
# Go 1.23 or later; Debian 12's own is older.
has_go() { [ "$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')" -ge 23 ] 2>/dev/null; }
if [ "$purpose" = test ] && ! has_go && command -v apt-get >/dev/null; then
    "$(dirname "$0")/install-backport.sh" golang-go
fi
# Elsewhere the tests that need a virtual machine are skipped.
if [ "$purpose" = test ] && [ "$(uname -m)" = x86_64 ] && command -v apt-get >/dev/null; then
    "$(dirname "$0")/setup-vm.sh"
fi
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "please install: ${missing[*]} (Debian's names; there is no apt-get here)" >&2
    exit 1
fi
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "Installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# What is installed here is started by whoever uses it: an engine that came up by itself would change
# the machine's network.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap '$sudo rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
    $sudo chmod 755 $policy
fi
# shellcheck disable=SC2086 # no sudo, no word
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
