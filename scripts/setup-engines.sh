#!/usr/bin/env bash
# Unpacks the container engines of Debian 13 for tests: Docker, Podman, containerd, and what they need, in a
# root directory of their own, /var/cache/dray/engines, in which tests start them by chroot. Those that Debian 12
# installs are too old for some interfaces: container devices (CDI) of Docker, plugins of Podman's
# netavark. No package is installed, so nothing starts and the host stays as it is. What is in no package is
# built there with Go, in three to five minutes: crictl, which calls containerd as the kubelet does, containerd 2,
# and the plugins Multus and sriov (the SR-IOV CNI plugin), which give a pod further interfaces and a card's virtual
# functions. Nothing is unpacked or built again.
set -euo pipefail

cd "$(dirname "$0")"
cache=/var/cache/dray
folder=$cache/engines
suite=trixie
packages="base-files busybox-static conmon containerd crun docker-cli docker-compose docker.io iproute2 iptables iputils-ping netavark podman runc"
crictl=v1.34.0
containerd=v2.4.2
multus=gopkg.in/k8snetworkplumbingwg/multus-cni.v4@v4.2.2
# The last version that is a Go module.
sriov=github.com/k8snetworkplumbingwg/sriov-cni@v2.1.0+incompatible
versions="$suite $packages $crictl $containerd $multus $sriov"
# Tests mount memory at /opt, which packages have not contained since base-files 13.8.
[ "$(cat "$folder/versions" 2>/dev/null)" != "$versions" ] || [ ! -d "$folder/opt" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    exec sudo PATH="$PATH" ./setup-engines.sh
fi
mkdir -p "$cache"
exec 8>"$cache/engines.lock"
flock 8
work=$(mktemp -d -p "$cache")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
echo "Unpacking into $folder: $packages" >&2
# Lists and state of its own, as if nothing were installed: all dependencies are downloaded.
mkdir -p "$work/state/lists/partial" "$work/archives/partial" "$work/root"
touch "$work/state/status"
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$key] http://deb.debian.org/debian $suite main" >"$work/sources"
options=(-qq -o "Dir::Etc::SourceList=$work/sources" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State=$work/state" -o "Dir::State::status=$work/state/status"
    -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
# shellcheck disable=SC2086 # a list of words
apt-get "${options[@]}" install -y --download-only --no-install-recommends $packages >/dev/null
# The first one has the links /bin, /lib and so on.
for package in "$work"/archives/base-files_*.deb "$work"/archives/*.deb; do
    dpkg -x "$package" "$work/root"
done
# What scripts of packages would do, as far as it is needed.
mkdir -p "$work/root/opt"
for name in iptables ip6tables; do
    ln -sf xtables-nft-multi "$work/root/usr/sbin/$name"
done
rm -rf "$work"/root/usr/share/{doc,locale,man}
echo "Building crictl $crictl and containerd $containerd" >&2
GOBIN=$work/root/usr/bin go install -ldflags "-s -w" "sigs.k8s.io/cri-tools/cmd/crictl@$crictl"
for program in containerd containerd-shim-runc-v2; do
    GOBIN=$work/root/usr/local/containerd-2 go install -ldflags "-s -w" -tags "no_btrfs no_devmapper no_zfs" \
        "github.com/containerd/containerd/v2/cmd/$program@$containerd"
done
# Builds the program $2 of the module $1, in a copy of its source.
build_plugin() {
    local source
    source=$(cd "$work" && go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
    cp -r "$source" "$work/$2"
    chmod -R u+w "$work/$2"
    if [ ! -e "$work/$2/go.mod" ]; then
        # Versions of its time, where it names none.
        cat >"$work/$2/go.mod" <<END
module github.com/intel/sriov-cni

go 1.21

require (
	github.com/containernetworking/cni v0.6.0
	github.com/containernetworking/plugins v0.7.4
	github.com/coreos/go-iptables v0.8.0
	github.com/vishvananda/netlink v1.1.0
	github.com/vishvananda/netns v0.0.0-20200728191858-db3c7e526aae
	golang.org/x/sys v0.0.0-20200217220822-9197077df867
)
END
    fi
    (cd "$work/$2" && go build -mod=mod -ldflags "-s -w" -o "$work/root/usr/local/cni/$2" "./cmd/$2")
}
echo "Building $multus and $sriov" >&2
build_plugin "$multus" multus
build_plugin "$sriov" sriov
echo "$versions" >"$work/root/versions"
rm -rf "$folder"
mv "$work/root" "$folder"
