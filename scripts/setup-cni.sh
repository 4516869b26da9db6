#!/usr/bin/env bash
# Builds the programs of the Container Network Interface that tests call, at fixed versions, with Go:
# cnitool, which calls plugins as a container runtime does, and plugins: host-local, which manages
# addresses, and two that are chained with ours. Result: /var/cache/dray/cni. Nothing is built again.
set -euo pipefail

cd "$(dirname "$0")"
folder=/var/cache/dray/cni
cnitool=v1.3.1
plugins=v1.9.1
[ "$(cat "$folder/versions" 2>/dev/null)" != "$cnitool $plugins" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    exec sudo PATH="$PATH" ./setup-cni.sh
fi
mkdir -p "$folder"
exec 8>"$folder/lock"
flock 8
echo "Building cnitool $cnitool and CNI plugins $plugins" >&2
export GOBIN=$folder
go install "github.com/containernetworking/cni/cnitool@$cnitool"
for plugin in ipam/host-local main/loopback meta/tuning; do
    go install "github.com/containernetworking/plugins/plugins/$plugin@$plugins"
done
echo "$cnitool $plugins" >"$folder/versions"
