#!/usr/bin/env bash
# Installs and lists what is missing for purposes, or for groups of tests.
# Usage: setup.sh PURPOSE|GROUP...
# PURPOSE: build, demo, test, ns-3, release, bench, fuzz or profile.
# GROUP of tests: dpdk, vm, engines, browser, packages, kubernetes, tools, time; `all` of them.
set -euo pipefail

here=$(dirname "$0")
[ $# -gt 0 ] || { sed -n 's/^# Usage: /usage: /p' "$0" >&2 && exit 2; }
[[ " $* " != *" all "* ]] || set -- "$@" dpdk vm engines browser packages kubernetes tools

# COMMAND:PACKAGE pairs for needed commands.
# rustc links with a C compiler; clang compiles XDP programs for the kernel's virtual machine.
needs="cc:gcc clang:clang"
# Third-party switches and endpoints.
peers="dpdk-testpmd:dpdk-dev ovsdb-server:openvswitch-switch-dpdk ip:iproute2 iperf3:iperf3"
# ns-3 (60 MB) is a library.
ns3="cmake:cmake c++:g++ make:make pkg-config:pkg-config /usr/include/ns3/fd-net-device-module.h:libns3-dev"
# dpkg-shlibdeps finds the libraries that a package needs.
packages="dpkg-shlibdeps:dpkg-dev strip:binutils git:git make:make pkg-config:pkg-config"
# Scripts beside this one that prepare what is in no package, with their arguments.
scripts=()
for purpose; do
    case $purpose in
        build | demo | time | all) ;;
        test) needs+=" make:make git:git ip:iproute2 ping:iputils-ping ps:procps curl:curl pkg-config:pkg-config python3:python3 tshark:tshark tcpdump:tcpdump /usr/lib/python3/dist-packages/scapy:python3-scapy" ;;
        ns-3) needs+=" $ns3" ;;
        release) needs+=" $packages" scripts+=("setup-packages.sh tools") ;;
        fuzz) needs+=" c++:g++" ;;
        bench) needs+=" $peers sockperf:sockperf jq:jq" scripts+=(setup-cni.sh) ;;
        profile) needs+=" perf:linux-perf" ;;
        dpdk) needs+=" $peers /usr/include/dpdk/rte_ethdev.h:libdpdk-dev" ;;
        vm)
            needs+=" $peers"
            if [ "$(uname -m)" = x86_64 ]; then
                scripts+=(setup-vm.sh)
                # The newest kernel for which netmap is built unchanged.
                [ -z "${NETMAP:-}" ] || scripts+=("setup-vm.sh /var/cache/dray/vm-netmap bookworm-backports")
            fi
            ;;
        # netavark creates Podman's networks.
        engines) needs+=" $peers dockerd:docker.io podman:podman lxc-start:lxc crun:crun runc:runc /usr/lib/podman/netavark:netavark newuidmap:uidmap" scripts+=(setup-cni.sh setup-engines.sh) ;;
        browser) needs+=" chromium:chromium chromedriver:chromium-driver" ;;
        packages) needs+=" $packages debootstrap:debootstrap lintian:lintian systemd-analyze:systemd" scripts+=("setup-packages.sh systems") ;;
        kubernetes) needs+=" podman:podman crun:crun /usr/lib/podman/netavark:netavark" scripts+=(setup-cni.sh setup-kubernetes.sh) ;;
        tools) needs+=" $ns3 promtool:prometheus iperf3:iperf3 iptables-restore:iptables nft:nftables" scripts+=(go-modules) ;;
        *) echo "setup.sh: unknown purpose or group '$purpose': $here/setup.sh has a list in its first lines" >&2 && exit 2 ;;
    esac
done

if ! command -v cargo >/dev/null; then
    echo "cargo not found: install Rust 1.95 or later from https://rustup.rs" >&2
    exit 1
fi

missing=()
for need in $needs; do
    # sbin folders may be missing in a user's PATH.
    PATH=$PATH:/usr/sbin:/sbin command -v "${need%%:*}" >/dev/null || [ -e "${need%%:*}" ] || missing+=("${need##*:}")
done
# Linking also needs the C library's start files, which are in a separate package.
if ! command -v cc >/dev/null || [ ! -e "$(cc -print-file-name=Scrt1.o)" ]; then
    missing+=(libc6-dev)
fi

install_packages() {
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "apt-get not found; install these Debian packages by other means: ${missing[*]}" >&2
        exit 1
    fi
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    echo "Installing: ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq
    # Do not start installed services: a container engine started at installation would change the
    # machine's network.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        # shellcheck disable=SC2064 # now, as both are local
        trap "$sudo rm -f $policy" EXIT
        printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
        $sudo chmod 755 $policy
    fi
    # shellcheck disable=SC2086 # $sudo may be empty
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
install_packages

# Go 1.23 or later; Debian 12 has an older version.
has_go() { [ "$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')" -ge 23 ] 2>/dev/null; }
if [[ " ${scripts[*]} " =~ \ (setup-cni.sh|setup-engines.sh|go-modules)\  ]] && ! has_go; then
    "$here/install-backport.sh" golang-go
fi
# On other systems, tests that need these are skipped.
command -v apt-get >/dev/null || scripts=()
prepare() {
    case $1 in
        # Tests see no network but their own.
        go-modules) go -C "$here/../dataplane/upf/tests/go-gtp" mod download ;;
        # shellcheck disable=SC2086 # with arguments
        *) "$here"/$1 ;;
    esac
}
# At the same time, since some download and some compile.
jobs=()
while read -r script; do
    [ -n "$script" ] || continue
    prepare "$script" &
    jobs+=($!)
done < <(printf '%s\n' "${scripts[@]}" | sort -u)
for job in "${jobs[@]}"; do wait "$job"; done
