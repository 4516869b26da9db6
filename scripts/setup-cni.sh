#!/usr/bin/env bash
# Builds the programs of the Container Network Interface that tests and benchmarks call, at fixed
# versions, with Go: cnitool, which calls plugins as a container runtime does, and plugins: host-local,
# which manages addresses, two that are chained with ours, and bridge, beside which ours is measured.
# Result: /var/cache/dray/cni. Nothing is built again.
set -euo pipefail

cd "$(dirname "$0")"
folder=/var/cache/dray/cni
cnitool=v1.3.1
version=v1.9.1
plugins='ipam/host-local main/bridge main/loopback meta/tuning'
[ "$(cat "$folder/versions" 2>/dev/null)" != "$cnitool $version $plugins" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    exec sudo PATH="$PATH" ./setup-cni.sh
fi
mkdir -p "$folder"
exec 8>"$folder/lock"
flock 8
echo "Building cnitool $cnitool and CNI plugins $version" >&2
export GOBIN=$folder
go install "github.com/containernetworking/cni/cnitool@$cnitool"
for plugin in $plugins; do
    go install "github.com/containernetworking/plugins/plugins/$plugin@$version"
done
echo "$cnitool $version $plugins" >"$folder/versions"
